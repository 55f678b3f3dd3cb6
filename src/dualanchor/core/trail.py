"""What a run's own samples say about the residual on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.types import Array, Rows

if TYPE_CHECKING:
    from dualanchor.core.method import State

LARGEST = 1 << 16  # numbers in the points of all rows; beyond, one more pass over them would cost too much


class Seen(NamedTuple):
    """Squares (rows,) of what was seen: without noise those of residuals, with noise sigma^2/samples larger.

    They are means over `rounds` independent squares. NaN and 0 where nothing was seen.
    """

    squares: Array
    samples: float
    rounds: int


class Trail:
    """Sums over the batch means of a run since the last line of its history.

    Of a method that samples at its iterate, mean squares are of interest. One that samples elsewhere returns some mean
    of those points; then it is the square of the mean, that of F at the mean of the points where F is affine.

    `squares` (rows, d) is the sum of the squares of batch means at the iterate, the `x` of `state`; `total` (rows, d)
    that of samples elsewhere. `counts` has the sum of 1/size and the number of the first batches, the samples and the
    number of the others. The sizes of batches are the same for all rows.
    """

    __slots__ = ("counts", "squares", "state", "total")

    def __init__(self, total: Array, squares: Array, counts: list[float]) -> None:
        self.total, self.squares, self.counts = total, squares, counts
        self.state: State | None = None

    @classmethod
    def along(cls, x: Array) -> Trail | None:
        """An empty one for points x (rows, d); None where it would be slow: many numbers, or not in main memory."""
        slow = not arrays.is_on_host(x) or x.shape[0] * x.shape[1] > LARGEST
        return None if slow else cls(np.zeros(x.shape), np.zeros(x.shape), [0.0, 0.0, 0.0, 0.0])

    def add(self, x: Array, value: Array, size: int) -> None:
        """Add means (rows, d) of `size` samples at x."""
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

    def seen(self) -> Seen:
        """What was seen since the last `clear`."""
        inverse, at_iterate, samples, elsewhere = self.counts
        with np.errstate(invalid="ignore", over="ignore"):
            if at_iterate:
                return Seen(self.squares.sum(axis=1) / at_iterate, at_iterate / inverse, int(at_iterate))
            if not elsewhere:
                return Seen(np.full(len(self.total), np.nan), 0.0, 0)
            return Seen(np.einsum("ij,ij->i", self.total, self.total) / samples**2, samples, 1)

    def clear(self) -> None:
        """Begin anew."""
        self.total[...], self.squares[...], self.counts = 0.0, 0.0, [0.0, 0.0, 0.0, 0.0]

    def take(self, rows: Rows) -> Self:
        """The sums of a selection of the rows; a copy."""
        return type(self)(self.total[rows].copy(), self.squares[rows].copy(), list(self.counts))

    def packed(self) -> Array:
        """Everything in one array (rows, 2 d + 4), for a checkpoint: sums, squares, counts."""
        counts = np.broadcast_to(self.counts, (len(self.total), 4))
        return np.concatenate([self.total, self.squares, counts], axis=1)

    @classmethod
    def unpacked(cls, packed: Array) -> Self:
        """What `packed` has written."""
        total, squares = np.split(packed[:, :-4], 2, axis=1)
        return cls(total.copy(), squares.copy(), packed[0, -4:].tolist())
