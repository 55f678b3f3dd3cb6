"""Estimates of residuals along a run from its own samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.types import Array, Rows

if TYPE_CHECKING:
    from dualanchor.core.method import State

LARGEST = 1 << 16  # coordinates of all rows together; beyond it, one more pass over them takes too much time


class ResidualEstimate(NamedTuple):
    """Estimated squared residuals (rows,), each a mean over `rounds` independent squares of means of `samples` samples.

    Noise is not subtracted: on average they are too large by sigma^2/samples. NaN, 0 and 0 if there were no samples.
    """

    squares: Array
    samples: float
    rounds: int


@dataclass(slots=True, eq=False, repr=False)
class Trail:
    """Sums over the fresh batches of a run since the last line of its history, to estimate residuals.

    For a method that samples at its iterate, the estimate is the mean of the squared batch means. A method that
    samples elsewhere returns a mean of those points; the estimate is then the square of the mean of all samples, which
    for affine F is the residual at the mean of the points.

    Attributes
    ----------
    squares : array (rows, d), sum of the squared batch means at the iterate, which is the `x` of `state`
    total : array (rows, d), sum of the samples drawn elsewhere
    counts : list of four numbers; all rows share batch sizes
        The sum of 1/size and the number of the batches at the iterate; samples and number of the other batches.
    """

    total: Array
    squares: Array
    counts: list[float]
    state: State | None = None

    @classmethod
    def along(cls, x: Array) -> Trail | None:
        """An empty trail for points x (rows, d); None where it would be slow: many numbers, or not in main memory."""
        slow = not arrays.is_on_host(x) or x.shape[0] * x.shape[1] > LARGEST
        return None if slow else cls(np.zeros(x.shape), np.zeros(x.shape), [0.0, 0.0, 0.0, 0.0])

    def add(self, x: Array, value: Array, size: int) -> None:
        """Add the means (rows, d) of `size` samples at x."""
        counts = self.counts
        if not isinstance(value, np.ndarray):
            value = arrays.to_host(value)
        if self.state is not None and x is self.state.x:
            self.squares += value * value
            counts[0] += 1 / size
            counts[1] += 1
        else:
            self.total += value if size == 1 else size * value
            counts[2] += size
            counts[3] += 1

    def estimate(self) -> ResidualEstimate:
        """The residuals, estimated from all batches since the last `clear`."""
        inverse_sizes, at_iterate, samples, elsewhere = self.counts
        with np.errstate(invalid="ignore", over="ignore"):
            if at_iterate:
                squares = self.squares.sum(axis=1) / at_iterate
                return ResidualEstimate(squares, at_iterate / inverse_sizes, int(at_iterate))
            if not elsewhere:
                return ResidualEstimate(np.full(len(self.total), np.nan), 0.0, 0)
            return ResidualEstimate(np.einsum("ij,ij->i", self.total, self.total) / samples**2, samples, 1)

    def clear(self) -> None:
        """Set all sums to zero."""
        self.total[...] = 0.0
        self.squares[...] = 0.0
        self.counts = [0.0, 0.0, 0.0, 0.0]

    def take(self, rows: Rows) -> Self:
        """The sums of a selection of the rows; a copy."""
        return type(self)(self.total[rows].copy(), self.squares[rows].copy(), list(self.counts))

    def packed(self) -> Array:
        """All sums in one array (rows, 2 d + 4), for a checkpoint: `total`, `squares`, `counts`."""
        counts = np.broadcast_to(self.counts, (len(self.total), 4))
        return np.concatenate([self.total, self.squares, counts], axis=1)

    @classmethod
    def unpacked(cls, packed: Array) -> Self:
        """The trail that `packed` wrote."""
        total, squares = np.split(packed[:, :-4], 2, axis=1)
        return cls(total.copy(), squares.copy(), packed[0, -4:].tolist())
