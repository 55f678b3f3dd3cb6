"""A batch that is cut into shards: a fixed number of parts, whoever computes them.

The parts are added along a fixed binary tree over the shards. Whoever computes neighbouring shards may add them up and
hand over a few sums instead of all parts, and the total is the same to the last bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.types import Array

Span: TypeAlias = "tuple[int, int]"
"""Shards first .. last + 1."""


class Shardable(Oracle):
    """An oracle whose mean over a batch is a sum over shards."""

    @abstractmethod
    def cut(self, batch: Batch) -> int:
        """Into how many shards this batch is cut."""

    @abstractmethod
    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        """What one shard adds to F_B(x), for each row, in an array that nobody else keeps: in `out`, where it fits."""

    def mean(self, x: Array, batch: Batch) -> Array:
        return added(lambda shard: self.partial(x, batch, shard), (0, self.cut(batch)))


def added(part: Callable[[int], Array], span: Span) -> Array:
    """The sum of the parts of a span of the tree."""
    first, end = span
    if end - first == 1:
        return part(first)
    left, right = _halves(span)
    total = added(part, left)
    total += added(part, right)
    return total


def spans(first: int, end: int, shards: int) -> list[Span]:
    """The fewest spans of the tree over all shards that make up the shards from `first` to `end`."""

    def within(span: Span) -> Iterator[Span]:
        if first <= span[0] and span[1] <= end:
            yield span
        elif span[0] < end and first < span[1]:
            for half in _halves(span):
                yield from within(half)

    return list(within((0, shards))) if first < end else []


def joined(sums: Mapping[Span, Array], shards: int) -> Array:
    """The sum over all shards from the sums of spans that make them up; a new array."""
    return sums[0, shards].copy() if (0, shards) in sums else _total(sums, (0, shards))


def _total(sums: Mapping[Span, Array], span: Span) -> Array:
    # Not a function within a function, which would be a cycle that keeps the sums until they are collected.
    if span in sums:
        return sums[span]
    left, right = _halves(span)
    return _total(sums, left) + _total(sums, right)


def _halves(span: Span) -> tuple[Span, Span]:
    first, end = span
    middle = first + (1 << (end - first - 1).bit_length() - 1)
    return (first, middle), (middle, end)
