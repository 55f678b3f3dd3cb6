"""Processes as workers, with x and their sums in memory that they share."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from itertools import accumulate, pairwise
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from dualanchor.core.errors import CapabilityError, install_command
from dualanchor.core.types import Array
from dualanchor.engines.base import Loaded
from dualanchor.engines.share import WORKER, Failure, Given, Ticket, too_late
from dualanchor.engines.worker import BEGIN, DONE, MESSAGE, places, receive, send

_PAGE = 4096  # bytes; a ticket has whole pages, so that tickets of about the same length make no difference
_GOODBYE = 1.0  # seconds in which a worker process ends by itself


class Processes:
    """Processes that find x in shared memory and leave their sums there.

    The memory is a file without a name, so nothing is left of it when the last process ends, however it ends.
    """

    def __init__(self, workers: int) -> None:
        self._crew = [_Process(number) for number in range(workers)]
        for worker in self._crew:
            worker.greet()
        self._blobs: dict[int, bytes] = {}
        self._memory, self._file = mmap.mmap(-1, 1), -1
        self._table: _Table | None = None
        self._finalizer = weakref.finalize(self, _end, self._crew)

    def name(self, number: int) -> str:
        return f"worker {number} (process {self._crew[number].process.pid})"

    def pids(self) -> list[int]:
        """The process of each worker."""
        return [worker.process.pid for worker in self._crew]

    def ask(self, loaded: Loaded, x: Array, ticket: Ticket, given: Given, timeout: float | None) -> list[Any]:
        self._keep(loaded)
        written = pickle.dumps(tuple(ticket))
        table = self._laid(loaded.key, x, given, len(written))
        self._memory[: len(written)] = written
        table.x[...] = x
        try:
            failures = self._round(table, timeout)
        except BaseException:  # Ctrl-C in the midst of it: nobody knows any more who is to answer what
            for number in range(len(self._crew)):
                self._replace(number)
            raise
        return [failure or sums for failure, sums in zip(failures, table.sums, strict=True)]

    def accepts(self, loaded: Loaded) -> bool:
        """Whether a worker can take in the oracle."""
        self._keep(loaded)
        worker = self._crew[0]
        try:
            self._teach(worker, loaded.key, None)
        except (EOFError, OSError):
            return False
        return worker.refused is None

    def _keep(self, loaded: Loaded) -> None:
        if loaded.key not in self._blobs:
            self._blobs[loaded.key] = pickled(loaded.oracle)

    def _laid(self, key: int, x: Array, given: Given, ticket: int) -> _Table:
        """The table of the last round, if this one is of the same kind, or a new one."""
        kind = (key, given, x.shape, x.dtype, -(-ticket // _PAGE) * _PAGE)
        if self._table is None or self._table.kind != kind:
            needed = kind[-1] + x.nbytes * (1 + sum(map(len, given)))
            if needed > len(self._memory):
                self._enlarge(needed)
            self._table = _Table(self._memory, *kind)
        return self._table

    def _round(self, table: _Table, timeout: float | None) -> list[Failure | None]:
        """Wake everybody and wait for all; who dies is replaced, and his share computed again, once."""
        everybody = range(len(table.shares))
        lost = [number for number in everybody if not self._woken(number, table, timeout)]
        end = None if timeout is None else time.monotonic() + timeout  # not counting what oracles took to load
        failures: list[Failure | None] = [None] * len(everybody)
        for number in reversed(everybody):  # the last to start ends last, and one sleep is enough
            if number not in lost and not self._answered(number, failures, end, timeout):
                lost.append(number)
        for number in lost:
            self._replace(number)
            woken = self._woken(number, table, timeout)
            again = None if timeout is None else time.monotonic() + timeout
            if not (woken and self._answered(number, failures, again, timeout)):
                code = self._crew[number].process.wait()
                self._replace(number)
                parts = ("A worker process must not die", f"its end, twice, with code {code}", "Look at its messages")
                failures[number] = Failure(parts, None, None, None)
        return failures

    def _woken(self, number: int, table: _Table, timeout: float | None) -> bool:
        """Let a worker begin, with the memory, the oracle and its share if they are new; false if it is dead."""
        worker = self._crew[number]
        try:
            if worker.table is not table:
                if worker.memory != self._file:
                    worker.tell("memory")
                    socket.send_fds(worker.channel, [b" "], [self._file])
                    worker.memory = self._file
                self._teach(worker, table.key, timeout)
                if self._crew[number].refused is not None:
                    return True
                worker.tell("share", *table.shares[number])
                worker.table = table
            worker.channel.sendall(BEGIN)
        except (EOFError, OSError):
            return False
        return True

    def _teach(self, worker: _Process, key: int, timeout: float | None) -> None:
        """Hand an oracle over if it is new; a worker that cannot take it in says why, or is too late."""
        if key in worker.known:
            return
        worker.tell("put", key, self._blobs[key], sys.path)
        if timeout is None or wait([worker.channel], timeout):
            worker.refused = worker.answer()
            worker.known.add(key)
        else:
            self._replace(worker.number)
            late = too_late(timeout, "Make the oracle quicker to load, or allow more time", "load the oracle")
            self._crew[worker.number].refused = late

    def _answered(self, number: int, failures: list[Failure | None], end: float | None, timeout: float | None) -> bool:
        """Wait for a worker's answer; false if it is dead."""
        worker = self._crew[number]
        if worker.refused is not None:
            failures[number], worker.refused = worker.refused, None
            worker.known.clear()
            return True
        try:
            if end is not None and not wait([worker.channel], max(0.0, end - time.monotonic())):
                assert timeout is not None
                failures[number] = too_late(timeout, "Mend the sampler (its process was ended), or allow more time")
                self._replace(number)
                return True
            failures[number] = worker.answer()
        except (EOFError, OSError):
            return False
        return True

    def drop(self, key: int) -> None:
        self._blobs.pop(key, None)
        for worker in self._crew:
            if key in worker.known:
                worker.known.discard(key)
                with contextlib.suppress(OSError):
                    worker.tell("drop", key)

    def close(self) -> None:
        self._finalizer()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _replace(self, number: int) -> None:
        self._crew[number].end(patience=0.0)
        self._crew[number] = _Process(number)
        self._crew[number].greet()

    def _enlarge(self, size: int) -> None:
        if self._file >= 0:
            os.close(self._file)
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(size)
            self._memory, self._file = mmap.mmap(file.fileno(), size), os.dup(file.fileno())
        for worker in self._crew:
            worker.memory = -1


class _Table:
    """What lies where in shared memory in rounds of one kind: the ticket, x, and the sums of each worker's spans."""

    def __init__(
        self, memory: mmap.mmap, key: int, given: Given, shape: tuple[int, ...], dtype: np.dtype[Any], start: int
    ) -> None:
        self.key, self.kind = key, (key, given, shape, dtype, start)
        ends = list(accumulate((len(mine) for mine in given), initial=1))
        self.x, *arrays = places(memory, shape, dtype, start, 0, ends[-1])
        self.sums = [arrays[first - 1 : end - 1] for first, end in pairwise(ends)]
        self.shares = [(key, mine, shape, dtype.str, start, first) for mine, first in zip(given, ends, strict=False)]


class _Process:
    """A worker process and the channel to it."""

    def __init__(self, number: int) -> None:
        self.number, self.memory = number, -1
        self.table: _Table | None = None
        self.known: set[int] = set()
        self.refused: Failure | None = None
        self.channel, theirs = socket.socketpair()
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = os.pathsep.join(one or os.getcwd() for one in sys.path)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from dualanchor.engines.worker import main; main({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal is for the main program
                env={**limits, **os.environ, "PYTHONPATH": path, WORKER: str(number)},
            )

    def greet(self) -> None:
        """Wait until it is ready."""
        try:
            self.answer()
        except EOFError as error:
            code = self.process.wait()
            raise CapabilityError(
                "Worker processes must start", f"an end with code {code}", "Use Local(kind='threads')"
            ) from error

    def tell(self, *words: Any) -> None:
        """Send it a message."""
        send(self.channel, MESSAGE, words)

    def answer(self) -> Failure | None:
        """Wait for what it says of the last thing asked for; EOFError if it is dead."""
        word = self.channel.recv(1)
        if not word:
            raise EOFError
        return None if word == DONE else receive(self.channel)

    def end(self, patience: float = _GOODBYE) -> None:
        """Close the channel, at which it ends by itself unless it is busy, and see that it does."""
        self.channel.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end(crew: list[_Process]) -> None:
    for worker in crew:
        worker.channel.close()
    for worker in crew:
        worker.end()


def pickled(value: Any) -> bytes:
    """The value as bytes, with functions of the main program by value where a package that can do that is there."""
    try:
        return _pickler().dumps(value)
    except Exception as error:
        remedy = "Let its functions make what cannot be sent, or use Local(kind='threads')"
        if _pickler() is pickle:  # which knows functions of modules only
            remedy = f"Use Local(kind='threads'), or {install_command('report')}, which brings joblib"
        raise CapabilityError(
            "An oracle must be picklable to be computed in processes", f"{type(error).__name__}: {error}", remedy
        ) from error


def _pickler() -> Any:
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        with contextlib.suppress(ImportError):
            return __import__(name, fromlist=["dumps"])
    return pickle
