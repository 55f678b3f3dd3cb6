"""Rows of large tables, a tile at a time, in memory that is used again.

A tile holds what fits the cache beside the arithmetic done on it, so a batch of any size needs the memory of one tile.
What is handed out belongs to the caller until the next tile is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualanchor.core.types import Array, IntArray

_BYTES = 1 << 20  # of one table in a tile
_ROWS = 4096  # in a tile, at most


def row_bytes(*tables: Array) -> int:
    """Of the widest of the tables."""
    return max(table.nbytes // max(1, len(table)) for table in tables)


def tile_rows(width: int) -> int:
    """Rows of a tile, for rows of so many bytes."""
    return max(1, min(_ROWS, _BYTES // max(1, width)))


def spans(n: int, length: int) -> Iterator[slice]:
    """0 .. n - 1 in pieces of at most `length`."""
    for start in range(0, n, length):
        yield slice(start, min(start + length, n))


def scattered(tables: Sequence[Array], indices: IntArray, length: int) -> Iterator[tuple[Array, ...]]:
    """The rows with these indices, in this order, in tiles of `length`."""
    buffers = _buffers(tables, min(length, indices.size))
    for span in spans(indices.size, length):
        some = indices[span]
        yield tuple(rows_at(table, some, buffer) for table, buffer in zip(tables, buffers, strict=True))


def windows(
    tables: Sequence[Array], starts: IntArray, total: int, block: int, length: int
) -> Iterator[tuple[Array, ...]]:
    """`block` rows from each start on, the last one cut so that there are `total`; the first row follows the last."""
    n, left, filled = len(tables[0]), total, 0
    length = min(length, total)
    buffers = _buffers(tables, length)
    for start in starts.tolist():
        end = start + min(block, left)
        left -= end - start
        while start < end:
            some = min(end - start, n - start % n, length - filled)
            for table, buffer in zip(tables, buffers, strict=True):
                buffer[filled : filled + some] = table[start % n : start % n + some]
            start, filled = start + some, filled + some
            if filled == length:
                yield buffers
                filled = 0
    if filled:
        yield tuple(buffer[:filled] for buffer in buffers)


def rows_at(table: Array, indices: IntArray, buffer: Array | None = None) -> Array:
    """The rows with these indices as a new array, or in the buffer where that is faster."""
    if not (table.flags.c_contiguous and table.flags.aligned):
        return table[indices]  # `take` would copy all of the table first
    out = None if buffer is None else buffer[: indices.size]
    return table.take(indices, axis=0, mode="clip", out=out)  # in another mode it copies twice


def _buffers(tables: Sequence[Array], length: int) -> tuple[Array, ...]:
    return tuple(np.empty((length, *table.shape[1:]), table.dtype) for table in tables)
