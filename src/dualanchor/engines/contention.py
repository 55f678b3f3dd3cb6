"""Whether threads compute an oracle in parallel, measured so that a busy machine never gives a wrong yes."""

import threading
import time
from collections.abc import Callable

from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.oracles.shards import Shardable

_PARALLEL = 0.75  # two threads run in parallel if they need at most this share of the time of one
_MIN_TRIES, _MAX_TRIES = 2, 8  # measurements of two threads
_SECONDS = 0.2  # after which, beyond the least number, no further measurement begins


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
