"""What engines have in common, and an oracle whose batches are computed by them."""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import count
from math import isfinite
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError
from dualanchor.core.oracle import Batch, Oracle, Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.engines.data import SHARDS, SumInBlocks
from dualanchor.engines.share import Ticket, as_bytes, drawn
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.oracles.finite_sum import FiniteSum
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.shards import Shardable

_ROUNDS = 15  # rounds timed by `measure`
_LARGE = 1 << 17  # numbers in its larger ones, at least


@dataclass(frozen=True)
class Latency:
    """What a round costs beside its samples: `latency` seconds, and `per_number` more for each number of x."""

    latency: float
    per_number: float

    def seconds(self, dimension: int) -> float:
        """Seconds of a round in so many dimensions."""
        return self.latency + self.per_number * dimension


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
                f"{name}: timeout must be a positive number of seconds", repr(timeout), "Use timeout=60"
            )
        self.timeout = timeout
        arrays.keep_memory()
        self._turn = threading.RLock()  # whoever holds it has all workers for himself
        self._numbers = count(1)
        self._stale: list[int] = []

    def attach(self, oracle: Oracle | Callable[..., Any]) -> Oracle:
        """The same oracle, or a function `sample(x, n, rng)` as one, with batches computed here.

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
        ticket, batch = drawn(loaded.oracle, streams, self.workers, None)
        times = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            self.compute(loaded, x, ticket, batch)
            times.append(time.perf_counter() - began)
        return float(np.median(times))

    def close(self) -> None:  # noqa: B027 - not every engine has something to let go
        """Let the workers go. The engine can be used again: they are started when needed."""

    def __repr__(self) -> str:
        facts = ((name, getattr(self, name, None)) for name in ("workers", "kind", "rank", "timeout"))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in facts if value is not None)})"

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
        self.dimension = oracle.dimension

    def draw(self, streams: Streams, size: int) -> Batch:
        return Batch(size, drawn(self._inner, streams, size, self._rows))

    def mean(self, x: Array, batch: Batch) -> Array:
        ticket, drawn = batch.data
        if arrays.is_foreign(x):
            raise CapabilityError("engine: points must be NumPy arrays", type(x).__name__, "Start from a NumPy array")
        return self.engine.compute(self._loaded, x, ticket, drawn)

    def full_batch(self) -> Batch:
        batch = self._inner.full_batch()
        return Batch(batch.size, (Ticket(0, 0, b"", 0, None, as_bytes(self._rows), 0, ""), batch))

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

    def __repr__(self) -> str:
        return f"{self._inner!r} on {self.engine!r}"


class ShardedSum(Sharded):
    """The same for a finite sum, whose true operator is a full pass."""

    def operator(self, x: Array) -> Array:
        value = self.mean(x, self.full_batch())
        if arrays.has_nan(value):
            self.trace_nan()
        return value


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


def attach(oracle: Oracle | Callable[..., Any], engine: Engine) -> Oracle:
    """The oracle with its batches computed by an engine; the innermost one where oracles are built on others."""
    if callable(oracle) and not isinstance(oracle, Oracle):
        oracle = Sampler(oracle)
    if not isinstance(oracle, Oracle):
        raise ArgumentTypeError(
            "engine: what is attached must be an Oracle or a function sample(x, n, rng)",
            f"an object of type {type(oracle).__name__}",
            "Wrap what you have in Sampler or FiniteSum; a Problem is solved with solve(problem, engine=engine)",
        )
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
    alone = "Leave engine out."
    if isinstance(oracle, AdditiveNoise):
        alone = "Leave engine out: with additive noise a batch of any size is one evaluation of F."
    raise CapabilityError(
        "engine: a batch is computed by several workers only if it can be cut into parts",
        f"an oracle of type {type(oracle).__name__}",
        f"{alone} Use Sampler, FiniteSum or engines.ShardedData for samples that cost time",
    )


def engine_of(oracle: Oracle) -> Engine | None:
    """The engine that computes an oracle's batches, if one does."""
    found: Any = oracle
    while found is not None and not isinstance(found, Sharded):
        found = getattr(found, "_inner", None)
    return None if found is None else found.engine
