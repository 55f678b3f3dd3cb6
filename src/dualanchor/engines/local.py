"""Batches computed on this machine: by threads, or by processes that share memory."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, CapabilityError
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.engines.base import Engine, Loaded
from dualanchor.engines.processes import Processes, pickled
from dualanchor.engines.share import Given, Ticket, collected, shares
from dualanchor.engines.threads import Threads

_KINDS = ("auto", "threads", "processes")
_TELLING = 0.005  # seconds of work that tell whether threads run side by side
_FASTER = 0.75  # of the time of one thread, at most, for two that do


class Local(Engine):
    """Batches computed by threads or processes of this machine.

    Parameters
    ----------
    workers : int, optional
        How many; one per core that this process may use, if left out.
    kind : {"auto", "threads", "processes"}
        Threads share everything and start at once, but run side by side only as far as the sampler releases the
        interpreter's lock, as most of NumPy does for large arrays. "auto" finds out: two shards of the first batch
        that takes long enough are computed by one thread and by two, and if two are not faster, processes take over,
        as long as they can take in the sampler.
        Processes get the sampler pickled (functions of the main program too, where joblib or cloudpickle is
        installed) and run on systems other than Windows.
    timeout : float, optional
        Seconds after which a worker that has not answered is reported. A process is then ended; a thread cannot be,
        so it is left behind.

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
        self.workers = require_workers(workers, "Local") or cores()
        if kind not in _KINDS:
            raise ArgumentError(
                "Local: kind must be 'auto', 'threads' or 'processes'", repr(kind), "Choose one of them"
            )
        if kind == "processes" and sys.platform == "win32":
            raise CapabilityError(
                "Local: processes need a system other than Windows", sys.platform, "Use kind='threads'"
            )
        self.kind = kind
        self._crew: Threads | Processes | None = None
        self._decided = kind != "auto" or self.workers == 1 or sys.platform == "win32"

    def total(self, loaded: Loaded, x: Array, ticket: Ticket, batch: Batch) -> Array:
        shards = loaded.oracle.cut(batch)
        given = [mine for mine in shares(shards, self.workers) if mine]
        if not self._decided and len(given) > 1:
            self._decide(loaded, x, ticket)
        crew = self._working()
        while self._stale:
            crew.drop(self._stale.pop())
        answers = crew.ask(loaded, x, ticket, given, self.timeout)
        return collected(x, shards, given, answers, crew.name)

    @property
    def in_use(self) -> str:
        """What computes at present: "threads" or "processes"."""
        self._admit()
        with self._turn:
            return "processes" if isinstance(self._working(), Processes) else "threads"

    def processes(self) -> list[int]:
        """The process of each worker; none where threads work."""
        self._admit()
        with self._turn:
            crew = self._working()
            return crew.pids() if isinstance(crew, Processes) else []

    def close(self) -> None:
        self._admit()
        with self._turn:
            if self._crew is not None:
                self._crew.close()
                self._crew = None

    def _admit(self) -> None:
        if isinstance(crew := self._crew, Threads) and crew.has(threading.current_thread()):
            raise CapabilityError(
                "An engine must not be used by its own workers, who would wait for themselves",
                f"a call in {threading.current_thread().name}",
                "Use another engine inside the sampler, or none",
            )

    def _working(self) -> Threads | Processes:
        if self._crew is None:
            self._crew = Processes(self.workers) if self.kind == "processes" else Threads(self.workers)
        return self._crew

    def _decide(self, loaded: Loaded, x: Array, ticket: Ticket) -> None:
        """Find out whether two threads compute two shards faster than one does."""
        crew = self._working()

        def seconds(given: Given) -> float:
            began = time.perf_counter()
            crew.ask(loaded, x, ticket, given, self.timeout)
            return time.perf_counter() - began

        alone, apart = [[(0, 1), (1, 2)]], [[(0, 1)], [(1, 2)]]
        if (one := seconds(alone)) < _TELLING:
            return  # too short to tell; threads for now
        self._decided = True
        if min(seconds(apart), seconds(apart)) > _FASTER * min(one, seconds(alone)):
            if (processes := _accepting(loaded, self.workers)) is None:
                return
            crew.close()
            self.kind, self._crew = "processes", processes


def _accepting(loaded: Loaded, workers: int) -> Processes | None:
    """Processes that can take in the oracle, if there are any."""
    try:
        pickled(loaded.oracle)  # before processes are started
        processes = Processes(workers)
    except CapabilityError:
        return None
    if processes.accepts(loaded):
        return processes
    processes.close()
    return None


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_workers(workers: Any, owner: str) -> int | None:
    """Raise unless the number of workers is a whole number, at least 1, or None."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1):
        raise ArgumentError(f"{owner}: workers must be a whole number >= 1", repr(workers), "Use workers=2")
    return None if workers is None else int(workers)
