"""Finite sums cut into blocks of components: who owns a block evaluates what was drawn from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.oracle import Batch
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.each_row import each_row, require_callable
from dualanchor.oracles.finite_sum import FiniteSum, _Counts, _Starts
from dualanchor.oracles.shards import Shardable

SHARDS = 32
"""Into how many shards a batch is cut for an engine, unless its oracle was made with a number of its own."""

_BLOCK = 4096  # components evaluated at a time


class _Blocks(Shardable):
    """A mean of n components in equal blocks, one to a shard; drawn as a FiniteSum draws, from the same stream."""

    _n: int
    _shards: int

    def draw(self, streams: Streams, size: int) -> Batch:
        if size <= self._n:
            return Batch(size, streams.integers(self._n, size))
        even = np.full(self._n, 1.0 / self._n)
        return Batch(size, _Counts(np.stack([rng.multinomial(size, even) for rng in streams.generators()])))

    def full_batch(self) -> Batch:
        return Batch(self._n, None)

    def cut(self, batch: Batch) -> int:
        return self._shards

    def block(self, shard: int) -> tuple[int, int]:
        """Components first .. last + 1 of a shard."""
        return self._n * shard // self._shards, self._n * (shard + 1) // self._shards

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        first, end = self.block(shard)
        size = int(batch.size)

        def total(row: int) -> Array:
            if batch.data is None:
                used, often = np.arange(first, end), None
            elif isinstance(batch.data, _Counts):
                counts = batch.data.counts[row, first:end]
                used = np.flatnonzero(counts) + first
                often = counts[used - first] / size
            else:
                drawn = batch.data[row]
                used, often = drawn[(drawn >= first) & (drawn < end)], None
            value = np.zeros(x.shape[1])
            for start in range(0, used.size, _BLOCK):
                some = used[start : start + _BLOCK]
                weights = None if often is None else often[start : start + _BLOCK]
                value += self._weighted(x, row, shard, some, size, weights)
            return value

        return each_row(total, x, f"{type(self).__name__}: component", out)

    def operator(self, x: Array) -> Array:
        return self.mean(x, self.full_batch())

    @abstractmethod
    def _weighted(self, x: Array, row: int, shard: int, used: IntArray, size: int, weights: Any) -> Array:
        """The sum of these components, all owned by the shard, with weights, or all with 1/size."""


class ShardedData(_Blocks):
    """A finite sum over the rows of a data set of which everyone loads only the parts that he computes.

    Indices are drawn for the whole data set, as a FiniteSum draws them; a shard is a block of neighbouring rows and
    evaluates those that were drawn from it. Without an engine all shards are loaded here.

    Parameters
    ----------
    component : callable
        `component(x, *rows)`: the values for B data rows, shape (B, d).
    load : callable
        `load(first, end)`: rows first .. end - 1 of the data, an array or a tuple of arrays. Called where the shard is
        computed, once; again where a lost worker's shard goes.
    n : int
        Number of rows.
    shards : int
        Number of blocks. Results depend on it by rounding only.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> A, b = np.eye(4), np.arange(4.0)
    >>> oracle = da.engines.ShardedData(
    ...     lambda x, a, t: a * (a @ x - t)[:, None], lambda first, end: (A[first:end], b[first:end]), n=4, shards=2
    ... )
    >>> oracle.operator(np.zeros((1, 4)))
    array([[ 0.  , -0.25, -0.5 , -0.75]])
    """

    def __init__(
        self, component: Callable[..., Any], load: Callable[[int, int], Any], n: int, shards: int = SHARDS
    ) -> None:
        require_callable(component, "ShardedData: component", "component(x, *rows)")
        require_callable(load, "ShardedData: load", "load(first, end)")
        for name, value in (("n", n), ("shards", shards)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ArgumentError(f"ShardedData: {name} must be an int >= 1", repr(value), f"Use {name}=32")
        self._component, self._load = component, load
        self._n, self._shards = int(n), min(int(shards), int(n))
        self.components, self.operator_price = self._n, float(self._n)
        self._data: dict[int, tuple[Array, ...]] = {}

    def _weighted(self, x: Array, row: int, shard: int, used: IntArray, size: int, weights: Any) -> Array:
        local = used - self.block(shard)[0]
        values = np.asarray(self._component(x[row].copy(), *(array[local] for array in self._rows(shard))))
        if values.shape != (used.size, x.shape[1]):
            raise ValueError(f"component must return shape ({used.size}, {x.shape[1]}), not {values.shape}")
        return values.sum(axis=0) / size if weights is None else weights @ values

    def _rows(self, shard: int) -> tuple[Array, ...]:
        if shard not in self._data:
            first, end = self.block(shard)
            loaded = self._load(first, end)
            arrays = tuple(np.asarray(array) for array in (loaded if isinstance(loaded, tuple) else (loaded,)))
            if any(len(array) != end - first for array in arrays):
                raise ValueError(
                    f"load({first}, {end}) must return {end - first} rows, not {[len(array) for array in arrays]}"
                )
            self._data[shard] = arrays
        return self._data[shard]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "n": self._n, "shards": self._shards}

    def __repr__(self) -> str:
        return f"ShardedData(n={self._n}, shards={self._shards})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_data": {}}  # whoever it is sent to loads his own


class SumInBlocks(_Blocks):
    """A FiniteSum in blocks: everyone has all of its data and evaluates what was drawn from his blocks."""

    def __init__(self, finite: FiniteSum, shards: int = SHARDS) -> None:
        assert finite.components is not None
        self._finite, self._n = finite, finite.components
        self._shards = min(shards, self._n)
        self.components, self.operator_price = self._n, finite.operator_price
        self.dimension = finite.dimension

    def draw(self, streams: Streams, size: int) -> Batch:
        batch = self._finite.draw(streams, size)
        if isinstance(batch.data, _Starts):  # blocks of rows, cut to the size of the batch
            starts, block = batch.data
            rows = (starts[:, :, None] + np.arange(block)) % self._n
            return Batch(size, rows.reshape(len(starts), -1)[:, :size])
        return batch

    def _weighted(self, x: Array, row: int, shard: int, used: IntArray, size: int, weights: Any) -> Array:
        if weights is not None:
            used = np.repeat(used, np.rint(weights * size).astype(np.int64))
        mine = self._finite.take(np.array([row]))
        value = np.zeros((1, x.shape[1]))
        for start in range(0, used.size, _BLOCK):
            some = used[start : start + _BLOCK]
            value += mine.mean(x[row : row + 1], Batch(some.size, some[None])) * (some.size / size)
        return value[0]

    def take(self, rows: Rows) -> Self:
        finite = self._finite.take(rows)
        if finite is self._finite:
            return self
        part = copy(self)
        part._finite = finite
        return part

    def describe(self) -> dict[str, Any]:
        return {**self._finite.describe(), "shards": self._shards}

    def __repr__(self) -> str:
        return repr(self._finite)
