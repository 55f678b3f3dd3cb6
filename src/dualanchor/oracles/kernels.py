"""How the components of a finite sum are added up: over a list of indices, over blocks, or over all with weights."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.user_call import user_call

_NAME = "FiniteSum: component"  # in messages
_MATRIX = 1000  # coordinates up to which a mean matrix is cached
_GROUP = 64  # values that are added in their own precision
_BYTES = 1 << 20  # of one table in a tile, which fits the cache
_ROWS = 4096  # in a tile, at most


class Kernel(ABC):
    """The sums that a finite sum needs, for points x of shape (rows, d)."""

    n: int
    _row_bytes: int  # of the widest table

    def _tile(self, x: Array) -> int:
        """Rows of a tile."""
        return max(1, min(_ROWS, _BYTES // max(1, self._row_bytes, 8 * x.shape[1])))

    @abstractmethod
    def mean(self, x: Array, indices: IntArray) -> Array:
        """The mean over the components with these indices, (rows, B)."""

    @abstractmethod
    def weighted(self, x: Array, weights: Array) -> Array:
        """The sum over all components with these weights, (rows, n)."""

    def full(self, x: Array) -> Array:
        return self.weighted(x, np.full((x.shape[0], self.n), 1.0 / self.n))

    def operator(self, x: Array) -> Array:
        """The same for recording: here rows may be multiplied together."""
        return self.full(x)

    def values(self, x: Array, indices: IntArray) -> Array:
        """Component by component, at one point (d,): (indices, d)."""
        return self.mean(arrays.tile(x, indices.size), indices[:, None])

    def take(self, rows: Rows) -> Self:
        return self


class Components(Kernel):
    """A user's function of indices, or of data rows with tables of n rows each, called for one tile at a time."""

    def __init__(self, component: Callable[..., Any], n: int, tables: tuple[Array, ...] | None = None) -> None:
        self._component, self.n, self._tables = component, n, tables
        self._row_bytes = row_bytes(*tables or ())

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = self._tile(x)

        def mean(row: int) -> Array:
            drawn = indices[row] if indices.shape[1] <= length else np.sort(indices[row])  # neighbours are read faster
            return self._mean(x[row], self._parts(drawn, length), drawn.size)

        return user_call(mean, x, _NAME)

    def mean_of_blocks(self, x: Array, starts: IntArray, block: int, size: int) -> Array:
        """The mean over `size` data rows in blocks that begin at these starts, (rows, number of blocks)."""
        length, tables = self._tile(x), self._tables
        assert tables is not None

        def mean(row: int) -> Array:
            return self._mean(x[row], windows(tables, starts[row], size, block, length), size)

        return user_call(mean, x, _NAME)

    def weighted(self, x: Array, weights: Array) -> Array:
        length = self._tile(x)

        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            value, start = _nothing(x[row]), 0
            for part in self._parts(used, length):
                values = self._values(x[row], part)
                some = weights[row, used[start : start + len(values)]]
                value = value + (some if isinstance(x, np.ndarray) else arrays.like(some, x)) @ values
                start += len(values)
            return value

        return user_call(total, x, _NAME)

    def full(self, x: Array) -> Array:
        if self._tables is None:
            return self.mean(x, np.broadcast_to(np.arange(self.n), (x.shape[0], self.n)))
        return self.mean_of_blocks(x, np.zeros((x.shape[0], 1), np.int64), self.n, self.n)  # one block of all rows

    def values(self, x: Array, indices: IntArray) -> Array:
        parts = self._parts(indices, self._tile(x[None]))
        return np.concatenate([arrays.to_host(self._values(x, part)) for part in parts])

    def _parts(self, indices: IntArray, length: int) -> Iterator[tuple[Array, ...]]:
        if self._tables is None:
            return ((indices[span],) for span in spans(indices.size, length))
        return scattered(self._tables, indices, length)

    def _mean(self, x: Array, parts: Iterable[tuple[Array, ...]], count: int) -> Array:
        return sum((_sum(self._values(x, part)) for part in parts), _nothing(x)) / count

    def _values(self, x: Array, part: tuple[Array, ...]) -> Array:
        if isinstance(x, np.ndarray):
            values = arrays.to_host(self._component(x.copy(), *part))
        else:
            values = arrays.as_library_of(self._component(arrays.copy(x), *(rows.copy() for rows in part)), x)
        shape = (len(part[0]), x.shape[0])
        if tuple(values.shape) != shape:
            remedy = "Compute with all the rows of data that it is given, and return one vector for each"
            received = f"shape {tuple(values.shape)}"
            raise OracleError(f"{_NAME} must return shape {shape}, one row per index", received, remedy)
        return values


def _nothing(x: Array) -> Array:
    """A sum of no values: on the host in double precision."""
    return np.zeros(x.size) if isinstance(x, np.ndarray) else arrays.zeros_like(x)


def _sum(values: Array) -> Array:
    """Groups of rows in the precision of the values (single at least), the groups in double precision."""
    if not isinstance(values, np.ndarray):
        return arrays.namespace(values).sum(values, axis=0)
    dtype = np.result_type(values.dtype, np.float32)
    if len(values) <= _GROUP:
        return values.sum(axis=0, dtype=dtype)
    values, ones = values.astype(dtype, copy=False), np.ones(_GROUP, dtype)
    rest = len(values) % _GROUP
    groups = ones @ values[: len(values) - rest].reshape(-1, _GROUP, values.shape[1])  # faster than `sum`
    return groups.sum(axis=0, dtype=np.result_type(dtype, np.float64)) + ones[:rest] @ values[len(values) - rest :]


class _TableKernel(Kernel):
    """Components given by tables of shape (instances, n, ...); row i uses instance `instance[i]`, or the only one."""

    def __init__(self, tables: list[Array], instance: IntArray | None) -> None:
        self._tables, self._instance, self.n = tables, instance, tables[0].shape[1]
        self._row_bytes = row_bytes(*(table[0] for table in tables))

    @abstractmethod
    def _gathered(self, x: Array, *tables: Array) -> Array:
        """The mean over B components for each row, from tables of shape (rows, B, ...)."""

    @abstractmethod
    def _total(self, x: Array, weights: Array, *tables: Array) -> Array:
        """The weighted sum over some components for one row, from tables of shape (B, ...)."""

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
    """u_i (v_i' x - t_i): two products with the gathered rows."""

    def __init__(self, u: Array, v: Array, targets: Array | None, instance: IntArray | None) -> None:
        super().__init__([u, *([] if v is u else [v]), *([] if targets is None else [targets])], instance)
        self._u, self._v, self._targets = u, v, targets
        self._mean_matrices: dict[int, Array] = {}  # by instance, shared by all selections of rows

    def _gathered(self, x: Array, *tables: Array) -> Array:
        u, v, size = tables[0], tables[self._v is not self._u], tables[0].shape[1]
        inner = np.einsum("ij,ij->i", v[:, 0], x)[:, None] if size == 1 else np.matmul(v, x[:, :, None])[:, :, 0]
        if self._targets is not None:
            inner -= tables[-1]
        if size == 1:
            return inner * u[:, 0]
        inner /= size
        return np.matmul(inner[:, None, :], u)[:, 0]

    def _total(self, x: Array, weights: Array, *tables: Array) -> Array:
        u = tables[0].astype(np.result_type(tables[0], x), copy=False)  # once for both products
        inner = (u if self._v is self._u else tables[1]) @ x
        if self._targets is not None:
            inner -= tables[-1]
        inner *= weights
        return inner @ u

    def operator(self, x: Array) -> Array:
        out = np.zeros_like(x)
        instance = np.zeros(len(x), int) if self._instance is None else self._instance
        most = min(2 * self.n, _MATRIX)  # up to which a d x d matrix is less than the tables
        small = self._targets is None and x.shape[1] <= most
        for at in np.unique(instance).tolist():
            rows = instance == at
            if small:
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
    """A_i x - b_i: the mean matrix of the batch is applied."""

    def __init__(self, matrices: Array, offsets: Array | None, instance: IntArray | None) -> None:
        super().__init__([matrices, *([] if offsets is None else [offsets])], instance)
        self._matrices, self._offsets = matrices, offsets

    def _gathered(self, x: Array, *tables: Array) -> Array:
        A, *b = (table.mean(axis=1) for table in tables)
        value: Array = np.matmul(A, x[:, :, None])[:, :, 0]
        return value - b[0] if b else value

    def _total(self, x: Array, weights: Array, *tables: Array) -> Array:
        A, *b = (weights @ table.reshape(len(table), -1) for table in tables)
        value: Array = A.reshape(x.size, x.size) @ x
        return value - b[0] if b else value


def row_bytes(*tables: Array) -> int:
    """Bytes of a row of the widest of the tables; 0 without tables."""
    return max((table.nbytes // max(1, len(table)) for table in tables), default=0)


def spans(n: int, length: int) -> Iterator[slice]:
    """0 .. n - 1 in pieces of at most `length`."""
    for start in range(0, n, length):
        yield slice(start, min(start + length, n))


def scattered(tables: Sequence[Array], indices: IntArray, length: int) -> Iterator[tuple[Array, ...]]:
    """The rows with these indices, in this order, in tiles of `length`."""
    if indices.size <= length:
        yield tuple([rows_at(table, indices) for table in tables])
        return
    buffers = _buffers(tables, length)
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
