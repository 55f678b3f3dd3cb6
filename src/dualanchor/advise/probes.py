"""What a calibration does to an oracle: samples at x0, pairs of points, many directions at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.oracle import Batch
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array

Project: TypeAlias = Callable[[Array], Array]  # points (rows, d) to the nearest ones where an oracle may be sampled

_HELD = 1 << 23  # numbers that the samples of one pair, or one set of directions, may take
_STORED = 32  # samples at x0, to see whether values recur
_TRIES, _ROOM = 8, 0.1  # directions in search of a point of the domain, at least this part of the distance away
_SHRINKS = 24  # times that a distance is divided by 4 where the domain is small
_LARGEST = 1e100  # samples of a larger norm cannot be squared twice


@dataclass
class AtStart:
    """Single samples at x0 as they come in: mean, spread, the means of a few groups; only the first ones are stored."""

    dimension: int
    groups: int
    eps: float
    rounding: float = 0.0  # what a value at x0 may be off by, where that is known to be more than its own rounding
    count: int = 0
    squares: float = 0.0
    first: list[Array] = field(default_factory=list)
    blocks: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mean = np.zeros(self.dimension)
        self._sums, self._sizes = np.zeros((self.groups, self.dimension)), np.zeros(self.groups, dtype=np.int64)

    def add(self, values: Array) -> None:
        n, mean = len(values), values.mean(axis=0)
        self.first += [value.copy() for value in values[: _STORED - len(self.first)]]
        within = float(np.square(values - mean).sum())
        if n > 1:
            self.blocks.append((n, within / (n - 1)))
        change, total = mean - self.mean, self.count + n
        self.squares += within + float(change @ change) * self.count * n / total
        self.mean = self.mean + change * (n / total)
        group = np.arange(self.count, total) % self.groups
        np.add.at(self._sums, group, values)
        self._sizes += np.bincount(group, minlength=self.groups)
        self.count = total

    @property
    def variance(self) -> float:
        """The unbiased estimate of the trace of the covariance of one sample; 0 where only rounding is seen."""
        value = self.squares / max(1, self.count - 1)
        return value if value > self.floor else 0.0

    @property
    def floor(self) -> float:
        """A variance, or squared difference of means, that rounding alone can make."""
        return max(self.rounding, 64 * self.eps * float(np.linalg.norm(self.mean))) ** 2

    @property
    def scales(self) -> tuple[Array, Array]:
        """Coordinates in which the stored samples differ, and their standard deviations."""
        spread = np.std(self.first, axis=0)
        seen = np.flatnonzero(spread**2 > self.floor)
        return seen, spread[seen]

    @property
    def group_means(self) -> Array:
        """The means of the groups; sample i went into group i modulo their number."""
        return self._sums / np.maximum(1, self._sizes)[:, None]


class Pair(NamedTuple):
    """Samples at x0 and y = x0 + `distance` v, arrays with one number per draw; δ = (F̂(y) - F̂(x0))/`distance`."""

    direction: Array  # v
    distance: float
    inner: Array  # <δ, v>, with mean <F(y) - F(x0), y - x0>/|y - x0|²
    square: Array  # |δ|²
    leave_one_out: Array  # <δ_i, mean of the other δ>, with mean |F(y) - F(x0)|²/|y - x0|²
    growth: Array  # how much further the sample at y is from its mean than that at x0, squared
    variance: float  # of one sample at y
    image: Array  # the mean of δ, of shape (d,)
    rounding: float  # what `inner` can be off by from rounding alone


class Directions(NamedTuple):
    """Difference quotients along directions (p, d) from b independent batches: images (b, p, d).

    The first `random` of the directions are orthonormal and were drawn at random; the others were chosen.
    """

    directions: Array
    images: Array
    exact: bool  # whether the batches agree
    random: int
    batches: list[Batch]
    starts: Array  # values at x0, (b, d)


class Probe:
    """Samples around x0 within a number of operator evaluations, brought to the host."""

    def __init__(self, F: Session, x0: Array, samples: int, seed: int, project: Project | None = None) -> None:
        self.F, self.samples, self.seed, self._project = F, samples, int(seed), project
        self.x0, self._start = arrays.to_host(x0), x0  # on the host, and as the oracle takes it
        self.dimension = x0.shape[1]
        self.norm = float(np.linalg.norm(self.x0))
        self.eps = float(np.finfo(self.x0.dtype).eps)
        self.alike = max(1e-6, 1e3 * self.eps)  # relative differences that are put down to rounding
        # Replication 1 of the same purpose: x0 is one row, replication 0, so no sample depends on the directions.
        self._rng = Streams(seed, np.ones(1, dtype=np.int64), Purpose.PILOT).generators()[0]
        groups = 4 if samples < 64 else min(32, max(8, samples // 16))
        self.at_x0 = AtStart(self.dimension, groups, self.eps)
        self.most = max(8, _HELD // self.dimension)
        declared = F.oracle.replayable
        self.replayable = declared is not False and self._same_again()
        self.broken_promise = declared is True and not self.replayable
        self.own_randomness = declared is None and not self.replayable

    @property
    def evals(self) -> int:
        return int(np.max(self.F.evals))

    @property
    def remaining(self) -> int:
        return self.samples - self.evals

    def random_direction(self) -> Array:
        return unit(self._rng.standard_normal(self.dimension))

    def random_directions(self, count: int) -> Array:
        return np.linalg.qr(self._rng.standard_normal((self.dimension, count)))[0].T

    def start(self, count: int) -> None:
        size = min(self.most, 32, max(4, count // 8))
        while count > 0:
            n = min(size, count)
            self.at_x0.add(self.batches(n, 1))
            count -= n

    def batches(self, count: int, size: int) -> Array:
        """Means of `size` samples at x0, as the oracle gives them: (count, d)."""
        return self._samples([self._start], [self.F.draw(size) for _ in range(count)])[0]

    def beside_single(self, count: int, size: int) -> Array:
        """Single samples at x0 and means of `size`, each pair from one state of the generators: (2, count, d)."""
        singles, means = [], []
        for _ in range(count):
            position = self.F.streams.position
            means.append(self.F.draw(size))
            after, draws = self.F.streams.position, self.F.draws
            self.F.streams.position = position
            singles.append(self.F.draw(1))
            self.F.streams.position, self.F.draws = after, draws  # the single sample is not a fresh one
        at_means, at_singles = (self._samples([self._start], batches) for batches in (means, singles))
        return np.concatenate([at_singles, at_means])

    def point(self, direction: Array, distance: float) -> tuple[Array, Array]:
        """A point in this direction as the oracle takes it, or one within the domain, and its offset from x0."""
        wanted, nearest = distance, sqrt(self.eps) * self.norm  # nearer it could be rounded to x0
        for k in range(_TRIES * (1 if self._project is None else _SHRINKS)):
            distance = max(wanted / 4 ** (k // _TRIES), nearest)  # the domain may be small
            for sign in (1, -1):
                there = arrays.like((self.x0 + sign * distance * direction).astype(self.x0.dtype), self._start)
                there = there if self._project is None else self._project(there)
                step = arrays.to_host(there)[0].astype(float) - self.x0[0]
                if np.linalg.norm(step) >= max(_ROOM * distance, np.finfo(float).tiny):
                    return there, step
            direction = self.random_direction()
        rule, received = "calibrate: the domain must have room around x0", f"none at a distance of {distance:.3g}"
        raise OracleError(rule, received, "Start within the domain, or pass a smaller radius")

    def pair(self, direction: Array, distance: float, count: int) -> Pair:
        """`count` single samples at x0 and as many at a point in this direction, the same ones if possible."""
        return self.fan(direction[None], distance, count)[0]

    def fan(self, directions: Array, distance: float, count: int) -> list[Pair]:
        """A pair for each of the directions (p, d), with the same samples at x0 in all of them."""
        count = min(count, self.most)
        points = [self.point(direction, distance) for direction in directions]
        batches = [self.F.draw(1) for _ in range(count)]
        at_x, *at_y = self._samples([self._start, *(there for there, _ in points)], batches)
        self.at_x0.add(at_x)
        return [self._compare(at_x, values, step) for (_, step), values in zip(points, at_y, strict=True)]

    def _compare(self, at_x: Array, at_y: Array, step: Array) -> Pair:
        count, length = len(at_x), float(np.linalg.norm(step))
        change = (at_y - at_x) / length
        mean, square = change.mean(axis=0), _squares(change)
        spread_x, spread_y = (count / (count - 1) * _squares(at - at.mean(axis=0)) for at in (at_x, at_y))
        size = float(np.linalg.norm(at_x[0]) + np.linalg.norm(at_y[0])) / length
        reach = float(np.sqrt(square.mean())) * (2 * self.norm + length) / length
        rounding = 32 * self.eps * (size + reach)
        if not self.at_x0.rounding:
            self.at_x0.rounding = rounding * length
        recurring = not spread_x.any() and self.at_x0.variance > 0  # one sample several times: its noise is not seen
        return Pair(
            direction=step / length,
            distance=length,
            inner=change @ (step / length),
            square=square,
            leave_one_out=(count * (change @ mean) - square) / (count - 1),
            growth=spread_y - spread_x,
            variance=float(spread_y.mean()),
            image=mean,
            rounding=inf if recurring else rounding,
        )

    def along(self, directions: Array, distance: float, batches: int, size: int) -> Directions:
        """Difference quotients along directions (p, d) on a few batches of one size."""
        drawn = [self.F.draw(size) for _ in range(batches)]
        starts = self._samples([self._start], drawn)[0]
        random = len(directions) if self._project is None else 0
        empty = Directions(directions[:0], np.empty((batches, 0, self.dimension)), True, random, drawn, starts)
        return self.extend(empty, directions, distance)

    def extend(self, seen: Directions, directions: Array, distance: float) -> Directions:
        """The same with more directions, on the same batches where they can be had again."""
        theres, found = zip(*(self.point(direction, distance) for direction in directions), strict=True)
        lengths = np.array([np.linalg.norm(step) for step in found])
        steps = np.array(found) / lengths[:, None]
        values = self._samples(theres, seen.batches, again=True)
        images = ((values - seen.starts) / lengths[:, None, None]).swapaxes(0, 1)
        directions, images = np.concatenate([seen.directions, steps]), np.concatenate([seen.images, images], axis=1)
        agree = bool(np.ptp(images, axis=0).max(initial=0.0) <= self.alike * np.abs(images).max(initial=0.0))
        recurring = not np.ptp(seen.starts, axis=0).any() and self.at_x0.variance > 0  # one sample in all batches
        return seen._replace(directions=directions, images=images, exact=agree and not recurring)

    def _same_again(self) -> bool:
        batch, values = self.F.draw(1), np.empty((2, self.dimension))
        for value in values:
            self._sample(self._start, batch, value)
        self.at_x0.add(values[:1])
        return bool(np.array_equal(*values))

    def _samples(self, points: Sequence[Array], batches: list[Batch], again: bool = False) -> Array:
        """Values at every point for every batch, (points, batches, d): fresh ones where they cannot be had again.

        The batches are used for the first time, at the first point, unless `again` says otherwise.
        """
        values = self.F.table(points, batches) if self.replayable else None
        if values is not None and np.abs(values).max().astype(float) <= _LARGEST / self.dimension**0.5:
            return values[:, :, 0].astype(float)
        values = np.empty((len(points), len(batches), self.dimension))
        for j, batch in enumerate(batches):
            for i, there in enumerate(points):
                fresh = batch if self.replayable or (i == 0 and not again) else self.F.draw(int(batch.size))
                self._sample(there, fresh, values[i, j])
        return values

    def _sample(self, x: Array, batch: Batch, out: Array) -> None:
        value = self.F(x, batch)[0]
        self.F.checking = False  # the first value has been examined; what follows examines all of them
        out[...] = value if isinstance(value, np.ndarray) else arrays.to_host(value)
        if not out.dot(out) <= _LARGEST**2:
            self.F.checking = True
            self.F(x, batch)  # raises if this is a NaN
            rule = "calibrate: samples must be finite and small enough to be squared"
            distance = np.linalg.norm(arrays.to_host(x) - self.x0)
            received = f"{np.abs(out).max():.3g} at a distance of {distance:.3g} from x0"
            raise OracleError(rule, received, "Fix the sampler, start elsewhere, or stay nearer with a smaller radius")


def unit(vector: Any) -> Array:
    """The vector divided by its norm."""
    vector = vector / np.abs(vector).max()  # else the squares of very small numbers would be 0
    return np.asarray(vector / np.linalg.norm(vector))


def outside(vector: Array, span: Array) -> Array:
    """The part of a vector (d,) that is orthogonal to vectors (p, d)."""
    basis = np.linalg.qr(span.T)[0]
    for _ in range(2):  # the second time for what rounding left
        vector = vector - basis @ (basis.T @ vector)
    return vector


def _squares(rows: Array) -> Array:
    return np.einsum("ij,ij->i", rows, rows)
