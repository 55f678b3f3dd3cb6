"""Whether threads compute an oracle in parallel, measured in a way that a busy machine does not turn around."""

import threading
import time
from collections.abc import Callable

from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.oracles.shards import Shardable

_PARALLEL = 0.75  # of the time of one thread, at most, for two that run in parallel
_TRIES = (2, 8)  # measurements of two threads, at least and at most
_SECONDS = 0.2  # in which no further one is begun


class TimedOracle:
    """An oracle that notes when shards are computed: each thread begins when all of them are there."""

    def __init__(self, oracle: Shardable) -> None:
        self._oracle = oracle
        self.draw, self.full_batch = oracle.draw, oracle.full_batch

    def expect(self, threads: int) -> None:
        """Forget what was noted, and expect this number of threads."""
        self._barrier, self.times = threading.Barrier(threads), list[tuple[float, float, float]]()

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        began, waited = time.perf_counter(), seconds_without_core()
        self._barrier.wait()
        value = self._oracle.partial(x, batch, shard, out)
        self.times.append((began, time.perf_counter(), seconds_without_core() - waited))
        return value


def run_in_parallel(one: Callable[[], float], two: Callable[[], float]) -> bool:
    """Whether two threads compute two shards faster than one does, from functions that return seconds.

    Those of one thread are without the seconds in which it waited for a core, those of two are with them: on a busy
    machine threads may seem not to run in parallel, but those that hold the interpreter's lock never seem to.
    """
    alone, spent = one(), 0.0
    for tries in range(_TRIES[1]):
        if tries >= _TRIES[0] and spent > _SECONDS:
            break
        together = two()
        if together <= _PARALLEL * alone:
            alone = min(alone, one())  # it may have been slow by chance
            if together <= _PARALLEL * alone:
                return True
        spent += together
    return False


def seconds_without_core() -> float:
    """Seconds in which this thread could have run but had no core; 0 where the system does not count them."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return 1e-9 * int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
