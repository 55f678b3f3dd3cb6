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
from dualanchor.methods.cautious import CautiousSteps, Segment, smallest
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.step_control import AGREE, FALLING, FORGETS, adjust, begin, restart_distances, retreat
from dualanchor.theory.schedules import Setting, tapered_at

SHORT = 800  # rounds below which none are spent on an estimate of the bias
LONG = 50_000  # rounds above which a round takes several samples
MIN_SEGMENT = 16  # rounds
PART_BEFORE, PART_LEFT = 8, 4  # a segment has at most this part of the rounds before it, and of those left
ESTIMATE_PART = 20  # of the rounds, for the residual at the mean
ALIKE = 2.5  # mean squares within this factor are pooled: they may differ by chance
REPLACED = 0.9  # weight of a segment in the mean above which the mean begins anew
FELL = 1.7  # times the mean square of a segment: means of samples that were larger still are left behind, ...
VISIBLE = 3.0  # ... if the fall is larger than this many standard errors
BIASED = 3  # times the squared residual expected of the mean: above that, averaging is biased
SCATTERED = 0.75  # of the mean square on the way: where noise at the mean is less, long steps have caused the rest
SHORTER = 4  # times, the step where that is so
DUAL_PART = 10  # of the rounds left: the horizon of Dual-OHM
EXACT = 1e3  # times the precision: relative steps below that are near rounding
LATE_PART = 4  # a mean of fewer than this part of the rounds consists of late rounds
VANISHED = 1e-2  # of the first mean square: with such a mean, and samples below that, noise vanishes or is small
STILL_FALLING = 0.8  # of the mean square of such a mean: noise becomes smaller still, and the last iterate is better

ESTIMATE, DUAL, EXTRA = (kind << 20 for kind in (1, 2, 3))
"""Numbers of stages other than the planned segments, which have 0, 1, ...: ESTIMATE + j, the residual at the mean after
segment j; DUAL + j, Dual-OHM after that; EXTRA + n, a segment of n rounds after all others;
EXTRA itself ends a run that has diverged."""


@dataclass(frozen=True)
class ResidualSampling(Method):
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
    """The squared residual at the point of a ResidualSampling, without bias, and the variance of one round."""
    variance = s.scatter / max(1, rounds - 1)
    return arrays.row_squares(s.mean) - variance / max(1, rounds), variance


@dataclass(frozen=True)
class Auto(Staged):
    r"""Averaged steps of a length chosen from the samples, and Dual-OHM where averaging is seen to be biased.

    A heuristic: on the paper's panels it ends, untuned, below every tuned baseline; `docs/untuned.md` has more.
    Averages as in Polyak and Juditsky 1992, caution as in Ivgi, Hinder and Carmon 2023, lengths after Polyak 1987.

    In Q = `rounds` rounds, each the mean of `samples_per_round` samples at one point:

    1. Segments of steps :math:`y \leftarrow y - a\,g` with :math:`a \le 1.5\,r/\sqrt{\sum\|g\|^2}`, r the
       largest distance from the start so far: of 16 rounds, later of an eighth of those before, towards the end of a
       quarter of those left. Each starts where the one before ended, or at an earlier point if samples have grown.
       Its step depends on the samples of the one before: see `methods/step_control.py`.
    2. The mean :math:`\bar x` of a segment is added to that of those before with the weight for which
       :math:`\|\bar g\|^2 + T/n` is smallest, with the mean :math:`\bar g` and the mean square T of the samples;
       for affine F that is the squared residual, and 2T/n at most more. With weight 1, at most half the way through,
       where T has visibly fallen by 1.7 and is below what it was when that last happened by as much: larger samples
       came from iterates that long steps had scattered, and the mean of those is biased if F bends. If the weight is
       above 0.9, distances and squares are measured anew.
    3. After Q/8 rounds, as soon as samples do not become smaller and iterates forget where they were, and if Q >= 800:
       Q/20 rounds at :math:`\bar x` for its squared residual :math:`\rho^2` and the variance :math:`s^2`. If
       :math:`\rho^2 \le s^2` but larger than 3 times what step 2 expects, Dual-OHM from :math:`\bar x` with tapered
       batches to the end, N = a tenth of what is left; or a quarter of the step, if :math:`s^2` is below 0.75 T: long
       steps have scattered the iterates to where samples are larger, and from then on :math:`\rho^2` counts as the
       noise of :math:`\bar x`.
    4. Up to `spare` further rounds if the mean is one of less than Q/4 rounds and samples are a tenth of the first: the
       noise vanishes, or is small.
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
        """Rounds of each planned segment."""
        left, lengths = int(self.rounds) - self.estimate, list[int]()
        while left > 0:
            length = max(MIN_SEGMENT, min(sum(lengths) // PART_BEFORE, left // PART_LEFT))
            lengths.append(length if left >= 2 * length else left)
            left -= lengths[-1]
        return lengths

    @cached_property
    def estimate(self) -> int:
        """Rounds for the residual at the mean; 0 in short runs."""
        Q = int(self.rounds)
        return 0 if Q < SHORT else Q // ESTIMATE_PART

    def begin(self, x0: Array) -> State:
        """The memory of the step control, and of the mean.

        The mean `x` has the mean sample `g`; a plain mean of `count` samples with mean square `level` is as noisy.
        `fourth` is the sum of the fourth powers of the samples it consists of, from the first segment on in which
        samples are mostly noise (then `noisy` is 1): those before tell of the distance to the root, not of noise.
        `first_square` is the mean square of the first segment, `estimated` counts estimates of the residual at the
        mean, `rest` is the number of rounds that are left after the planned segments. `dual` is 1 where Dual-OHM has
        finished the run. `left_behind` is the mean square at which larger samples were last left behind.
        """
        memory, zeros = begin(self._steps(0).init(x0)), arrays.zeros_like(x0[:, 0])
        mean = {
            name: arrays.copy(zeros)
            for name in ("level", "count", "fourth", "noisy", "first_square", "estimated", "rest", "dual")
        }
        return State(**vars(memory), x=arrays.copy(x0), g=arrays.zeros_like(x0), left_behind=zeros + np.inf, **mean)

    def stage(self, number: int, memory: State) -> Stage:
        kind, number = _kind(number)
        if kind == ESTIMATE:
            method = ResidualSampling(1.0, int(self.samples_per_round))
            return Stage(method, method.init(memory.x), self.estimate)
        if kind == DUAL:
            dual = self._dual(memory, sum(self.lengths[number + 1 :]))
            return Stage(dual, dual.init(memory.x), dual.horizon - 1)
        length = number if kind == EXTRA else self.lengths[number]
        steps = self._steps(sum(self.lengths if kind == EXTRA else self.lengths[:number]))
        return Stage(steps, steps.following(memory.y, memory), length)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        kind, number = _kind(number)
        if kind == DUAL:
            memory.x, memory.dual = s.x, memory.dual + 1
            return np.full(len(s.x), END)
        if kind == ESTIMATE:
            memory.estimated = memory.estimated + 1
            xp = arrays.namespace(memory.x)
            biased, scattered, square = self._biased(memory, s)
            shorter = xp.minimum(memory.longest, memory.last_step[:, None]) / SHORTER
            memory.longest = xp.where(scattered[:, None], shorter, memory.longest)
            memory.level = xp.where(scattered, xp.maximum(memory.level, memory.count * square), memory.level)
            return np.where(arrays.to_host(biased), DUAL + number, number + 1)
        if kind + number == EXTRA:
            return np.full(len(s.x), END)
        segment = Segment.of(s, number if kind == EXTRA else self.lengths[number])
        before = memory.level
        if number == 0 and kind != EXTRA:
            memory.first_square = segment.mean_square
        back = adjust(memory, segment, None if kind == EXTRA else number)
        left = 0 if kind == EXTRA else sum(self.lengths[number + 1 :])
        weight = self._add_to_mean(memory, segment, back, left)
        restart_distances(memory, weight > REPLACED, segment.mean_square)
        if kind == EXTRA or number + 1 == len(self.lengths):
            return self._after_last(memory, planned=kind != EXTRA)
        Q, used = int(self.rounds), sum(self.lengths[: number + 1])
        if not (self.estimate > 0 and Q // 8 <= used <= Q // 2):
            return np.full(len(s.x), number + 1)
        settled = (memory.falling == 0) & (segment.mean_square >= FALLING * before)
        settled &= (abs(segment.correlation) <= AGREE) & (memory.estimated == 0)
        settled &= memory.mean_drift < FORGETS  # else the mean is late, not biased
        return np.where(arrays.to_host(settled), ESTIMATE + number, number + 1)

    def recover(self, number: int, memory: State) -> IntArray | None:
        kind, number = _kind(number)
        if len(self.lengths) == 1:
            return None
        rows = len(memory.x)
        if kind == DUAL:
            return np.full(rows, EXTRA)
        if kind == ESTIMATE:
            memory.estimated = memory.estimated + 1
            return np.full(rows, number + 1)
        retreat(memory)
        if kind != EXTRA and number + 1 < len(self.lengths):
            return np.full(rows, number + 1)
        numbers = self._after_last(memory, planned=kind != EXTRA)
        return np.where(numbers == END, EXTRA, numbers)

    def _after_last(self, memory: State, planned: bool) -> IntArray:
        """What follows the last planned segment, or a later one: the rounds that are left, in a few pieces."""
        xp = arrays.namespace(memory.x)
        late = (LATE_PART * memory.count < int(self.rounds)) & (memory.recent < VANISHED * memory.first_square)
        if planned:
            step_squared = memory.longest[:, 0] ** 2 * memory.level
            moves = step_squared > (EXACT * _precision(memory.x.dtype)) ** 2 * arrays.row_squares(memory.y)
            unspent = (1 - memory.estimated) * self.estimate
            memory.rest = xp.where(late & moves, unspent + int(self.spare), unspent)
        piece = max(MIN_SEGMENT, (self.estimate + int(self.spare)) // 6)
        rest = arrays.to_host(memory.rest).astype(int)
        length = np.where(rest < 2 * piece, rest, piece)
        memory.rest = memory.rest - arrays.like(length, memory.rest)
        expected = arrays.row_squares(memory.g) + memory.level / memory.count
        iterate_is_better = (memory.recent < expected) & (memory.resolved > 0)
        iterate_is_better |= (memory.recent < STILL_FALLING * memory.level) & late
        rows = np.flatnonzero((length == 0) & arrays.to_host(iterate_is_better))
        memory.x = arrays.put(memory.x, rows, memory.y[rows])
        return np.where(length > 0, EXTRA + length, END)

    def point(self, number: int, memory: State, s: State) -> Array:
        return s.x if number == 0 or _kind(number)[0] == DUAL else memory.x

    @staticmethod
    def _add_to_mean(memory: State, segment: Segment, back: Array, left: int) -> Array:
        """Add the mean of a segment to that of those before, unless the row has gone back; its weight.

        Mean squares that are alike, or differ by rare samples, are pooled: that a segment has one, or none, must not
        decide its weight, which would bias the mean.
        """
        xp, T, rounds = arrays.namespace(segment.mean), segment.mean_square, segment.rounds
        new = memory.count == 0
        n = memory.count + new
        pooled = (n * memory.level + rounds * T) / (n + rounds)
        alike = (memory.level * ALIKE > T) & (memory.level < ALIKE * T)
        alike |= (memory.resolved == 0) & ~new
        noise_before = xp.where(alike, pooled, memory.level) / n
        noise = xp.where(alike, pooled, T) / rounds
        # Minimise the expected squared residual |(1 - w) g + w mean_sample|^2 + (1 - w)^2 noise_before + w^2 noise.
        a = arrays.row_squares(memory.g) + noise_before
        b = arrays.row_squares(segment.mean_sample) + noise
        c = arrays.row_products(memory.g, segment.mean_sample)
        w = xp.clip((a - c) / (a + b - 2 * c + smallest(segment.mean.dtype)), 0.0, 1.0)
        visible = 1 + VISIBLE * xp.sqrt((memory.kurtosis - 1) / rounds)
        stale = (memory.level > xp.maximum(visible, 0 * T + FELL) * T) & (memory.count <= left) & (memory.resolved > 0)
        stale &= (segment.correlation <= AGREE) & (memory.left_behind > FELL * T)
        memory.left_behind = xp.where(stale & ~back, T, memory.left_behind)
        w = xp.where(back, arrays.zeros_like(w), xp.where(new | stale, arrays.zeros_like(w) + 1, w))
        memory.x = memory.x + w[:, None] * (segment.mean - memory.x)
        memory.g = memory.g + w[:, None] * (segment.mean_sample - memory.g)
        count = 1 / ((1 - w) ** 2 / n + w**2 / rounds)
        memory.level = xp.where(back, memory.level, count * ((1 - w) ** 2 * noise_before + w**2 * noise))
        memory.count = xp.where(back, memory.count, count)
        memory.noisy = xp.where(abs(segment.correlation) <= AGREE, arrays.zeros_like(w) + 1, memory.noisy)
        thrown = back & (abs(segment.correlation) > AGREE)  # its samples tell of where the iterate was, not of noise
        memory.fourth = (1 - w) * memory.fourth + xp.where(thrown, 0 * T, memory.noisy * segment.fourth_powers)
        return w

    def _biased(self, memory: State, s: State) -> tuple[Array, Array, Array]:
        """Which means are biased, which are so because long steps scatter the iterates, and their squared residuals.

        Biased: the residual is below the noise, yet larger than an affine operator would allow. Where the noise at the
        mean is smaller than on the way, it comes with the steps.
        """
        residual, variance = _squared_residual(s, self.estimate)
        allowed = BIASED * (arrays.row_squares(memory.g) + memory.level / memory.count)
        biased = (residual <= variance) & (residual > allowed)
        scattered = variance <= SCATTERED * memory.level
        return biased & ~scattered, biased & scattered, residual

    def _steps(self, offset: int) -> CautiousSteps:
        return CautiousSteps(self.step_size, int(self.samples_per_round), offset)

    def _dual(self, memory: State, rounds: int) -> DualOHM:
        """Dual-OHM for the rest of the rounds, with tapered batches that take all of them, and about the last step."""
        N = max(2, rounds // DUAL_PART)
        sizes = Tapered(tapered_at(N, rounds, Setting(1.0, 1.0, 1.0)).C).size(np.arange(N - 1), N)
        sizes[-1] += rounds - int(sizes.sum())
        xp = arrays.namespace(memory.x)
        step = xp.minimum(xp.clip(memory.longest, 0.0, float(self.step_size)), 2 * memory.last_step[:, None])
        return DualOHM(step, N, (int(self.samples_per_round) * sizes).tolist())


def _kind(number: int) -> tuple[int, int]:
    """What kind of stage a number stands for, 0 for a segment, and which one."""
    return number >> 20 << 20, number % (1 << 20)


def _precision(dtype: Any) -> float:
    return float(np.finfo(arrays.numpy_dtype(dtype)).eps)
