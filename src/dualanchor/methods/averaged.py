"""Averaging: the mean of the iterates of plain steps, or of any method."""

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Self

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session
from dualanchor.core.staged import Staged
from dualanchor.core.types import Array
from dualanchor.methods.sgda import SGDA

WEIGHTS = ("linear", "uniform")
_PREFIX = "inner_"


def share(k: int, weights: str) -> float:
    """The weight of the newest of k iterates in their mean: 2/(k+1) if they weigh 1, 2, .., k, and 1/k if equally."""
    return 2 / (k + 1) if weights == "linear" else 1 / k


@dataclass(frozen=True)
class AveragedSGDA(SGDA):
    r"""Averaged stochastic gradient descent-ascent, at its best on operators that are nearly affine.

    Plain steps; the mean of all iterates is returned. Anytime. Curvature biases the mean, and `DualOHM` is better.
    Polyak and Juditsky 1992; Bach and Moulines 2013.

    .. math:: y_{k+1} = y_k - \alpha F_{B_k}(y_k), \qquad
        x_n = \frac{\sum_{k=1}^n w_k y_k}{\sum_{k=1}^n w_k}, \qquad w_k = k \ \text{or}\ 1

    Guarantee for affine F, :math:`0 < \alpha \le 2/L`, Assumption 3.1, batches of size B, every n:
    :math:`\mathbb E \|F(x_n)\|^2 \le 16D^2/(\alpha^2 n^2) + 16\sigma^2/(nB)`, with equal weights 4 and 4. Not in the
    paper. None known for other F.

    Parameters
    ----------
    step_size, batch_size : as for `SGDA`
    weights : "linear", :math:`w_k = k`, which forgets the start sooner, or "uniform", 1

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=1.0), "averaged", budget=5000)
    >>> bool(result.residual < 0.1)
    True
    """

    weights: str = "linear"

    id = "averaged"
    title = "Averaged SGDA, the mean of plain iterates"
    citation = "polyak-juditsky"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.choice(self.weights, f"{type(self).__name__}: weights", WEIGHTS)

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), y=arrays.copy(x0))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        self.update_rows(k, s, self.estimator_in_use.estimate(k, State(x=s.y), F, None, None))

    def update(self, k: int, s: State, G: Array) -> None:
        s.y -= self.step_size * G
        s.x += share(k + 1, self.weights) * (s.y - s.x)


@dataclass(frozen=True)
class Averaged(Method):
    r"""The mean of the iterates of another method, made by `averaged`; its own state has the prefix "inner\_"."""

    method: Method
    weights: str = "linear"

    id = "averaged-iterates"
    title = "The mean of the iterates of another method"
    citation = "polyak-juditsky"
    listed = compared = False

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method) or isinstance(self.method, Staged):
            rule = "averaged: method must be a Method without stages"
            raise ArgumentTypeError(rule, repr(self.method), "Use averaged(SEG(step_size=0.1))")
        check.choice(self.weights, "averaged: weights", WEIGHTS)

    def init(self, x0: Array) -> State:
        inner = self.method.init(x0)
        return State(x=arrays.copy(x0), **{_PREFIX + name: value for name, value in vars(inner).items()})

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        inner = _inner(s)
        self.method.step(k, inner, F, coin)
        for name, value in vars(inner).items():  # a method may replace its arrays
            setattr(s, _PREFIX + name, value)
        s.x += share(k + 1, self.weights) * (getattr(inner, self.method.mean_of) - s.x)

    # -- everything else is delegated to the method ----------------------------------------------------------

    step_size = property(attrgetter("method.step_size"))
    horizon = property(attrgetter("method.horizon"))
    steps = property(attrgetter("method.steps"))
    needs = property(attrgetter("method.needs"))
    probability = property(attrgetter("method.probability"))
    check_rounds = property(attrgetter("method.check_rounds"))
    check = property(attrgetter("method.check"))
    check_oracle = property(attrgetter("method.check_oracle"))

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return self.method.cost(k, None if s is None else _inner(s), coin)

    def parameters(self) -> dict[str, Any]:
        return {"method": type(self.method).id, **self.method.parameters(), "weights": self.weights}

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        return {}

    def with_changes(self, **changes: Any) -> Self:
        own = {field.name: changes.pop(field.name, getattr(self, field.name)) for field in fields(self)}
        return type(self)(**{**own, "method": own["method"].with_changes(**changes)})


def averaged(method: Method, weights: str = "linear") -> Averaged:
    r"""The mean of the iterates of any method, as a method.

    The other method runs as it would by itself; none of its guarantees is known to hold for the mean. Of `SEG` it is
    the mean of the half-steps, for which there is a theorem where F is affine and the weights are uniform.

    Parameters
    ----------
    method : Method without stages
    weights : "linear", iterate k has weight k, or "uniform"

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=1.0), da.averaged(da.SEG(0.3)), budget=4000)
    >>> bool(result.residual < 0.1)
    True
    """
    return Averaged(method, weights)


def _inner(s: State) -> State:
    """The state of the averaged method; the same arrays."""
    return State(**{name[len(_PREFIX) :]: value for name, value in vars(s).items() if name.startswith(_PREFIX)})
