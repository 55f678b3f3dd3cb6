"""The untuned default: steps as long as their own samples allow, averaged as far as that pays."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Tapered
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.types import Array, IntArray
from dualanchor.methods.cautious import (
    AGREE,
    FALLING,
    CautiousSteps,
    begun,
    completed,
    judge,
    least,
    precision,
    restart_caution,
)
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.schedules import Setting, tapered_at

SHORT = 800  # rounds below which nothing is spent on an estimate
LONG = 50_000  # rounds above which samples are taken several at a time
LEAST = 16  # rounds of a segment
_PART, _LEFT = 8, 4  # a segment has at most this part of the rounds before it, and of those left
_ALIKE = 2.5  # mean squares that differ by less are put down to chance
_ANEW = 0.9  # weight of a segment in the mean: what was before is forgotten, also by caution
_AS_NOISY = 0.75  # of the mean square on the way: noise at the mean that is less comes with the steps
_EXACT = 1e3  # times the precision: steps that are shorter, as parts of y, are near rounding
_SHORTER = 4  # times, where that makes the mean biased
_STILL = 0.8  # of the mean square of such rounds: noise still becomes smaller, and y is better than their mean
_LATE = 4  # a mean of fewer than this part of the rounds is one of late rounds

ESTIMATE, DUAL, EXTRA = (kind << 20 for kind in (1, 2, 3))
"""Stages beside the segments, which have numbers from 0: the residual at the mean after segment j has the number
ESTIMATE + j, Dual-OHM then DUAL + j; a segment of n rounds behind all others EXTRA + n."""


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
    r"""Averaged steps of a length found on the way, and Dual-OHM where averaging is seen to be biased.

    A heuristic: on the paper's panels it ends, untuned, below every tuned baseline; `docs/untuned.md` has more.
    Averages as in Polyak and Juditsky 1992, caution as in Ivgi, Hinder and Carmon 2023, lengths after Polyak 1987.

    In Q = `rounds` rounds, each the mean of `samples_per_round` samples at one point:

    1. Segments of steps :math:`y \leftarrow y - a\,g` with :math:`a \le 1.5\,r/\sqrt{\sum\|g\|^2}`, r the
       largest distance from the start so far: of 16 rounds, later of an eighth of those before, towards the end of a
       quarter of those left. Each starts where the one before ended, or at an earlier point if samples have grown,
       and its step depends on what the samples of the one before say: see `methods/cautious.py`.
    2. The mean :math:`\bar x` of a segment is added to that of those before with the weight for which
       :math:`\|\bar g\|^2 + T/n` is smallest, with the mean :math:`\bar g` and the mean square T of the samples;
       for affine F that is the squared residual, and 2T/n at most more. If it is above 0.9, distances and squares
       are measured anew.
    3. After Q/8 rounds, as soon as samples do not become smaller any more and if Q >= 800: Q/20 rounds at
       :math:`\bar x` for its squared residual :math:`\rho^2` and the variance :math:`s^2`. If :math:`\rho^2 \le s^2`
       but larger than 3 times what is expected from step 2, Dual-OHM from :math:`\bar x` with tapered batches to the
       end, N = a tenth of what is left; or a quarter of the step, if :math:`s^2` is below 0.75 T: long steps have
       scattered the iterates to where samples are larger.
    4. Up to `spare` further rounds if the mean is one of less than Q/4 rounds: the noise vanishes, or is small.
    5. :math:`\bar x` is returned, or y if the mean square there is below what is expected of :math:`\bar x`.

    Guarantee: none, by design; see the certificate of the result, or use `dual-ohm`.

    Parameters
    ----------
    step_size : float, the first step :math:`\alpha`; 1/L by name
    rounds : int
    samples_per_round : int; by name as many as keep the rounds near 50,000
    spare : int, 0 by default

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
    spare: Any = 0

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
        return int(self.rounds) + int(self.spare) + 1

    @cached_property
    def lengths(self) -> list[int]:
        """Rounds of each segment."""
        left, lengths = int(self.rounds) - self.estimate, list[int]()
        while left > 0:
            length = max(LEAST, min(sum(lengths) // _PART, left // _LEFT))
            lengths.append(length if left >= 2 * length else left)
            left -= lengths[-1]
        return lengths

    @cached_property
    def estimate(self) -> int:
        """Rounds for the residual at the mean; 0 in short runs."""
        Q = int(self.rounds)
        return 0 if Q < SHORT else Q // 20

    def begin(self, x0: Array) -> State:
        memory, zeros = begun(self._steps(0).init(x0)), arrays.zeros_like(x0[:, 0])
        mean = {name: arrays.copy(zeros) for name in ("level", "count", "fourth", "estimated", "rest")}
        return State(**vars(memory), x=arrays.copy(x0), g=arrays.zeros_like(x0), **mean)

    def stage(self, number: int, memory: State) -> Stage:
        kind, number = _kind(number)
        if kind == ESTIMATE:
            method = ResidualEstimate(1.0, int(self.samples_per_round))
            return Stage(method, method.init(memory.x), self.estimate)
        if kind == DUAL:
            dual = self._dual(memory, sum(self.lengths[number + 1 :]))
            return Stage(dual, dual.init(memory.x), dual.horizon - 1)
        length = number if kind == EXTRA else self.lengths[number]
        steps = self._steps(sum(self.lengths if kind == EXTRA else self.lengths[:number]))
        return Stage(steps, steps.following(memory.y, memory), length)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        kind, number = _kind(number)
        if kind == ESTIMATE:
            memory.estimated = memory.estimated + 1
            biased, scattered = self._biased(memory, s)
            memory.longest = memory.longest / (1 + (_SHORTER - 1) * scattered[:, None])
            return np.where(arrays.to_host(biased), DUAL + number, number + 1)
        if kind == DUAL:
            memory.x = s.x
            return np.full(len(s.x), END)
        rounds = number if kind == EXTRA else self.lengths[number]
        s = completed(s, rounds)
        back = judge(memory, s, rounds, -1 if kind == EXTRA else number)
        settled = (memory.falling == 0) & (s.energy / rounds >= FALLING * memory.level)
        settled = arrays.to_host(settled & (abs(s.turning) <= AGREE * s.energy))  # noise, not signal, is what is seen
        weight = self._add_to_mean(memory, s, rounds, back)
        restart_caution(memory, weight > _ANEW)
        memory.fourth = (1 - weight) * memory.fourth + s.fourth  # of the samples that the mean still consists of
        if kind == EXTRA or number + 1 == len(self.lengths):
            return self._at_end(memory, last=kind != EXTRA)
        Q, used = int(self.rounds), sum(self.lengths[: number + 1])
        wanted = settled & (arrays.to_host(memory.estimated) == 0) & (Q // 8 <= used <= Q // 2) & (self.estimate > 0)
        return np.where(wanted, ESTIMATE + number, number + 1)

    def _at_end(self, memory: State, last: bool) -> IntArray:
        """What follows the last segment, or a later one: rounds that are left, in a few pieces."""
        if last:
            late = _LATE * memory.count < int(self.rounds)
            moving = memory.longest[:, 0] ** 2 * memory.level, arrays.row_squares(memory.y)
            late &= moving[0] > (_EXACT * precision(memory.x.dtype)) ** 2 * moving[1]
            rest = (1 - memory.estimated) * self.estimate
            memory.rest = arrays.namespace(rest).where(late, rest + int(self.spare), rest)
        piece, rest = max(LEAST, (self.estimate + int(self.spare)) // 6), arrays.to_host(memory.rest).astype(int)
        length = np.where(rest < 2 * piece, rest, piece)
        memory.rest = memory.rest - arrays.like(length, memory.rest)
        expected = arrays.row_squares(memory.g) + memory.level / memory.count
        better = (memory.recent < expected) & (memory.seen > 0)
        better |= (memory.recent < _STILL * memory.level) & (_LATE * memory.count < int(self.rounds))
        better = arrays.to_host(better)
        rows = np.flatnonzero((length == 0) & better)
        memory.x = arrays.put(memory.x, rows, memory.y[rows])
        return np.where(length > 0, EXTRA + length, END)

    def point(self, number: int, memory: State, s: State) -> Array:
        return s.x if number == 0 or _kind(number)[0] == DUAL else memory.x

    @staticmethod
    def _add_to_mean(memory: State, s: State, rounds: int, back: Array) -> Array:
        """Add the mean of a segment to that of those before, unless the row has gone back; its weight.

        `count` is the number of samples whose plain mean would have as much noise, `level` their mean square. Mean
        squares that are alike are pooled, so that a segment does not count more for having missed a rare sample.
        """
        xp, T, new = arrays.namespace(s.x), s.energy / rounds, memory.count == 0
        g, n = s.total / rounds, memory.count + new
        pooled = (n * memory.level + rounds * T) / (n + rounds)
        alike = ((memory.level * _ALIKE > T) & (memory.level < _ALIKE * T)) | ((memory.level > T) & (memory.seen == 0))
        before, now = xp.where(alike, pooled, memory.level) / n, xp.where(alike, pooled, T) / rounds
        a, b = arrays.row_squares(memory.g) + before, arrays.row_squares(g) + now
        c = arrays.row_products(memory.g, g)
        w = xp.clip((a - c) / (a + b - 2 * c + least(s.x.dtype)), 0.0, 1.0)
        w = xp.where(back, 0 * w, xp.where(new, 0 * w + 1, w))
        memory.x = memory.x + w[:, None] * (s.x - memory.x)
        memory.g = memory.g + w[:, None] * (g - memory.g)
        count = 1 / ((1 - w) ** 2 / n + w**2 / rounds)
        memory.level = xp.where(back, memory.level, count * ((1 - w) ** 2 * before + w**2 * now))
        memory.count = xp.where(back, memory.count, count)
        return w

    def _biased(self, memory: State, s: State) -> tuple[Array, Array]:
        """Which means have a residual below the noise, yet larger than an affine operator would allow.

        Where noise at the mean is that on the way, and where it is smaller: there it comes with the steps.
        """
        residual, variance = _squared_residual(s, self.estimate)
        allowed = 3 * (arrays.row_squares(memory.g) + memory.level / memory.count)
        biased, noisy = (residual <= variance) & (residual > allowed), variance > _AS_NOISY * memory.level
        return biased & noisy, biased & ~noisy

    def _steps(self, offset: int) -> CautiousSteps:
        return CautiousSteps(self.step_size, int(self.samples_per_round), offset)

    def _dual(self, memory: State, rounds: int) -> DualOHM:
        """Dual-OHM for the rest of the rounds, N a tenth of them, with tapered batches that take all of them."""
        N = max(2, rounds // 10)
        sizes = Tapered(tapered_at(N, rounds, Setting(1.0, 1.0, 1.0)).C).size(np.arange(N - 1), N)
        sizes[-1] += rounds - int(sizes.sum())
        step = arrays.namespace(memory.x).clip(memory.longest, 0.0, float(self.step_size))
        return DualOHM(step, N, (int(self.samples_per_round) * sizes).tolist())


def _kind(number: int) -> tuple[int, int]:
    """What kind of stage a number stands for, 0 for a segment, and which one."""
    return number >> 20 << 20, number % (1 << 20)
