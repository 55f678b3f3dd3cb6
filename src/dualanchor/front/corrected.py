"""Accuracy by correction: near a root, one good estimate of F and pairs of samples lead to a point with a bound."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.advise.anchored import MeanEstimate, bound, estimate
from dualanchor.core import arrays
from dualanchor.core.certificate import NUMBERS
from dualanchor.core.method import State
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage
from dualanchor.core.streams import per_row
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.front.stages import FIRST_STAGE, UntilCertified, grouped, mask_of, rounded_up
from dualanchor.methods.svrg import Epoch, step_from
from dualanchor.theory.confidence import Deviation

# Errors and distances, in units of eps.
_NEAR = 8.0  # a point with at most this residual may become an anchor
_ESTIMATE_ERROR = 0.82  # aimed at for the estimate at an anchor: most of eps, since its samples cost most
_BETTER_ESTIMATE_ERROR = 0.75  # aimed at when the first estimate was not good enough
_PAIR_ERROR = 0.1  # aimed at for the change from the anchor to the corrected point
_WORTH_IMPROVING = 0.4  # if an estimate with at least this error would do, it is improved

# Numbers of samples.
_MIN_PAIRS = 64
_STAGE_PER_CERTIFICATE = 16  # samples of a stage for one of the certificate after it, which need not be good
_ESTIMATE_PER_STAGE = 4  # samples of an estimate for one of the stage before it, at most
_ESTIMATE_PER_PAIR = 2  # samples of an estimate for one pair, at least
_ESTIMATE_PER_EPOCH = 16  # samples of an estimate for one of the first epoch after it
_NOISE_FACTOR, _PAIR_NOISE_FACTOR = 1.5, 4.0  # squared norms that noise hardly exceeds, over their mean: a first guess
_SAMPLES_MARGIN = 1.05  # extra samples where the first estimate fell short

# Epochs and corrections.
_EPOCH_STAGE = 1 << 40  # stages with this number or a larger one are epochs of (number - _EPOCH_STAGE) steps
_SHORTEST_EPOCH = 32  # steps
_WORTHWHILE = 0.7  # an epoch that leaves less than this part of the size is followed by another one
_MAX_CORRECTIONS = 3  # per row
_NOISE_MEMORY = 0.9  # if a certificate shows less noise than this part of the noise before, this part is assumed

# Parts of the failure probability.
_CERTIFICATE_PART = 0.2
_FIRST_CORRECTION_PART = 0.64
_LATER_CORRECTION_FACTOR = 0.2  # of the part of the correction before


@dataclass(frozen=True)
class UntilCorrected(UntilCertified):
    r"""Stages as in `UntilCertified`; near a root a point is corrected, and certified together with its correction.

    After a stage whose point w, the anchor, is near a root:

    1. F(w) is estimated by :math:`\hat f`, with an error of at most 0.82 eps. That may be enough to certify w itself.
    2. Epochs of :math:`z \leftarrow z - a(\hat f + \hat F(z;\xi) - \hat F(w;\xi))` lead to a point x where
       :math:`\hat f + F(x) - F(w)` is small.
    3. Fresh pairs of samples at x and w confirm that, and bound the residual at x; see `advise.anchored`.

    Else another epoch, a better estimate, or another stage follows. Samples must be able to be evaluated at two points.
    Such steps make the most of them (Frostig et al. 2015).

    Beside that of `UntilCertified`, the memory of a row holds its `anchor` with the `estimate` there (and its samples,
    groups and `Deviation`); `size`, the smallest estimate of :math:`\|\hat f + F(x) - F(w)\|` so far; how many
    `corrections` have ended without success, and how many `pair_tests` the estimate has been used in.
    """

    batch: int = 1  # samples of a step of an epoch
    noise_at_start: float = 0.0  # root mean square noise that calibration saw

    def begin(self, x0: Array) -> State:
        numbers = ("size", "estimate_error", *Deviation._fields)
        counts = ("corrections", "pair_tests", "estimate_samples", "estimate_groups", "previous_length", "wanted_pairs")
        memory = State(
            **vars(super().begin(x0)),
            **{name: arrays.copy(x0) for name in ("anchor", "estimate", "previous_x")},
            **{name: np.zeros(len(x0)) for name in numbers},
            **{name: np.zeros(len(x0), np.int64) for name in (*counts, "best_is_corrected")},
            step=arrays.zeros_like(x0[:, :1]),
        )
        memory.latest_noise[:] = self.noise_at_start
        return memory

    def stage(self, number: int, memory: State) -> Stage:
        if not _EPOCH_STAGE <= number < 2 * _EPOCH_STAGE:
            return super().stage(number, memory)
        steps = number - _EPOCH_STAGE
        state = Epoch.begin(memory.x, memory.anchor, memory.estimate, memory.step)
        return Stage(Epoch(self.batch, steps // 2), state, steps)

    def _after_stage(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        if number >= _EPOCH_STAGE:
            return self._after_epoch(number - _EPOCH_STAGE, memory, s, F)
        numbers = super()._after_stage(number, memory, s, F)
        if number == 0:
            return numbers
        needed = self._needed_samples(memory)
        long_enough = (number * _ESTIMATE_PER_STAGE >= needed) & (memory.latest_noise > 0)
        anchors = self._anchors(long_enough, needed, number, memory, F)
        memory.previous_x = arrays.copy(memory.x)
        memory.previous_length[:] = number
        if anchors.size:
            self._estimate_at(anchors, rounded_up(needed[anchors]), memory, F)
            numbers[anchors] = _EPOCH_STAGE + self._first_epoch(memory)[anchors]
        others = np.setdiff1d(np.flatnonzero((numbers != END) & long_enough), anchors)
        self._certify_uncorrected(others, number, memory, F)
        numbers[others] = self._next_lengths(memory, F)[others]
        return np.where(memory.upper > self.eps, numbers, END)

    def _anchors(self, long_enough: Array, needed: Array, number: int, memory: State, F: Session) -> Rows:
        """Rows near a root that can pay for a correction; sets the pairs that it will want."""
        spent = per_row(F.evals, len(needed))
        near = memory.latest_residual <= _NEAR * self.eps
        wanted = (memory.upper > self.eps) & (memory.corrections < _MAX_CORRECTIONS)
        payable = spent + self._correction_cost(needed, 0) <= self.max_samples
        rows = np.flatnonzero(wanted & near & long_enough & payable)
        if not rows.size:
            return rows
        # The noise of pairs grows with their distance. That to the corrected point is guessed from the last move.
        change = estimate(F.at(mask_of(rows, len(needed))), memory.x[rows], _MIN_PAIRS, memory.previous_x[rows])
        shrinkage = np.sqrt(memory.previous_length[rows] / number)
        noise = shrinkage * np.sqrt(_MIN_PAIRS * change.deviation.trace)
        memory.wanted_pairs[rows] = np.ceil(_PAIR_NOISE_FACTOR * (noise / (_PAIR_ERROR * self.eps)) ** 2)
        pairs = memory.wanted_pairs[rows]
        payable = spent[rows] + self._correction_cost(needed[rows], pairs) <= self.max_samples
        return rows[payable & (_ESTIMATE_PER_PAIR * pairs <= needed[rows])]

    def _first_epoch(self, memory: State) -> IntArray:
        """Steps of the first epoch after an estimate; each further one has twice as many."""
        steps = memory.estimate_samples / (_ESTIMATE_PER_EPOCH * self.batch)
        return np.maximum(_SHORTEST_EPOCH, rounded_up(np.maximum(1, steps)))

    def _correction_cost(self, samples: Array, pairs: Any) -> Array:
        """Evaluations of a correction with one epoch, at most; counts are rounded up by up to a quarter."""
        return 2 * _MIN_PAIRS + 1.3 * samples + self._epoch_cost(samples, pairs)

    def _epoch_cost(self, samples: Array, pairs: Any) -> Array:
        """Evaluations of the first epoch after an estimate from this number of samples, and of the pairs after it."""
        epoch = np.maximum(_SHORTEST_EPOCH * self.batch, samples / _ESTIMATE_PER_EPOCH)
        return 2.5 * (epoch + np.maximum(_MIN_PAIRS, pairs))

    def _needed_samples(self, memory: State) -> Array:
        """Samples of an estimate with an error of `_ESTIMATE_ERROR` times eps, by the noise seen last."""
        noise = np.where(np.isfinite(memory.latest_noise), memory.latest_noise, 0.0)
        return np.maximum(self.min_samples, _NOISE_FACTOR * (noise / (_ESTIMATE_ERROR * self.eps)) ** 2)

    def _growth(self, memory: State) -> IntArray:
        ratio = self._needed_samples(memory) / (_ESTIMATE_PER_STAGE * self._wanted_lengths(memory))
        return np.clip(np.ceil(2 * np.log2(ratio)), 2, 6).astype(int)

    def _certificate_size(self, length: Any) -> Any:
        return np.maximum(_MIN_PAIRS, length // _STAGE_PER_CERTIFICATE)

    def _next_confidence(self, certificates: int) -> float:
        return 1 - _CERTIFICATE_PART * (1 - self.confidence) / ((certificates + 1) * (certificates + 2))

    def _certify_again(self, rows: Rows, samples: int, memory: State, F: Session) -> None:
        """As in `UntilCertified`, only where a correction would not help: no noise, or eps all but certified."""
        reached = memory.latest_residual[rows] + memory.latest_margin[rows] <= self.eps
        super()._certify_again(rows[(memory.latest_noise[rows] == 0) | reached], samples, memory, F)

    def _certify_uncorrected(self, rows: Rows, number: int, memory: State, F: Session) -> None:
        """Certify the points of rows that cannot be corrected, with certificates as large as in `UntilCertified`."""
        samples = max(_MIN_PAIRS, number // _ESTIMATE_PER_STAGE)
        rows = rows[per_row(F.evals, len(memory.upper))[rows] + samples <= self.max_samples]
        self._certify(rows, samples, memory, F)
        super()._certify_again(rows[memory.upper[rows] > self.eps], samples, memory, F)

    def _deltas(self, corrections: int, pair_tests: int) -> tuple[float, float]:
        """The failure probabilities of the next estimate, and of the next test by pairs that it is used in."""
        delta = (1 - self.confidence) * _FIRST_CORRECTION_PART * _LATER_CORRECTION_FACTOR**corrections
        return 0.9 * delta, 0.1 * delta / ((pair_tests + 1) * (pair_tests + 2))

    def _estimate_at(self, rows: Rows, counts: IntArray, memory: State, F: Session) -> None:
        """Make the points of some rows anchors, and estimate F there: if `counts` samples fall short, with more."""
        memory.anchor = arrays.put(memory.anchor, rows, memory.x[rows])
        memory.estimate_samples[rows] = 0
        self._add_samples(rows, counts, memory, F)
        missing = self._missing_samples(rows, _ESTIMATE_ERROR * self.eps, memory)
        counts = rounded_up(np.maximum(1, _SAMPLES_MARGIN * missing))
        cost = counts + self._epoch_cost(memory.estimate_samples[rows] + counts, memory.wanted_pairs[rows])
        some = (missing >= _MIN_PAIRS) & (per_row(F.evals, len(memory.upper))[rows] + cost <= self.max_samples)
        self._add_samples(rows[some], counts[some], memory, F)
        memory.step = arrays.put(memory.step, rows, float(np.max(self.method(FIRST_STAGE).step_size)))
        memory.size[rows] = arrays.row_norms(memory.estimate)[rows]
        self._bound_at_anchors(rows, memory)

    def _bound_at_anchors(self, rows: Rows, memory: State) -> None:
        """Bound the residual of some rows at their anchors: the estimates there need no pairs."""
        for row in rows[memory.trace[rows] > 0]:  # else there may be noise that no sample showed
            at_anchor = self._saved_estimate(row[None], memory)
            sizes = arrays.row_norms(at_anchor.value)
            upper = sizes + at_anchor.radius(self._deltas(int(memory.corrections[row]), 0)[0])
            self._remember(row[None], memory.anchor, at_anchor, None, sizes, upper, memory)

    def _missing_samples(self, rows: Rows, error: Array | float, memory: State) -> Array:
        """Samples that the estimates of some rows lack for an error of at most `error`, one number or one per row."""
        deltas = [self._deltas(int(memory.corrections[row]), 0)[0] for row in rows]
        errors = [self._saved_estimate(row[None], memory).radius(d)[0] for row, d in zip(rows, deltas, strict=True)]
        return memory.estimate_samples[rows] * np.maximum((np.array(errors) / error) ** 2 - 1, 0)

    def _add_samples(self, rows: Rows, counts: IntArray, memory: State, F: Session) -> None:
        """Add fresh samples to the estimates of some rows, a number for each."""
        for some, count in grouped(rows, counts):
            made = estimate(F.at(mask_of(some, len(memory.upper))), arrays.take(memory.anchor, some), count)
            memory.certificate_samples[some] += made.samples
            for part, known in grouped(some, memory.estimate_samples[some]):
                new = made.take(np.isin(some, part))
                pooled = self._saved_estimate(part, memory).pooled(new) if known else new
                memory.estimate = arrays.put(memory.estimate, part, pooled.value)
                memory.estimate_samples[part] = pooled.samples
                memory.estimate_groups[part] = pooled.groups
                for name, values in pooled.deviation._asdict().items():
                    getattr(memory, name)[part] = values
        memory.pair_tests[rows] = 0

    def _saved_estimate(self, rows: Rows, memory: State) -> MeanEstimate:
        """The estimate at the anchors of rows that have the same number of samples."""
        deviation = Deviation(*(getattr(memory, name)[rows] for name in Deviation._fields))
        samples, groups = int(memory.estimate_samples[rows[0]]), int(memory.estimate_groups[rows].min())
        return MeanEstimate(arrays.take(memory.estimate, rows), deviation, samples, groups)

    def _after_epoch(self, steps: int, memory: State, s: State, F: Session) -> IntArray:
        """Bound the residual at the mean of the second half of an epoch; then another epoch, or another stage."""
        xp = arrays.namespace(s.x)
        moved = s.step > 0
        x = xp.where(moved, s.total / (steps - steps // 2), memory.anchor)
        fit = step_from(s, memory.step, steps)
        memory.step = xp.where(moved, xp.minimum(2 * memory.step, fit), xp.minimum(memory.step / 4, fit))
        pairs = rounded_up(np.maximum(_MIN_PAIRS, memory.wanted_pairs))
        sizes, pair_errors = self._confirm(np.arange(len(pairs)), pairs, x, memory, F)
        self._confirm_with_more_pairs(sizes, pair_errors, pairs, x, memory, F)

        fell = sizes < _WORTHWHILE * memory.size
        better = np.flatnonzero(sizes < memory.size)
        memory.x = arrays.put(arrays.copy(memory.anchor), better, x[better])
        memory.size = np.minimum(sizes, memory.size)
        next_cost = 4 * steps * self.batch
        again = (fell | ~arrays.to_host(moved)[:, 0]) & (next_cost <= memory.estimate_samples)
        again &= per_row(F.evals, len(pairs)) + next_cost + 2 * pairs <= self.max_samples
        numbers = np.where(again, _EPOCH_STAGE + 2 * steps, self._next_lengths(memory, F))

        stopped = np.flatnonzero(~again & (memory.upper > self.eps))
        memory.corrections[stopped] += 1
        improved = self._improve_estimates(stopped, sizes, pair_errors, pairs, steps, memory, F)
        numbers[improved] = _EPOCH_STAGE + np.maximum(steps // 2, _SHORTEST_EPOCH)
        return np.where(memory.upper > self.eps, numbers, END)

    def _confirm_with_more_pairs(
        self, sizes: Array, pair_errors: Array, pairs: IntArray, x: Array, memory: State, F: Session
    ) -> None:
        """Confirm rows again for which only the pairs were too few; updates their sizes."""
        with np.errstate(divide="ignore", invalid="ignore"):
            more = pairs * (pair_errors / (self.eps - memory.estimate_error - sizes)) ** 2
        possible = (memory.upper > self.eps) & (sizes + memory.estimate_error < self.eps)
        payable = per_row(F.evals, len(pairs)) + 4 * np.maximum(more, pairs) <= self.max_samples
        worth = possible & (2 * more <= memory.estimate_samples) & payable
        if (rows := np.flatnonzero(worth)).size:
            more = rounded_up(np.where(worth, 1.5 * np.maximum(more, pairs), 1))
            sizes[rows] = self._confirm(rows, more, x, memory, F)[0][rows]

    def _improve_estimates(
        self, rows: Rows, sizes: Array, pair_errors: Array, pairs: IntArray, steps: int, memory: State, F: Session
    ) -> Rows:
        """Add samples to estimates that are all that is missing, where rows can pay for it and an epoch; these rows."""
        corrected = sizes + np.minimum(pair_errors, _PAIR_ERROR * self.eps)
        beside_error = np.minimum(corrected, arrays.row_norms(memory.estimate))  # at the corrected point, or the anchor
        error = np.minimum(_BETTER_ESTIMATE_ERROR * self.eps, 0.95 * (self.eps - beside_error))
        worth = (error >= _WORTH_IMPROVING * self.eps) & (memory.corrections < _MAX_CORRECTIONS)
        rows = rows[worth[rows]]
        if not rows.size:
            return rows
        samples = memory.estimate_samples[rows]
        more = np.maximum(self._missing_samples(rows, error[rows], memory), samples / 4)
        cost = self._correction_cost(more, samples / 2) + 2 * steps * self.batch
        payable = per_row(F.evals, len(pairs))[rows] + cost <= self.max_samples
        some = payable & (more <= 4 * samples)
        rows, more = rows[some], more[some]
        factor = np.maximum(1, pair_errors[rows] / (_PAIR_ERROR * self.eps)) ** 2
        memory.wanted_pairs[rows] = np.minimum(pairs[rows] * factor, memory.estimate_samples[rows] / 2)
        self._add_samples(rows, rounded_up(more), memory, F)
        self._bound_at_anchors(rows, memory)
        memory.size[rows] = np.inf
        return rows

    def _confirm(self, rows: Rows, pairs: IntArray, x: Array, memory: State, F: Session) -> tuple[Array, Array]:
        """Bound the residual of some rows at x by fresh pairs: its estimated size, and what pairs add to the bound.

        `pairs` and both results have a number for every row; the results are infinite for rows not confirmed.
        """
        total = len(memory.upper)
        sizes = np.full(total, np.inf)
        pair_errors = np.full(total, np.inf)
        keys = np.stack([memory.estimate_samples, memory.corrections, memory.pair_tests, pairs])[:, rows]
        for key in np.unique(keys, axis=1).T:
            _, corrections, pair_tests, count = key.tolist()
            some = rows[(key == keys.T).all(axis=1)]
            deltas = self._deltas(corrections, pair_tests)
            at_anchor = self._saved_estimate(some, memory)
            anchors = arrays.take(memory.anchor, some)
            change = estimate(F.at(mask_of(some, total)), x[some], count, anchors)
            sizes[some], upper = bound(at_anchor, change, *deltas)
            memory.estimate_error[some] = at_anchor.radius(deltas[0])
            pair_errors[some] = upper - sizes[some] - memory.estimate_error[some]
            memory.certificate_samples[some] += change.samples
            memory.pair_tests[some] += 1
            self._remember(some, x, at_anchor, change, sizes[some], upper, memory)
        return sizes, pair_errors

    def _remember(
        self,
        rows: Rows,
        x: Array,
        at_anchor: MeanEstimate,
        change: MeanEstimate | None,
        sizes: Array,
        upper: Array,
        memory: State,
    ) -> None:
        """Remember the bounds of some rows at x, and the points with smaller bounds than before.

        `change` is None at the anchors themselves.
        """
        squares = sizes**2 + at_anchor.deviation.trace  # expected at such a point
        if change is not None:
            squares = squares + change.deviation.trace
        residuals = np.sqrt(squares)
        memory.latest_residual[rows] = residuals
        memory.latest_margin[rows] = upper - residuals
        is_best = upper < memory.upper[rows]
        best = rows[is_best]
        memory.best = arrays.put(memory.best, best, x[best])
        noise = np.sqrt(at_anchor.deviation.trace * at_anchor.samples)
        for name, values in zip(NUMBERS, (residuals, 0 * upper, upper, squares, noise), strict=True):
            getattr(memory, name)[best] = values[is_best]
        memory.best_samples[best] = at_anchor.samples + (0 if change is None else change.samples)
        memory.best_is_corrected[best] = change is not None
        memory.best_is_exact[best] = 0

    def _certify(self, rows: Rows, samples: int, memory: State, F: Session) -> None:
        """As in `UntilCertified`; noise that was seen before and is not seen any more may be rare, so it is assumed."""
        upper, noise = memory.upper.copy(), memory.latest_noise.copy()
        super()._certify(rows, samples, memory, F)
        better = memory.upper < upper
        memory.best_is_corrected[better] = 0
        memory.latest_noise[rows] = np.fmax(memory.latest_noise[rows], _NOISE_MEMORY * noise[rows])
        hidden = better & (memory.best_is_exact == 0) & (memory.sigma < memory.latest_noise / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = memory.residual + 2 * memory.latest_noise / np.sqrt(memory.best_samples)
        memory.upper = np.where(hidden, np.fmax(memory.upper, allowed), memory.upper)
