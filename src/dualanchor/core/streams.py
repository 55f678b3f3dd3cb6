"""From a seed to one random stream per replication and purpose.

A stream can be read at any position: each of its blocks comes from its own generator, keyed by (seed, purpose,
replication, kind) and the block's number. So results do not depend on how rows are grouped, and a run is resumed from
positions alone. Rows of the same replication read the same numbers.
"""

import ctypes
import pickle
import random
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property, partial
from struct import Struct
from typing import Any

import numpy as np

from dualanchor.core.arrays import numpy_dtype
from dualanchor.core.sequence import LazySequence
from dualanchor.core.types import Array, Counts, IntArray, Rows


def state_of_globals() -> bytes:
    """The state of the process's own generators: of `random`, of `np.random` and, where it is loaded, of PyTorch."""
    torch = sys.modules.get("torch")
    of_torch = None if torch is None else torch.random.get_rng_state().numpy()
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False), of_torch))  # noqa: NPY002


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
    """What a stream consists of. The numbers are part of every result: never change them."""

    NORMALS = 0
    INTEGERS = 1
    UNIFORMS = 2
    GENERATORS = 3


_NEAR = 4096  # rows at most this many positions apart are read from one common window


class Streams:
    """The streams of a set of rows, for one purpose, each row at its own position.

    Parameters
    ----------
    seed : int, non-negative
    replications : array of int, one per row; rows with the same number read the same stream
    purpose : Purpose, streams of different purposes are independent
    dimension, dtype : length d and dtype of the vectors that `normals` gives, as NumPy arrays

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
        self.seed = seed
        self.purpose = purpose
        self.dimension = dimension
        self.dtype = numpy_dtype(dtype)
        self.replications = np.asarray(replications, dtype=np.int64)
        self.position: Counts = 0
        self._distinct, slots = np.unique(self.replications, return_inverse=True)
        self._set_slots(slots)
        self._sequences: dict[Any, LazySequence] = {}
        self._normals: LazySequence | None = None

    @property
    def rows(self) -> int:
        return self.replications.size

    def of(self, purpose: Purpose) -> "Streams":
        """Streams of the same rows for another purpose, at position 0."""
        return Streams(self.seed, self.replications, purpose, self.dimension, self.dtype)

    def take(self, rows: Rows) -> "Streams":
        """The streams of a selection of the rows, at the same positions."""
        part = object.__new__(Streams)
        part.__dict__.update(self.__dict__)
        part.replications = self.replications[rows]
        if self._distinct.size > 1:
            part._set_slots(self._row_slots()[rows])
        part.position = selected(self.position, rows)
        part.__dict__.pop("sources", None)
        return part

    def put(self, rows: Rows, position: Counts) -> None:
        """Set the position of some rows."""
        positions = per_row(self.position, self.rows)
        positions[rows] = position
        self.position = shared(positions)

    def normals(self) -> Array:
        """The next standard normal vector of each row, (rows, d). Advances by one position, whatever d."""
        position = self.position
        self.position = position + 1
        values = self.normals_at(position)
        return values if len(values) == self.rows else np.tile(values, (self.rows // len(values), 1))

    def normals_at(self, position: Counts) -> Array:
        """The normal vectors at a position, read-only: (rows, d), or (period, d) where replications repeat."""
        sequence = self._normals or self._sequence(Kind.NORMALS)
        if isinstance(position, int):
            return sequence.item(position, self._period)
        return self._by_position(position, lambda slots, at: sequence.item(at, slots))

    def release(self) -> None:
        """Free the memory of normal vectors that all rows have read, if vectors are so long that one is a block."""
        if self._normals is not None and isinstance(self.position, int):
            self._normals.release(self.position)

    def integers(self, n: int, size: int) -> IntArray:
        """The next `size` uniform indices below n of each row, (rows, size). Advances by `size` positions."""
        sequence = self._sequences.get((Kind.INTEGERS, n)) or self._sequence(Kind.INTEGERS, n)
        position = self.position
        self.position = position + size
        if isinstance(position, int):
            values = sequence.window(position, size, self._slots)
            return values if len(values) == self.rows else np.broadcast_to(values, (self.rows, size))
        first, last = int(position.min()), int(position.max())
        if last - first > _NEAR:
            return self._by_position(position, lambda slots, at: sequence.window(at, size, slots))
        window = sequence.window(first, last - first + size, None)  # (replications, ...)
        return window[self._row_slots()[:, None], (position - first)[:, None] + np.arange(size)]

    def uniforms(self, start: int, size: int) -> Array:
        """Numbers `start` to `start + size - 1` of each row, uniform on [0, 1). Moves no position."""
        sequence = self._sequences.get((Kind.UNIFORMS, 0)) or self._sequence(Kind.UNIFORMS)
        return np.broadcast_to(sequence.window(start, size, self._slots), (self.rows, size))

    @cached_property
    def sources(self) -> "list[GeneratorSource]":
        """One source of generators per row, for any position of this row. Moves no position."""
        return [GeneratorSource(self.seed, self.purpose, int(r)) for r in self.replications]

    def generators(self) -> list[np.random.Generator]:
        """A new generator for each row. Advances by one position."""
        positions = per_row(self.position, self.rows).tolist()
        self.position = self.position + 1
        keyed = zip(self.replications.tolist(), positions, strict=True)
        return [GeneratorSource(self.seed, self.purpose, replication).generator(at) for replication, at in keyed]

    def _set_slots(self, slots: IntArray) -> None:
        """Note the slot of each row: the index of its replication among the distinct ones.

        `_slots` has one per row, `_period` the shortest list of which `_slots` is a repetition. Both are None where
        they would be 0, 1, 2, ..: a sequence is then read without indexing.
        """
        count = self._distinct.size
        self._slots = None if count == 1 or _in_order(slots, count) else slots
        self._period = self._slots
        if self._slots is not None:
            period = _period(slots)
            self._period = None if _in_order(period, count) else period

    def _row_slots(self) -> IntArray:
        if self._slots is not None:
            return self._slots
        return np.zeros(self.rows, np.int64) if self._distinct.size == 1 else np.arange(self.rows)

    def _by_position(self, positions: IntArray, read: Callable[[IntArray, int], Array]) -> Array:
        """What `read(slots, position)` gives for each row, called once for all rows at one position."""
        slots = self._row_slots()
        out = None
        for position in np.unique(positions):
            here = positions == position
            values = read(slots[here], int(position))
            if out is None:
                out = np.empty((self.rows, *values.shape[1:]), values.dtype)
            out[here] = values
        assert out is not None
        return out

    def _sequence(self, kind: Kind, n: int = 0) -> LazySequence:
        """A new sequence of this kind, of indices below n for INTEGERS; kept in `_sequences`."""
        shape = (self.dimension,) if kind is Kind.NORMALS else ()
        normals_dtype = np.float32 if self.dtype == np.float32 else np.float64
        dtype = {Kind.NORMALS: normals_dtype, Kind.INTEGERS: np.int64, Kind.UNIFORMS: np.float64}[kind]
        sources: dict[int, GeneratorSource] = {}

        def fill(slot: int, number: int, out: Array) -> None:
            if slot not in sources:
                sources[slot] = GeneratorSource(self.seed, self.purpose, int(self._distinct[slot]), kind)
            rng = sources[slot].generator(number)
            if kind is Kind.NORMALS:
                rng.standard_normal(out=out, dtype=normals_dtype)
            elif kind is Kind.INTEGERS:
                out[...] = rng.integers(0, n, len(out))
            else:
                rng.random(out=out)

        sequence = self._sequences[kind, n] = LazySequence(fill, self._distinct.size, shape, dtype)
        if kind is Kind.NORMALS:
            self._normals = sequence  # read once for every batch: no dictionary look-up
        return sequence


class GeneratorSource:
    """The generators of one replication: one Generator, set to another state for each (number, shard).

    The state is that of SFC64 seeded with three words: two made from (seed, purpose, replication, kind), with the shard
    added to the first, and the number.
    """

    __slots__ = ("_arguments", "_first", "_generator", "_mix", "_second", "_set")

    def __init__(self, seed: int, purpose: Purpose, replication: int, kind: Kind = Kind.GENERATORS) -> None:
        self._arguments = (seed, purpose, replication, kind)
        key = np.random.SeedSequence(seed, spawn_key=(purpose, replication, kind))
        self._first, self._second = (int(word) for word in key.generate_state(2, np.uint64))
        self._generator = np.random.Generator(np.random.SFC64(key))  # from the key, so that users can spawn others
        self._set = partial(Struct("=5Q").pack_into, _state_words(self._generator), 0)
        numbers = np.empty(12)
        self._mix = partial(self._generator.random, None, numbers.dtype, numbers)  # as SFC64 mixes a new seed

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy makes its own generator: the addresses of this one's state must not be copied."""
        return type(self), self._arguments

    def generator(self, number: int, shard: int = 0) -> np.random.Generator:
        """The generator of one block or batch, or of one shard of it, at its beginning."""
        first = self._first if shard == 0 else (self._first + shard) % 2**64
        self._set(first, self._second, number, 1, 0)
        self._mix()
        return self._generator


def _state_words(generator: np.random.Generator) -> Any:
    """The memory of the generator's state: four words, and one for the unused half of a word.

    Writing to it is ten times as fast as assigning `bit_generator.state`.
    """
    words = (ctypes.c_uint64 * 5).from_address(generator.bit_generator.ctypes.state_address)
    words[:] = [1, 2, 3, 4, 0]
    state: Any = generator.bit_generator.state
    if (*state["state"]["state"].tolist(), state["has_uint32"]) != (1, 2, 3, 4, 0):
        raise RuntimeError("NumPy lays out the state of SFC64 in another way than its versions 1.17 to 2.4")
    return words


def _period(slots: IntArray) -> IntArray:
    """The part up to where the first slot recurs, if all slots are a repetition of it; else all slots."""
    recurrences = np.flatnonzero(slots[1:] == slots[:1])
    length = int(recurrences[0]) + 1 if recurrences.size else slots.size
    is_periodic = length > 0 and slots.size % length == 0 and (slots.reshape(-1, length) == slots[:length]).all()
    return slots[:length] if is_periodic else slots


def _in_order(slots: IntArray, count: int) -> bool:
    return slots.size == count and bool((slots == np.arange(count)).all())


def shared(counts: IntArray) -> Counts:
    """A single int if all rows agree; else the counts as they are."""
    first = int(counts[0]) if counts.size else 0
    return first if (counts == first).all() else counts


def selected(counts: Counts, rows: Rows) -> Counts:
    """The counts of a selection of the rows."""
    return counts if isinstance(counts, int) else shared(counts[rows])


def per_row(counts: Counts, rows: int) -> IntArray:
    """One count for each row, newly allocated."""
    return np.full(rows, counts, np.int64)
