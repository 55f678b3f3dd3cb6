"""A worker's share of a round: the ticket that stands for a batch, the sums over its shards, or what went wrong."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.oracle import Batch
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.oracles.shards import Shardable, Span, added, joined, spans

WORKER = "DUALANCHOR_WORKER"
"""The environment variable that holds a worker's number, in workers that are processes."""

Given: TypeAlias = "Sequence[Sequence[Span]]"
"""The spans of shards of each worker."""

_STREAMS = 4  # so many streams are kept by a worker


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


def drawn(oracle: Shardable, streams: Streams, size: int, rows: IntArray | None) -> tuple[Ticket, Batch]:
    """The next batch of the streams, and its ticket."""
    position = streams.position
    batch = oracle.draw(streams, size)
    ticket = Ticket(
        streams.seed,
        int(streams.purpose),
        streams.replications.tobytes(),
        position if isinstance(position, int) else position.tobytes(),
        size,
        as_bytes(rows),
        streams.dimension,
        str(streams.dtype),
    )
    return ticket, batch


def of_rows(oracle: Shardable, ticket: Ticket) -> Shardable:
    """The oracle of the rows that a ticket is about."""
    return oracle if ticket.rows is None else oracle.take(_integers(ticket.rows))


def as_bytes(numbers: IntArray | None) -> bytes | None:
    """Integers as bytes, which `_integers` reads."""
    return None if numbers is None else numbers.astype(np.int64).tobytes()


def _integers(data: bytes) -> IntArray:
    return np.frombuffer(data, np.int64)


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
        oracle = of_rows(self._oracles[key], ticket)
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
    if arrays.has_nan(total):
        for worker, answer in enumerate(answers):
            for value in answer:
                if (failure := nan_failure(x, value)) is not None:
                    raise failure.error(name(worker), x)
    return total


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


def too_late(timeout: float, remedy: str, doing: str = "answer") -> Failure:
    """The failure of a worker that did not answer in time."""
    return Failure((f"A worker must {doing} within timeout = {timeout:g} s", "no answer", remedy), None, None, None)
