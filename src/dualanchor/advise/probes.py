"""What a calibration does to an oracle: samples at x0, pairs of points, many directions at once."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.oracle import Batch
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array

_HELD = 1 << 23  # numbers that the samples of one pair, or one set of directions, may take
_LARGEST = 1e100  # samples of a larger norm cannot be squared twice


@dataclass
class AtStart:
    """Single samples at x0 as they come in: mean, spread, and the means of a few groups. No sample is stored."""

    dimension: int
    groups: int
    eps: float
    count: int = 0
    squares: float = 0.0
    blocks: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mean = np.zeros(self.dimension)
        self._sums, self._sizes = np.zeros((self.groups, self.dimension)), np.zeros(self.groups, dtype=np.int64)

    def add(self, values: Array) -> None:
        n, mean = len(values), values.mean(axis=0)
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
        return value if value > (64 * self.eps * float(np.linalg.norm(self.mean))) ** 2 else 0.0

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
    """Difference quotients along orthonormal directions (p, d), from two independent batches: images (2, p, d)."""

    directions: Array
    images: Array
    exact: bool


class Probe:
    """Samples around x0 within a number of operator evaluations, brought to the host."""

    def __init__(self, F: Session, x0: Array, samples: int, seed: int) -> None:
        self.F, self.samples, self.seed = F, samples, int(seed)
        self.x0, self._start = arrays.to_host(x0), x0  # on the host, and as the oracle takes it
        self.dimension = x0.shape[1]
        self.norm = float(np.linalg.norm(self.x0))
        self.eps = float(np.finfo(self.x0.dtype).eps)
        self.alike = max(1e-6, 1e3 * self.eps)  # relative differences that are put down to rounding
        # Replication 1 of the same purpose: x0 is one row, replication 0, so no sample depends on the directions.
        self._rng = Streams(seed, np.ones(1, dtype=np.int64), Purpose.PILOT).generators()[0]
        self.at_x0 = AtStart(self.dimension, min(32, max(8, samples // 16)), self.eps)
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
        values = np.empty((count, self.dimension))
        for value in values:
            self._sample(self._start, self.F.draw(size), value)
        return values

    def pair(self, direction: Array, distance: float, count: int) -> Pair:
        """`count` single samples at x0 and as many at a point in this direction, the same ones if possible."""
        count = min(count, self.most)
        y = (self.x0 + distance * direction).astype(self.x0.dtype)
        there = arrays.like(y, self._start)
        at_x, at_y = np.empty((2, count, self.dimension))
        for i in range(count):
            batch = self.F.draw(1)
            self._sample(self._start, batch, at_x[i])
            self._sample(there, batch if self.replayable else self.F.draw(1), at_y[i])
        self.at_x0.add(at_x)
        step = y[0].astype(float) - self.x0[0]
        length = float(np.linalg.norm(step))
        change = (at_y - at_x) / length
        mean, square = change.mean(axis=0), _squares(change)
        spread_x, spread_y = (count / (count - 1) * _squares(at - at.mean(axis=0)) for at in (at_x, at_y))
        size = float(np.linalg.norm(at_x[0]) + np.linalg.norm(at_y[0])) / length
        reach = float(np.sqrt(square.mean())) * (2 * self.norm + length) / length
        return Pair(
            direction=step / length,
            distance=length,
            inner=change @ (step / length),
            square=square,
            leave_one_out=(count * (change @ mean) - square) / (count - 1),
            growth=spread_y - spread_x,
            variance=float(spread_y.mean()),
            image=mean,
            rounding=32 * self.eps * (size + reach),
        )

    def along(self, directions: Array, distance: float, size: int) -> Directions:
        images, start = np.empty((2, *directions.shape)), np.empty(self.dimension)
        points = arrays.like((self.x0 + distance * directions).astype(self.x0.dtype), self._start)
        for image in images:
            batch = self.F.draw(size)
            self._sample(self._start, batch, start)
            for j, value in enumerate(image):
                self._sample(points[j : j + 1], batch if self.replayable else self.F.draw(size), value)
            image[...] = (image - start) / distance
        noise, signal = np.linalg.norm(images[0] - images[1]), np.linalg.norm(images)
        return Directions(directions, images, bool(noise <= self.alike * signal))

    def _same_again(self) -> bool:
        batch, values = self.F.draw(1), np.empty((2, self.dimension))
        for value in values:
            self._sample(self._start, batch, value)
        return bool(np.array_equal(*values))

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
    return np.asarray(vector / np.linalg.norm(vector))


def _squares(rows: Array) -> Array:
    return np.einsum("ij,ij->i", rows, rows)
