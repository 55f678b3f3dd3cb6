"""The untuned default: average, estimate the residual at the mean, and continue with what that suggests."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Tapered
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.types import Array, IntArray
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.schedules import Setting, tapered_at

SHORT = 200  # rounds below which there is nothing to decide
LONG = 10_000  # rounds above which samples are taken several at a time
CAUTION = 1.5  # steps are at most this times distance travelled / root of the sum of squares seen
_OFTEN, _SELDOM = 32, 16  # the step is updated in each of the first rounds, then in every sixteenth

AVERAGE, ESTIMATE, CONTINUE, RESTART, DUAL, LAST, MEAN, ITERATE = range(8)
"""The stages: a first average, the residual at its mean; then continuing it, or a new average, or Dual-OHM; then
the rest of the average, or the residuals at the mean and at the last iterate, of which the better is returned."""


@dataclass(frozen=True)
class CautiousAverage(Method):
    r"""Steps :math:`y \leftarrow y - a\,g` with the mean :math:`x = \sum k\,y_k / \sum k` and a cautious step a.

    State: x, y, the start, the weighted mean g of the samples, `spread` :math:`\sum w^2\|g\|^2` with the same weights,
    `squares` :math:`\sum \|g\|^2`, and `away`, the largest distance from the start. `offset` counts earlier rounds.
    """

    step_size: Any
    samples_per_round: int = 1
    offset: int = 0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(self.samples_per_round, self.samples_per_round)

    def init(self, x0: Array) -> State:
        vectors = {name: arrays.copy(x0) for name in ("x", "y", "start")}
        numbers = {name: arrays.zeros_like(x0[:, 0]) for name in ("spread", "squares", "away")}
        return State(**vectors, **numbers, g=arrays.zeros_like(x0), step=arrays.zeros_like(x0[:, :1]))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        n = k + self.offset + 1
        G = F.fresh(s.y, self.samples_per_round)
        square, w = arrays.row_squares(G), 2 / (n + 1)
        s.x += w * (s.y - s.x)
        s.g += w * (G - s.g)
        s.spread = (1 - w) ** 2 * s.spread + w**2 * square
        s.squares = s.squares + square
        if n <= _OFTEN or n % _SELDOM == 0:
            self._set_step(s)
        s.y -= s.step * G

    def _set_step(self, s: State) -> None:
        """The smaller of `step_size` and CAUTION r / sqrt(squares), r the largest distance from the start so far."""
        xp = arrays.namespace(s.x)
        s.away = xp.maximum(s.away, xp.sqrt(arrays.row_squares(s.y - s.start)))
        cautious = CAUTION * s.away / xp.sqrt(s.squares + _least(s.x.dtype))
        s.step = xp.where((s.away > 0) & (cautious < self.step_size), cautious, self.step_size + 0 * cautious)[:, None]


@dataclass(frozen=True)
class ResidualEstimate(Method):
    """Samples at one point, which stays: their mean and `scatter`, the sum of squared distances from it."""

    step_size: Any = 1.0
    samples_per_round: int = 1

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(self.samples_per_round, self.samples_per_round)

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), mean=arrays.zeros_like(x0), scatter=arrays.zeros_like(x0[:, 0]))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        change = F.fresh(s.x, self.samples_per_round) - s.mean
        s.mean += change / (k + 1)
        s.scatter = s.scatter + (1 - 1 / (k + 1)) * arrays.row_squares(change)


def _squared_residual(s: State, rounds: int) -> tuple[Array, Array]:
    """The squared residual at the point of a ResidualEstimate, without bias, and the variance of one round."""
    variance = s.scatter / max(1, rounds - 1)
    return arrays.row_squares(s.mean) - variance / max(1, rounds), variance


@dataclass(frozen=True)
class Auto(Staged):
    r"""Averaging with a cautious step, and Dual-OHM where averaging is seen to be biased. Needs only L.

    A heuristic: on the paper's panels it ends, untuned, below every tuned baseline. Weak where L is far too large.
    Steps as in Ivgi, Hinder and Carmon 2023, averages as in Polyak and Juditsky 1992.

    In Q = `rounds` rounds, each the mean of `samples_per_round` samples at one point; if Q < 200 only the first item:

    1. Q/8 rounds of :math:`y \leftarrow y - a\,g` with the mean :math:`\bar x = \sum k\,y_k / \sum k`, where
       :math:`a = \min\{\alpha, 1.5\,r/\sqrt{\sum\|g\|^2}\}`, r the largest distance from the start so far.
    2. Q/20 rounds at :math:`\bar x` for its squared residual :math:`\rho^2` and the variance :math:`s^2` of a sample.
    3. If :math:`\rho^2 > s^2`, restart averaging from :math:`\bar x`. Else, if :math:`\rho^2 > 3(\|\sum w g\|^2 +
       \sum w^2\|g\|^2)`, more than an affine operator allows, Dual-OHM from :math:`\bar x` with tapered batches to the
       end, N = a tenth of what is left. Else continue averaging.
    4. After a fresh start, or if :math:`\|\sum w g\|^2 > 3 \sum w^2\|g\|^2` (the mean still drifts), the last Q/20
       rounds choose the better of mean and last iterate.

    Guarantee: none, by design; see the certificate of the result, or use `dual-ohm`.

    Parameters
    ----------
    step_size : float, the largest step :math:`\alpha`; 1/L by name
    rounds : int
    samples_per_round : int; by name as many as keep the rounds near 10,000

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), "auto", budget=2000)
    >>> int(result.nfev), bool(result.residual < 0.02)
    (2000, True)
    """

    step_size: Any
    rounds: Any
    samples_per_round: Any = 1

    id = "auto"
    title = "auto, the untuned default: averaging, or Dual-OHM where that is biased"
    citation = "dualanchor"
    anytime = False
    counts = ("rounds", "samples_per_round")

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        L = problem.constants.L
        several = given.get("samples_per_round") or max(1, (budget or 0) // LONG)
        rounds = {} if budget is None else {"rounds": max(1, budget // several)}
        return {"step_size": problem.step_size if L is None else 1 / L, "samples_per_round": several, **rounds}

    @cached_property
    def horizon(self) -> int:
        """One more than the rounds."""
        return int(self.rounds) + 1

    @cached_property
    def lengths(self) -> dict[int, int]:
        """Rounds of each stage; short runs have one stage only."""
        Q = int(self.rounds)
        if Q < SHORT:
            return {AVERAGE: Q}
        first, estimate, half = Q // 8, Q // 20, Q // 20 - Q // 40
        middle = Q - first - 2 * estimate
        return {
            AVERAGE: first, ESTIMATE: estimate, CONTINUE: middle, RESTART: middle, DUAL: middle + estimate,
            LAST: estimate, MEAN: half, ITERATE: estimate - half,
        }  # fmt: skip

    def begin(self, x0: Array) -> State:
        s = self._average(0).init(x0)
        return State(**vars(s), score=arrays.zeros_like(s.spread))

    def stage(self, number: int, memory: State) -> Stage:
        rounds = self.lengths[number]
        if number in (ESTIMATE, MEAN, ITERATE):
            estimate = ResidualEstimate(1.0, self.samples_per_round)
            return Stage(estimate, estimate.init(memory.y if number == ITERATE else memory.x), rounds)
        if number == DUAL:
            dual = self._dual()
            return Stage(dual, dual.init(memory.x), dual.horizon - 1)
        if number in (AVERAGE, RESTART):
            method = self._average(0)
            return Stage(method, method.init(memory.x), rounds)
        before = (AVERAGE,) if number == CONTINUE else (AVERAGE, CONTINUE)
        names = vars(self._average(0).init(memory.x))
        state = State(**{name: arrays.copy(getattr(memory, name)) for name in names})
        return Stage(self._average(sum(self.lengths[stage] for stage in before)), state, rounds)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        if number in (AVERAGE, CONTINUE, RESTART, LAST):
            vars(memory).update(vars(s))
        if number == AVERAGE:
            return self._all(s, ESTIMATE if ESTIMATE in self.lengths else END)
        if number == ESTIMATE:
            return self._after_estimate(memory, s)
        if number == CONTINUE:
            drifts = arrays.to_host(arrays.row_squares(memory.g) > 3 * memory.spread)
            return np.where(drifts, MEAN, LAST)
        if number == RESTART:
            return self._all(s, MEAN)
        if number == MEAN:
            memory.score = _squared_residual(s, self.lengths[MEAN])[0]
            return self._all(s, ITERATE)
        if number == ITERATE:
            better = np.flatnonzero(arrays.to_host(_squared_residual(s, self.lengths[ITERATE])[0] < memory.score))
            memory.x = arrays.put(memory.x, better, memory.y[better])
        elif number == DUAL:
            memory.x = s.x
        return self._all(s, END)

    def point(self, number: int, memory: State, s: State) -> Array:
        return memory.x if number in (ESTIMATE, MEAN, ITERATE) else s.x

    def _after_estimate(self, memory: State, s: State) -> IntArray:
        residual, variance = _squared_residual(s, self.lengths[ESTIMATE])
        allowed = 3 * (arrays.row_squares(memory.g) + memory.spread)  # what an affine operator allows
        above, biased = arrays.to_host(residual > variance), arrays.to_host(residual > allowed)
        return np.where(above, RESTART, np.where(biased, DUAL, CONTINUE))

    def _average(self, offset: int) -> CautiousAverage:
        return CautiousAverage(self.step_size, int(self.samples_per_round), offset)

    def _dual(self) -> DualOHM:
        """Dual-OHM for the rest of the rounds, N a tenth of them, with tapered batches that take all of them."""
        rounds = self.lengths[DUAL]
        N = max(2, rounds // 10)
        sizes = Tapered(tapered_at(N, rounds, Setting(1.0, 1.0, 1.0)).C).size(np.arange(N - 1), N)
        sizes[-1] += rounds - int(sizes.sum())
        return DualOHM(self.step_size, N, (int(self.samples_per_round) * sizes).tolist())

    @staticmethod
    def _all(s: State, number: int) -> IntArray:
        return np.full(len(s.x), number)


@cache
def _least(dtype: Any) -> float:
    """A number that makes 0 divisible and changes no other."""
    return float(np.finfo(arrays.numpy_dtype(dtype)).tiny)
