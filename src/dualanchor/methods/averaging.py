"""Averaging as a wrapper: the mean of the iterates of any method."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Session
from dualanchor.core.problem import Constants
from dualanchor.core.types import Array
from dualanchor.methods.averaged import check_weights, share

_PREFIX = "inner_"


class Unlisted:
    """A method around another one has a name for its results, but none by which it could be made."""

    id: ClassVar[str] = "averaged-iterates"
    title: ClassVar[str] = "The mean of the iterates of another method"
    citation: ClassVar[str] = "polyak-juditsky"
    compared: ClassVar[bool] = False


@dataclass(frozen=True)
class Averaged(Unlisted, Method):
    r"""The mean of the iterates of another method.

    The other method runs as it would by itself, with the same samples; what is returned is the mean of the points that
    it would have returned after 1, 2, .. steps.

    Update
    ------
    .. math:: x_n = \frac{\sum_{k=1}^n w_k y_k}{\sum_{k=1}^n w_k}, \qquad w_k = k \ \text{or}\ 1

    with :math:`y_k` the iterates of `method` and :math:`w_k` by `weights`.

    Guarantee
    ---------
    None known in general: experimental. For plain steps see `AveragedSGDA`.

    Cost
    ----
    That of `method`.

    Parameters
    ----------
    method : Method
        What is averaged.
    weights : "linear" or "uniform"
        Whether iterate k has weight k or all have the same.

    Notes
    -----
    Horizon, coins, costs and demands on the oracle are those of `method`; its state is kept under names that begin with
    "inner\_".

    References
    ----------
    Polyak and Juditsky 1992.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=1.0)
    >>> plain = da.solve(problem, da.SEG(0.3), budget=4000)
    >>> mean = da.solve(problem, da.averaged(da.SEG(0.3)), budget=4000)
    >>> mean.nfev == plain.nfev, bool(mean.residual < plain.residual / 3)
    (True, True)
    """

    method: Method
    weights: str = "linear"

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise ArgumentTypeError(
                "averaged: method must be a Method", repr(self.method), "Use averaged(SEG(step_size=0.1))"
            )
        check_weights(self.weights, "averaged")

    def init(self, x0: Array) -> State:
        inner = self.method.init(x0)
        return State(x=arrays.copy(x0), **{_PREFIX + name: value for name, value in vars(inner).items()})

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        inner = _inner(s)
        self.method.step(k, inner, F, coin)
        for name, value in vars(inner).items():  # a method may put a new array in the place of an old one
            setattr(s, _PREFIX + name, value)
        s.x += share(k + 1, self.weights) * (inner.x - s.x)

    # -- all else is the method's own ------------------------------------------------------------------------

    @property
    def step_size(self) -> Any:
        """The step size of the method."""
        return self.method.step_size

    @property
    def horizon(self) -> Any:
        """The horizon of the method."""
        return self.method.horizon

    @property
    def steps(self) -> int | None:
        """The steps of the method."""
        return self.method.steps

    @property
    def needs(self) -> frozenset[str]:
        return self.method.needs

    def probability(self, k: Any) -> Any:
        return self.method.probability(k)

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return self.method.cost(k, None if s is None else _inner(s), coin)

    def check_rounds(self, rounds: int | None) -> None:
        self.method.check_rounds(rounds)

    def check(self, constants: Constants) -> None:
        self.method.check(constants)

    def check_oracle(self, replayable: bool, components: int | None) -> None:
        self.method.check_oracle(replayable, components)

    def parameters(self) -> dict[str, Any]:
        return {"method": type(self.method).id, **self.method.parameters(), "weights": self.weights}

    def with_changes(self, **changes: Any) -> Self:
        own = {name: changes.pop(name) for name in [field.name for field in fields(self)] if name in changes}
        own.setdefault("method", self.method)
        return type(self)(**{"weights": self.weights, **own, "method": own["method"].with_changes(**changes)})


def averaged(method: Method, weights: str = "linear") -> Averaged:
    """The mean of the iterates of any method, as a method: `averaged(SEG(0.1))`.

    Parameters
    ----------
    method : Method
        What is averaged.
    weights : "linear" or "uniform"
        Whether iterate k has weight k or all have the same.
    """
    return Averaged(method, weights)


def _inner(s: State) -> State:
    """The state of the method inside; the same arrays."""
    return State(**{name[len(_PREFIX) :]: value for name, value in vars(s).items() if name.startswith(_PREFIX)})
