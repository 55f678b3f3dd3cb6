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
from itertools import accumulate
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from dualanchor.core.errors import CapabilityError, explain
from dualanchor.core.types import Array
from dualanchor.engines.base import WORKER, Failure, Given, Loaded, Ticket, too_late

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
        self._finalizer = weakref.finalize(self, _end, self._crew)

    def name(self, number: int) -> str:
        return f"worker {number} (process {self._crew[number].process.pid})"

    def ask(self, loaded: Loaded, x: Array, ticket: Ticket, given: Given, timeout: float | None) -> list[Any]:
        self._keep(loaded)
        needed = x.nbytes * (1 + sum(map(len, given)))
        if needed > len(self._memory):
            self._enlarge(needed)
        np.ndarray(x.shape, x.dtype, self._memory)[...] = x
        ends = accumulate((len(mine) for mine in given), initial=1)
        offsets = [x.nbytes * end for end in ends]
        what = pickle.dumps(ticket)
        tasks = [
            pickle.dumps(("do", loaded.key, what, mine, x.shape, x.dtype.str, offset))
            for mine, offset in zip(given, offsets, strict=False)
        ]
        try:
            failures = self._round(loaded.key, tasks, timeout)
        except BaseException:  # Ctrl-C in the midst of it: nobody knows any more who is to answer what
            for number in range(len(self._crew)):
                self._replace(number)
            raise
        answers: list[Any] = []
        for mine, offset, failure in zip(given, offsets, failures, strict=False):
            places = (offset + i * x.nbytes for i in range(len(mine)))
            answers.append(failure or [np.ndarray(x.shape, x.dtype, self._memory, at) for at in places])
        return answers

    def accepts(self, loaded: Loaded) -> bool:
        """Whether a worker can take in the oracle."""
        self._keep(loaded)
        worker = self._crew[0]
        try:
            self._teach(worker, loaded.key)
        except (EOFError, OSError):
            return False
        return worker.refused is None

    def _keep(self, loaded: Loaded) -> None:
        if loaded.key not in self._blobs:
            self._blobs[loaded.key] = pickled(loaded.oracle)

    def _round(self, key: int, tasks: list[bytes], timeout: float | None) -> list[Failure | None]:
        """Give everybody a task and wait for all; who dies is replaced, and his task done again, once."""
        lost = [number for number, task in enumerate(tasks) if not self._give(number, key, task)]
        end = None if timeout is None else time.monotonic() + timeout
        failures: list[Failure | None] = [None] * len(tasks)
        for number in range(len(tasks)):
            if number not in lost and not self._answered(number, failures, end, timeout):
                lost.append(number)
        for number in lost:
            self._replace(number)
            again = None if timeout is None else time.monotonic() + timeout
            if not (self._give(number, key, tasks[number]) and self._answered(number, failures, again, timeout)):
                code = self._crew[number].process.wait()
                self._replace(number)
                parts = ("A worker process must not die", f"its end with code {code}, twice", "Look at its messages")
                failures[number] = Failure(parts, None, None, None)
        return failures

    def _give(self, number: int, key: int, task: bytes) -> bool:
        """Hand a task over, with the oracle and the memory if they are new; false if the worker is dead."""
        worker = self._crew[number]
        try:
            if worker.memory != self._file:
                worker.line.send_bytes(pickle.dumps(("memory",)))
                socket.send_fds(worker.channel, [b" "], [self._file])
                worker.memory = self._file
            self._teach(worker, key)
            if worker.refused is None:
                worker.line.send_bytes(task)
        except (EOFError, OSError):
            return False
        return True

    def _teach(self, worker: _Process, key: int) -> None:
        """Hand an oracle over if it is new; a worker that cannot take it in says why."""
        if key not in worker.known:
            worker.line.send_bytes(pickle.dumps(("put", key, self._blobs[key], sys.path)))
            worker.refused = _failure(worker.line.recv_bytes())
            worker.known.add(key)

    def _answered(self, number: int, failures: list[Failure | None], end: float | None, timeout: float | None) -> bool:
        """Wait for a worker's answer; false if it is dead."""
        worker = self._crew[number]
        if worker.refused is not None:
            failures[number], worker.refused = worker.refused, None
            worker.known.clear()
            return True
        try:
            if end is not None and not worker.line.poll(max(0.0, end - time.monotonic())):
                assert timeout is not None
                failures[number] = too_late(timeout, "Mend the sampler (its process was ended), or allow more time")
                self._replace(number)
                return True
            failures[number] = _failure(worker.line.recv_bytes())
        except (EOFError, OSError):
            return False
        return True

    def drop(self, key: int) -> None:
        self._blobs.pop(key, None)
        for worker in self._crew:
            if key in worker.known:
                worker.known.discard(key)
                with contextlib.suppress(OSError):
                    worker.line.send_bytes(pickle.dumps(("drop", key)))

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


class _Process:
    """A worker process and the line to it."""

    def __init__(self, number: int) -> None:
        self.number, self.memory = number, -1
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
        self.line = Connection(os.dup(self.channel.fileno()))

    def greet(self) -> None:
        """Wait until it is ready."""
        try:
            self.line.recv_bytes()
        except EOFError as error:
            code = self.process.wait()
            raise CapabilityError(
                explain("Worker processes must start", f"an end with code {code}", "Use Local(kind='threads')")
            ) from error

    def end(self, patience: float = _GOODBYE) -> None:
        """Close the line, at which it ends by itself unless it is busy, and see that it does."""
        self.line.close()
        self.channel.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end(crew: list[_Process]) -> None:
    for worker in crew:
        worker.line.close()
        worker.channel.close()
    for worker in crew:
        worker.end()


def _failure(answer: bytes) -> Failure | None:
    return pickle.loads(answer) if answer else None


def pickled(value: Any) -> bytes:
    """The value as bytes, with functions of the main program by value where a package that can do that is there."""
    try:
        return _pickler().dumps(value)
    except Exception as error:
        raise CapabilityError(
            explain(
                "An oracle must be picklable to be computed in processes",
                f"{type(error).__name__}: {error}",
                "Use Local(kind='threads'), or pip install 'dualanchor[report]', which brings joblib",
            )
        ) from error


def _pickler() -> Any:
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        with contextlib.suppress(ImportError):
            return __import__(name, fromlist=["dumps"])
    return pickle
