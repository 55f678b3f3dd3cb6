"""What a run's own samples say about the residual on its way."""

from typing import Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.types import Array, Rows

LARGEST = 1 << 16  # numbers in the points of all rows; beyond, one more pass over them would cost too much


class Trail:
    """Sums of the samples since the last estimate, in two halves whose inner product has no bias from noise.

    `halves` are two arrays (rows, d), `counts` the number of samples in each, the same for all rows.
    """

    __slots__ = ("counts", "halves")

    def __init__(self, halves: tuple[Array, Array], counts: list[int]) -> None:
        self.halves, self.counts = halves, counts

    @classmethod
    def along(cls, x: Array) -> "Trail | None":
        """An empty one for points x (rows, d); None where it would be slow."""
        if arrays.is_foreign(x) or x.size > LARGEST:
            return None
        return cls((np.zeros(x.shape), np.zeros(x.shape)), [0, 0])

    def add(self, value: Array, size: int) -> None:
        """Add the means (rows, d) of `size` samples, to the half with fewer."""
        half = self.counts[0] > self.counts[1]
        self.halves[half][...] += value if size == 1 else size * value
        self.counts[half] += size

    def estimate(self) -> tuple[Array, int]:
        """The norm of the mean sample (rows,) without the bias of noise, NaN if there are too few; how many samples."""
        (first, second), (m, n) = self.halves, self.counts
        if not m or not n:
            return np.full(len(first), np.nan), 0
        with np.errstate(invalid="ignore", over="ignore"):
            return np.sqrt(np.maximum(0.0, np.einsum("ij,ij->i", first / m, second / n))), m + n

    def clear(self) -> None:
        """Begin anew."""
        self.counts = [0, 0]
        for half in self.halves:
            half[...] = 0.0

    def take(self, rows: Rows) -> Self:
        """The sums of a selection of the rows; a copy."""
        first, second = self.halves
        return type(self)((first[rows].copy(), second[rows].copy()), list(self.counts))

    def packed(self) -> Array:
        """Everything in one array (rows, 2, d + 1), for a checkpoint."""
        counts = np.broadcast_to(np.array(self.counts, float)[:, None], (len(self.halves[0]), 2, 1))
        return np.concatenate([np.stack(self.halves, axis=1), counts], axis=2)

    @classmethod
    def unpacked(cls, packed: Array) -> Self:
        """What `packed` has written."""
        counts = packed[0, :, -1].astype(int).tolist()
        return cls((packed[:, 0, :-1].copy(), packed[:, 1, :-1].copy()), counts)
