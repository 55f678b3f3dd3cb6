"""Sums over the components of a finite sum: over a list of indices, over blocks, or over all with weights.

Components are evaluated in tiles: at most `_ROWS` of them at a time, few enough that their data fits the cache.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.user_call import user_call

_NAME = "FiniteSum: component"  # what messages call the user's function
_MATRIX = 1000  # coordinates up to which the mean of rank-one matrices is cached as a d x d matrix
_GROUP = 64  # number of values that are added in their own precision; sums of groups are in double precision
_BYTES = 1 << 20  # of one table in a tile
_ROWS = 4096  # components in a tile, at most


class Kernel(ABC):
    """Sums over n components, for points x of shape (rows, d)."""

    n: int
    _row_bytes: int  # bytes per component in the widest table

    def _tile(self, x: Array) -> int:
        """Number of components in a tile."""
        return max(1, min(_ROWS, _BYTES // max(1, self._row_bytes, 8 * x.shape[1])))

    @abstractmethod
    def mean(self, x: Array, indices: IntArray) -> Array:
        """The mean over the components with these indices, (rows, B)."""

    @abstractmethod
    def weighted(self, x: Array, weights: Array) -> Array:
        """The sum over all components with these weights, (rows, n)."""

    def full(self, x: Array) -> Array:
        """The mean over all components."""
        return self.weighted(x, np.full((x.shape[0], self.n), 1.0 / self.n))

    def operator(self, x: Array) -> Array:
        """The mean over all components, for recording: the bits of a row may depend on the other rows."""
        return self.full(x)

    def values(self, x: Array, indices: IntArray) -> Array:
        """The values of single components at one point (d,): (indices, d)."""
        return self.mean(arrays.tile(x, indices.size), indices[:, None])

    def take(self, rows: Rows) -> Self:
        """The kernel of a selection of the rows."""
        return self


class Components(Kernel):
    """A user's function, called for one tile at a time: of indices or, with tables of n rows each, of data rows."""

    def __init__(self, component: Callable[..., Any], n: int, tables: tuple[Array, ...] | None = None) -> None:
        self._component = component
        self.n = n
        self._tables = tables
        self._row_bytes = row_bytes(*tables or ())

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = self._tile(x)

        def mean(row: int) -> Array:
            drawn = indices[row] if indices.shape[1] <= length else np.sort(indices[row])  # sorted, data is read faster
            return self._mean(x[row], self._tiles(drawn, length), drawn.size)

        return user_call(mean, x, _NAME)

    def mean_of_blocks(self, x: Array, starts: IntArray, block: int, size: int) -> Array:
        """The mean over `size` data rows, in blocks of neighbours that begin at `starts`, (rows, number of blocks)."""
        length, tables = self._tile(x), self._tables
        assert tables is not None

        def mean(row: int) -> Array:
            return self._mean(x[row], windows(tables, starts[row], size, block, length), size)

        return user_call(mean, x, _NAME)

    def weighted(self, x: Array, weights: Array) -> Array:
        length = self._tile(x)

        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            value = _zeros(x[row])
            for span, tile in zip(spans(used.size, length), self._tiles(used, length), strict=True):
                tile_weights = weights[row, used[span]]
                if not isinstance(x, np.ndarray):
                    tile_weights = arrays.like(tile_weights, x)
                value = value + tile_weights @ component_values(self._component, x[row], tile)
            return value

        return user_call(total, x, _NAME)

    def full(self, x: Array) -> Array:
        if self._tables is None:
            return self.mean(x, np.broadcast_to(np.arange(self.n), (x.shape[0], self.n)))
        return self.mean_of_blocks(x, np.zeros((x.shape[0], 1), np.int64), self.n, self.n)  # one block of all rows

    def values(self, x: Array, indices: IntArray) -> Array:
        tiles = self._tiles(indices, self._tile(x[None]))
        return np.concatenate([arrays.to_host(component_values(self._component, x, tile)) for tile in tiles])

    def _tiles(self, indices: IntArray, length: int) -> Iterator[tuple[Array, ...]]:
        """The arguments of the user's function for these components, tile by tile."""
        if self._tables is None:
            return ((indices[span],) for span in spans(indices.size, length))
        return scattered(self._tables, indices, length)

    def _mean(self, x: Array, tiles: Iterable[tuple[Array, ...]], count: int) -> Array:
        return sum((_sum(component_values(self._component, x, tile)) for tile in tiles), _zeros(x)) / count


def component_values(component: Callable[..., Any], x: Array, tile: tuple[Array, ...], name: str = _NAME) -> Array:
    """What a user's function returned for one point (d,) and a tile of B components, checked: (B, d)."""
    if isinstance(x, np.ndarray):
        values = arrays.to_host(component(x.copy(), *tile))
    else:
        values = arrays.as_library_of(component(arrays.copy(x), *(rows.copy() for rows in tile)), x)
    shape = (len(tile[0]), x.shape[0])
    if tuple(values.shape) != shape:
        remedy = "Compute with all the rows of data that it is given, and return one vector for each"
        rule = f"{name} must return shape {shape}, one row per index"
        raise OracleError(rule, f"shape {tuple(values.shape)}", remedy)
    return values


def _zeros(x: Array) -> Array:
    """The start of a sum: zeros (d,), for NumPy in double precision."""
    return np.zeros(x.size) if isinstance(x, np.ndarray) else arrays.zeros_like(x)


def _sum(values: Array) -> Array:
    """The sum of values (B, d): groups are added in their own precision (at least single), their sums in double."""
    if not isinstance(values, np.ndarray):
        return arrays.namespace(values).sum(values, axis=0)
    dtype = np.result_type(values.dtype, np.float32)
    if len(values) <= _GROUP:
        return values.sum(axis=0, dtype=dtype)
    values, ones = values.astype(dtype, copy=False), np.ones(_GROUP, dtype)
    whole = len(values) - len(values) % _GROUP  # values in complete groups
    groups = ones @ values[:whole].reshape(-1, _GROUP, values.shape[1])  # faster than `sum`
    total: Array = groups.sum(axis=0, dtype=np.result_type(dtype, np.float64))
    return total + ones[: len(values) - whole] @ values[whole:]


class _TableKernel(Kernel):
    """Components given by tables (instances, n, ...); row i uses instance `instance[i]` (None: there is only one)."""

    def __init__(self, tables: list[Array], instance: IntArray | None) -> None:
        self._tables = tables
        self._instance = instance
        self.n = tables[0].shape[1]
        self._row_bytes = row_bytes(*(table[0] for table in tables))

    @abstractmethod
    def _gathered(self, x: Array, *tables: Array) -> Array:
        """The mean over B components for each row of x (rows, d), from tables of shape (rows, B, ...)."""

    @abstractmethod
    def _total(self, x: Array, weights: Array, *tables: Array) -> Array:
        """The weighted sum over B components at one point (d,), from tables of shape (B, ...)."""

    def mean(self, x: Array, indices: IntArray) -> Array:
        length, size = self._tile(x), indices.shape[1]
        if size <= length:
            return self._gathered(x, *(self._gather(table, indices) for table in self._tables))
        weights = np.full(length, 1.0 / size, x.dtype)

        def tiles(row: int, tables: list[Array]) -> Iterator[tuple[Array, ...]]:
            for tile in scattered(tables, np.sort(indices[row]), length):
                yield weights[: len(tile[0])], *tile

        return self._by_row(x, tiles)

    def weighted(self, x: Array, weights: Array) -> Array:
        length, weights = self._tile(x), weights.astype(x.dtype, copy=False)

        def tiles(row: int, tables: list[Array]) -> Iterator[tuple[Array, ...]]:
            for span in spans(self.n, length):
                yield weights[row, span], *(table[span] for table in tables)

        return self._by_row(x, tiles)

    def _by_row(self, x: Array, tiles: Callable[[int, list[Array]], Iterator[tuple[Array, ...]]]) -> Array:
        """The sum over the tiles of each row, where `tiles(row, tables)` gives weights and table rows."""
        out = np.empty_like(x)
        for row in range(len(x)):
            at = 0 if self._instance is None else self._instance[row]
            total = np.zeros(x.shape[1])
            for tile in tiles(row, [table[at] for table in self._tables]):
                total += self._total(x[row], *tile)
            out[row] = total
        return out

    def _gather(self, table: Array, indices: IntArray) -> Array:
        return rows_at(table[0], indices) if self._instance is None else table[self._instance[:, None], indices]

    def take(self, rows: Rows) -> Self:
        if self._instance is None:
            return self
        part = copy(self)
        part._instance = self._instance[rows]
        return part


class RankOne(_TableKernel):
    """F_i(x) = u_i (v_i' x - t_i); tables are u, v if it is not u, and t if given."""

    def __init__(self, u: Array, v: Array, targets: Array | None, instance: IntArray | None) -> None:
        super().__init__([u, *([] if v is u else [v]), *([] if targets is None else [targets])], instance)
        self._u = u
        self._v = v
        self._targets = targets
        self._mean_matrices: dict[int, Array] = {}  # by instance; shared with the kernels of selected rows

    def _gathered(self, x: Array, *tables: Array) -> Array:
        u = tables[0]
        v = u if self._v is self._u else tables[1]
        size = u.shape[1]
        inner = np.einsum("ij,ij->i", v[:, 0], x)[:, None] if size == 1 else np.matmul(v, x[:, :, None])[:, :, 0]
        if self._targets is not None:
            inner -= tables[-1]
        if size == 1:
            return inner * u[:, 0]
        inner /= size
        return np.matmul(inner[:, None, :], u)[:, 0]

    def _total(self, x: Array, weights: Array, *tables: Array) -> Array:
        u = tables[0].astype(np.result_type(tables[0], x), copy=False)  # converted once for both products
        inner = (u if self._v is self._u else tables[1]) @ x
        if self._targets is not None:
            inner -= tables[-1]
        inner *= weights
        return inner @ u

    def operator(self, x: Array) -> Array:
        out = np.zeros_like(x)
        instance = np.zeros(len(x), int) if self._instance is None else self._instance
        # A d x d matrix has fewer entries than u and v together if d <= 2 n.
        by_matrix = self._targets is None and x.shape[1] <= min(2 * self.n, _MATRIX)
        for at in np.unique(instance).tolist():
            rows = instance == at
            if by_matrix:
                if at not in self._mean_matrices:
                    self._mean_matrices[at] = self._v[at].T @ self._u[at] / self.n
                out[rows] = x[rows] @ self._mean_matrices[at]
                continue
            for span in spans(self.n, self._tile(x)):
                inner = x[rows] @ self._v[at, span].T
                if self._targets is not None:
                    inner -= self._targets[at, span]
                inner /= self.n
                out[rows] += inner @ self._u[at, span]
        return out


class Linear(_TableKernel):
    """F_i(x) = A_i x - b_i: the mean matrix of the batch is applied; tables are A, and b if given."""

    def __init__(self, matrices: Array, offsets: Array | None, instance: IntArray | None) -> None:
        super().__init__([matrices, *([] if offsets is None else [offsets])], instance)
        self._matrices, self._offsets = matrices, offsets  # named, for the digest of the data

    def _gathered(self, x: Array, *tables: Array) -> Array:
        A, *b = (table.mean(axis=1) for table in tables)
        value: Array = np.matmul(A, x[:, :, None])[:, :, 0]
        return value - b[0] if b else value

    def _total(self, x: Array, weights: Array, *tables: Array) -> Array:
        A, *b = (weights @ table.reshape(len(table), -1) for table in tables)
        value: Array = A.reshape(x.size, x.size) @ x
        return value - b[0] if b else value


def row_bytes(*tables: Array) -> int:
    """Bytes per row of the widest table; 0 without tables."""
    return max((table.nbytes // max(1, len(table)) for table in tables), default=0)


def spans(n: int, length: int) -> Iterator[slice]:
    """Slices of at most `length` that cover 0 .. n - 1."""
    for start in range(0, n, length):
        yield slice(start, min(start + length, n))


def scattered(tables: Sequence[Array], indices: IntArray, length: int) -> Iterator[tuple[Array, ...]]:
    """The rows with these indices, in this order, in tiles of `length`; a tile is valid until the next one."""
    if indices.size <= length:
        yield tuple([rows_at(table, indices) for table in tables])
        return
    buffers = _buffers(tables, length)
    for span in spans(indices.size, length):
        yield tuple(rows_at(table, indices[span], buffer) for table, buffer in zip(tables, buffers, strict=True))


def windows(
    tables: Sequence[Array], starts: IntArray, total: int, block: int, length: int
) -> Iterator[tuple[Array, ...]]:
    """`block` rows from each start on, `total` in all (the last block is cut), in tiles of `length`.

    The first row of the tables follows the last one. A tile is valid until the next one.
    """
    n = len(tables[0])
    remaining = total
    filled = 0  # rows in the buffers
    length = min(length, total)
    buffers = _buffers(tables, length)
    for start in starts.tolist():
        end = start + min(block, remaining)
        remaining -= end - start
        while start < end:
            count = min(end - start, n - start % n, length - filled)
            for table, buffer in zip(tables, buffers, strict=True):
                buffer[filled : filled + count] = table[start % n : start % n + count]
            start += count
            filled += count
            if filled == length:
                yield buffers
                filled = 0
    if filled:
        yield tuple(buffer[:filled] for buffer in buffers)


def rows_at(table: Array, indices: IntArray, buffer: Array | None = None) -> Array:
    """The rows with these indices, newly allocated or in the buffer."""
    if not (table.flags.c_contiguous and table.flags.aligned):
        return table[indices]  # `take` would first copy the whole table
    out = None if buffer is None else buffer[: indices.size]
    return table.take(indices, axis=0, mode="clip", out=out)  # in the default mode `out` is buffered


def _buffers(tables: Sequence[Array], length: int) -> tuple[Array, ...]:
    return tuple(np.empty((length, *table.shape[1:]), table.dtype) for table in tables)
