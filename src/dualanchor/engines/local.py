"""Batches computed on this machine: by threads, or by processes that share memory."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from dualanchor.core import check
from dualanchor.core.errors import CapabilityError
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.engines.base import Engine, LoadedOracle
from dualanchor.engines.pool import Pool, ProcessPool, Round, ThreadPool
from dualanchor.engines.protocol import Assignment, BatchSpec, assign, combine
from dualanchor.oracles.shards import Shardable

_MEASURABLE = 0.005  # seconds of work, at least, that show whether threads run in parallel
_PARALLEL = 0.75  # two threads run in parallel if they need at most this share of the time of one
_MIN_TRIES, _MAX_TRIES = 2, 8  # measurements of two threads
_SECONDS = 0.2  # after which, beyond the least number, no further measurement begins


class Local(Engine):
    """Batches computed by threads or processes of this machine.

    Parameters
    ----------
    workers : int, optional; by default one per core that this process may use
    kind : {"auto", "threads", "processes"}
        Threads run in parallel as far as the sampler releases the interpreter's lock, as most of NumPy does for large
        arrays. Processes get the sampler pickled (functions of the main program too, where joblib or cloudpickle is
        installed), except on Windows. "auto" takes processes unless two threads are seen to be faster than one.
    timeout : float, seconds after which a worker that has not replied is reported; processes are then killed

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return x - 1 + rng.normal(size=(n, 3)).mean(axis=0)
    >>> with da.engines.Local(workers=2, kind="threads") as engine:
    ...     result = da.root(sample, np.zeros(3), budget=20_000, L=1.0, engine=engine)
    >>> result.success
    True
    """

    def __init__(self, workers: int | None = None, kind: str = "auto", timeout: float | None = None) -> None:
        super().__init__(timeout)
        self.workers = cores() if workers is None else check.count(workers, "Local: workers")
        self.kind = check.choice(kind, "Local: kind", ("auto", "threads", "processes"))
        if (windows := sys.platform == "win32") and kind == "processes":
            rule = "Local: processes need a system other than Windows"
            raise CapabilityError(rule, sys.platform, "Use kind='threads'")
        self._pool: Pool | None = None
        self._decided = kind != "auto" or self.workers == 1 or windows

    def _total(self, loaded: LoadedOracle, x: Array, spec: BatchSpec, batch: Batch) -> Array:
        shards = loaded.oracle.cut(batch)
        assignment = assign(shards, min(shards, self.workers))
        if not self._decided and len(assignment) > 1:
            self._decide(loaded, x, spec)
        pool = self._started()
        while self._stale:
            pool.drop(self._stale.pop())
        sums = pool.sums(Round(loaded, x, spec, assignment, self.timeout))
        return combine(x, shards, assignment, sums, pool.name)

    @property
    def in_use(self) -> str:
        """What computes batches at present: "threads" or "processes"."""
        with self._exclusive():
            return self._started().kind

    def processes(self) -> list[int]:
        """The process ids of the workers; empty if they are threads."""
        with self._exclusive():
            pool = self._started()
            return [worker.process.pid for worker in pool.workers] if pool.kind == "processes" else []

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _exclusive(self) -> AbstractContextManager[Any]:
        thread, pool = threading.current_thread(), self._pool
        if pool is not None and pool.kind == "threads" and any(worker.thread is thread for worker in pool.workers):
            rule = "An engine must not be used by its own workers, which would deadlock"
            raise CapabilityError(rule, f"a call in {thread.name}", "Use another engine in the sampler, or none")
        return super()._exclusive()

    def _started(self) -> Pool:
        if self._pool is None:
            self._pool = ProcessPool(self.workers) if self.kind == "processes" else ThreadPool(self.workers)
        return self._pool

    def _decide(self, loaded: LoadedOracle, x: Array, spec: BatchSpec) -> None:
        """Measure whether threads run in parallel, and take processes if not."""
        pool, timed = self._started(), TimedOracle(spec.selected(loaded.oracle))
        shards: Any = LoadedOracle(0, timed)  # type: ignore[arg-type]

        def seconds(assignment: Assignment) -> float:
            timed.expect(len(assignment))
            pool.sums(Round(shards, x, spec._replace(rows=None), assignment, self.timeout))
            began, ended, waited = zip(*timed.times, strict=True) if timed.times else ([0.0], [0.0], [0.0])
            return max(ended) - (max(began) if len(assignment) > 1 else min(began) + sum(waited))

        one_thread, two_threads = [[(0, 1), (1, 2)]], [[(0, 1)], [(1, 2)]]  # two shards
        if seconds(one_thread) < _MEASURABLE:
            return  # too short to tell, or it failed; threads for now
        self._decided = True
        if run_in_parallel(partial(seconds, one_thread), partial(seconds, two_threads)):
            return
        try:
            processes = ProcessPool(self.workers)
        except CapabilityError:  # they do not start here
            return
        if processes.accepts(loaded):
            self.kind, self._pool = "processes", processes
            pool.close()
        else:
            processes.close()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class TimedOracle:
    """An oracle that notes when shards are computed; each thread begins when all of them have arrived."""

    def __init__(self, oracle: Shardable) -> None:
        self._oracle = oracle
        self.draw, self.full_batch = oracle.draw, oracle.full_batch

    def expect(self, threads: int) -> None:
        """Prepare for this number of threads, and forget what was noted."""
        self._barrier = threading.Barrier(threads)
        self.times: list[tuple[float, float, float]] = []  # begin, end, seconds without a core

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        began, waited = time.perf_counter(), seconds_without_core()
        self._barrier.wait()
        value = self._oracle.partial(x, batch, shard, out)
        self.times.append((began, time.perf_counter(), seconds_without_core() - waited))
        return value


def run_in_parallel(one: Callable[[], float], two: Callable[[], float]) -> bool:
    """Whether two threads compute two shards faster than one does, from functions that return seconds.

    The seconds of one thread exclude those in which it waited for a core, the seconds of two include them. So a busy
    machine may hide that threads run in parallel, but threads that hold the interpreter's lock never seem to.
    """
    alone, spent = one(), 0.0
    for tries in range(_MAX_TRIES):
        if tries >= _MIN_TRIES and spent > _SECONDS:
            break
        together = two()
        if together <= _PARALLEL * alone:
            alone = min(alone, one())  # it may have been slow by chance
            if together <= _PARALLEL * alone:
                return True
        spent += together
    return False


def seconds_without_core() -> float:
    """Seconds in which this thread was ready but had no core; 0 where the system does not count them."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return 1e-9 * int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
