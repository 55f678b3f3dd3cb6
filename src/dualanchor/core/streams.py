"""From a seed to one random stream per replication and purpose.

A stream can be read at any position: each of its blocks comes from a generator of its own, keyed by (seed, purpose,
replication, kind) and the block's number. So results do not depend on how rows are grouped, and a run is resumed from
integers. Rows of the same replication read the same numbers.
"""

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cached_property, partial
from struct import Struct
from typing import Any

import numpy as np

from dualanchor.core.arrays import numpy_dtype
from dualanchor.core.types import Array, Counts, IntArray, Rows


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of every result: never change them."""

    INSTANCE = 0
    START = 1
    NOISE = 2
    COIN = 3
    PILOT = 4
    CERTIFICATE = 5
    SELECTION = 6
    FIRST_BATCH = 7
    START_RESIDUAL = 8
    GAP = 9
    INFERENCE = 10


class Kind(IntEnum):
    """What a sequence consists of. The numbers are part of every result: never change them."""

    NORMALS = 0
    INTEGERS = 1
    UNIFORMS = 2
    GENERATORS = 3


_BLOCK = 16384  # numbers in a block, at most, unless a single vector has more
_FIRST_BLOCK = 256  # and in the first one
_CACHE = 1 << 21  # numbers of the blocks of vectors that are cached; one block of any size always is
_NEAR = 4096  # rows whose positions are as near as this read one window together


class Streams:
    """The streams of a set of rows, for one purpose, each row at its own position.

    Parameters
    ----------
    seed : int, non-negative; everything follows from it
    replications : array of int, one per row; rows with the same number read the same sequence
    purpose : Purpose, streams of different purposes are independent
    dimension, dtype : length and type of the NumPy vectors that `normals` gives: those of the iterates

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> two, one = da.Streams(7, np.array([0, 1])), da.Streams(7, np.array([1]))
    >>> [bool(a.uniform() == b.uniform()) for a, b in zip(two.generators()[1:], one.generators())]
    [True]
    """

    def __init__(
        self,
        seed: int,
        replications: IntArray,
        purpose: Purpose = Purpose.NOISE,
        dimension: int = 1,
        dtype: Any = np.float64,
    ) -> None:
        self.seed, self.purpose = seed, purpose
        self.dimension, self.dtype = dimension, numpy_dtype(dtype)
        self.replications = np.asarray(replications, dtype=np.int64)
        self.position: Counts = 0
        self._distinct, slots = np.unique(self.replications, return_inverse=True)
        self._set_slots(slots)
        self._sequences: dict[Any, _Sequence] = {}
        self._normals: _Sequence | None = None

    @property
    def rows(self) -> int:
        return self.replications.size

    def of(self, purpose: Purpose) -> "Streams":
        """Streams of the same rows for another purpose, at their beginning."""
        return Streams(self.seed, self.replications, purpose, self.dimension, self.dtype)

    def take(self, rows: Rows) -> "Streams":
        """The streams of a selection of the rows, at the positions these rows have reached."""
        part = object.__new__(Streams)
        part.__dict__.update(self.__dict__)
        part.replications = self.replications[rows]
        if self._distinct.size > 1:
            part._set_slots(self._row_slots()[rows])
        part.position = self.position if isinstance(self.position, int) else shared(self.position[rows])
        part.__dict__.pop("handles", None)
        return part

    def put(self, rows: Rows, position: Counts) -> None:
        positions = per_row(self.position, self.rows).copy()
        positions[rows] = position
        self.position = shared(positions)

    def normals(self) -> Array:
        """The next standard normal vector of each row, (rows, d). One position, whatever d."""
        position = self.position
        self.position = position + 1
        values = self.normals_at(position)
        return values if len(values) == self.rows else np.tile(values, (self.rows // len(values), 1))

    def normals_at(self, position: Counts) -> Array:
        """The normal vectors at a position, not to be written to; once where replications recur: (period, d)."""
        sequence = self._normals or self._sequence(Kind.NORMALS)
        if isinstance(position, int):
            return sequence.item(position, self._period)
        return self._each(position, lambda slots, at: sequence.item(at, slots))

    def release(self) -> None:
        """Free the memory of normal vectors that all rows have read, where one of them fills the cache."""
        if self._normals is not None and isinstance(self.position, int):
            self._normals.release(self.position)

    def integers(self, n: int, size: int) -> IntArray:
        """The next `size` uniform indices below n of each row, (rows, size). `size` positions."""
        sequence, position = self._sequences.get((Kind.INTEGERS, n)) or self._sequence(Kind.INTEGERS, n), self.position
        self.position = position + size
        if isinstance(position, int):
            values = sequence.window(position, size, self._slots)
            return values if len(values) == self.rows else np.broadcast_to(values, (self.rows, size))
        first, last = int(position.min()), int(position.max())
        if last - first > _NEAR:
            return self._each(position, lambda part, at: sequence.window(at, size, part))
        near = sequence.window(first, last - first + size, None)  # of all replications; each row reads where it is
        return near[self._row_slots()[:, None], (position - first)[:, None] + np.arange(size)]

    def uniforms(self, start: int, size: int) -> Array:
        """Numbers `start` to `start + size - 1` of each row's sequence on [0, 1); moves no position."""
        sequence = self._sequences.get((Kind.UNIFORMS, 0)) or self._sequence(Kind.UNIFORMS)
        return np.broadcast_to(sequence.window(start, size, self._slots), (self.rows, size))

    @cached_property
    def handles(self) -> "list[Handle]":
        """One handle per row, from which generators for this row's positions are had; moves no position."""
        return [Handle(self.seed, self.purpose, int(r)) for r in self.replications]

    def generators(self) -> list[np.random.Generator]:
        """A new generator for each row. One position."""
        positions = per_row(self.position, self.rows).tolist()
        self.position = self.position + 1
        keyed = zip(self.replications.tolist(), positions, strict=True)
        return [Handle(self.seed, self.purpose, replication).generator(at) for replication, at in keyed]

    def _set_slots(self, slots: IntArray) -> None:
        """Where each row's replication stands among the distinct ones; None for all in order, or for the only one."""
        count = self._distinct.size
        self._slots = None if count == 1 or _in_order(slots, count) else slots
        self._period = self._slots
        if self._slots is not None:
            once = _period(slots)
            self._period = None if _in_order(once, count) else once

    def _row_slots(self) -> IntArray:
        if self._slots is not None:
            return self._slots
        return np.zeros(self.rows, np.int64) if self._distinct.size == 1 else np.arange(self.rows)

    def _each(self, positions: IntArray, read: Callable[[IntArray, int], Array]) -> Array:
        slots, out = self._row_slots(), None
        for position in np.unique(positions):
            chosen = positions == position
            values = read(slots[chosen], int(position))
            if out is None:
                out = np.empty((self.rows, *values.shape[1:]), values.dtype)
            out[chosen] = values
        assert out is not None
        return out

    def _sequence(self, kind: Kind, n: int = 0) -> "_Sequence":
        drawn: Any = np.float32 if self.dtype == np.float32 else np.float64
        kinds: dict[Kind, tuple[tuple[int, ...], Any, Callable[[np.random.Generator, Array], Array]]] = {
            Kind.NORMALS: ((self.dimension,), drawn, lambda rng, out: rng.standard_normal(out=out, dtype=drawn)),
            Kind.INTEGERS: ((), np.int64, lambda rng, out: rng.integers(0, n, len(out))),
            Kind.UNIFORMS: ((), np.float64, lambda rng, out: rng.random(out=out)),
        }
        shape, dtype, fill = kinds[kind]
        handles: dict[int, Handle] = {}

        def block(slot: int, number: int, out: Array) -> None:
            if slot not in handles:
                handles[slot] = Handle(self.seed, self.purpose, int(self._distinct[slot]), kind)
            values = fill(handles[slot].generator(number), out)
            if values is not out:
                out[...] = values

        made = self._sequences[kind, n] = _Sequence(block, self._distinct.size, shape, dtype)
        self._normals = self._sequences.get((Kind.NORMALS, 0))  # found without a look-up, once for every batch
        return made


class Handle:
    """Gives one generator again and again, each time set to the state for (number, shard).

    That of SFC64 seeded with words for (seed, purpose, replication, kind), the shard added to the first, and a number.
    """

    __slots__ = ("_arguments", "_first", "_generator", "_mix", "_second", "_set")

    def __init__(self, seed: int, purpose: Purpose, replication: int, kind: Kind = Kind.GENERATORS) -> None:
        self._arguments = (seed, purpose, replication, kind)
        key = np.random.SeedSequence(seed, spawn_key=(purpose, replication, kind))
        self._first, self._second = (int(word) for word in key.generate_state(2, np.uint64))
        self._generator = np.random.Generator(np.random.SFC64(key))  # the key is for those who spawn generators from it
        self._set = partial(Struct("=5Q").pack_into, _state_words(self._generator), 0)
        self._mix = partial(self._generator.random, None, np.float64, np.empty(12))  # SFC64 mixes its seed twelve times

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has a generator, and words, of its own."""
        return type(self), self._arguments

    def generator(self, number: int, shard: int = 0) -> np.random.Generator:
        """The generator of one block or batch, or of one shard of it, at its beginning."""
        first = self._first if shard == 0 else (self._first + shard) % 2**64
        self._set(first, self._second, number, 1, 0)
        self._mix()
        return self._generator


def _state_words(generator: np.random.Generator) -> Any:
    # The four words of the state, and one for half a word left over; ten times as fast as `bit_generator.state`.
    words = (ctypes.c_uint64 * 5).from_address(generator.bit_generator.ctypes.state_address)
    words[:] = [1, 2, 3, 4, 0]
    found: Any = generator.bit_generator.state
    if (*found["state"]["state"].tolist(), found["has_uint32"]) != (1, 2, 3, 4, 0):
        raise RuntimeError("NumPy lays out the state of SFC64 in another way than its versions 1.17 to 2.4")
    return words


class _Sequence:
    """A sequence per replication, made when read in blocks that double in length; the latest blocks are cached."""

    def __init__(
        self, fill: Callable[[int, int, Array], None], replications: int, shape: tuple[int, ...], dtype: Any
    ) -> None:
        self._fill, self._replications, self._shape, self._dtype = fill, replications, shape, dtype
        width = shape[0] if shape else 1
        self._first, self._longest = (1 << max(0, (n // width).bit_length() - 1) for n in (_FIRST_BLOCK, _BLOCK))
        self._doublings = (self._longest // self._first).bit_length() - 1
        self._capacity = max(1, _CACHE // max(1, replications * self._longest * width)) if shape else 64
        self._cache: OrderedDict[int, tuple[Array, Array]] = OrderedDict()  # values, and which replications have them
        self._start = self._end = 0  # the block that was read last
        self._values = np.empty(0)  # (replications, length, ..), read-only
        self._loaded: object = ()  # the selection for which this block is known to be filled

    def item(self, position: int, slots: IntArray | None) -> Array:
        if slots is not self._loaded or not self._start <= position < self._end:
            self._load(position, slots)
        value = self._values[:, position - self._start]
        return value if slots is None else value.take(slots, axis=0)

    def window(self, position: int, size: int, slots: IntArray | None) -> Array:
        parts, end = [], position + size
        while position < end:
            if slots is not self._loaded or not self._start <= position < self._end:
                self._load(position, slots)
            stop = min(end, self._end)
            values = self._values[:, position - self._start : stop - self._start]
            parts.append(values if slots is None else values.take(slots, axis=0))
            position = stop
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def release(self, position: int) -> None:
        if self._capacity == 1 and self._longest == 1 and self._end <= position:
            self._cache.clear()
            self._values, self._start, self._end = np.empty(0), 0, 0

    def _locate(self, position: int) -> tuple[int, int, int]:
        steady = self._first << self._doublings  # here blocks have reached their full length
        if position >= steady:
            more = (position - steady) // self._longest
            return self._doublings + 1 + more, steady + more * self._longest, self._longest
        number = (position // self._first).bit_length()
        start = 0 if number == 0 else self._first << (number - 1)
        return number, start, max(self._first, start)

    def _load(self, position: int, slots: IntArray | None) -> None:
        number, start, length = self._locate(position)
        if number not in self._cache:
            self._values, self._start, self._end = np.empty(0), 0, 0  # release the old block before the new one is made
            while len(self._cache) >= self._capacity:
                self._cache.popitem(last=False)
            values = np.empty((self._replications, length, *self._shape), self._dtype)
            self._cache[number] = (values, np.zeros(self._replications, bool))
        self._cache.move_to_end(number)
        values, filled = self._cache[number]
        wanted: Iterable[int] = range(self._replications) if slots is None else np.unique(slots).tolist()
        for slot in wanted:
            if not filled[slot]:
                self._fill(slot, number, values[slot])
                filled[slot] = True
        self._values = values.view()
        self._values.flags.writeable = False
        self._start, self._end, self._loaded = start, start + length, slots


def _period(numbers: IntArray) -> IntArray:
    again = np.flatnonzero(numbers[1:] == numbers[:1])
    length = int(again[0]) + 1 if again.size else numbers.size
    repeats = length > 0 and numbers.size % length == 0 and (numbers.reshape(-1, length) == numbers[:length]).all()
    return numbers[:length] if repeats else numbers


def _in_order(slots: IntArray, count: int) -> bool:
    return slots.size == count and bool((slots == np.arange(count)).all())


def shared(counts: IntArray) -> Counts:
    """One integer where all rows agree."""
    first = int(counts[0]) if counts.size else 0
    return first if (counts == first).all() else counts


def per_row(counts: Counts, rows: int) -> IntArray:
    """One count for each row, read-only."""
    return np.broadcast_to(np.asarray(counts, dtype=np.int64), (rows,))
