"""What engines have in common: a round computes one batch, by all workers together, one round at a time."""

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentTypeError, CapabilityError
from dualanchor.core.oracle import Batch, Oracle, WrappedOracle
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.engines.protocol import BatchSpec
from dualanchor.oracles.finite_sum import FiniteSum
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.shards import SHARDS, Shardable, ShardedSum

_TIMED_ROUNDS = 15  # in each of the two dimensions that `measure` times
_LARGE_DIMENSION = 1 << 17  # the larger of them, at least: sending x must take a visible part of a round


@dataclass(frozen=True)
class Latency:
    """Seconds that a round takes beside its samples: `latency`, and `per_number` more for each number of x."""

    latency: float
    per_number: float

    def seconds(self, dimension: int) -> float:
        return self.latency + self.per_number * dimension


@dataclass(eq=False)
class LoadedOracle:
    """An oracle with the key by which workers know it; they drop it after this object is garbage-collected."""

    key: int
    oracle: Shardable


class Engine(ABC):
    """Where batches are computed.

    Attributes
    ----------
    workers : int, how many workers compute a batch together; results do not depend on it
    timeout : float or None, seconds after which a worker that has not replied is reported as failed
    """

    workers: int
    timeout: float | None = None

    def __init__(self, timeout: float | None = None) -> None:
        if timeout is not None:
            check.number(timeout, f"{type(self).__name__}: timeout", positive=True, remedy="Use timeout=60")
        self.timeout = timeout
        self._process = os.getpid()
        self._lock = threading.RLock()  # held during a round
        self._keys = count(1)
        self._stale: list[int] = []  # keys of oracles that are no longer used, for workers to drop

    def attach(self, oracle: Oracle | Callable[..., Any]) -> Oracle:
        """An oracle, or a function `sample(x, n, rng)`, as an oracle whose batches this engine computes."""
        return attach(oracle, self)

    def load(self, oracle: Shardable) -> LoadedOracle:
        """Register an oracle; workers get it when they first need it."""
        loaded = LoadedOracle(next(self._keys), oracle)
        weakref.finalize(loaded, self._stale.append, loaded.key)
        return loaded

    def compute(self, loaded: LoadedOracle, x: Array, spec: BatchSpec, batch: Batch) -> Array:
        """F_B(x), newly allocated, computed by all workers together; raises OracleError if one of them fails.

        Rounds of other threads of the program finish first.
        """
        with self._exclusive():
            return self._total(loaded, x, spec, batch)

    def _exclusive(self) -> AbstractContextManager[Any]:
        """The lock; raises in a process or thread that must not use the engine, and would deadlock."""
        if os.getpid() != self._process:
            rule = "An engine must be used in the process that made it"
            received = f"a call in process {os.getpid()}, forked from {self._process}"
            raise CapabilityError(rule, received, "Make another engine after the fork")
        return self._lock

    @abstractmethod
    def _total(self, loaded: LoadedOracle, x: Array, spec: BatchSpec, batch: Batch) -> Array:
        """What `compute` returns; the lock is held."""

    def trace_nan(self) -> None:  # noqa: B027 - engines that gather sums find NaN in them
        """Raise the error of the worker whose sum had NaN in the last total, if its point was moderate."""

    def measure(self, dimension: int = 1000) -> Latency:
        """Time rounds without samples, in dimension 1 and in one of at least `dimension`."""
        loaded = self.load(EmptyOracle(self.workers))
        large = max(dimension, _LARGE_DIMENSION)
        times = np.empty((2, _TIMED_ROUNDS))
        for i, d in enumerate((1, large)):
            x, streams = np.zeros((1, d)), Streams(0, np.zeros(1, np.int64), Purpose.PILOT, d)
            spec, batch = BatchSpec.following(streams, self.workers), loaded.oracle.draw(streams, self.workers)
            for j in range(_TIMED_ROUNDS):
                began = time.perf_counter()
                self.compute(loaded, x, spec, batch)
                times[i, j] = time.perf_counter() - began
        small_time, large_time = np.median(times, axis=1).tolist()
        return Latency(small_time, max(0.0, large_time - small_time) / large)

    def close(self) -> None:
        """Stop the workers. The engine can be used again: workers are started when needed."""
        if os.getpid() == self._process:  # in a forked process the workers are those of the parent
            with self._exclusive():
                self._stop()

    def _stop(self) -> None:  # noqa: B027 - not every engine has workers to stop
        """Stop the workers; the lock is held."""

    def __repr__(self) -> str:
        facts = ((name, getattr(self, name, None)) for name in ("workers", "kind", "rank", "timeout"))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in facts if value is not None)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EmptyOracle(Shardable):
    """An oracle without samples, for timing a round: the value of every shard is x."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def draw(self, streams: Streams, size: int) -> Batch:
        return Batch(size, None)

    def cut(self, batch: Batch) -> int:
        return self._shards

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        return x.copy()


class EngineOracle(WrappedOracle):
    """A shardable oracle, `inner`, whose batches an engine computes: the same bit for bit (under MPI, to rounding)."""

    def __init__(self, oracle: Shardable, engine: Engine) -> None:
        super().__init__(oracle)
        self.replayable = None  # runs check every step and never repeat steps: rounds are few and costly
        self.mixed_sizes, self.knows_operator = False, oracle.components is not None
        self.engine, self._loaded = engine, engine.load(oracle)
        self._rows: IntArray | None = None  # which rows of the loaded oracle these are; None: all

    def draw(self, streams: Streams, size: int) -> Batch:
        spec = BatchSpec.following(streams, size, self._rows)
        return Batch(size, (spec, self.inner.draw(streams, size)))

    def mean(self, x: Array, batch: Batch) -> Array:
        spec, drawn = batch.data
        if arrays.is_foreign(x):
            raise CapabilityError("engine: points must be NumPy arrays", type(x).__name__, "Start from a NumPy array")
        return self.engine.compute(self._loaded, x, spec, drawn)

    def full_batch(self) -> Batch:
        batch = self.inner.full_batch()
        return Batch(batch.size, (BatchSpec.full_pass(self._rows), batch))

    def take(self, rows: Rows) -> Self:
        part = super().take(rows)
        if part is not self:
            selected = np.flatnonzero(rows) if rows.dtype == bool else np.asarray(rows)
            part._rows = selected if self._rows is None else self._rows[selected]
        return part

    def operator(self, x: Array) -> Array | None:
        if not self.knows_operator:
            return None
        value = self.mean(x, self.full_batch())  # of a finite sum the true operator is a full pass
        if arrays.has_nan(value):
            self.trace_nan()
        return value

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        return self.inner.is_replayable(x, streams)

    def trace_nan(self) -> None:
        self.engine.trace_nan()

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def __repr__(self) -> str:
        return f"{self.inner!r} on {self.engine!r}"


def attach(oracle: Oracle | Callable[..., Any], engine: Engine) -> Oracle:
    """The same oracle with its batches computed by an engine: a Shardable, a FiniteSum, or an oracle built on one."""
    if callable(oracle) and not isinstance(oracle, Oracle):
        oracle = Sampler(oracle)
    if not isinstance(oracle, Oracle):
        rule = "engine: what is attached must be an Oracle or a function sample(x, n, rng)"
        remedy = "Wrap what you have in Sampler or FiniteSum; a Problem is solved with solve(problem, engine=engine)"
        raise ArgumentTypeError(rule, f"an object of type {type(oracle).__name__}", remedy)
    if isinstance(oracle, EngineOracle):
        return oracle if oracle.engine is engine else attach(oracle.inner, engine)
    if isinstance(oracle, FiniteSum):
        oracle = ShardedSum(oracle)
    if isinstance(oracle, Shardable):
        return EngineOracle(oracle.in_shards(SHARDS), engine)
    if oracle.inner is not None:
        return oracle.with_inner(attach(oracle.inner, engine))
    rule = "engine: a batch is computed by several workers only if it can be cut into shards"
    remedy = "Leave engine out (with additive noise a batch of any size is one evaluation of F), or use Sampler, "
    remedy += "FiniteSum or engines.ShardedData for samples that cost time"
    raise CapabilityError(rule, f"an oracle of type {type(oracle).__name__}", remedy)


def engine_of(oracle: Oracle) -> Engine | None:
    """The engine that computes an oracle's batches, if one does."""
    if isinstance(oracle, EngineOracle):
        return oracle.engine
    return None if oracle.inner is None else engine_of(oracle.inner)
