"""The untuned default: average, look at the mean, and go on with what the look suggests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.arrays import add, assign, copy, namespace, numpy_dtype, put, row_squares, to_host, zeros_like
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Session
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Tapered
from dualanchor.core.types import Array, Rows
from dualanchor.theory.schedules import Setting, tapered_at

SHORT = 200  # rounds below which there is nothing to decide
LONG = 10_000  # rounds above which samples are taken several at a time
CAUTION = 1.5  # steps are at most so many times distance travelled / root of the sum of squares seen

AVERAGE, RESTARTED, DUAL, CHOOSE = 0, 1, 2, 3
"""What a row does: the first average, one started anew at its mean, Dual-OHM, choosing between mean and iterate."""


class Times(NamedTuple):
    """Rounds at which the first average ends, the look at it, the second average, and the look at its mean."""

    averaged: int
    looked: int
    chosen: int
    compared: int


@dataclass(frozen=True)
class Auto(Method):
    r"""Averaging with a cautious step, and Dual-OHM where averaging is seen to be biased. Needs only L.

    A heuristic: on the paper's panels it ends below every tuned baseline, untuned. It has no theorem of its own; a
    certificate afterwards says what it reached. For a theorem use `dual-ohm`.

    Update
    ------
    One round is one sample (or `samples_per_round`) at one point. For Q rounds:

    1. Q/8 rounds of :math:`y \leftarrow y - a\,g` with the mean :math:`\bar x = \sum k\,y_k / \sum k`, where a is the
       smaller of `step_size` and :math:`1.5\,r/\sqrt G`, r the largest distance from the start so far and G the sum of
       all :math:`\|g\|^2`.
    2. Q/20 rounds at :math:`\bar x` give its squared residual :math:`\rho^2` without bias, and the variance
       :math:`s^2` of one sample.
    3. If :math:`\rho^2 > s^2`, the start still matters: average anew from :math:`\bar x`. Else, if :math:`\rho^2` is
       above three times :math:`\|\sum w g\|^2 + \sum w^2\|g\|^2`, more than an affine operator allows, curvature has
       biased the mean: Dual-OHM from :math:`\bar x` with tapered batches to the end, N = a tenth of what is left.
       Else go on averaging.
    4. After a fresh start, or where :math:`\|\sum w g\|^2 > 3 \sum w^2\|g\|^2` shows a mean that still drifts, the last
       Q/20 rounds choose the better of mean and last iterate.

    Guarantee
    ---------
    None, by design; see the certificate of the result.

    Cost
    ----
    `samples_per_round` draws and evaluations in each round.

    Parameters
    ----------
    step_size : float
        The largest step, 1/L.
    rounds : int
        Q.
    samples_per_round : int
        Samples that each round takes the mean of; by name for a budget, as many as keep the rounds near 10,000.

    Notes
    -----
    Weak where L is far too large for the budget: the step is never enlarged beyond 1/L. Fewer than 200 rounds are all
    spent on averaging.

    References
    ----------
    The step rule follows the idea of Ivgi, Hinder and Carmon 2023 (distance over gradients). Averaging: Polyak and
    Juditsky 1992.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_count("rounds")
        self._require_count("samples_per_round")

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
    def times(self) -> Times | None:
        """When something is decided; never in short runs."""
        Q = self.horizon - 1
        return Times(Q // 8, Q // 8 + Q // 20, Q - Q // 20, Q - Q // 40) if Q >= SHORT else None

    @cached_property
    def dual_horizon(self) -> int:
        """N of Dual-OHM, should a row go that way."""
        return max(2, self._left // 10)

    @property
    def _left(self) -> int:
        return 0 if self.times is None else self.horizon - 1 - self.times.looked

    @cached_property
    def batch_ends(self) -> dict[int, tuple[int, int]]:
        """Last round of each of Dual-OHM's batches: the batch's number and size."""
        assert self.times is not None
        N = self.dual_horizon
        sizes = Tapered(tapered_at(N, self._left, Setting(1.0, 1.0, 1.0)).C).size(np.arange(N - 1), N)
        sizes[-1] += self._left - int(sizes.sum())
        ends = self.times.looked + np.cumsum(sizes) - 1
        return {int(end): (k, int(size)) for k, (end, size) in enumerate(zip(ends, sizes, strict=True))}

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        size = self.samples_per_round + 0 * np.asarray(k)
        return Cost(size, size)

    def init(self, x0: Array) -> State:
        vectors = {name: copy(x0) for name in ("x", "y", "start", "asked")}  # mean, iterate, start, where to sample
        sums = {name: zeros_like(x0) for name in ("g", "total")}  # weighted mean of samples; sum of a look or batch
        names = ("count", "spread", "squares", "away", "looks", "scatter", "score")
        numbers = {name: zeros_like(x0[:, 0]) for name in (*names, "doing")}
        return State(**vectors, **sums, **numbers)

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        if k >= self.horizon - 1:
            raise self._past_horizon(k)
        G = F(s.asked, F.draw(self.samples_per_round))
        times = self.times
        if times is None or k < times.averaged:
            self._average(s, G, slice(None))
        elif k < times.looked:
            self._look(s, G, slice(None))
        else:
            plans = to_host(s.doing)
            for doing in sorted(set(plans.tolist())):
                rows = np.flatnonzero(plans == doing)
                if doing == DUAL:
                    self._dual(k, s, G, rows)
                elif doing == CHOOSE:
                    self._look(s, G, rows)
                else:
                    self._average(s, G, rows if rows.size < plans.size else slice(None))
        if times is not None:
            self._decide(k + 1, s, times)

    # -- what a row can do -----------------------------------------------------------------------------------

    def _average(self, s: State, G: Array, rows: Rows | slice) -> None:
        g, xp = G[rows], namespace(G)
        square = row_squares(g)
        s.count = add(s.count, rows, 1)
        w = 2 / (s.count[rows] + 1)
        s.x = add(s.x, rows, w[:, None] * (s.y[rows] - s.x[rows]))
        s.g = add(s.g, rows, w[:, None] * (g - s.g[rows]))
        s.spread = put(s.spread, rows, (1 - w) ** 2 * s.spread[rows] + w**2 * square)
        s.squares = add(s.squares, rows, square)
        longest, away = self._longest(s, rows), s.away[rows]
        cautious = CAUTION * away / xp.sqrt(s.squares[rows] + _least(w.dtype))
        a = xp.where((away > 0) & (cautious < longest), cautious, longest)
        s.y = add(s.y, rows, -a[:, None] * g)
        moved = s.y[rows] - s.start[rows]
        s.away = put(s.away, rows, xp.maximum(away, xp.sqrt(row_squares(moved))))
        s.asked = put(s.asked, rows, s.y[rows])

    def _look(self, s: State, G: Array, rows: Rows | slice) -> None:
        s.looks = add(s.looks, rows, 1)
        change = G[rows] - s.total[rows]  # total holds the mean of the look
        s.total = add(s.total, rows, change / s.looks[rows][:, None])
        s.scatter = add(s.scatter, rows, (1 - 1 / s.looks[rows]) * row_squares(change))

    def _dual(self, k: int, s: State, G: Array, rows: Rows) -> None:
        s.total = add(s.total, rows, G[rows])
        if k not in self.batch_ends:
            return
        N, (i, size) = self.dual_horizon, self.batch_ends[k]
        alpha = self._longest(s, rows)
        alpha = alpha[:, None] if isinstance(alpha, np.ndarray) else alpha
        G, z = s.total[rows] / size, s.y[rows]
        z = ((N - i - 1) * z - alpha * G) / (N - i)  # as in DualOHM, y in the place of z
        s.x = add(s.x, rows, -(alpha * G + z))
        s.y, s.asked, s.total = put(s.y, rows, z), put(s.asked, rows, s.x[rows]), put(s.total, rows, 0.0)

    def _longest(self, s: State, rows: Rows | slice) -> Any:
        """The step size: a number, or one for each of the rows."""
        step = self.step_size
        return np.asarray(step, s.count.dtype).ravel()[rows] if isinstance(step, np.ndarray) else step

    # -- what is decided -------------------------------------------------------------------------------------

    def _decide(self, k: int, s: State, times: Times) -> None:
        if k == times.averaged:
            s.asked = assign(s.asked, s.x)
        elif k == times.looked:
            self._after_the_look(s)
        elif k == times.chosen:
            drifts = row_squares(s.g) > 3 * s.spread
            rows = _where((s.doing == RESTARTED) | ((s.doing == AVERAGE) & drifts))
            s.doing = put(s.doing, rows, CHOOSE)
            self._begin_look(s, rows, s.x)
        elif k == times.compared:
            rows = _where(s.doing == CHOOSE)
            s.score = put(s.score, rows, self._residual(s)[rows])
            self._begin_look(s, rows, s.y)
        elif k == self.horizon - 1:
            better = _where((s.doing == CHOOSE) & (self._residual(s) < s.score))
            s.x = put(s.x, better, s.y[better])

    def _after_the_look(self, s: State) -> None:
        residual, variance = self._residual(s), self._variance(s)
        allowed = 3 * (row_squares(s.g) + s.spread)
        above = residual > variance
        anew, dual = _where(above), _where(~above & (residual > allowed))
        s.doing = put(put(s.doing, anew, RESTARTED), dual, DUAL)
        for name in ("count", "spread", "squares", "away", "g"):
            setattr(s, name, put(getattr(s, name), anew, 0.0))
        s.y, s.start = put(s.y, anew, s.x[anew]), put(s.start, anew, s.x[anew])
        s.y = put(s.y, dual, 0.0)
        self._begin_look(s, slice(None), s.y)
        s.asked = put(s.asked, dual, s.x[dual])

    def _begin_look(self, s: State, rows: Rows | slice, where: Array) -> None:
        s.asked = put(s.asked, rows, where[rows])
        s.total, s.looks, s.scatter = (put(sums, rows, 0.0) for sums in (s.total, s.looks, s.scatter))

    def _variance(self, s: State) -> Array:
        return s.scatter / _at_least_one(s.looks - 1)

    def _residual(self, s: State) -> Array:
        """The squared residual at the point looked at, without bias."""
        return row_squares(s.total) - self._variance(s) / _at_least_one(s.looks)


@cache
def _least(dtype: Any) -> float:
    """A number that makes 0 divisible and changes no other."""
    return float(np.finfo(numpy_dtype(dtype)).tiny)


def _where(rows: Array) -> Rows:
    return np.flatnonzero(to_host(rows))


def _at_least_one(numbers: Array) -> Array:
    xp = namespace(numbers)
    return xp.maximum(numbers, xp.ones_like(numbers))
