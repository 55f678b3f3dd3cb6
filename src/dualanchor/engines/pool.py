"""Workers of this machine behind connections: threads, or processes that share memory.

Rounds of an executor take four times as long, and its processes outlive a killed program.
"""

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
from collections.abc import Iterable
from multiprocessing.connection import wait
from multiprocessing.dummy import Pipe
from typing import Any

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

_ATTEMPTS = 2  # a worker that exits is replaced once in a round
_SHUTDOWN = 1.0  # seconds in which a worker process ends by itself


class Pool:
    """Workers, "threads" or "processes", that compute the sums of spans of shards."""

    def __init__(self, kind: str, workers: int) -> None:
        self.kind = kind
        if kind == "processes":
            folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it has no name, and ends with the workers
            self._memory = RoundMemory(self._file.fileno())
            self._layout: Any = None
        self.workers = [self._started(number) for number in range(workers)]
        self._finalizer = weakref.finalize(self, _end, self.workers, os.getpid())
        self._pickles: dict[int, bytes] = {}
        if kind == "processes":
            for reply in self._start(range(workers), None).values():
                if reply is not None:
                    self.close()
                    received = reply.parts[1] if isinstance(reply, Failure) else f"an exit with code {reply}"
                    raise CapabilityError("Worker processes must start", received, "Use Local(kind='threads')")

    def name(self, number: int) -> str:
        return f"worker {number} ({self.workers[number].label})"

    def sums(
        self, loaded: LoadedOracle, x: Array, spec: BatchSpec, assignment: Assignment, timeout: float | None
    ) -> list[Any]:
        if self.kind == "threads":
            tasks: dict[int, Any] = {i: (loaded.oracle, x, spec, spans) for i, spans in enumerate(assignment)}
        else:
            self._pickle(loaded)
            data = pickle.dumps(tuple(spec))
            layout = ("arrange", loaded.key, assignment, x.shape, x.dtype.str, 1 + len(data) // PAGE)
            if layout != self._layout:
                self._layout, (self._spec, self._x, self._sums) = layout, self._memory.arrays(*layout[2:])
            self._spec[: len(data)], self._x[...] = data, x
            tasks = dict.fromkeys(range(len(assignment)), self._layout)
        try:
            replies = self._round(loaded, tasks, timeout)
        except BaseException:  # Ctrl-C: replies that are still to come belong to no round
            for number in range(len(self.workers)):
                self._replace(number)
            raise
        return [self._sums[number] if replies[number] is None else replies[number] for number in tasks]

    def accepts(self, loaded: LoadedOracle) -> bool:
        with contextlib.suppress(CapabilityError):
            self._pickle(loaded)
            return self._prepare(loaded, [0], None).get(0) is None
        return False

    def drop(self, key: int) -> None:
        if self._pickles.pop(key, None) is not None:
            numbers = [number for number, worker in enumerate(self.workers) if key in worker.loaded]
            self._exchange(dict.fromkeys(numbers, ("drop", key)), None, "")

    def _pickle(self, loaded: LoadedOracle) -> None:
        if loaded.key not in self._pickles:
            self._pickles[loaded.key] = pickled(loaded.oracle)

    def _start(self, numbers: Iterable[int], timeout: float | None) -> dict[int, Any]:
        """Wait until processes have started; replies as of `_exchange`."""
        new = [number for number in numbers if not self.workers[number].started]
        replies = self._exchange(dict.fromkeys(new), _start_seconds(timeout), "See its stderr", "start within")
        for number in new:
            self.workers[number].started = replies[number] is None
        return replies

    def _prepare(self, loaded: LoadedOracle, numbers: Iterable[int], timeout: float | None) -> dict[int, Any]:
        """Wait until processes have started and loaded the oracle; replies as of `_exchange`, where there are any."""
        new = [number for number in numbers if loaded.key not in self.workers[number].loaded]
        if not new:
            return {}
        replies = self._start(new, timeout)
        new = [number for number in new if replies.get(number) is None]
        message, remedy = ("load", loaded.key, self._pickles[loaded.key], module_path()), "Make it quicker to load"
        replies |= self._exchange(
            dict.fromkeys(new, message), _start_seconds(timeout), remedy, "load the oracle within"
        )
        for number in (number for number in new if replies[number] is None):
            self.workers[number].loaded.add(loaded.key)
        return replies

    def close(self) -> None:
        self._finalizer()
        if self.kind == "processes":
            self._file.close()

    def _round(self, loaded: LoadedOracle, tasks: dict[int, Any], timeout: float | None) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        for _ in range(_ATTEMPTS):
            ready = tasks
            if self.kind == "processes" and (replies := replies | self._prepare(loaded, tasks, timeout)):
                ready = {number: task for number, task in tasks.items() if replies.get(number) is None}
            replies |= self._exchange(ready, timeout, "Fix the sampler, or allow more time")
            tasks = {number: task for number, task in tasks.items() if isinstance(replies[number], int)}
            if not tasks:
                return replies
            codes = {number: replies.pop(number) for number in tasks}
        for number, code in codes.items():
            parts = ("A worker process must not exit", f"one that exited twice (code {code})", "See its stderr")
            replies[number] = Failure(parts)
        return replies

    def _exchange(
        self, messages: dict[int, Any], timeout: float | None, remedy: str, doing: str = "reply within timeout ="
    ) -> dict[int, Any]:
        """The replies to messages; the exit code or a Failure for workers that exit or are late, which are replaced.

        None is not sent: it waits for the first word of a process.
        """
        for number, message in messages.items():
            try:  # noqa: SIM105 - `suppress` takes a microsecond
                self.workers[number].send(message)
            except OSError:  # it has exited: `receive` says so too
                pass
        deadline = None if timeout is None else time.monotonic() + timeout
        replies: dict[int, Any] = {}
        for number in reversed(messages):  # the last to start ends last: most often one sleep is enough
            worker = self.workers[number]
            try:
                if deadline is None or _replied(worker, deadline):
                    replies[number] = worker.receive()
                    continue
                assert timeout is not None
                replies[number] = Failure.timed_out(timeout, remedy, doing)
            except (EOFError, OSError):
                replies[number] = worker.process.wait()
            self._replace(number)
        return replies

    def _started(self, number: int) -> Any:
        return _Thread(number) if self.kind == "threads" else _Process(number, self._file.fileno())

    def _replace(self, number: int) -> None:
        self.workers[number].end(patience=0.0)
        self.workers[number] = self._started(number)


def _replied(worker: Any, deadline: float) -> bool:
    """Whether a worker replies before the deadline, by the monotonic clock."""
    return worker.poll(max(0.0, deadline - time.monotonic()))


def _start_seconds(timeout: float | None) -> float:
    return max(START_SECONDS, timeout or 0.0)


def _end(workers: list[Any], owner: int) -> None:
    if os.getpid() == owner:  # not in a process forked from it
        for worker in workers:
            worker.end()


class _Thread:
    """A daemon thread: one that hangs does not keep the program from ending."""

    label = "thread"

    def __init__(self, number: int) -> None:
        self.number = number
        ours, theirs = Pipe()
        self.send, self.receive, self.poll = ours.send, ours.recv, ours.poll
        self.thread = threading.Thread(target=_serve, args=(theirs,), name=f"dualanchor-{number}", daemon=True)
        self.thread.start()

    def end(self, patience: float = 0.0) -> None:
        self.send(None)


def _serve(connection: Any) -> None:
    state = WorkerState()
    with arrays.quiet():
        while (task := connection.recv()) is not None:
            try:
                reply: Any = state.sums(*task)
            except BaseException as error:  # sys.exit, for one
                reply = Failure.of(error, "evaluating a batch")
            connection.send(reply)
            del task, reply


class _Process:
    """A process that does not run the main program again, and ends with it."""

    def __init__(self, number: int, memory: int) -> None:
        self.number, self.started, self.loaded = number, False, set[int]()
        self._last: Any = None  # the last message
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
        """Send the name and the arguments of a method of ProcessWorker; the last layout again is but a byte."""
        if message is None:
            return
        self.socket.sendall(ROUND if message is self._last else MESSAGE + pickle.dumps(message))
        self._last = message

    def receive(self) -> Failure | None:
        word = self.socket.recv(1)
        if not word:
            raise EOFError
        return None if word == DONE else pickle.load(self.socket.makefile("rb"))

    def poll(self, timeout: float) -> bool:
        return bool(wait([self.socket], timeout))

    def end(self, patience: float = _SHUTDOWN) -> None:
        self.socket.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def pickled(value: Any) -> bytes:
    """The value as bytes, with functions of the main program by value where cloudpickle or joblib is installed."""
    try:
        return _pickler().dumps(value)
    except Exception as error:
        remedy = ""
        if _pickler() is pickle:  # which knows functions of modules only
            remedy = f"Use Local(kind='threads'), or {install_command('report')}, which brings joblib"
        raise not_picklable(error, "in processes", remedy) from error


def _pickler() -> Any:
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        with contextlib.suppress(ImportError):
            return __import__(name, fromlist=["dumps"])
    return pickle
