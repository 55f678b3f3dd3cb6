"""How the components of a finite sum are added up: over a list of indices, over blocks, or over all with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.oracle import Recipe
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.each_row import each_row
from dualanchor.oracles.gather import row_bytes, rows_at, scattered, spans, tile_rows, windows

_MATRIX = 1000  # coordinates up to which a mean matrix is kept
_GROUP = 64  # values that are added in their own precision


class Kernel:
    """How components are summed: over a list of indices, or over all n with weights."""

    n: int

    def mean(self, x: Array, indices: IntArray) -> Array:
        raise NotImplementedError

    def weighted(self, x: Array, weights: Array) -> Array:
        raise NotImplementedError

    def mean_of_blocks(self, x: Array, starts: IntArray, block: int, size: int) -> Array:
        """The mean over `size` components in blocks that begin at these starts."""
        raise NotImplementedError

    def full(self, x: Array) -> Array:
        """All with the same weight."""
        return self.weighted(x, np.full((x.shape[0], self.n), 1.0 / self.n))

    def whole(self, x: Array) -> Array:
        """The same for recording: here rows may be multiplied together."""
        return self.full(x)

    def recipe(self, rows: int) -> Recipe | None:
        return None

    def take(self, rows: Rows) -> Kernel:
        return self


class Components(Kernel):
    """A user's component function, called for each row, with so many indices at a time that their values fit a tile."""

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        self._component, self.n = component, n

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = tile_rows(8 * x.shape[1])

        def mean(row: int) -> Array:
            parts = ((indices[row, span],) for span in spans(indices.shape[1], length))
            return _mean(self._component, x[row], parts, indices.shape[1])

        return each_row(mean, x, "FiniteSum: component")

    def weighted(self, x: Array, weights: Array) -> Array:
        length = tile_rows(8 * x.shape[1])

        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            parts = ((used[span],) for span in spans(used.size, length))
            return _weighted(self._component, x[row], parts, weights[row, used])

        return each_row(total, x, "FiniteSum: component")


class Data(Kernel):
    """A user's function of data rows, called for each row of a run with a tile of them at a time."""

    def __init__(self, component: Callable[..., Any], tables: tuple[Array, ...]) -> None:
        self._component, self._tables = component, tables
        self.n, self._bytes = len(tables[0]), row_bytes(*tables)

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = self._tile(x)

        def mean(row: int) -> Array:
            if indices.shape[1] <= length:
                tile = tuple(rows_at(table, indices[row]) for table in self._tables)
                return _mean(self._component, x[row], (tile,), indices.shape[1])
            tiles = scattered(self._tables, np.sort(indices[row]), length)  # neighbours are read faster
            return _mean(self._component, x[row], tiles, indices.shape[1])

        return each_row(mean, x, "FiniteSum: component")

    def mean_of_blocks(self, x: Array, starts: IntArray, block: int, size: int) -> Array:
        length = self._tile(x)

        def mean(row: int) -> Array:
            return _mean(self._component, x[row], windows(self._tables, starts[row], size, block, length), size)

        return each_row(mean, x, "FiniteSum: component")

    def weighted(self, x: Array, weights: Array) -> Array:
        length = self._tile(x)

        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            return _weighted(self._component, x[row], scattered(self._tables, used, length), weights[row, used])

        return each_row(total, x, "FiniteSum: component")

    def full(self, x: Array) -> Array:
        return self.mean_of_blocks(x, np.zeros((x.shape[0], 1), np.int64), self.n, self.n)  # one block of all rows

    def _tile(self, x: Array) -> int:
        return tile_rows(max(self._bytes, 8 * x.shape[1]))


def _mean(component: Callable[..., Any], x: Array, parts: Iterable[tuple[Array, ...]], count: int) -> Array:
    total = _nothing(x)
    for part in parts:
        total = total + _sum(_values(component, x, part))
    return total / count


def _weighted(component: Callable[..., Any], x: Array, parts: Iterable[tuple[Array, ...]], weights: Array) -> Array:
    total, start = _nothing(x), 0
    for part in parts:
        values = _values(component, x, part)
        some = weights[start : start + len(values)]
        total = total + (some if isinstance(x, np.ndarray) else arrays.like(some, x)) @ values
        start += len(values)
    return total


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


def _values(component: Callable[..., Any], x: Array, part: tuple[Array, ...]) -> Array:
    if isinstance(x, np.ndarray):
        values = arrays.to_host(component(x.copy(), *part))
    else:
        values = arrays.settled(component(arrays.copy(x), *(rows.copy() for rows in part)), x)
    shape = (len(part[0]), x.shape[0])
    if tuple(values.shape) != shape:
        raise OracleError(
            f"FiniteSum: component must return shape {shape}, one row per index",
            f"shape {tuple(values.shape)}",
            "Compute with all the rows of data that it is given, and return one vector for each",
        )
    return values


class RankOne(Kernel):
    """u_i (v_i' x - t_i): two products with the gathered rows."""

    def __init__(self, u: Array, v: Array, targets: Array | None, instance: IntArray | None) -> None:
        self._u, self._v, self._targets, self._instance = u, v, targets, instance
        self.n = u.shape[1]
        self._known: dict[int | str, Any] = {}  # found out once, and shared by all selections of rows

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = tile_rows(8 * x.shape[1])
        if indices.shape[1] > length:
            return self._mean_in_tiles(x, indices, length)
        u = _gather(self._u, self._instance, indices)
        v = u if self._v is self._u else _gather(self._v, self._instance, indices)
        if indices.shape[1] == 1:
            inner = np.einsum("ij,ij->i", v[:, 0], x)[:, None]
            if self._targets is not None:
                inner -= _gather(self._targets, self._instance, indices)
            return inner * u[:, 0]
        inner = np.matmul(v, x[:, :, None])[:, :, 0]
        if self._targets is not None:
            inner -= _gather(self._targets, self._instance, indices)
        inner /= indices.shape[1]
        return np.matmul(inner[:, None, :], u)[:, 0]

    def _mean_in_tiles(self, x: Array, indices: IntArray, length: int) -> Array:
        tables = [self._u] if self._v is self._u else [self._u, self._v]
        if self._targets is not None:
            tables.append(self._targets)
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            total = np.zeros(x.shape[1])
            for u, *others in scattered([table[at] for table in tables], np.sort(indices[row]), length):
                u = u.astype(np.result_type(u, x), copy=False)  # once for both products
                inner = (u if self._v is self._u else others[0]) @ x[row]
                if self._targets is not None:
                    inner -= others[-1]
                total += inner @ u
            out[row] = total / indices.shape[1]
        return out

    def weighted(self, x: Array, weights: Array) -> Array:
        out = np.zeros_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            for span in _converted(self._v[at], x):
                inner = self._v[at, span] @ x[row]
                if self._targets is not None:
                    inner = inner - self._targets[at, span]
                out[row] += (weights[row, span] * inner) @ self._u[at, span]
        return out

    def whole(self, x: Array) -> Array:
        out = np.zeros_like(x)
        instance = np.zeros(len(x), int) if self._instance is None else self._instance
        for at in np.unique(instance):
            rows = instance == at
            if self._small:
                out[rows] = x[rows] @ self._mean_matrix(at)
                continue
            for span in _converted(self._v[at], x):
                inner = x[rows] @ self._v[at, span].T
                if self._targets is not None:
                    inner -= self._targets[at, span]
                inner /= self.n
                out[rows] += inner @ self._u[at, span]
        return out

    @property
    def _small(self) -> bool:
        """Whether the mean of all u v' takes less memory than they do, and less time."""
        n, d = self._u.shape[1:]
        return self._targets is None and d <= 2 * n and d <= _MATRIX

    def _mean_matrix(self, at: int) -> Array:
        if at not in self._known:
            self._known[at] = self._v[at].T @ self._u[at] / self.n
        return self._known[at]

    @property
    def _finite(self) -> bool:
        """Whether all data are numbers: compiled steps could not tell a defect from divergence."""
        if "finite" not in self._known:
            self._known["finite"] = bool(np.isfinite(self._u).all())
        return self._known["finite"]

    def recipe(self, rows: int) -> Recipe | None:
        if self._v is not self._u or self._targets is not None or self._u.dtype != np.float64 or not self._finite:
            return None
        which = np.zeros(rows, np.int64) if self._instance is None else self._instance
        return Recipe("rank-one", self._u, which, components=self.n)

    def take(self, rows: Rows) -> Kernel:
        if self._instance is None:
            return self
        part = RankOne(self._u, self._v, self._targets, self._instance[rows])
        part._known = self._known
        return part


class Linear(Kernel):
    """A_i x - b_i: the mean matrix of the batch is applied."""

    def __init__(self, matrices: Array, offsets: Array | None, instance: IntArray | None) -> None:
        self._matrices, self._offsets, self._instance = matrices, offsets, instance
        self.n = matrices.shape[1]

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = tile_rows(row_bytes(self._matrices[0]))
        if indices.shape[1] > length:
            return self._mean_in_tiles(x, indices, length)
        A = _gather(self._matrices, self._instance, indices).mean(axis=1)
        value: Array = np.matmul(A, x[:, :, None])[:, :, 0]
        if self._offsets is not None:
            value -= _gather(self._offsets, self._instance, indices).mean(axis=1)
        return value

    def _mean_in_tiles(self, x: Array, indices: IntArray, length: int) -> Array:
        tables = [self._matrices] if self._offsets is None else [self._matrices, self._offsets]
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            A, b = np.zeros(self._matrices.shape[2:]), np.zeros(x.shape[1])
            for matrices, *offsets in scattered([table[at] for table in tables], np.sort(indices[row]), length):
                A += matrices.sum(axis=0)
                if offsets:
                    b += offsets[0].sum(axis=0)
            out[row] = (A @ x[row] - b) / indices.shape[1]
        return out

    def weighted(self, x: Array, weights: Array) -> Array:
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            A = sum(
                np.tensordot(weights[row, span], self._matrices[at, span], axes=1)
                for span in _converted(self._matrices[at], x)
            )
            value = A @ x[row]
            if self._offsets is not None:
                value -= weights[row] @ self._offsets[at]
            out[row] = value
        return out

    def take(self, rows: Rows) -> Kernel:
        if self._instance is None:
            return self
        return Linear(self._matrices, self._offsets, self._instance[rows])


def _gather(table: Array, instance: IntArray | None, indices: IntArray) -> Array:
    """The rows of the table that each row of the run asks for: (rows, B, ...)."""
    return rows_at(table[0], indices) if instance is None else table[instance[:, None], indices]


def _converted(table: Array, x: Array) -> Iterable[slice]:
    """All of the table at once, or in tiles where a product with x makes a copy of it in another precision."""
    return (slice(None),) if table.dtype == x.dtype else spans(len(table), tile_rows(row_bytes(table)))
