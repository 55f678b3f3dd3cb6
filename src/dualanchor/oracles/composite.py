"""A constrained problem is an oracle: the backward-forward operator of an inclusion 0 in F(x) + G(x)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from math import sqrt
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.oracle import Batch, Oracle, Session
from dualanchor.core.problem import Constants, Instance, Problem
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, Rows
from dualanchor.oracles.each_row import require_callable

_SHORT = 1e-8  # of the step: a resolvent with so short a step is the projection onto the domain of G, nearly
_OWN = 1 << 40  # where the first batch stands in the stream of starts, far from what a problem draws its x0 from


class Composite(Oracle):
    r"""The inclusion :math:`0 \in F(x) + G(x)` as a root-finding problem in :math:`z`.

    .. math:: \tilde F_B(z) = \frac{z - Jz}{\alpha} + F_B(Jz), \qquad J = (I + \alpha G)^{-1}.

    F is sampled only at :math:`x = Jz`, in the domain of G; batches and noise are those of the oracle within. If F is
    1/L-cocoercive in expectation there and :math:`\alpha \le 2/L`, then :math:`\tilde F` is so with :math:`2/\alpha`
    for L: a method may take steps up to :math:`\alpha`. It vanishes at :math:`z_\star = x_\star - \alpha F(x_\star)`.
    Elsewhere :math:`\tilde F(z) = F(x) + g` with :math:`g = (z - x)/\alpha \in G(x)`: the KKT residual. A certificate
    of this oracle at z is one of :math:`\|F(x) + g\|`. The answer is x, not z.

    Parameters
    ----------
    oracle : Oracle
        Samples of F.
    prox : callable
        `prox(z, step)`, :math:`J` for all rows of z, (rows, d); those of `dualanchor.prox`, or any other.
    step_size : float
        :math:`\alpha`, at most 2/L.

    Notes
    -----
    A penalty or constraint is a convex function's subdifferential, but G may be any maximal monotone operator, such as
    a skew matrix K with :math:`J = (I + \alpha K)^{-1}`.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> from dualanchor.oracles.composite import Composite
    >>> F = da.AdditiveNoise(lambda x: x - np.array([2.0, 0.5]), sigma=0.1)
    >>> constrained = Composite(F, da.prox.box(0, 1), step_size=1.0)
    >>> z = np.array([[2.0, 0.5]])
    >>> constrained.primal(z), constrained.operator(z)
    (array([[1. , 0.5]]), array([[0., 0.]]))
    """

    def __new__(cls, oracle: Any = None, *others: Any, **named: Any) -> Any:
        # A run tells by the class whether residuals are known. A copy comes without arguments and keeps its class.
        unknown = cls is Composite and isinstance(oracle, Oracle) and type(oracle).operator is Oracle.operator
        return super().__new__(_OfUnknown if unknown else cls)

    def __init__(self, oracle: Oracle, prox: Callable[[Array, Any], Any], step_size: float) -> None:
        if not isinstance(oracle, Oracle):
            raise ArgumentTypeError(
                "Composite: oracle must be an Oracle",
                type(oracle).__name__,
                "Wrap a function in Sampler, AdditiveNoise or FiniteSum",
            )
        require_callable(prox, "Composite: prox", "prox(z, step)")
        self.step_size = _require_step(step_size, "Composite")
        self._inner, self._prox = oracle, prox
        self.replayable, self.components = oracle.replayable, oracle.components
        self.operator_price, self.mixed_sizes = oracle.operator_price, oracle.mixed_sizes
        self.dimension = oracle.dimension
        self.rowwise = oracle.rowwise and getattr(prox, "rowwise", False)

    def draw(self, streams: Streams, size: Any) -> Batch:
        return self._inner.draw(streams, size)

    def mean(self, z: Array, batch: Batch) -> Array:
        x = self.primal(z)
        return (z - x) / self.step_size + self._inner.mean(x, batch)

    def operator(self, z: Array) -> Array | None:
        x = self.primal(z)
        F = self._inner.operator(x)
        return None if F is None else (z - x) / self.step_size + F

    def primal(self, z: Array) -> Array:
        """The point x = J(z) that z stands for, for each row."""
        x = self._prox(z, self.step_size)
        if getattr(x, "shape", None) != z.shape:
            raise OracleError(
                "The prox must return points with the shape of z, one row per point",
                f"shape {getattr(x, 'shape', None)} for z of shape {z.shape}",
                "Wrap a function of one point in dualanchor.prox.from_function",
            )
        if not arrays.alike(x, z):
            raise OracleError(
                "The prox must return an array of the library of z",
                f"{type(x).__name__} for z of type {type(z).__name__}",
                "Compute with that library",
            )
        return x

    def start(self, x0: Array, streams: Streams, first_batch: int) -> Array:
        r"""The start :math:`z_0 = x_0 - \alpha F_{B_0}(x_0)` for each row, with a batch of its own.

        A point outside of the domain of G is first moved to the nearest one within. `first_batch` samples are drawn
        from the streams and evaluated; they are not in any run's counts. Then :math:`\mathbb E\|z_0 - z_\star\|^2 \le
        \|x_0 - x_\star\|^2 + \alpha^2\sigma^2/B_0`, while :math:`z_0 = x_0` could be far away: F does not vanish at a
        constrained solution.
        """
        x = self._prox(x0, _SHORT * self.step_size)
        F = Session(self._inner, streams)
        return x - self.step_size * F(x, F.draw(first_batch))

    def full_batch(self) -> Batch:
        return self._inner.full_batch()

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        answer = self._inner.is_replayable(self.primal(x), streams)
        self.replayable = self._inner.replayable
        return answer

    def describe(self) -> dict[str, Any]:
        known = getattr(self._prox, "describe", None)
        prox = known() if known else getattr(self._prox, "__qualname__", type(self._prox).__name__)
        return {"type": "Composite", "oracle": self._inner.describe(), "prox": prox, "step_size": self.step_size}

    def take(self, rows: Rows) -> Self:
        inner = self._inner.take(rows)
        if inner is self._inner:
            return self
        part = copy(self)
        part._inner = inner
        return part


class _OfUnknown(Composite):
    """The composite of an oracle that can only be sampled."""

    operator = Oracle.operator  # type: ignore[assignment]


class CompositeProblem(Problem):
    r"""The inclusion :math:`0 \in F(x) + G(x)` for the F of another problem, to be solved for z.

    The start is :math:`z_0 = x_0 - \alpha F_{B_0}(x_0)`, drawn anew for each replication from streams of its own; its
    `first_batch` samples come on top of what a run counts. `primal(result.x)` is the answer.

    Parameters
    ----------
    problem : Problem
        Oracle, start and constants of F; its constants need to hold on the domain of G only, and its D is the distance
        from x0 to a solution of the inclusion.
    prox : callable
        `prox(z, step)`, the resolvent of G.
    step_size : float, optional
        :math:`\alpha`; 2/L if left out.
    first_batch : int
        B_0.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> from dualanchor.oracles.composite import CompositeProblem
    >>> F = da.Problem(da.AdditiveNoise(lambda x: x - 2.0, 0.1), np.zeros(3), constants=da.Constants(L=1.0, sigma=0.1))
    >>> problem = CompositeProblem(F, da.prox.box(0, 1), first_batch=10)
    >>> result = da.solve(problem, da.DualOHM(problem.step_size, horizon=20, batch_size=100))
    >>> problem.primal(result.x)
    array([1., 1., 1.])
    """

    def __init__(
        self,
        problem: Problem,
        prox: Callable[[Array, Any], Any],
        step_size: float | None = None,
        *,
        first_batch: int = 1,
    ) -> None:
        if not isinstance(problem, Problem):
            raise ArgumentTypeError(
                "CompositeProblem: problem must be a Problem", type(problem).__name__, "Use Problem(oracle, x0)"
            )
        require_callable(prox, "CompositeProblem: prox", "prox(z, step)")
        if step_size is None and (L := problem.constants.L) is not None:
            step_size = 2 / L
        if step_size is None:
            raise ArgumentError(
                "CompositeProblem: step_size must be given where L is not known",
                f"problem {problem.name!r} without L",
                "Pass step_size, or a problem with Constants(L=...)",
            )
        self._composite_step = _require_step(
            2 / L if step_size is None and L is not None else step_size, "CompositeProblem"
        )
        if isinstance(first_batch, bool) or not isinstance(first_batch, (int, np.integer)) or first_batch < 1:
            raise ArgumentError(
                "CompositeProblem: first_batch must be an int >= 1", repr(first_batch), "Use a number of samples"
            )
        self._problem, self._prox, self.first_batch = problem, prox, int(first_batch)

    @property
    def name(self) -> str:
        return self._problem.name

    @property
    def dimension(self) -> int:
        return self._problem.dimension

    @property
    def components(self) -> int | None:
        return self._problem.components

    @property
    def step_size(self) -> float:
        """The alpha of the resolvent, which is also the longest step that a method may take."""
        return self._composite_step

    @property
    def constants(self) -> Constants:
        return composite_constants(self._problem.constants, self.step_size, self.first_batch)

    def instance(self, streams: Streams) -> Instance:
        inner = self._problem.instance(streams)
        oracle = Composite(inner.oracle, self._prox, self.step_size)
        x0 = inner.x0
        first = Streams(streams.seed, streams.replications, Purpose.START, x0.shape[1], x0.dtype)
        first.position = _OWN
        return Instance(oracle, oracle.start(x0, first, self.first_batch), None)

    def primal(self, z: Any) -> Array:
        """The points x = J(z) that points z of shape (..., d) stand for."""
        z = z if arrays.is_foreign(z) else np.asarray(z)
        return self._prox(z.reshape(-1, z.shape[-1]), self.step_size).reshape(z.shape)

    def describe(self) -> dict[str, Any]:
        known = getattr(self._prox, "describe", None)
        prox = known() if known else getattr(self._prox, "__qualname__", type(self._prox).__name__)
        facts = {"prox": prox, "alpha": self.step_size, "first_batch": self.first_batch}
        return {**self._problem.describe(), **facts}


def composite_constants(constants: Constants, step_size: float, first_batch: float = np.inf) -> Constants:
    r"""What is known of :math:`\tilde F` and of the start :math:`z_0` where so much is known of F and of x_0.

    L = M = :math:`2/\alpha`; sigma as it is; :math:`D^2 + \alpha^2\sigma^2/B_0` for :math:`D^2`; and for mu the strong
    monotonicity that is left, :math:`(1 + \alpha\mu - \sqrt{1 + \alpha^2\mu^2})/(2\alpha)`, between
    :math:`0.19\mu` and :math:`0.5\mu`. Restarts need less than strong monotonicity and may use the larger
    `theory.bounds.composite_modulus`.

    Notes
    -----
    Strong monotonicity. For two points z let u and w be the differences of Jz and of z - Jz, and
    :math:`p = \langle \Delta F, u\rangle`; then :math:`\langle u, w\rangle \ge 0`, :math:`p \ge \mu\|u\|^2` and
    :math:`\|\Delta F\|^2 \le 2p/\alpha`. For :math:`m \le 1/(2\alpha)`

    .. math:: \langle \Delta\tilde F, \Delta z\rangle - m\|\Delta z\|^2 \ge
        \bigl(\tfrac1\alpha - m\bigr)\|w\|^2 - \|w\|\sqrt{2p/\alpha} + p\bigl(1 - \tfrac m\mu\bigr),

    which is not negative for any :math:`\|w\|` if :math:`2(1 - \alpha m)(1 - m/\mu) \ge 1`; the m above is the largest.
    """
    a, mu, D, sigma = step_size, constants.mu, constants.D, constants.sigma
    away = None
    if D is not None and (sigma is not None or np.isinf(first_batch)):
        away = sqrt(D**2 + (a * (sigma or 0.0)) ** 2 / first_batch)
    left = (1 + a * mu - sqrt(1 + (a * mu) ** 2)) / (2 * a)
    return Constants(L=2 / a, mu=left, M=2 / a, sigma=sigma, D=away)


def _require_step(step_size: Any, owner: str) -> float:
    step = np.asarray(step_size)
    if step.ndim or step.dtype.kind not in "fiu":
        raise ArgumentTypeError(f"{owner}: step_size must be a number", repr(step_size), "Use a positive number")
    if not (np.isfinite(step) and step > 0):
        raise ArgumentError(f"{owner}: step_size must be positive and finite", step_size, "Use 2/L or less")
    return float(step)
