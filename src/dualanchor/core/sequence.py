"""Infinite sequences that are generated when read, block by block."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dualanchor.core.types import Array, IntArray

# The lengths of blocks are part of every result: never change them.
_FIRST_BLOCK = 256  # numbers in the first block; a short run does not pay for a long one
_BLOCK = 16384  # numbers in a block at most, unless a single vector has more
_CACHE = 1 << 21  # numbers in all cached blocks of vectors (16 MB); the latest block is cached whatever its size


class LazySequence:
    """One infinite sequence per replication, generated when read, in blocks that double in length up to `_BLOCK`.

    `fill(slot, number, out)` writes block `number` of one replication; the latest blocks are cached. `slots` selects
    replications by index, None all of them.
    """

    def __init__(
        self, fill: Callable[[int, int, Array], None], replications: int, shape: tuple[int, ...], dtype: Any
    ) -> None:
        self._fill = fill
        self._replications = replications
        self._shape = shape
        self._dtype = dtype
        width = shape[0] if shape else 1
        # Entries in the first and in the longest blocks: powers of two, at least 1.
        self._first, self._longest = (1 << max(0, (n // width).bit_length() - 1) for n in (_FIRST_BLOCK, _BLOCK))
        self._doublings = (self._longest // self._first).bit_length() - 1
        self._capacity = max(1, _CACHE // max(1, replications * self._longest * width)) if shape else 64
        self._cache: OrderedDict[int, tuple[Array, Array]] = OrderedDict()  # values, and which replications are filled
        self._start = self._end = 0  # positions of the block that was read last
        self._values = np.empty(0)  # (replications, length, ..), read-only
        self._loaded: object = ()  # the slots for which this block is known to be filled

    def item(self, position: int, slots: IntArray | None) -> Array:
        """The entries at one position, (slots, ..)."""
        if slots is not self._loaded or not self._start <= position < self._end:
            self._load(position, slots)
        value = self._values[:, position - self._start]
        return value if slots is None else value.take(slots, axis=0)

    def window(self, position: int, size: int, slots: IntArray | None) -> Array:
        """The entries at `size` positions from here on, (slots, size, ..)."""
        parts = []
        end = position + size
        while position < end:
            if slots is not self._loaded or not self._start <= position < self._end:
                self._load(position, slots)
            stop = min(end, self._end)
            values = self._values[:, position - self._start : stop - self._start]
            parts.append(values if slots is None else values.take(slots, axis=0))
            position = stop
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def release(self, position: int) -> None:
        """Free the only cached block if it is a single entry before this position."""
        if self._capacity == 1 and self._longest == 1 and self._end <= position:
            self._cache.clear()
            self._values, self._start, self._end = np.empty(0), 0, 0

    def _locate(self, position: int) -> tuple[int, int, int]:
        """Number, start and length of the block that contains a position."""
        steady = self._first << self._doublings  # from here on blocks have their full length
        if position >= steady:
            more = (position - steady) // self._longest
            return self._doublings + 1 + more, steady + more * self._longest, self._longest
        number = (position // self._first).bit_length()
        start = 0 if number == 0 else self._first << (number - 1)
        return number, start, max(self._first, start)

    def _load(self, position: int, slots: IntArray | None) -> None:
        """Make the block that contains a position the current one, filled for these slots."""
        number, start, length = self._locate(position)
        if number not in self._cache:
            self._values, self._start, self._end = np.empty(0), 0, 0  # free the old block before allocating the new one
            while len(self._cache) >= self._capacity:
                self._cache.popitem(last=False)
            values = np.empty((self._replications, length, *self._shape), self._dtype)
            self._cache[number] = (values, np.zeros(self._replications, bool))
        self._cache.move_to_end(number)
        values, filled = self._cache[number]
        needed: Iterable[int] = range(self._replications) if slots is None else np.unique(slots).tolist()
        for slot in needed:
            if not filled[slot]:
                self._fill(slot, number, values[slot])
                filled[slot] = True
        self._values = values.view()
        self._values.flags.writeable = False
        self._start, self._end, self._loaded = start, start + length, slots
