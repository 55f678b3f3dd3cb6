"""An accuracy by correction: near a root, one good estimate of F and pairs of samples lead to a point with a bound."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.advise.anchored import Estimate, bound, estimate
from dualanchor.core import arrays
from dualanchor.core.certificate import NUMBERS
from dualanchor.core.method import State
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage
from dualanchor.core.streams import per_row
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.front.stages import FIRST_STAGE, UntilCertified, alike, mask_of, rounded_up
from dualanchor.methods.svrg import Epoch, step_from
from dualanchor.theory.confidence import Deviation

_EPOCH = 1 << 40  # a stage with this number and more: an epoch of so many steps
_SHORTEST_EPOCH = 32  # steps
_EPOCH_SHARE = 16  # samples of an estimate for one step of the first epoch after it
_ERROR, _PAIR_ERROR = 0.82, 0.1  # of eps: how far the estimate at an anchor may be from F there, and one by pairs
_MOST_PAIRS = 2  # samples of an estimate for each pair, at least
_NEAR = 8.0  # times eps: the residual at an anchor is at most that
_SHARE = 4  # samples of an estimate for one of the stage before it
_LOOK = 16  # samples of a stage for one of the look after it
_PAIRS = 64  # at least
_TRIES = 3
_FORGOTTEN = 0.9  # of the noise seen before: at least so much is believed to be there, until more samples say otherwise
_FELL = 0.7  # of the size before an epoch: another one is worth it
_REACHED = 0.3  # of eps: where what is left, and the error of the pairs, are below that, only the estimate is too poor
_BETTER_ERROR = 0.75  # of eps: the error of the estimate after that
_MARGIN = 1.05
_UNLIKELY, _UNLIKELY_PAIRS = 1.5, 4.0  # the square of a norm that noise hardly exceeds, over its mean: a first guess
_LOOKS, _FIRST, _LATER = 0.2, 0.64, 0.2  # parts of the failure probability: looks; first estimate; each later one


@dataclass(frozen=True)
class UntilCorrected(UntilCertified):
    r"""Stages as `UntilCertified`, and where one is near a root, a correction of its point w that is certified with it.

    The estimate :math:`\hat f` of F(w) has as many fresh samples as make its error at most 0.82 eps with the confidence
    asked for. Epochs of :math:`z \leftarrow z - a(\hat f + \hat F(z;\xi) - \hat F(w;\xi))` lead to where
    :math:`\hat f + F(z) - F(w)` is small, which fresh pairs confirm; see `advise.anchored` for the bound. For oracles
    whose samples can be evaluated twice. Such steps make the most of their samples (Frostig et al. 2015).
    """

    batch: int = 1  # samples of a step of an epoch
    noise_at_start: float = 0.0  # as calibration saw it

    def begin(self, x0: Array) -> State:
        vectors = {name: arrays.copy(x0) for name in ("anchor", "value", "before")}
        numbers = {name: np.zeros(len(x0)) for name in ("size", "error", *Deviation._fields)}
        counts = {
            name: np.zeros(len(x0), np.int64)
            for name in ("tries", "confirmed", "estimated", "groups", "corrected", "length", "pairs")
        }
        memory = State(**vars(super().begin(x0)), **vectors, **numbers, **counts, step=arrays.zeros_like(x0[:, :1]))
        memory.noise[:] = self.noise_at_start
        return memory

    def stage(self, number: int, memory: State) -> Stage:
        if not _EPOCH <= number < 2 * _EPOCH:
            return super().stage(number, memory)
        steps = number - _EPOCH
        state = Epoch.begin(memory.x, memory.anchor, memory.value, memory.step)
        return Stage(Epoch(self.batch, steps // 2), state, steps)

    def _next(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        if number >= _EPOCH:
            return self._after_epoch(number - _EPOCH, memory, s, F)
        numbers = super()._next(number, memory, s, F)
        needed = self._needed(memory)
        near = (memory.last <= _NEAR * self.eps) & (number * _SHARE >= needed) & (memory.noise > 0)
        spent = per_row(F.evals, len(needed))
        affordable = spent + self._price(needed, 0) <= self.limit
        rows = np.flatnonzero((memory.upper > self.eps) & near & affordable & (memory.tries < _TRIES) & (number > 0))
        if rows.size:
            moved = estimate(F.at(mask_of(rows, len(needed))), memory.x[rows], _PAIRS, memory.before[rows])
            shrunk = np.sqrt(memory.length[rows] / number)  # how much nearer the next point is expected to be
            noise = shrunk * np.sqrt(_PAIRS * moved.deviation.trace)
            memory.pairs[rows] = np.ceil(_UNLIKELY_PAIRS * (noise / (_PAIR_ERROR * self.eps)) ** 2)
            few = _MOST_PAIRS * memory.pairs[rows] <= needed[rows]
            few &= spent[rows] + self._price(needed[rows], memory.pairs[rows]) <= self.limit
            rows = rows[few]
        if number:
            memory.before, memory.length[:] = arrays.copy(memory.x), number
        if rows.size:
            self._anchor(rows, rounded_up(needed[rows]), memory, F)
            numbers[rows] = _EPOCH + self._first_steps(memory)[rows]
        others = np.flatnonzero((numbers != END) & (number * _SHARE >= needed) & (memory.noise > 0) & (number > 0))
        others = np.setdiff1d(others, rows)
        self._certify_as_they_are(others, number, memory, F)
        numbers[others] = self._following(memory, F)[others]
        return np.where(memory.upper > self.eps, numbers, END)

    def _first_steps(self, memory: State) -> IntArray:
        """Steps of the first epoch after an estimate; the second has twice as many, and so on."""
        return np.maximum(_SHORTEST_EPOCH, rounded_up(np.maximum(1, memory.estimated / (_EPOCH_SHARE * self.batch))))

    def _price(self, samples: Array, pairs: Any) -> Array:
        """Evaluations that a correction takes at most, with its first epoch; counts are rounded up."""
        return 2 * _PAIRS + 1.3 * samples + self._price_after(samples, pairs)

    def _price_after(self, samples: Array, pairs: Any) -> Array:
        """Those that follow an estimate of so many samples: an epoch, and the pairs after it."""
        epoch = np.maximum(_SHORTEST_EPOCH * self.batch, samples / _EPOCH_SHARE)
        return 2.5 * (epoch + np.maximum(_PAIRS, pairs))

    def _needed(self, memory: State) -> Array:
        """Samples of an estimate whose error is as small as it must be, by the noise seen last."""
        noise = np.where(np.isfinite(memory.noise), memory.noise, 0.0)
        return np.maximum(self.least, _UNLIKELY * (noise / (_ERROR * self.eps)) ** 2)

    def _growth(self, memory: State) -> IntArray:
        ratio = self._needed(memory) / (_SHARE * self._wanted(memory))
        return np.clip(np.ceil(2 * np.log2(ratio)), 2, 6).astype(int)

    def _judging(self, length: Any) -> Any:
        return np.maximum(_PAIRS, length // _LOOK)

    def _level(self, tests: int) -> float:
        return 1 - _LOOKS * (1 - self.level) / ((tests + 1) * (tests + 2))

    def _worth_another(self, rows: Rows, samples: int, memory: State, F: Session) -> tuple[Rows, IntArray]:
        rows, counts = super()._worth_another(rows, samples, memory, F)
        plain = (memory.noise[rows] == 0) | (memory.last[rows] + memory.width[rows] <= self.eps)  # nothing to correct
        return rows[plain], counts[plain]

    def _certify_as_they_are(self, rows: Rows, number: int, memory: State, F: Session) -> None:
        """Certify the points of some rows, which are not corrected, as `UntilCertified` does."""
        samples = max(_PAIRS, number // _SHARE)
        rows = rows[per_row(F.evals, len(memory.upper))[rows] + samples <= self.limit]
        self._certify(rows, samples, memory, F)
        again = rows[memory.upper[rows] > self.eps]
        for some, count in alike(*super()._worth_another(again, samples, memory, F)):
            self._certify(some, count, memory, F)

    def _deltas(self, tries: int, tests: int) -> tuple[float, float]:
        """The failure probabilities of an estimate and of the test by pairs that follows so many others."""
        delta = (1 - self.level) * _FIRST * _LATER**tries
        return 0.9 * delta, 0.1 * delta / ((tests + 1) * (tests + 2))

    def _anchor(self, rows: Rows, counts: IntArray, memory: State, F: Session) -> None:
        """Estimate F at the points of some rows: with as many samples as expected, and with more where noise has it."""
        memory.anchor = arrays.put(memory.anchor, rows, memory.x[rows])
        memory.estimated[rows] = 0
        self._add(rows, counts, memory, F)
        more = self._short(rows, _ERROR * self.eps, memory)
        counts = rounded_up(np.maximum(1, _MARGIN * more))
        price = counts + self._price_after(memory.estimated[rows] + counts, memory.pairs[rows])
        some = (more >= _PAIRS) & (per_row(F.evals, len(memory.upper))[rows] + price <= self.limit)
        self._add(rows[some], counts[some], memory, F)
        memory.step = arrays.put(memory.step, rows, float(np.max(self.method(FIRST_STAGE).step_size)))
        memory.size[rows] = arrays.row_norms(memory.value)[rows]

    def _short(self, rows: Rows, error: Array | float, memory: State) -> Array:
        """Samples that the estimates of some rows lack for an error of at most `error`."""
        made = [self._estimate(rows[i : i + 1], memory) for i in range(len(rows))]
        now = [one.radius(self._deltas(int(memory.tries[row]), 0)[0])[0] for row, one in zip(rows, made, strict=True)]
        return memory.estimated[rows] * np.maximum((np.array(now) / error) ** 2 - 1, 0)

    def _add(self, rows: Rows, counts: IntArray, memory: State, F: Session) -> None:
        """Add fresh samples to the estimates of some rows."""
        total = len(memory.upper)
        for some, count in alike(rows, counts):
            made = estimate(F.at(mask_of(some, total)), arrays.take(memory.anchor, some), count)
            memory.certified[some] += made.samples
            for before, known in alike(some, memory.estimated[some]):
                part = made.take(np.isin(some, before))
                self._save(before, self._estimate(before, memory).pooled(part) if known else part, memory)
        memory.confirmed[rows] = 0

    def _save(self, rows: Rows, made: Estimate, memory: State) -> None:
        memory.value = arrays.put(memory.value, rows, made.value)
        for name, values in made.deviation._asdict().items():
            getattr(memory, name)[rows] = values
        memory.estimated[rows], memory.groups[rows] = made.samples, made.groups

    def _estimate(self, rows: Any, memory: State) -> Estimate:
        """What was estimated at the anchors of rows that have the same number of samples."""
        rows = np.atleast_1d(rows)
        spread = Deviation(*(getattr(memory, name)[rows] for name in Deviation._fields))
        samples, groups = int(memory.estimated[rows[0]]), int(memory.groups[rows].min())
        return Estimate(arrays.take(memory.value, rows), spread, samples, groups)

    def _after_epoch(self, steps: int, memory: State, s: State, F: Session) -> IntArray:
        """Bound the residual at the mean of the second half, by fresh pairs; then another epoch, or another stage."""
        xp, total, moved = arrays.namespace(s.x), len(memory.upper), s.step > 0
        x = xp.where(moved, s.total / (steps - steps // 2), memory.anchor)
        fit = step_from(s, memory.step, steps)
        memory.step = xp.where(moved, xp.minimum(2 * memory.step, fit), xp.minimum(memory.step / 4, fit))
        pairs = rounded_up(np.maximum(_PAIRS, memory.pairs))
        sizes, missing = self._confirm(np.arange(total), pairs, x, memory, F)
        with np.errstate(divide="ignore", invalid="ignore"):
            more = pairs * (missing / (self.eps - memory.error - sizes)) ** 2  # where only the pairs are too few
        worth = (memory.upper > self.eps) & (sizes + memory.error < self.eps) & (2 * more <= memory.estimated)
        worth &= per_row(F.evals, total) + 4 * np.maximum(more, pairs) <= self.limit
        if (rows := np.flatnonzero(worth)).size:
            more = rounded_up(np.where(worth, 1.5 * np.maximum(more, pairs), 1))
            sizes[rows] = self._confirm(rows, more, x, memory, F)[0][rows]
        fell, better = sizes < _FELL * memory.size, np.flatnonzero(sizes < memory.size)
        memory.x = arrays.put(arrays.copy(memory.anchor), better, x[better])
        memory.size = np.minimum(sizes, memory.size)
        spent, next_price = per_row(F.evals, total), 4 * steps * self.batch
        again = (fell | ~arrays.to_host(moved)[:, 0]) & (next_price <= memory.estimated)
        again &= spent + next_price + 2 * pairs <= self.limit
        following = np.where(again, _EPOCH + 2 * steps, self._following(memory, F))
        stopped = np.flatnonzero(~again & (memory.upper > self.eps))
        memory.tries[stopped] += 1
        rows = stopped[np.maximum(sizes, missing)[stopped] <= _REACHED * self.eps]
        rows = rows[memory.tries[rows] < _TRIES]
        if rows.size:  # as near as this, a better estimate is all that is missing
            more = np.maximum(self._short(rows, _BETTER_ERROR * self.eps, memory), memory.estimated[rows] / 4)
            price = self._price(more, memory.estimated[rows] / 2) + 2 * steps * self.batch
            affordable = (spent[rows] + price <= self.limit) & (more <= 2 * memory.estimated[rows])
            rows, more = rows[affordable], more[affordable]
            factor = np.maximum(1, missing[rows] / (_PAIR_ERROR * self.eps)) ** 2
            memory.pairs[rows] = np.minimum(pairs[rows] * factor, memory.estimated[rows] / 2)
            self._add(rows, rounded_up(more), memory, F)
            following[rows] = _EPOCH + np.maximum(steps // 2, _SHORTEST_EPOCH)
            memory.size[rows] = np.inf
        return np.where(memory.upper > self.eps, following, END)

    def _confirm(self, rows: Rows, pairs: IntArray, x: Array, memory: State, F: Session) -> tuple[Array, Array]:
        """Bound the residual of some rows at x by fresh pairs: its estimated size, and what pairs add to the bound.

        `pairs` has a number for every row.
        """
        total = len(memory.upper)
        sizes, added = np.full(total, np.inf), np.full(total, np.inf)
        facts = np.stack([memory.estimated, memory.tries, memory.confirmed, pairs])[:, rows]
        for alike_in in np.unique(facts, axis=1).T:
            _, tries, tests, count = alike_in.tolist()
            some, deltas = rows[(alike_in == facts.T).all(axis=1)], self._deltas(tries, tests)
            at, beside = self._estimate(some, memory), arrays.take(memory.anchor, some)
            change = estimate(F.at(mask_of(some, total)), x[some], count, beside)
            sizes[some], upper = bound(at, change, *deltas)
            memory.error[some] = at.radius(deltas[0])
            added[some] = upper - sizes[some] - memory.error[some]
            memory.certified[some] += change.samples
            memory.confirmed[some] += 1
            self._keep(some, x, at, change, sizes[some], upper, memory)
        return sizes, added

    def _keep(
        self, rows: Rows, x: Array, at: Estimate, change: Estimate, sizes: Array, upper: Array, memory: State
    ) -> None:
        """Remember points with smaller bounds than before."""
        squares = sizes**2 + at.deviation.trace + change.deviation.trace  # what is expected at such a point
        memory.last[rows], memory.width[rows] = np.sqrt(squares), upper - np.sqrt(squares)
        picked = upper < memory.upper[rows]
        better = rows[picked]
        memory.best = arrays.put(memory.best, better, x[better])
        noise = np.sqrt(at.deviation.trace * at.samples)
        for name, values in zip(NUMBERS, (np.sqrt(squares), 0 * upper, upper, squares, noise), strict=True):
            getattr(memory, name)[better] = values[picked]
        memory.used[better], memory.corrected[better] = at.samples + change.samples, 1
        memory.exact[better] = 0

    def _certify(self, rows: Rows, samples: int, memory: State, F: Session) -> None:
        before, noise = memory.upper.copy(), memory.noise.copy()
        super()._certify(rows, samples, memory, F)
        better = memory.upper < before
        memory.corrected[better] = 0
        # Noise that was seen and is not seen any more may be rare: it is believed to be there for a while.
        memory.noise[rows] = np.fmax(memory.noise[rows], _FORGOTTEN * noise[rows])
        hidden = better & (memory.exact == 0) & (memory.sigma < memory.noise / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = memory.residual + 2 * memory.noise / np.sqrt(memory.used)
        memory.upper = np.where(hidden, np.fmax(memory.upper, allowed), memory.upper)
