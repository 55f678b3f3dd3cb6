"""How a calibration samples an oracle: single samples at x0, pairs of points, and many directions at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.finding import Finding
from dualanchor.core.oracle import Batch
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams, state_of_globals
from dualanchor.core.types import Array

Project: TypeAlias = Callable[[Array], Array]  # maps points (rows, d) to the nearest ones where the oracle is defined

_MAX_NUMBERS = 1 << 23  # numbers held in memory for the samples of one pair or one sketch
_STORED_SAMPLES = 32  # samples at x0 that are kept, to recognise values that recur
_DIRECTION_TRIES = 8  # directions tried at one distance when the domain is restricted
_MIN_STEP = 0.1  # shortest accepted step after projection, relative to the requested distance
_DISTANCE_TRIES = 24  # distances tried, each a quarter of the one before, when the domain is small
_MAX_NORM = 1e75  # larger samples overflow when they are squared twice
_UNIT_RATIO = 100  # two coordinates differ in their units if noise and slopes both differ by this factor


@dataclass
class StartSamples:
    """Running statistics of single samples at x0: mean, variance, and the means of a few groups."""

    dimension: int
    groups: int
    eps: float
    rounding: float = 0.0  # known absolute error of a value at x0, if larger than its own rounding
    count: int = 0
    sum_of_squares: float = 0.0
    stored: list[Array] = field(default_factory=list)  # the first samples
    blocks: list[tuple[int, float]] = field(default_factory=list)  # size and variance of each block added

    def __post_init__(self) -> None:
        self.mean = np.zeros(self.dimension)
        self._group_sums = np.zeros((self.groups, self.dimension))
        self._group_sizes = np.zeros(self.groups, dtype=np.int64)

    def add(self, values: Array) -> None:
        """Add a block of samples (n, d); sample i of all goes into group i modulo the number of groups."""
        n, block_mean = len(values), values.mean(axis=0)
        self.stored += [value.copy() for value in values[: _STORED_SAMPLES - len(self.stored)]]
        within = float(np.square(values - block_mean).sum())
        if n > 1:
            self.blocks.append((n, within / (n - 1)))
        change, total = block_mean - self.mean, self.count + n
        self.sum_of_squares += within + float(change @ change) * self.count * n / total
        self.mean = self.mean + change * (n / total)
        group = np.arange(self.count, total) % self.groups
        for start in range(0, n, self.groups):  # of samples that go into different groups
            self._group_sums[group[start : start + self.groups]] += values[start : start + self.groups]
        self._group_sizes += np.bincount(group, minlength=self.groups)
        self.count = total

    @property
    def variance(self) -> float:
        """The unbiased estimate of the trace of the covariance of one sample; 0 if rounding explains it."""
        variance = self.sum_of_squares / max(1, self.count - 1)
        return variance if variance > self.rounding_variance else 0.0

    @property
    def rounding_variance(self) -> float:
        """The largest variance, or squared difference of means, that rounding alone can cause."""
        return max(self.rounding, 64 * self.eps * float(np.linalg.norm(self.mean))) ** 2

    @property
    def noisy_coordinates(self) -> tuple[Array, Array]:
        """Indices of the coordinates in which the stored samples differ, and their standard deviations."""
        deviations = np.std(self.stored, axis=0)
        noisy = np.flatnonzero(deviations**2 > self.rounding_variance)
        return noisy, deviations[noisy]

    @property
    def group_means(self) -> Array:
        """The means of the groups, (groups, d)."""
        return self._group_sums / np.maximum(1, self._group_sizes)[:, None]


class Pair(NamedTuple):
    """Samples at x0 and at y = x0 + `distance` v; arrays have one number per draw.

    The difference quotient of one draw is δ = (F̂(y) - F̂(x0))/`distance`.
    """

    direction: Array  # v
    distance: float
    inner: Array  # <δ, v>, with mean <F(y) - F(x0), y - x0>/|y - x0|²
    square: Array  # |δ|²
    products: Array  # <δ_i, mean of the other δ>, with mean |F(y) - F(x0)|²/|y - x0|²
    excess: Array  # squared distance of the sample at y from its mean, minus that at x0
    variance: float  # of one sample at y
    image: Array  # the mean of δ, about Jv, (d,)
    rounding: float  # error of `inner` from rounding alone


class Sketch(NamedTuple):
    """Difference quotients of F along directions (p, d) from b independent batches: images (b, p, d), about Jv.

    The first `random` directions are orthonormal and were drawn at random; the others were chosen.
    """

    directions: Array
    images: Array
    exact: bool  # whether all batches give the same images
    random: int
    batches: list[Batch]
    at_x0: Array  # values of the batches at x0, (b, d)
    spread: float = 0.0  # the largest difference between images of different batches, ...
    size: float = 0.0  # ... and the largest number in them


class Probe:
    """Samples around x0 within a budget of operator evaluations, as NumPy arrays of doubles."""

    def __init__(self, F: Session, x0: Array, samples: int, seed: int, project: Project | None = None) -> None:
        self.F = F
        self.samples = samples
        self.seed = int(seed)
        self._project = project
        self._oracle_x0 = x0  # in the array library of the oracle
        self.x0 = arrays.to_host(x0)
        self.dimension = x0.shape[1]
        self.norm = float(np.linalg.norm(self.x0))
        self.eps = float(np.finfo(self.x0.dtype).eps)
        self.tolerance = max(1e-6, 1e3 * self.eps)  # smaller relative differences are put down to rounding
        # Replication 1 of the same purpose: x0 uses replication 0, so no sample depends on the directions.
        self._rng = Streams(seed, np.ones(1, dtype=np.int64), Purpose.PILOT).generators()[0]
        groups = 4 if samples < 64 else min(32, max(8, samples // 16))
        self.start = StartSamples(self.dimension, groups, self.eps)
        self.max_draws = max(8, _MAX_NUMBERS // self.dimension)
        declared = F.oracle.replayable
        self.replayable = declared is not False and self._repeats_a_sample(declared is None)
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
        """Orthonormal directions, (count, d)."""
        return np.linalg.qr(self._rng.standard_normal((self.dimension, count)))[0].T

    def sample_start(self, count: int) -> None:
        """Add `count` single samples at x0, in blocks."""
        block = min(self.max_draws, 32, max(4, count // 8))
        for done in range(0, count, block):
            self.start.add(self.batch_means(min(block, count - done), 1))

    def batch_means(self, count: int, size: int) -> Array:
        """Means of `size` samples at x0, as the oracle computes them, (count, d)."""
        return self._values([self._oracle_x0], [self.F.draw(size) for _ in range(count)])[0]

    def single_and_batch_means(self, count: int, size: int) -> Array:
        """Single samples at x0 and means of `size`, each pair from the same state of the streams, (2, count, d)."""
        single_batches, batches = [], []
        for _ in range(count):
            position = self.F.streams.position
            batches.append(self.F.draw(size))
            after, draws = self.F.streams.position, self.F.draws
            self.F.streams.position = position
            single_batches.append(self.F.draw(1))
            self.F.streams.position, self.F.draws = after, draws  # the single sample is not a fresh one
        means, singles = (self._values([self._oracle_x0], drawn) for drawn in (batches, single_batches))
        return np.concatenate([singles, means])

    def _point(self, direction: Array, distance: float) -> tuple[Array, Array]:
        """A point in this direction, for the oracle, and its offset from x0; within the domain if one is given.

        Where the projection leads back to x0, other directions and then smaller distances are tried.
        """
        requested = distance
        shortest = sqrt(self.eps) * self.norm  # a nearer point could be rounded to x0
        for k in range(_DIRECTION_TRIES * (1 if self._project is None else _DISTANCE_TRIES)):
            distance = max(requested / 4 ** (k // _DIRECTION_TRIES), shortest)
            for sign in (1, -1):
                y = arrays.like((self.x0 + sign * distance * direction).astype(self.x0.dtype), self._oracle_x0)
                y = y if self._project is None else self._project(y)
                offset = arrays.to_host(y)[0].astype(float) - self.x0[0]
                if np.linalg.norm(offset) >= max(_MIN_STEP * distance, np.finfo(float).tiny):
                    return y, offset
            direction = self.random_direction()
        rule = "calibrate: the domain must contain points around x0"
        received = f"none at a distance of {distance:.3g}"
        raise OracleError(rule, received, "Start within the domain, or pass a smaller radius")

    def pair(self, direction: Array, distance: float, count: int) -> Pair:
        """`count` single samples at x0 and as many at a point in this direction, the same ones if possible."""
        return self.pairs(direction[None], distance, count)[0]

    def pairs(self, directions: Array, distance: float, count: int) -> list[Pair]:
        """A pair for each of the directions (p, d); all of them share the samples at x0."""
        points = [self._point(direction, distance) for direction in directions]
        batches = [self.F.draw(1) for _ in range(min(count, self.max_draws))]
        at_x0, *at_points = self._values([self._oracle_x0, *(y for y, _ in points)], batches)
        self.start.add(at_x0)
        return [self._compare(at_x0, at_y, offset) for (_, offset), at_y in zip(points, at_points, strict=True)]

    def _compare(self, at_x0: Array, at_y: Array, offset: Array) -> Pair:
        count, distance = len(at_x0), float(np.linalg.norm(offset))
        change = (at_y - at_x0) / distance
        image, square = change.mean(axis=0), _row_squares(change)
        spread_x0, spread_y = (count / (count - 1) * _row_squares(at - at.mean(axis=0)) for at in (at_x0, at_y))
        size = float(np.linalg.norm(at_x0[0]) + np.linalg.norm(at_y[0])) / distance
        slope_error = float(np.sqrt(square.mean())) * (2 * self.norm + distance) / distance
        rounding = 32 * self.eps * (size + slope_error)
        if not self.start.rounding:
            self.start.rounding = rounding * distance
        return Pair(
            direction=offset / distance,
            distance=distance,
            inner=change @ (offset / distance),
            square=square,
            products=(count * (change @ image) - square) / (count - 1),
            excess=spread_y - spread_x0,
            variance=float(spread_y.mean()),
            image=image,
            rounding=inf if self._hides_noise(spread_x0) else rounding,
        )

    def _hides_noise(self, spread: Array) -> bool:
        """Whether samples at x0 with this spread are all the same one, although the oracle is noisy."""
        return not spread.any() and self.start.variance > 0

    def sketch(self, directions: Array, distance: float, count: int, size: int) -> Sketch:
        """Difference quotients along directions (p, d) on `count` batches of one size."""
        batches = [self.F.draw(size) for _ in range(count)]
        at_x0 = self._values([self._oracle_x0], batches)[0]
        random = len(directions) if self._project is None else 0
        empty = Sketch(directions[:0], np.empty((count, 0, self.dimension)), True, random, batches, at_x0)
        return self.extend(empty, directions, distance)

    def extend(self, sketch: Sketch, directions: Array, distance: float) -> Sketch:
        """The sketch with more directions, on the same batches if the oracle can repeat them."""
        points, offsets = zip(*(self._point(direction, distance) for direction in directions), strict=True)
        lengths = np.array([np.linalg.norm(offset) for offset in offsets])
        values = self._values(points, sketch.batches, reused=True)
        new_images = ((values - sketch.at_x0) / lengths[:, None, None]).swapaxes(0, 1)
        spread = max(sketch.spread, float(np.ptp(new_images, axis=0).max()))
        size = max(sketch.size, float(np.abs(new_images).max()))
        return sketch._replace(
            directions=np.concatenate([sketch.directions, np.array(offsets) / lengths[:, None]]),
            images=np.concatenate([sketch.images, new_images], axis=1),
            exact=spread <= self.tolerance * size and not self._hides_noise(np.ptp(sketch.at_x0, axis=0)),
            spread=spread,
            size=size,
        )

    def _repeats_a_sample(self, globals_too: bool) -> bool:
        """Whether a sample is the same the second time.

        With `globals_too`, also generators of the process must be left where they were: one that drops units at random,
        say, rarely shows in a single sample. Those that the sampler seeds itself are in the same state after both.
        """
        batch, values, states = self.F.draw(1), np.empty((2, self.dimension)), []
        for value in values:
            self._evaluate(self._oracle_x0, batch, value)
            states.append(state_of_globals() if globals_too else b"")
        self.start.add(values[:1])
        return bool(np.array_equal(*values)) and states[0] == states[1]

    def _values(self, points: Sequence[Array], batches: list[Batch], reused: bool = False) -> Array:
        """Values at every point for every batch, (points, batches, d).

        If the oracle cannot repeat samples, each batch serves the first point only, or none if it is `reused`, and all
        others get fresh batches of the same size.
        """
        values = self.F.table(points, batches) if self.replayable else None
        if values is not None and np.abs(values).max().astype(float) <= _MAX_NORM / self.dimension**0.5:
            return values[:, :, 0].astype(float)
        values = np.empty((len(points), len(batches), self.dimension))
        for j, batch in enumerate(batches):
            for i, point in enumerate(points):
                usable = self.replayable or (i == 0 and not reused)
                self._evaluate(point, batch if usable else self.F.draw(int(batch.size)), values[i, j])
        return values

    def _evaluate(self, x: Array, batch: Batch, out: Array) -> None:
        """Write the value at x (1, d) into `out` (d,); raise if it is not finite."""
        value = self.F(x, batch)[0]
        self.F.checking = False  # the session has examined the first value; the norm below covers all others
        out[...] = value if isinstance(value, np.ndarray) else arrays.to_host(value)
        if not out.dot(out) <= _MAX_NORM**2:
            self.F.checking = True
            self.F(x, batch)  # raises if this is a NaN
            rule = "calibrate: samples must be finite and small enough to be squared"
            distance = np.linalg.norm(arrays.to_host(x) - self.x0)
            received = f"{np.abs(out).max():.3g} at a distance of {distance:.3g} from x0"
            raise OracleError(rule, received, "Fix the sampler, start elsewhere, or stay nearer with a smaller radius")


def unit(vector: Any) -> Array:
    """The vector divided by its norm."""
    vector = vector / np.abs(vector).max()  # otherwise the squares of very small numbers underflow
    return np.asarray(vector / np.linalg.norm(vector))


def orthogonal_part(vector: Array, basis: Array) -> Array:
    """The part of a vector (d,) that is orthogonal to the orthonormal vectors (p, d)."""
    for _ in range(2):  # the second pass removes rounding errors of the first
        vector = vector - (basis @ vector) @ basis
    return vector


def _row_squares(rows: Array) -> Array:
    return np.einsum("ij,ij->i", rows, rows)


def unit_findings(start: StartSamples, pairs: list[Pair]) -> Iterator[Finding]:
    """A finding if coordinates have different units, judged by both their noise and their slopes."""
    coordinates, noise = start.noisy_coordinates
    slopes = np.sqrt(sum(pair.image[coordinates] ** 2 for pair in pairs))
    visible = slopes > 0
    if np.count_nonzero(visible) < 2:
        return
    coordinates, scales = coordinates[visible], np.array([noise, slopes])[:, visible]
    large, small = scales[0].argmax(), scales[0].argmin()
    factor = (scales[:, large] / scales[:, small]).min()
    if factor >= _UNIT_RATIO:
        yield Finding.of("scales-differ", factor=factor, large=coordinates[large], small=coordinates[small])
