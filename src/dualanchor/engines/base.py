"""What engines have in common: an oracle whose batches are computed by workers, and how a worker does its share."""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, count, pairwise
from math import isfinite, isnan
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, CapabilityError, OracleError, explain
from dualanchor.core.oracle import Batch, Oracle, Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.engines.data import SHARDS, SumInBlocks
from dualanchor.oracles.finite_sum import FiniteSum
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.shards import Shardable, Span, added, joined, spans

WORKER = "DUALANCHOR_WORKER"
"""The environment variable that holds a worker's number, in workers that are processes."""

Given: TypeAlias = "Sequence[Sequence[Span]]"
"""The spans of shards of each worker."""

_STREAMS = 4  # so many streams are kept by a worker
_ROUNDS = 15  # rounds timed by `measure`
_LARGE = 1 << 17  # numbers in its larger ones, at least


class Ticket(NamedTuple):
    """A batch in few numbers: from them anybody draws it. Size None stands for a full pass over a finite sum.

    Arrays of integers are bytes here, since plain values travel fastest.
    """

    seed: int
    purpose: int
    replications: bytes
    position: int | bytes
    size: int | None
    rows: bytes | None
    dimension: int
    dtype: str


class Failure(NamedTuple):
    """What went wrong on a worker: the parts of the message, the row, the shard, and the traceback as text."""

    parts: tuple[str, str, str]
    row: int | None
    shard: int | None
    trace: str | None

    def error(self, worker: str, x: Array) -> OracleError:
        """The error to raise, with the worker, its shard and the point."""
        rule, received, remedy = self.parts
        where = worker if self.shard is None else f"{worker} (shard {self.shard})"
        point = x[0 if self.row is None else self.row]
        error = OracleError(rule, f"{received} on {where} for a point of norm {np.linalg.norm(point):.6g}", remedy)
        error.row = self.row
        if self.trace is not None:
            error.__cause__ = _OnWorkerError(f"\n{self.trace}")
        return error


class _OnWorkerError(Exception):
    """The traceback of an error on a worker, shown above the error that it led to."""


@dataclass(frozen=True)
class Latency:
    """What a round costs beside its samples: `latency` seconds, and `per_number` more for each number of x."""

    latency: float
    per_number: float

    def seconds(self, dimension: int) -> float:
        """Seconds of a round in so many dimensions."""
        return self.latency + self.per_number * dimension


class Desk:
    """Where a worker works: the oracles it was given, and the streams it draws batches from."""

    def __init__(self) -> None:
        arrays.keep_memory()
        self._oracles: dict[int, Shardable] = {}
        self._streams: dict[Any, Streams] = {}

    def put(self, key: int, oracle: Shardable) -> None:
        """Keep an oracle."""
        self._oracles[key] = oracle

    def drop(self, key: int) -> None:
        """Forget an oracle."""
        self._oracles.pop(key, None)

    def sums(
        self, key: int, x: Array, ticket: Ticket, mine: Sequence[Span], rooms: Sequence[Array] | None = None
    ) -> list[Array] | Failure:
        """As `sums_of`, within `arrays.quiet()`."""
        try:
            oracle, batch = self._drawn(key, ticket)
        except Exception as error:
            return failed(error, "drawing a batch", None)
        return sums_of(oracle, batch, x, mine, rooms)

    def _drawn(self, key: int, ticket: Ticket) -> tuple[Shardable, Batch]:
        oracle = self._oracles[key]
        if ticket.rows is not None:
            oracle = oracle.take(_integers(ticket.rows))
        if ticket.size is None:
            return oracle, oracle.full_batch()
        name = (ticket.seed, ticket.replications, ticket.purpose, ticket.dimension, ticket.dtype)
        if (streams := self._streams.get(name)) is None:
            while len(self._streams) >= _STREAMS:
                self._streams.pop(next(iter(self._streams)))
            seed, replications, purpose, dimension, dtype = name
            streams = Streams(seed, _integers(replications), Purpose(purpose), dimension, dtype)
            self._streams[name] = streams
        position = ticket.position
        streams.position = position if isinstance(position, int) else _integers(position)
        return oracle, oracle.draw(streams, ticket.size)


def sums_of(
    oracle: Shardable, batch: Batch, x: Array, mine: Sequence[Span], rooms: Sequence[Array] | None = None
) -> list[Array] | Failure:
    """The sum of each of these spans of shards, in these rooms as far as the oracle can do that, or what went wrong."""
    found: list[Array] = []
    try:
        for first, end in mine:
            room = None if rooms is None else rooms[len(found)]
            if end - first == 1:
                found.append(_part(oracle, batch, x, room, first, first))
            else:
                found.append(added(partial(_part, oracle, batch, x, room, first), (first, end)))
    except _ShardError as error:
        return error.failure
    return found


class _ShardError(Exception):
    """Something went wrong in a shard."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def _part(oracle: Shardable, batch: Batch, x: Array, room: Array | None, first: int, shard: int) -> Array:
    """What a shard adds, with the shape and in the precision of x; the first of a span is what others are added to."""
    try:
        value = oracle.partial(x, batch, shard, room if shard == first else None)
        return value if value.shape == x.shape and value.dtype == x.dtype else _like(x, value)
    except Exception as error:
        raise _ShardError(failed(error, "evaluating a batch", shard)) from error


def _like(x: Array, value: Array) -> Array:
    """The value in the precision of x; raises if it is no real array of the shape of x."""
    if value.shape != x.shape:
        raise OracleError(
            "The oracle must return F_B(x) with the shape of x",
            f"shape {value.shape} for x of shape {x.shape}",
            "Return one vector per row, of the same length",
        )
    if value.dtype.kind not in "fiu":
        raise OracleError(
            "The oracle must return real floating-point numbers", f"dtype {value.dtype}", "Return a float array"
        )
    return value.astype(x.dtype)


def failed(error: BaseException, doing: str, shard: int | None) -> Failure:
    """What is said of an error on a worker."""
    if isinstance(error, OracleError):
        cause = error.__cause__
        trace = None if cause is None else "".join(traceback.format_exception(cause))
        return Failure(error.parts, error.row, shard, trace)
    return Failure(
        (
            f"The oracle must not raise when {doing}",
            f"{type(error).__name__}: {error}",
            "Mend the oracle; the error it raised is shown above, the result so far is in .result of this one",
        ),
        None,
        shard,
        "".join(traceback.format_exception(error)),
    )


class Loaded:
    """An oracle as an engine knows it, under a number; when nobody uses it any more, workers forget it."""

    def __init__(self, key: int, oracle: Shardable, stale: list[int]) -> None:
        self.key, self.oracle = key, oracle
        weakref.finalize(self, stale.append, key)


class Engine(ABC):
    """Where batches are computed.

    Attributes
    ----------
    workers : int
        How many compute a batch together. Results do not depend on it.
    timeout : float or None
        Seconds after which a worker that has not answered is given up and reported.
    """

    workers: int
    timeout: float | None = None
    collective: bool = False
    """Whether every worker runs the same program and takes part in every call."""

    def __init__(self, timeout: float | None = None) -> None:
        name = type(self).__name__
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not isfinite(timeout) or timeout <= 0
        ):
            raise ArgumentError(
                explain(f"{name}: timeout must be a positive number of seconds", repr(timeout), "Use timeout=60")
            )
        self.timeout = timeout
        arrays.keep_memory()
        self._turn = threading.RLock()  # whoever holds it has all workers for himself
        self._numbers = count(1)
        self._stale: list[int] = []

    def attach(self, oracle: Oracle) -> Oracle:
        """The same oracle, with batches computed here.

        For `da.certify`, `da.calibrate` and everything else that takes an oracle; `solve` and the front doors do it
        themselves.
        """
        return attach(oracle, self)

    def load(self, oracle: Shardable) -> Loaded:
        """Take an oracle in; workers get it when they first need it."""
        return Loaded(next(self._numbers), oracle, self._stale)

    def compute(self, loaded: Loaded, x: Array, ticket: Ticket, batch: Batch) -> Array:
        """F_B(x) by `total`, after the rounds of other threads of the program."""
        self._admit()
        with self._turn:
            return self.total(loaded, x, ticket, batch)

    def _admit(self) -> None:  # noqa: B027 - not every engine turns threads away
        """Raise in a thread that must not use the engine; before it waits for its turn, which may never come."""

    @abstractmethod
    def total(self, loaded: Loaded, x: Array, ticket: Ticket, batch: Batch) -> Array:
        """F_B(x), computed by all workers together; raises OracleError if one of them fails."""

    def trace_nan(self) -> None:  # noqa: B027 - an engine that gathers shares looks for NaN in them itself
        """Raise for the worker that brought NaN into the last total, if it was at a moderate point."""

    def measure(self, dimension: int = 1000) -> Latency:
        """Time rounds without samples: what a round costs beside them, in dimensions 1 to about this one."""
        loaded = self.load(_Nothing(self.workers))
        large = max(dimension, _LARGE)
        small_time, large_time = (self._round_trip(loaded, d) for d in (1, large))
        return Latency(small_time, max(0.0, large_time - small_time) / large)

    def _round_trip(self, loaded: Loaded, dimension: int) -> float:
        x = np.zeros((1, dimension))
        streams = Streams(0, np.zeros(1, np.int64), Purpose.PILOT, dimension)
        ticket, batch = _drawn(loaded.oracle, streams, self.workers, None)
        times = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            self.compute(loaded, x, ticket, batch)
            times.append(time.perf_counter() - began)
        return float(np.median(times))

    def close(self) -> None:  # noqa: B027 - not every engine has something to let go
        """Let the workers go. The engine can be used again: they are started when needed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sharded(Oracle):
    """An oracle whose batches are cut into shards and computed by an engine's workers.

    Its value is the same to the last bit as that of the oracle within for the same shards (under MPI to rounding),
    whatever the number of workers.
    """

    # Runs look at every step and never take steps again: rounds are few and costly.
    replayable = None

    def __init__(self, oracle: Shardable, engine: Engine) -> None:
        self._inner, self.engine = oracle, engine
        self._loaded = engine.load(oracle)
        self._rows: IntArray | None = None
        self.components, self.operator_price = oracle.components, oracle.operator_price

    def draw(self, streams: Streams, size: int) -> Batch:
        return Batch(size, _drawn(self._inner, streams, size, self._rows))

    def mean(self, x: Array, batch: Batch) -> Array:
        ticket, drawn = batch.data
        if arrays.is_foreign(x):
            raise CapabilityError(
                explain("engine: points must be NumPy arrays", type(x).__name__, "Start from a NumPy array")
            )
        return self.engine.compute(self._loaded, x, ticket, drawn)

    def full_batch(self) -> Batch:
        batch = self._inner.full_batch()
        return Batch(batch.size, (Ticket(0, 0, b"", 0, None, _bytes(self._rows), 0, ""), batch))

    def take(self, rows: Rows) -> Self:
        inner = self._inner.take(rows)
        if inner is self._inner:
            return self
        part = copy(self)
        part._inner = inner
        if self._rows is None:
            part._rows = np.flatnonzero(rows) if rows.dtype == bool else np.asarray(rows)
        else:
            part._rows = self._rows[rows]
        return part

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        if self._inner.replayable is None:
            F = Session(self, streams)
            batch = F.draw(1)
            self._inner.replayable = bool(np.array_equal(F(x, batch), F(x, batch)))
        return bool(self._inner.replayable)

    def trace_nan(self) -> None:
        self.engine.trace_nan()

    def describe(self) -> dict[str, Any]:
        return self._inner.describe()


class ShardedSum(Sharded):
    """The same for a finite sum, whose true operator is a full pass."""

    def operator(self, x: Array) -> Array:
        value = self.mean(x, self.full_batch())
        if has_nan(value):
            self.trace_nan()
        return value


def _drawn(oracle: Shardable, streams: Streams, size: int, rows: IntArray | None) -> tuple[Ticket, Batch]:
    """The next batch of the streams, and its ticket."""
    position = streams.position
    batch = oracle.draw(streams, size)
    ticket = Ticket(
        streams.seed,
        int(streams.purpose),
        streams.replications.tobytes(),
        position if isinstance(position, int) else position.tobytes(),
        size,
        _bytes(rows),
        streams.dimension,
        str(streams.dtype),
    )
    return ticket, batch


def _bytes(numbers: IntArray | None) -> bytes | None:
    return None if numbers is None else numbers.astype(np.int64).tobytes()


def _integers(data: bytes) -> IntArray:
    return np.frombuffer(data, np.int64)


class _Nothing(Shardable):
    """No samples at all: for timing a round."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def draw(self, streams: Streams, size: int) -> Batch:
        return Batch(size, None)

    def cut(self, batch: Batch) -> int:
        return self._shards

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        if out is None:
            return x.copy()
        out[...] = x
        return out


def attach(oracle: Oracle, engine: Engine) -> Oracle:
    """The oracle with its batches computed by an engine; the innermost one where oracles are built on others."""
    if isinstance(oracle, Sharded):
        return oracle if oracle.engine is engine else type(oracle)(oracle._inner, engine)
    if isinstance(oracle, Sampler):
        return Sharded(oracle.in_shards(SHARDS), engine)
    if isinstance(oracle, FiniteSum):
        return ShardedSum(SumInBlocks(oracle), engine)
    if isinstance(oracle, Shardable):
        return (Sharded if oracle.components is None else ShardedSum)(oracle, engine)
    inner = getattr(oracle, "_inner", None)
    if isinstance(inner, Oracle):
        outer: Any = copy(oracle)
        outer._inner = attach(inner, engine)
        outer.replayable, outer.mixed_sizes, outer.rowwise = None, False, False
        return outer
    raise CapabilityError(
        explain(
            "engine: a batch is computed by several workers only if it can be cut into parts",
            f"an oracle of type {type(oracle).__name__}",
            "Leave engine out: with additive noise a batch of any size is one evaluation of F. "
            "Use Sampler, FiniteSum or engines.ShardedData for samples that cost time",
        )
    )


def engine_of(oracle: Oracle) -> Engine | None:
    """The engine that computes an oracle's batches, if one does."""
    found: Any = oracle
    while found is not None and not isinstance(found, Sharded):
        found = getattr(found, "_inner", None)
    return None if found is None else found.engine


@lru_cache(maxsize=256)
def shares(shards: int, workers: int) -> list[list[Span]]:
    """Spans of neighbouring shards for each worker, about as many shards for each."""
    cuts = [shards * worker // workers for worker in range(workers + 1)]
    return [spans(first, end, shards) for first, end in pairwise(cuts)]


def collected(x: Array, shards: int, given: Given, answers: Sequence[Any], name: Callable[[int], str]) -> Array:
    """The total of what workers answered; raises for the first that failed or brought NaN at a moderate point."""
    for worker, answer in enumerate(answers):
        if isinstance(answer, Failure):
            raise answer.error(name(worker), x)
    total = joined(dict(zip(chain(*given), chain(*answers), strict=True)), shards)
    if has_nan(total):
        for worker, answer in enumerate(answers):
            for value in answer:
                if (failure := nan_failure(x, value)) is not None:
                    raise failure.error(name(worker), x)
    return total


def has_nan(values: Array) -> bool:
    """Whether there is NaN among them; one pass, since squares are never minus infinity."""
    flat = values.ravel()
    return isnan(flat.dot(flat))


def nan_failure(x: Array, value: Array) -> Failure | None:
    """A failure for NaN at a moderate point; far out, where powers overflow, it is divergence and not a defect."""
    with np.errstate(over="ignore", invalid="ignore"):
        moderate = np.abs(x).max(axis=1) < np.finfo(x.dtype).max ** 0.125
    broken = np.isnan(value).any(axis=1) & moderate
    if not broken.any():
        return None
    parts = (
        "The oracle must return numbers at every finite point",
        "NaN",
        "Mend the oracle for this point, or start elsewhere",
    )
    return Failure(parts, int(np.flatnonzero(broken)[0]), None, None)


def too_late(timeout: float, remedy: str) -> Failure:
    """The failure of a worker that did not answer in time."""
    return Failure((f"A worker must answer within timeout = {timeout:g} s", "no answer", remedy), None, None, None)
