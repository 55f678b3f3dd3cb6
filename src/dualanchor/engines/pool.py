"""A pool of workers on this machine: threads, or processes that share memory.

Written by hand because a round of `concurrent.futures` takes four times as long, and its processes outlive a program
that is killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from dualanchor.core import arrays
from dualanchor.core.errors import CapabilityError, install_command
from dualanchor.core.types import Array
from dualanchor.engines.base import LoadedOracle
from dualanchor.engines.isolation import module_path
from dualanchor.engines.protocol import (
    START_SECONDS,
    WORKER,
    Assignment,
    BatchSpec,
    Failure,
    WorkerState,
    not_picklable,
)
from dualanchor.engines.worker import DONE, MESSAGE, PAGE, ROUND, RoundMemory

_ATTEMPTS = 2  # of a worker that exits: it is replaced once in a round
_SHUTDOWN_SECONDS = 1.0  # before a worker process that does not exit is killed
_LATE = "Fix the sampler, or allow more time"  # the remedy if a worker does not reply in time


class Round(NamedTuple):
    """A batch to compute at x, the spans of shards of each worker, and the seconds they have."""

    loaded: LoadedOracle
    x: Array
    spec: BatchSpec
    assignment: Assignment
    timeout: float | None


class Pool(ABC):
    """Workers that compute sums over spans of shards; one that exits or is late is replaced."""

    kind: str

    def __init__(self, workers: int) -> None:
        self.workers = [self._started(number) for number in range(workers)]
        self._finalizer = weakref.finalize(self, _end, self.workers, os.getpid())

    def name(self, number: int) -> str:
        """A worker in an error message."""
        return f"worker {number} ({self.workers[number].label})"

    @abstractmethod
    def sums(self, work: Round) -> list[Any]:
        """For each worker the sums of the spans assigned to it, or a Failure."""

    @abstractmethod
    def drop(self, key: int) -> None:
        """Let workers forget an oracle."""

    def close(self) -> None:
        """Stop the workers."""
        self._finalizer()

    @abstractmethod
    def _started(self, number: int) -> Any:
        """A new worker."""

    def _replace(self, number: int) -> None:
        self.workers[number].end(patience=0.0)
        self.workers[number] = self._started(number)

    def _exchange(
        self, messages: dict[int, Any], timeout: float | None, remedy: str, doing: str = "reply within timeout ="
    ) -> dict[int, Any]:
        """The replies to messages, by worker: an exit code or a Failure for workers that exit or are late.

        Those are replaced. A message None is not sent: it waits for the first reply of a new process.
        """
        replies: dict[int, Any] = {}
        try:
            for number, message in messages.items():
                try:  # noqa: SIM105 - `suppress` takes a microsecond
                    self.workers[number].send(message)
                except OSError:  # it has exited: `receive` says so too
                    pass
            deadline = None if timeout is None else time.monotonic() + timeout
            for number in reversed(messages):  # the last to start mostly ends last: then one wait is enough
                worker = self.workers[number]
                try:
                    replies[number] = _received(worker, deadline)
                    continue
                except TimeoutError:
                    assert timeout is not None
                    replies[number] = Failure.timed_out(timeout, remedy, doing)
                except (EOFError, OSError):
                    replies[number] = worker.process.wait()
                self._replace(number)
        except BaseException:  # Ctrl-C: replies that have not come yet would be taken for those of the next round
            for number in messages:
                self._replace(number)
            raise
        return replies


class ThreadPool(Pool):
    """Workers that are threads of this process."""

    kind = "threads"

    def drop(self, key: int) -> None:
        """Nothing to do: threads hold no oracles."""

    def sums(self, work: Round) -> list[Any]:
        oracle = work.loaded.oracle
        tasks = {number: (oracle, work.x, work.spec, spans) for number, spans in enumerate(work.assignment)}
        replies = self._exchange(tasks, work.timeout, _LATE)
        return [replies[number] for number in tasks]

    def _started(self, number: int) -> _Thread:
        return _Thread(number)


class ProcessPool(Pool):
    """Workers that are processes.

    They map one file into memory: the main program writes x and the batch specification there, workers their sums. The
    message of a round is then one byte, unless the layout of the file has changed.
    """

    kind = "processes"

    def __init__(self, workers: int) -> None:
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it has no name and ends with the pool
        self._memory = RoundMemory(self._file.fileno())
        self._layout: Any = None  # the message that describes the arrays in the file
        self._pickles: dict[int, bytes] = {}  # oracles, by key
        super().__init__(workers)
        for reply in self._start(range(workers), None).values():
            if reply is not None:
                self.close()
                received = reply.parts[1] if isinstance(reply, Failure) else f"an exit with code {reply}"
                raise CapabilityError("Worker processes must start", received, "Use Local(kind='threads')")

    def accepts(self, loaded: LoadedOracle) -> bool:
        """Whether an oracle can be sent to a worker."""
        with contextlib.suppress(CapabilityError):
            return self._prepare(loaded, [0], None).get(0) is None
        return False

    def drop(self, key: int) -> None:
        if self._pickles.pop(key, None) is not None:
            numbers = [number for number, worker in enumerate(self.workers) if key in worker.loaded]
            self._exchange(dict.fromkeys(numbers, ("drop", key)), None, "")

    def close(self) -> None:
        super().close()
        self._file.close()

    def sums(self, work: Round) -> list[Any]:
        """A worker that exits is replaced, and gets its task once more."""
        loaded, x, spec, assignment, timeout = work
        data = pickle.dumps(tuple(spec))
        layout = ("arrange", loaded.key, assignment, x.shape, x.dtype.str, 1 + len(data) // PAGE)
        if layout != self._layout:
            self._layout, (self._spec, self._x, self._sums) = layout, self._memory.arrays(*layout[2:])
        self._spec[: len(data)], self._x[...] = data, x
        waiting = list(range(len(assignment)))
        replies: dict[int, Any] = {}
        for _ in range(_ATTEMPTS):
            replies |= self._prepare(loaded, waiting, timeout)
            ready = [number for number in waiting if replies.get(number) is None]
            replies |= self._exchange(dict.fromkeys(ready, self._layout), timeout, _LATE)
            waiting = [number for number in waiting if isinstance(replies[number], int)]
            if not waiting:
                break
            codes = {number: replies.pop(number) for number in waiting}
        for number in waiting:
            received = f"one that exited twice (code {codes[number]})"
            replies[number] = Failure(("A worker process must not exit", received, "See its stderr"))
        return [self._sums[i] if replies[i] is None else replies[i] for i in range(len(assignment))]

    def _prepare(self, loaded: LoadedOracle, numbers: Iterable[int], timeout: float | None) -> dict[int, Any]:
        """Wait until workers have started and loaded the oracle; returns the replies of those that had not."""
        new = [number for number in numbers if loaded.key not in self.workers[number].loaded]
        if not new:
            return {}
        if loaded.key not in self._pickles:
            self._pickles[loaded.key] = pickled(loaded.oracle)
        replies = self._start(new, timeout)
        started = [number for number in new if replies.get(number) is None]
        message = ("load", loaded.key, self._pickles[loaded.key], module_path())
        seconds, remedy = _start_seconds(timeout), "Make it quicker to load"
        replies |= self._exchange(dict.fromkeys(started, message), seconds, remedy, "load the oracle within")
        for number in started:
            if replies[number] is None:
                self.workers[number].loaded.add(loaded.key)
        return replies

    def _start(self, numbers: Iterable[int], timeout: float | None) -> dict[int, Any]:
        """Wait until workers have started; returns the replies of those that had not."""
        new = [number for number in numbers if not self.workers[number].started]
        replies = self._exchange(dict.fromkeys(new), _start_seconds(timeout), "See its stderr", "start within")
        for number in new:
            self.workers[number].started = replies[number] is None
        return replies

    def _started(self, number: int) -> _Process:
        return _Process(number, self._file.fileno())


def _received(worker: Any, deadline: float | None) -> Any:
    """The reply of a worker; a TimeoutError if it comes after the deadline, of the monotonic clock."""
    return worker.receive(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _start_seconds(timeout: float | None) -> float:
    return max(START_SECONDS, timeout or 0.0)


def _end(workers: list[Any], owner: int) -> None:
    if os.getpid() == owner:  # not in a process forked from it
        for worker in workers:
            worker.end()


class _Thread:
    """A worker that is a daemon thread, so that one that hangs does not keep the program from ending."""

    label = "thread"

    def __init__(self, number: int) -> None:
        self.number, self._replies = number, SimpleQueue[Any]()
        tasks = SimpleQueue[Any]()
        self.send = tasks.put
        arguments = (tasks.get, self._replies.put)
        self.thread = threading.Thread(target=_serve, args=arguments, name=f"dualanchor-{number}", daemon=True)
        self.thread.start()

    def receive(self, seconds: float | None) -> Any:
        try:
            return self._replies.get(timeout=seconds)
        except Empty:
            raise TimeoutError from None

    def end(self, patience: float = 0.0) -> None:
        self.send(None)


def _serve(next_task: Callable[[], Any], send: Callable[[Any], None]) -> None:
    state = WorkerState()
    with arrays.quiet():
        while (task := next_task()) is not None:
            try:
                reply: Any = state.sums(*task)
            except BaseException as error:  # sys.exit, for one
                reply = Failure.of(error, "evaluating a batch")
            send(reply)
            del task, reply


class _Process:
    """A worker that is a process: it does not import the main program, and ends with it."""

    def __init__(self, number: int, memory: int) -> None:
        self.number, self.started, self.loaded = number, False, set[int]()
        self._last: Any = None  # the last message sent
        self.socket, theirs = socket.socketpair()
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        arguments = f"{os.getpid()}, {theirs.fileno()}, {memory}, {number}"
        program = f"import sys; sys.path[:] = {module_path()!r}; from dualanchor.engines.worker import main; "
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"{program}main({arguments})"],
                pass_fds=[theirs.fileno(), memory],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal is for the main program
                env={**limits, **os.environ, WORKER: str(number)},
            )
        self.label = f"process {self.process.pid}"

    def send(self, message: tuple[Any, ...] | None) -> None:
        """Send the name and the arguments of a method of ProcessWorker; a message that repeats the last is one byte."""
        if message is None:
            return
        self.socket.sendall(ROUND if message is self._last else MESSAGE + pickle.dumps(message))
        self._last = message

    def receive(self, seconds: float | None) -> Failure | None:
        if seconds is not None and not wait([self.socket], seconds):
            raise TimeoutError
        first_byte = self.socket.recv(1)
        if not first_byte:
            raise EOFError
        return None if first_byte == DONE else pickle.load(self.socket.makefile("rb"))

    def end(self, patience: float = _SHUTDOWN_SECONDS) -> None:
        self.socket.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def pickled(value: Any) -> bytes:
    """A pickle of the value; functions of the main program are in it where cloudpickle or joblib is installed."""
    try:
        return _pickler().dumps(value)
    except Exception as error:
        remedy = ""
        if _pickler() is pickle:  # which refers to functions by the name of their module
            remedy = f"Use Local(kind='threads'), or {install_command('report')}, which brings joblib"
        raise not_picklable(error, "in processes", remedy) from error


def _pickler() -> Any:
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        with contextlib.suppress(ImportError):
            return __import__(name, fromlist=["dumps"])
    return pickle
