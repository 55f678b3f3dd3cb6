"""From a seed to one random stream per replication and purpose.

A stream is a fixed sequence and can be read at any position: block b of a sequence comes from a generator of
its own, keyed by (seed, purpose, replication, kind, b). A row of a run only remembers its position. So results do
not depend on how rows are grouped, and a run is resumed by writing down integers. Rows of the same
replication read the same numbers: configurations share the noise of their seed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

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


_INDICES_PER_BLOCK = 4096
_NORMALS_PER_BLOCK = 32768
_SMALL = 1 << 22  # numbers in a block of vectors of which two are kept
_NOTHING = object()


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
        Length and type of the vectors that `normals` gives: those of the iterates.
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
        self.dimension, self.dtype = dimension, np.dtype(dtype)
        self.replications = np.asarray(replications, dtype=np.int64)
        self.position: Counts = 0
        self._distinct, slots = np.unique(self.replications, return_inverse=True)
        in_order = slots.size == self._distinct.size and np.array_equal(slots, np.arange(slots.size))
        # None stands for all replications in order, or for the only one, which goes for every row.
        self._slots: IntArray | None = None if in_order or self._distinct.size == 1 else slots
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
            part._slots = np.arange(self.rows)[rows] if self._slots is None else self._slots[rows]
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

        Where all rows are of one replication and read the same, `compact` gives it once, (1, d).
        """
        position = self.position
        self.position = position + 1
        if isinstance(position, int):
            values = self._normals.item(position, self._slots)
            return (
                values if compact or len(values) == self.rows else np.broadcast_to(values, (self.rows, self.dimension))
            )
        return self._each(position, lambda slots, at: self._normals.item(at, slots))

    def integers(self, n: int, size: int) -> IntArray:
        """The next `size` uniform indices below n of each row, (rows, size). `size` positions."""
        key = (Kind.INTEGERS, n)
        if key not in self._sequences:
            self._sequences[key] = self._sequence(
                Kind.INTEGERS, _INDICES_PER_BLOCK, (), np.int64, lambda rng, out: _fill_integers(rng, out, n)
            )
        sequence, position = self._sequences[key], self.position
        self.position = position + size
        if isinstance(position, int):
            return np.broadcast_to(sequence.window(position, size, self._slots), (self.rows, size))
        return self._each(position, lambda part, at: sequence.window(at, size, part))

    def uniforms(self, start: int, size: int) -> Array:
        """Numbers `start` to `start + size - 1` of each row's sequence on [0, 1); moves no position."""
        if Kind.UNIFORMS not in self._sequences:
            self._sequences[Kind.UNIFORMS] = self._sequence(
                Kind.UNIFORMS, _INDICES_PER_BLOCK, (), np.float64, lambda rng, out: rng.random(out=out)
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

    def _normal_sequence(self) -> _Sequence:
        # A power of two of whole vectors, so that a block stays within a cache whatever d.
        length = 1 << max(0, (_NORMALS_PER_BLOCK // self.dimension).bit_length() - 1)
        drawn: Any = np.float32 if self.dtype == np.float32 else np.float64
        return self._sequence(
            Kind.NORMALS,
            length,
            (self.dimension,),
            drawn,
            lambda rng, out: rng.standard_normal(out=out, dtype=drawn),
        )

    def _sequence(
        self, kind: Kind, length: int, shape: tuple[int, ...], dtype: Any, fill: Callable[..., object]
    ) -> _Sequence:
        def block(replication: int, number: int, out: Array) -> None:
            key = (self.purpose, replication, kind, number)
            fill(np.random.Generator(np.random.SFC64(np.random.SeedSequence(self.seed, spawn_key=key))), out)

        return _Sequence(block, self._distinct, length, shape, dtype)

    def _each(self, positions: IntArray, read: Callable[[IntArray, int], Array]) -> Array:
        one = self._distinct.size == 1
        slots = np.zeros(self.rows, int) if one else np.arange(self.rows) if self._slots is None else self._slots
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
    """A row's door to generators: the one for (position, shard) is always in the same state.

    It hands out one generator again and again, set back each time; asking for another position moves it.
    """

    __slots__ = ("_bits", "_generator", "_state")

    def __init__(self, seed: int, purpose: Purpose, replication: int) -> None:
        key = np.random.SeedSequence(seed, spawn_key=(purpose, replication, Kind.GENERATORS))
        self._bits = np.random.Philox(key=key.generate_state(2, np.uint64))
        self._state: Any = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def generator(self, position: int, shard: int = 0) -> np.random.Generator:
        """The generator of one batch, or of one shard of it, at its beginning."""
        counter = self._state["state"]["counter"]
        counter[:] = (0, 0, shard, position)
        self._bits.state = self._state
        return self._generator


class _Sequence:
    """The same sequence for several replications, made in blocks when read and kept while near."""

    def __init__(
        self,
        block: Callable[[int, int, Array], None],
        replications: IntArray,
        length: int,
        shape: tuple[int, ...],
        dtype: Any,
    ) -> None:
        self._block, self._replications, self._length = block, replications, length
        self._shape, self._dtype = (replications.size, length, *shape), dtype
        self._capacity = 64 if not shape else 2 if self._shape[0] * length * shape[0] < _SMALL else 1
        self._kept: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        self._start, self._values = -length, np.empty(0)  # what is handed out cannot be written to
        self._items: list[Array] = []
        self._loaded: object = _NOTHING  # the selection for which the block in hand is known to be filled

    def item(self, position: int, slots: IntArray | None) -> Array:
        """Entry `position` for the given replications (None: all, in order)."""
        i = position - self._start
        if slots is not self._loaded or not 0 <= i < self._length:
            self._load(position // self._length, slots)
            i = position - self._start
        return self._items[i] if slots is None else self._items[i].take(slots, axis=0)

    def window(self, position: int, size: int, slots: IntArray | None) -> Array:
        """Entries `position` to `position + size - 1`, along the second axis."""
        parts, end = [], position + size
        while position < end:
            number, i = divmod(position, self._length)
            if slots is not self._loaded or number * self._length != self._start:
                self._load(number, slots)
            stop = min(self._length, i + end - position)
            values = self._values[:, i:stop]
            parts.append(values if slots is None else values.take(slots, axis=0))
            position += stop - i
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _load(self, number: int, slots: IntArray | None) -> None:
        if number not in self._kept:
            self._values, self._items = np.empty(0), []  # let go of the old block before the new one is made
            while len(self._kept) >= self._capacity:
                self._kept.popitem(last=False)
            self._kept[number] = (np.empty(self._shape, self._dtype), np.zeros(self._shape[0], bool))
        self._kept.move_to_end(number)
        values, filled = self._kept[number]
        for slot in range(self._shape[0]) if slots is None else np.unique(slots):
            if not filled[slot]:
                self._block(int(self._replications[slot]), number, values[slot])
                filled[slot] = True
        if values is not self._values.base:
            self._values = values.view()
            self._values.flags.writeable = False
            self._items = list(self._values.swapaxes(0, 1))
        self._start, self._loaded = number * self._length, slots


def _fill_integers(rng: np.random.Generator, out: Array, n: int) -> None:
    out[...] = rng.integers(0, n, size=out.shape)


def shared(positions: IntArray) -> Counts:
    """One integer where all rows agree."""
    first = int(positions[0]) if positions.size else 0
    return first if (positions == first).all() else positions
