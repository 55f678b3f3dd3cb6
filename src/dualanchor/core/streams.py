"""From a seed to one random stream per replication and purpose.

A stream is a fixed sequence and can be read at any position: each of its blocks comes from a generator of its own,
keyed by (seed, purpose, replication, kind) and the block's number. A row of a run only remembers its position. So
results do not depend on how rows are grouped, and a run is resumed by writing down integers. Rows of the same
replication read the same numbers: configurations share the noise of their seed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import chain
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


class Kind(IntEnum):
    """What a sequence consists of. The numbers are part of every result: never change them."""

    NORMALS = 0
    INTEGERS = 1
    UNIFORMS = 2
    GENERATORS = 3


_PER_BLOCK = 16384  # numbers in a block, at most, unless a single vector has more
_FIRST = 256  # and in the first one
_KEPT = 1 << 21  # blocks of vectors are kept up to so many numbers in all, and one of any size
_NEAR = 4096  # rows whose positions are as near as this read one stretch together
_WIDE = 1 << 18  # numbers of a block that are multiplied at once; more of them one vector at a time
_NOTHING = object()


class _Memory:
    """Blocks of vectors that later runs of this process may read again, the latest up to so many numbers."""

    def __init__(self) -> None:
        self._limit = self._size = 0
        self._blocks: OrderedDict[Any, Array] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Any) -> Array | None:
        """The block with this key, if it is here."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def keep(self, key: Any, block: Array) -> None:
        """Remember a block that nobody writes to any more."""
        with self._lock:
            if self._limit and key not in self._blocks:
                self._blocks[key] = block
                self._size += block.size
                self._trim()

    def allow(self, numbers: int) -> None:
        """Set how many numbers are remembered."""
        with self._lock:
            self._limit = numbers
            self._trim()

    def _trim(self) -> None:
        while self._size > self._limit:
            self._size -= self._blocks.popitem(last=False)[1].size


_memory = _Memory()


def remember(numbers: int) -> None:
    """Keep blocks of normal vectors, up to so many numbers, for later runs with the same seeds; 0 forgets them."""
    _memory.allow(numbers)


class Streams:
    """The streams of a set of rows, for one purpose, each row at its own position.

    Parameters
    ----------
    seed : int
        Non-negative; everything follows from it.
    replications : array of int, one per row
        Rows with the same number read the same sequence.
    purpose : Purpose
        Streams of different purposes are independent.
    dimension, dtype
        Length and type of the NumPy vectors that `normals` gives: those of the iterates.
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
        self._place(slots)
        self._sequences: dict[Any, _Sequence] = {}
        self._normals = self._normal_sequence()
        self._handles: list[Handle] | None = None

    @property
    def rows(self) -> int:
        """How many rows read these streams."""
        return self.replications.size

    def of(self, purpose: Purpose) -> Streams:
        """Streams of the same rows for another purpose, at their beginning."""
        return Streams(self.seed, self.replications, purpose, self.dimension, self.dtype)

    def take(self, rows: Rows) -> Streams:
        """The streams of a selection of the rows, at the positions these rows have reached."""
        part = object.__new__(Streams)
        part.__dict__.update(self.__dict__)
        part.replications = self.replications[rows]
        if self._distinct.size > 1:
            part._place(np.arange(self.rows)[rows] if self._slots is None else self._slots[rows])
        part.position = self.position if isinstance(self.position, int) else shared(self.position[rows])
        part._handles = None
        return part

    def put(self, rows: Rows, position: Counts) -> None:
        """Set the position of a selection of the rows."""
        positions = np.broadcast_to(np.asarray(self.position, dtype=np.int64), (self.rows,)).copy()
        positions[rows] = position
        self.position = shared(positions)

    def normals(self, compact: bool = False) -> Array:
        """The next standard normal vector of each row, (rows, d). One position, whatever d.

        Where rows go through the same replications again and again, `compact` gives these once: (period, d).
        """
        position, normals = self.position, self._normals
        self.position = position + 1
        if not isinstance(position, int):
            return self._each(position, lambda slots, at: normals.item(at, slots))
        if compact:
            return normals.item(position, self._period)
        values = normals.item(position, self._slots)
        return values if len(values) == self.rows else np.broadcast_to(values, (self.rows, self.dimension))

    def scaled_normals(self, scale: float) -> Array:
        """What `normals(compact=True)` gives, times a scale."""
        position = self.position
        if not isinstance(position, int) or self._period is not None or self.dimension > _KEPT:
            return scale * self.normals(compact=True)
        self.position = position + 1
        return self._normals.multiple(position, scale)

    def many_normals(self, count: int, scale: float) -> Iterator[Array] | None:
        """What `count` calls of `normals(compact=True)` give, times a scale; None where it is not kept ready."""
        position = self.position
        if not isinstance(position, int) or self._period is not None or self.dimension > _KEPT:
            return None
        self.position = position + count
        return chain.from_iterable(self._multiples(position, count, scale))

    def _multiples(self, position: int, count: int, scale: float) -> Iterator[Iterable[Array]]:
        end = position + count
        while position < end:  # one block at a time: they may be as large as a vector
            some = min(end - position, self._normals.left(position))
            (part,) = self._normals.parts(position, some, None)
            yield scale * part if part.size <= _WIDE else (scale * item for item in part)
            position += some
            del part

    def normals_later(self) -> Callable[[], Array] | None:
        """A function that makes what `normals` gives, anew each time; None for short vectors, which are kept."""
        if self.dimension <= _KEPT or not isinstance(self.position, int):
            return None
        position, slots = self.position, self._row_slots()
        self.position = position + 1
        make = self._normals.make
        return lambda: (
            make(position, slots[0]) if len(slots) == 1 else np.concatenate([make(position, i) for i in slots])
        )

    def vectors(self, count: int) -> list[Array]:
        """The next `count` standard normal vectors of all replications, in parts (.., replications, d)."""
        position = self.position
        assert isinstance(position, int)
        self.position = position + count
        return self._normals.parts(position, count, None)

    @property
    def distinct(self) -> int:
        """How many replications these streams know."""
        return self._distinct.size

    def picks(self, n: int, sizes: IntArray) -> tuple[IntArray, IntArray]:
        """A window of all replications' indices below n that holds the next ones of each row, and where each begins."""
        positions = np.broadcast_to(np.asarray(self.position, dtype=np.int64), (self.rows,))
        first, last = int(positions.min()), int((positions + sizes).max())
        self.position = shared(positions + sizes)
        window = self._index_sequence(n).window(first, last - first, None)
        return np.ascontiguousarray(window), positions - first

    def slots(self) -> IntArray:
        """Where each row's replication stands among all that these streams know."""
        return self._row_slots()

    def integers(self, n: int, size: int) -> IntArray:
        """The next `size` uniform indices below n of each row, (rows, size). `size` positions."""
        sequence, position = self._index_sequence(n), self.position
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
        if Kind.UNIFORMS not in self._sequences:
            self._sequences[Kind.UNIFORMS] = self._sequence(
                Kind.UNIFORMS, (), np.float64, lambda rng, shape: rng.random(shape)
            )
        return np.broadcast_to(self._sequences[Kind.UNIFORMS].window(start, size, self._slots), (self.rows, size))

    def handles(self) -> list[Handle]:
        """One handle per row, from which generators for this row's positions are had. One position."""
        if self._handles is None:
            self._handles = [Handle(self.seed, self.purpose, int(r)) for r in self.replications]
        self.position = self.position + 1
        return self._handles

    def generators(self) -> list[np.random.Generator]:
        """A new generator for each row. One position."""
        positions = np.broadcast_to(np.asarray(self.position), (self.rows,))
        handles = [Handle(self.seed, self.purpose, int(r)) for r in self.replications]
        self.position = self.position + 1
        return [handle.generator(int(at)) for handle, at in zip(handles, positions, strict=True)]

    def _place(self, slots: IntArray) -> None:
        """Where each row's replication stands among the distinct ones."""
        count = self._distinct.size
        # None stands for all replications in order, or for the only one, which goes for every row.
        self._slots: IntArray | None = None if count == 1 or _in_order(slots, count) else slots
        self._period = self._slots
        if self._slots is not None:
            once = cycle(slots)
            self._period = None if _in_order(once, count) else once

    def _normal_sequence(self) -> _Sequence:
        drawn: Any = np.float32 if self.dtype == np.float32 else np.float64
        return self._sequence(
            Kind.NORMALS, (self.dimension,), drawn, lambda rng, shape: rng.standard_normal(shape, dtype=drawn)
        )

    def _index_sequence(self, n: int) -> _Sequence:
        key = (Kind.INTEGERS, n)
        if key not in self._sequences:
            self._sequences[key] = self._sequence(
                Kind.INTEGERS, (), np.int64, lambda rng, shape: rng.integers(0, n, shape)
            )
        return self._sequences[key]

    def _sequence(self, kind: Kind, shape: tuple[int, ...], dtype: Any, draw: Callable[..., Array]) -> _Sequence:
        handles: dict[int, Handle] = {}

        def block(slot: int, number: int, length: int) -> Array:
            if slot not in handles:
                handles[slot] = Handle(self.seed, self.purpose, int(self._distinct[slot]), kind)
            return draw(handles[slot].generator(number), (length, *shape))

        name = (self.seed, self.purpose, self._distinct.tobytes(), kind, shape, np.dtype(dtype).char)
        return _Sequence(block, self._distinct.size, shape, dtype, name if shape else None)

    def _row_slots(self) -> IntArray:
        if self._slots is not None:
            return self._slots
        return np.zeros(self.rows, np.int64) if self._distinct.size == 1 else np.arange(self.rows)

    def _each(self, positions: IntArray, read: Callable[[IntArray, int], Array]) -> Array:
        slots = self._row_slots()
        out: Array | None = None
        for position in np.unique(positions):
            chosen = positions == position
            values = read(slots[chosen], int(position))
            if out is None:
                out = np.empty((self.rows, *values.shape[1:]), values.dtype)
            out[chosen] = values
        assert out is not None
        return out


class Handle:
    """A door to generators: the one for (number, shard) is always in the same state.

    It hands out one generator again and again, set back each time; asking for another number moves it. The state is
    that of SFC64 seeded with two words that stand for (seed, purpose, replication, kind), the shard added to the
    first of them, and the number.
    """

    __slots__ = ("_bits", "_generator", "_key", "_state")

    def __init__(self, seed: int, purpose: Purpose, replication: int, kind: Kind = Kind.GENERATORS) -> None:
        key = np.random.SeedSequence(seed, spawn_key=(purpose, replication, kind))
        self._key = [int(word) for word in key.generate_state(2, np.uint64)]
        self._bits = np.random.SFC64(0)
        self._state: Any = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def generator(self, number: int, shard: int = 0) -> np.random.Generator:
        """The generator of one block or batch, or of one shard of it, at its beginning."""
        first, second = self._key
        self._state["state"]["state"][:] = ((first + shard) % 2**64, second, number, 1)
        self._bits.state = self._state
        self._bits.random_raw(12, output=False)  # SFC64 mixes its seed in twelve rounds
        return self._generator


class _Sequence:
    """The same sequence for several replications, made in blocks when read and kept while near.

    Blocks double in length up to a limit, so a short run makes few numbers and a long one few blocks.
    """

    def __init__(
        self,
        block: Callable[[int, int, int], Array],
        replications: int,
        shape: tuple[int, ...],
        dtype: Any,
        name: Any = None,
    ) -> None:
        self._name = name  # under which its blocks may be remembered
        self._block, self._replications, self._shape, self._dtype = block, replications, shape, dtype
        width = shape[0] if shape else 1
        self._first, self._longest = (1 << max(0, (size // width).bit_length() - 1) for size in (_FIRST, _PER_BLOCK))
        self._growing = (self._longest // self._first).bit_length() - 1  # how often the length doubles
        self._capacity = max(1, _KEPT // max(1, replications * self._longest * width)) if shape else 64
        self._kept: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        self._start = self._end = 0  # the block in hand; what is handed out of it cannot be written to
        self._values = np.empty(0)  # (length, replications, ..)
        self._loaded: object = _NOTHING  # the selection for which the block in hand is known to be filled
        self._multiples: dict[tuple[int, float], list[Array]] = {}  # blocks times scales

    def item(self, position: int, slots: IntArray | None) -> Array:
        """Entry `position` for the given replications (None: all, in order)."""
        if slots is not self._loaded or not self._start <= position < self._end:
            self._load(position, slots)
        value = self._values[position - self._start]
        return value if slots is None else value.take(slots, axis=0)

    def multiple(self, position: int, scale: float) -> Array:
        """Entry `position` of all replications times a scale; the entries of a block are multiplied together."""
        number, start, _ = self._where(position)
        multiples = self._multiples.get((number, scale))
        if multiples is None:
            entry = self.item(position, None)
            if self._values.size > _WIDE:
                return scale * entry
            while len(self._multiples) >= self._capacity:
                self._multiples.pop(next(iter(self._multiples)))
            multiples = self._multiples[number, scale] = list(scale * self._values)
        return multiples[position - start]

    def make(self, position: int, slot: Any) -> Array:
        """The entries of the block of a position, not kept."""
        number, _, length = self._where(position)
        return self._block(int(slot), number, length)

    def window(self, position: int, size: int, slots: IntArray | None) -> Array:
        """Entries `position` to `position + size - 1`, along the second axis."""
        parts = [values.swapaxes(0, 1) for values in self.parts(position, size, slots)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def parts(self, position: int, size: int, slots: IntArray | None) -> list[Array]:
        """The same along the first axis, as they stand in the blocks."""
        parts, end = [], position + size
        while position < end:
            if slots is not self._loaded or not self._start <= position < self._end:
                self._load(position, slots)
            stop = min(end, self._end)
            values = self._values[position - self._start : stop - self._start]
            parts.append(values if slots is None else values.take(slots, axis=1))
            position = stop
        return parts

    def left(self, position: int) -> int:
        """Entries from a position to the end of its block."""
        _, start, length = self._where(position)
        return start + length - position

    def _where(self, position: int) -> tuple[int, int, int]:
        """Number, start and length of the block that holds a position."""
        steady = self._first << self._growing  # here blocks have reached their full length
        if position >= steady:
            more = (position - steady) // self._longest
            return self._growing + 1 + more, steady + more * self._longest, self._longest
        number = (position // self._first).bit_length()
        start = 0 if number == 0 else self._first << (number - 1)
        return number, start, max(self._first, start)

    def _load(self, position: int, slots: IntArray | None) -> None:
        number, start, length = self._where(position)
        if number not in self._kept:
            self._values = np.empty(0)  # let go of the old block before the new one is made
            self._start = self._end = 0
        values = self._filled(number, length, range(self._replications) if slots is None else np.unique(slots).tolist())
        if values is not self._values.base:
            self._values = values.view()
            self._values.flags.writeable = False
        self._start, self._end, self._loaded = start, start + length, slots

    def _filled(self, number: int, length: int, slots: Iterable[int]) -> Array:
        """A block with the entries of these replications."""
        if number not in self._kept:
            while len(self._kept) >= self._capacity:
                self._kept.popitem(last=False)
            known = None if self._name is None else _memory.find((self._name, number))
            values = np.empty((length, self._replications, *self._shape), self._dtype) if known is None else known
            self._kept[number] = (values, np.full(self._replications, known is not None))
        self._kept.move_to_end(number)
        values, filled = self._kept[number]
        for slot in slots:
            if not filled[slot]:
                values[:, slot] = self._block(slot, number, length)
                filled[slot] = True
                if self._name is not None and filled.all():
                    _memory.keep((self._name, number), values)
        return values


def cycle(numbers: IntArray) -> IntArray:
    """The numbers that are gone through again and again, once; all of them if they are not."""
    again = np.flatnonzero(numbers[1:] == numbers[:1])
    length = int(again[0]) + 1 if again.size else numbers.size
    repeats = length > 0 and numbers.size % length == 0 and (numbers.reshape(-1, length) == numbers[:length]).all()
    return numbers[:length] if repeats else numbers


def _in_order(slots: IntArray, count: int) -> bool:
    return slots.size == count and bool((slots == np.arange(count)).all())


def shared(positions: IntArray) -> Counts:
    """One integer where all rows agree."""
    first = int(positions[0]) if positions.size else 0
    return first if (positions == first).all() else positions
