"""What engines send to workers, and back: a batch as a few numbers; sums over spans of shards, or a failure."""

import gc
import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import CapabilityError, OracleError
from dualanchor.core.oracle import Batch
from dualanchor.core.session import accepted, moderate, raised
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.engines.isolation import reseed_generators
from dualanchor.oracles.shards import Shardable, Span, combined, tree_spans, tree_sum

Spans: TypeAlias = "Sequence[Span]"
Assignment: TypeAlias = "Sequence[Spans]"  # the spans of each worker

WORKER = "DUALANCHOR_WORKER"  # environment variable of worker processes: the number of the worker
START_SECONDS = 60.0  # a worker must start, and load an oracle, within this time, or within a longer timeout
_CACHED_STREAMS = 4  # streams that a worker keeps between rounds


class BatchSpec(NamedTuple):
    """Where a worker draws a batch from, in values that are pickled fast; arrays of int64 are bytes."""

    seed: int
    purpose: int
    replications: bytes
    position: int | bytes
    size: int | None  # None: a full pass
    rows: bytes | None  # the rows of the oracle; None: all
    dimension: int
    dtype: str

    @classmethod
    def full_pass(cls, rows: IntArray | None) -> Self:
        """All components of a finite sum."""
        return cls(0, 0, b"", 0, None, _as_bytes(rows), 0, "")

    @classmethod
    def following(cls, streams: Streams, size: int, rows: IntArray | None = None) -> Self:
        """The next `size` samples of streams."""
        position = streams.position if isinstance(streams.position, int) else streams.position.tobytes()
        source = (streams.seed, int(streams.purpose), streams.replications.tobytes(), position)
        return cls(*source, size, _as_bytes(rows), streams.dimension, str(streams.dtype))

    def selected(self, oracle: Shardable) -> Shardable:
        """The oracle of these rows."""
        return oracle if self.rows is None else oracle.take(_integers(self.rows))


def _as_bytes(numbers: IntArray | None) -> bytes | None:
    return None if numbers is None else numbers.astype(np.int64).tobytes()


def _integers(data: bytes) -> IntArray:
    return np.frombuffer(data, np.int64)


class Failure(NamedTuple):
    """What went wrong on a worker: the three parts of the message, the row, the shard, and the traceback as text."""

    parts: tuple[str, str, str]
    row: int | None = None
    shard: int | None = None
    trace: str | None = None

    def error(self, worker: str, x: Array) -> OracleError:
        """The error to raise, which names the worker and the point."""
        rule, received, remedy = self.parts
        where = worker if self.shard is None else f"{worker} (shard {self.shard})"
        point = x[0 if self.row is None else self.row]
        received = f"{received} on {where} for a point of norm {np.linalg.norm(point):.6g}"
        error = OracleError(rule, received, remedy, self.row)
        if self.trace is not None:
            error.__cause__ = WorkerTracebackError(f"\n{self.trace}")
        return error

    @classmethod
    def of(cls, error: BaseException, doing: str, shard: int | None = None) -> Self:
        known = error if isinstance(error, OracleError) else raised(error, doing)
        cause = error.__cause__ if error is known else error
        trace = None if cause is None else "".join(traceback.format_exception(cause))
        return cls(known.parts, known.row, shard, trace)

    @classmethod
    def timed_out(cls, seconds: float, remedy: str, doing: str = "reply within timeout =") -> Self:
        return cls((f"A worker must {doing} {seconds:g} s", "no reply", remedy))

    @classmethod
    def nan(cls, x: Array, value: Array) -> Self | None:
        """The failure for NaN at a moderate point, if any; far out, where powers overflow, NaN is divergence."""
        with np.errstate(over="ignore", invalid="ignore"):
            broken = np.isnan(value).any(axis=1) & (np.abs(x).max(axis=1) < moderate(x.dtype))
        if not broken.any():
            return None
        rule, remedy = "The oracle must return numbers at every finite point", "Fix the sampler for this point"
        return cls((rule, "NaN", f"{remedy}, or start elsewhere"), int(np.flatnonzero(broken)[0]))


def not_picklable(error: Exception, computed: str, remedy: str = "") -> CapabilityError:
    """The error for an oracle that cannot be sent to workers."""
    rule = f"An oracle must be picklable to be computed {computed}"
    remedy = remedy or "Let its functions make what cannot be sent, or use Local(kind='threads')"
    return CapabilityError(rule, f"{type(error).__name__}: {error}", remedy)


class WorkerTracebackError(Exception):
    """The traceback of an error on a worker, as text; the cause of the error that is raised here."""


class WorkerState:
    """What a worker holds: the oracles it was sent, and the streams it draws batches from."""

    def __init__(self) -> None:
        self.oracles: dict[int, Shardable] = {}
        self._streams = lru_cache(_CACHED_STREAMS)(
            lambda seed, rows, purpose, *form: Streams(seed, _integers(rows), Purpose(purpose), *form)
        )

    def load(self, key: int, unpickled: Callable[[], Shardable]) -> Failure | None:
        """Take an oracle, and seed the generators of this process anew; a Failure if one of them cannot be."""
        try:
            self.oracles[key] = unpickled()
            reseed_generators()
        except CapabilityError as error:
            self.oracles.pop(key, None)
            gc.collect()  # else its generators would be found again
            return Failure(error.parts)
        return None

    def sums(
        self, oracle: Shardable, x: Array, spec: BatchSpec, spans: Spans, buffers: Sequence[Array] | None = None
    ) -> list[Array] | Failure:
        """Draw the batch and compute `span_sums`; to be called within `arrays.quiet()`."""
        try:
            oracle = spec.selected(oracle)
            if spec.size is None:
                batch = oracle.full_batch()
            else:
                streams = self._streams(spec.seed, spec.replications, spec.purpose, spec.dimension, spec.dtype)
                streams.position = spec.position if isinstance(spec.position, int) else _integers(spec.position)
                batch = oracle.draw(streams, spec.size)
        except Exception as error:
            return Failure.of(error, "drawing a batch")
        return span_sums(oracle, batch, x, spans, buffers)


def span_sums(
    oracle: Shardable, batch: Batch, x: Array, spans: Spans, buffers: Sequence[Array] | None = None
) -> list[Array] | Failure:
    """The sum of each span of shards, like x, or the first failure; in `buffers` if the oracle writes there."""
    shard = 0

    def part(number: int) -> Array:
        nonlocal shard
        shard = number
        value = oracle.partial(x, batch, shard, buffer if shard == first else None)
        if value.dtype is x.dtype and value.shape == x.shape:
            return value
        return accepted(x, value.astype(x.dtype) if value.dtype.kind in "iu" else value)

    sums: list[Array] = []
    try:
        for first, end in spans:
            buffer = None if buffers is None else buffers[len(sums)]
            sums.append(tree_sum(part, (first, end)))
    except Exception as error:
        return Failure.of(error, "evaluating a batch", shard)
    return sums


@lru_cache(maxsize=256)
def assign(shards: int, workers: int) -> list[list[Span]]:
    """For each worker spans of neighbouring shards, about equally many; empty for some if there are fewer shards."""
    cuts = [shards * worker // workers for worker in range(workers + 1)]
    return [tree_spans(first, end, shards) for first, end in pairwise(cuts)]


def combine(x: Array, shards: int, assignment: Assignment, results: Sequence[Any], name: Callable[[int], str]) -> Array:
    """The total of the sums of all workers; raises for the first that failed or returned NaN at a moderate point."""
    for worker, sums in enumerate(results):
        if isinstance(sums, Failure):
            raise sums.error(name(worker), x)
    total = combined(dict(zip(chain(*assignment), chain(*results), strict=True)), shards)
    if arrays.has_nan(total):
        for worker, sums in enumerate(results):
            for value in sums:
                if (failure := Failure.nan(x, value)) is not None:
                    raise failure.error(name(worker), x)
    return total
