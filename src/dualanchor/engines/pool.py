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
from dualanchor.engines.protocol import WORKER, Assignment, BatchSpec, Failure, WorkerState, not_picklable
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
        self._finalizer = weakref.finalize(self, lambda workers: [worker.end() for worker in workers], self.workers)
        for worker in self.workers:
            _wait_until_ready(worker)
        self._pickles: dict[int, bytes] = {}

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
            return self._load(loaded, [0], None).get(0) is None
        return False

    def drop(self, key: int) -> None:
        if self._pickles.pop(key, None) is not None:
            numbers = [number for number, worker in enumerate(self.workers) if key in worker.loaded]
            self._exchange(dict.fromkeys(numbers, ("drop", key)), None, "")

    def _pickle(self, loaded: LoadedOracle) -> None:
        if loaded.key not in self._pickles:
            self._pickles[loaded.key] = pickled(loaded.oracle)

    def _load(self, loaded: LoadedOracle, numbers: Iterable[int], timeout: float | None) -> dict[int, Any]:
        numbers = [number for number in numbers if loaded.key not in self.workers[number].loaded]
        if not numbers:
            return {}
        message = ("load", loaded.key, self._pickles[loaded.key], sys.path)
        remedy = "Make the oracle quicker to load, or allow more time"
        replies = self._exchange(dict.fromkeys(numbers, message), timeout, remedy, "load the oracle")
        for number in (number for number in numbers if replies[number] is None):
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
            if self.kind == "processes" and (replies := replies | self._load(loaded, tasks, timeout)):
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
        self, messages: dict[int, Any], timeout: float | None, remedy: str, doing: str = "reply"
    ) -> dict[int, Any]:
        """The replies to messages; the exit code or a Failure for workers that exit or are late, which are replaced."""
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
                if deadline is None or worker.poll(max(0.0, deadline - time.monotonic())):
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
        _wait_until_ready(self.workers[number])


class _Thread:
    """A daemon thread: one that hangs does not keep the program from ending."""

    label = "thread"

    def __init__(self, number: int) -> None:
        ours, theirs = Pipe()
        self.send, self.receive, self.poll = ours.send, ours.recv, ours.poll
        self.thread = threading.Thread(target=_serve, args=(theirs,), name=f"dualanchor-{number}", daemon=True)
        self.thread.start()

    def end(self, patience: float = 0.0) -> None:
        self.send(None)


def _serve(connection: Any) -> None:
    state = WorkerState()
    connection.send(None)  # ready
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
        self.loaded = set[int]()
        self._last: Any = None  # the last message
        self.socket, theirs = socket.socketpair()
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = os.pathsep.join(one or os.getcwd() for one in sys.path)
        program = f"from dualanchor.engines.worker import main; main({theirs.fileno()}, {memory}, {number})"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[theirs.fileno(), memory],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal is for the main program
                env={**limits, **os.environ, "PYTHONPATH": path, WORKER: str(number)},
            )
        self.label = f"process {self.process.pid}"

    def send(self, message: tuple[Any, ...]) -> None:
        """Send the name and the arguments of a method of ProcessWorker; the last layout again is but a byte."""
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


def _wait_until_ready(worker: Any) -> None:
    try:
        worker.receive()
    except EOFError as error:
        received = f"an exit with code {worker.process.wait()}"
        raise CapabilityError("Worker processes must start", received, "Use Local(kind='threads')") from error


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
