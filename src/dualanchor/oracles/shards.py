"""Oracles whose batches can be cut into shards: a number of parts that does not depend on the workers.

Shards are added along a fixed binary tree, so the total has the same bits whatever worker adds which neighbours.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, Self, TypeAlias

import numpy as np

from dualanchor.core import check
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.finite_sum import BlockStarts, ComponentCounts, FiniteSum, draw_components
from dualanchor.oracles.kernels import component_values
from dualanchor.oracles.user_call import user_call

SHARDS = 32  # of a batch on an engine, unless its oracle has its own number
_CHUNK = 4096  # components evaluated at a time

Span: TypeAlias = "tuple[int, int]"
"""(first, end): shards first .. end - 1."""


class Shardable(Oracle):
    """An oracle whose mean over a batch is a sum over shards, so that engines can compute it.

    A subclass defines `draw`, `cut` and `partial`; a pickled copy must draw the same batch from the same streams.
    """

    @abstractmethod
    def cut(self, batch: Batch) -> int:
        """The number of shards of this batch."""

    @abstractmethod
    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        """The part of F_B(x) from one shard, (rows, d): newly allocated, or in `out` if its shape and dtype fit."""

    def in_shards(self, shards: int) -> Self:
        """The same oracle with batches cut into `shards` shards, unless it was made with its own number."""
        return self

    def mean(self, x: Array, batch: Batch) -> Array:
        return tree_sum(lambda shard: self.partial(x, batch, shard), (0, self.cut(batch)))


def tree_sum(part: Callable[[int], Array], span: Span) -> Array:
    """The sum of `part(shard)` over a span of the tree, in the array of the first part."""
    first, end = span
    if end - first == 1:
        return part(first)
    left, right = _halves(span)
    total = tree_sum(part, left)
    total += tree_sum(part, right)
    return total


def tree_spans(first: int, end: int, shards: int) -> list[Span]:
    """The fewest spans of the tree over all shards that cover the shards first .. end - 1."""

    def within(span: Span) -> Iterator[Span]:
        if first <= span[0] and span[1] <= end:
            yield span
        elif span[0] < end and first < span[1]:
            for half in _halves(span):
                yield from within(half)

    return list(within((0, shards))) if first < end else []


def combined(sums: Mapping[Span, Array], shards: int) -> Array:
    """The sum over all shards, from the sums over spans that cover them; newly allocated."""
    return sums[0, shards].copy() if (0, shards) in sums else _total(sums, (0, shards))


def _total(sums: Mapping[Span, Array], span: Span) -> Array:
    # Not a nested function: its reference cycle would keep the sums until the next garbage collection.
    if span in sums:
        return sums[span]
    left, right = _halves(span)
    return _total(sums, left) + _total(sums, right)


def _halves(span: Span) -> tuple[Span, Span]:
    first, end = span
    middle = first + (1 << (end - first - 1).bit_length() - 1)
    return (first, middle), (middle, end)


class BlockSum(Shardable):
    """A mean of n components in equal blocks, one per shard; draws the same components as a FiniteSum."""

    components: int
    independent_samples = True

    def __init__(self, n: int, shards: int) -> None:
        self.components = n
        self._shards = min(shards, n)

    def draw(self, streams: Streams, size: int) -> Batch:
        return draw_components(streams, self.components, size)

    def full_batch(self) -> Batch:
        return Batch(self.components, None)

    def cut(self, batch: Batch) -> int:
        return self._shards

    def block(self, shard: int) -> tuple[int, int]:
        """(first, end): the components first .. end - 1 of a shard."""
        return self.components * shard // self._shards, self.components * (shard + 1) // self._shards

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        def total(row: int) -> Array:
            drawn, counts = self._drawn(batch, row, shard)
            value = np.zeros(x.shape[1])
            for start in range(0, drawn.size, _CHUNK):
                chunk = slice(start, start + _CHUNK)
                value += self._sum(x, row, shard, drawn[chunk], counts[chunk])
            return value / int(batch.size)

        return user_call(total, x, f"{type(self).__name__}: component", out)

    def _drawn(self, batch: Batch, row: int, shard: int) -> tuple[IntArray, IntArray]:
        """The components that a row drew from the block of a shard, and how often each was drawn."""
        first, end = self.block(shard)
        if isinstance(batch.data, ComponentCounts):
            counts = batch.data.counts[row, first:end]
            drawn = np.flatnonzero(counts)
            return drawn + first, counts[drawn]
        drawn = np.arange(first, end) if batch.data is None else batch.data[row]
        drawn = drawn[(drawn >= first) & (drawn < end)]
        return drawn, np.ones(drawn.size, np.int64)

    def operator(self, x: Array) -> Array:
        return self.mean(x, self.full_batch())

    @abstractmethod
    def _sum(self, x: Array, row: int, shard: int, drawn: IntArray, counts: IntArray) -> Array:
        """The sum over some components of a shard's block at one row of x, weighted by `counts`; shape (d,)."""


class ShardedData(BlockSum):
    """A finite sum over the rows of a data set, of which each worker loads only the blocks that it computes.

    The same rows are drawn as by a FiniteSum; a shard is a block of neighbouring rows. Without an engine all blocks are
    loaded in this process.

    Parameters
    ----------
    component : callable, `component(x, *rows)`: the values for B data rows, shape (B, d)
    load : callable
        `load(first, end)`: rows first .. end - 1 of the data, an array or a tuple of arrays. Called once by the worker
        that computes the shard, and again by a worker that replaces it.
    n : int, number of rows
    shards : int, number of blocks; results depend on it by rounding only

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
        check.function(component, "ShardedData: component", "component(x, *rows)")
        check.function(load, "ShardedData: load", "load(first, end)")
        super().__init__(check.count(n, "ShardedData: n"), check.count(shards, "ShardedData: shards"))
        self._component = component
        self._load = load
        self.operator_price = float(self.components)
        self._data: dict[int, tuple[Array, ...]] = {}  # loaded blocks, by shard

    def _sum(self, x: Array, row: int, shard: int, drawn: IntArray, counts: IntArray) -> Array:
        local = drawn - self.block(shard)[0]
        rows = tuple(array[local] for array in self._rows(shard))
        return counts @ component_values(self._component, x[row], rows, "ShardedData: component")

    def _rows(self, shard: int) -> tuple[Array, ...]:
        if shard not in self._data:
            first, end = self.block(shard)
            loaded = self._load(first, end)
            arrays = tuple(np.asarray(array) for array in (loaded if isinstance(loaded, tuple) else (loaded,)))
            lengths = [len(array) for array in arrays]
            if {end - first} != set(lengths):
                raise ValueError(f"load({first}, {end}) must return {end - first} rows, not {lengths}")
            self._data[shard] = arrays
        return self._data[shard]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "n": self.components, "shards": self._shards}

    def __repr__(self) -> str:
        return f"ShardedData(n={self.components}, shards={self._shards})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_data": {}}  # each worker loads its own blocks


class ShardedSum(BlockSum):
    """A FiniteSum in blocks: each worker has all data, and evaluates the components drawn from its blocks."""

    def __init__(self, finite: FiniteSum, shards: int = SHARDS) -> None:
        assert finite.components is not None
        super().__init__(finite.components, shards)
        self._finite = finite
        self.operator_price, self.dimension = finite.operator_price, finite.dimension

    def draw(self, streams: Streams, size: int) -> Batch:
        batch = self._finite.draw(streams, size)
        if isinstance(batch.data, BlockStarts):
            starts, block = batch.data
            rows = (starts[:, :, None] + np.arange(block)) % self.components
            return Batch(size, rows.reshape(len(starts), -1)[:, :size])  # the last block is cut
        return batch

    def _sum(self, x: Array, row: int, shard: int, drawn: IntArray, counts: IntArray) -> Array:
        indices = np.repeat(drawn, counts)
        of_row = self._finite.take(np.array([row]))
        return of_row.mean(x[row : row + 1], Batch(indices.size, indices[None]))[0] * indices.size

    def take(self, rows: Rows) -> Self:
        part = copy(self)
        part._finite = self._finite.take(rows)
        return self if part._finite is self._finite else part

    def describe(self) -> dict[str, Any]:
        return {**self._finite.describe(), "shards": self._shards}

    def __repr__(self) -> str:
        return repr(self._finite)
