"""Batches computed on this machine: by threads, or by processes that share memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from itertools import accumulate
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, CapabilityError, explain
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.engines.base import WORKER, Desk, Engine, Failure, Loaded, Ticket, collected, failed, shares, too_late
from dualanchor.oracles.shards import Span

_KINDS = ("auto", "threads", "processes")
_TELLING = 0.005  # seconds of work that tell whether threads run side by side
_FASTER = 0.75  # of the time of one thread, at most, for two that do
_GOODBYE = 1.0  # seconds in which a worker process ends by itself

Given = Sequence[Sequence[Span]]


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
                explain("Local: kind must be 'auto', 'threads' or 'processes'", repr(kind), "Choose one of them")
            )
        if kind == "processes" and sys.platform == "win32":
            raise CapabilityError(
                explain("Local: processes need a system other than Windows", sys.platform, "Use kind='threads'")
            )
        self.kind = kind
        self._crew: _Threads | _Processes | None = None
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
            return "processes" if isinstance(self._working(), _Processes) else "threads"

    def processes(self) -> list[int]:
        """The process of each worker; none where threads work."""
        self._admit()
        with self._turn:
            crew = self._working()
            return [one.process.pid for one in crew._crew] if isinstance(crew, _Processes) else []

    def close(self) -> None:
        self._admit()
        with self._turn:
            if self._crew is not None:
                self._crew.close()
                self._crew = None

    def _admit(self) -> None:
        if isinstance(crew := self._crew, _Threads) and crew.has(threading.current_thread()):
            raise CapabilityError(
                explain(
                    "An engine must not be used by its own workers, who would wait for themselves",
                    f"a call in {threading.current_thread().name}",
                    "Use another engine inside the sampler, or none",
                )
            )

    def _working(self) -> _Threads | _Processes:
        if self._crew is None:
            self._crew = _Processes(self.workers) if self.kind == "processes" else _Threads(self.workers)
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


class _Threads:
    """Threads, each with a desk of its own."""

    def __init__(self, workers: int) -> None:
        self._crew = [_Thread(number) for number in range(workers)]

    def name(self, number: int) -> str:
        return f"worker {number} (thread)"

    def has(self, thread: threading.Thread) -> bool:
        return any(worker.thread is thread for worker in self._crew)

    def ask(self, loaded: Loaded, x: Array, ticket: Ticket, given: Given, timeout: float | None) -> list[Any]:
        asked = []
        for worker, mine in zip(self._crew, given, strict=False):
            worker.tasks.put((loaded.key, loaded.oracle, x, ticket, mine))
            asked.append(worker)
        end = None if timeout is None else time.monotonic() + timeout
        answers: list[Any] = []
        try:
            for worker in asked:
                try:
                    left = None if end is None else max(0.0, end - time.monotonic())
                    answers.append(worker.answers.get(timeout=left))
                except Empty:
                    assert timeout is not None
                    self._replace(worker)
                    answers.append(
                        too_late(timeout, "Mend the sampler, which left a thread behind, or allow more time")
                    )
        except BaseException:  # Ctrl-C: answers that come later are nobody's
            for worker in asked:
                self._replace(worker)
            raise
        return answers

    def drop(self, key: int) -> None:
        for worker in self._crew:
            worker.desk.drop(key)

    def close(self) -> None:
        for worker in self._crew:
            worker.tasks.put(None)

    def _replace(self, worker: _Thread) -> None:
        worker.tasks.put(None)
        self._crew[worker.number] = _Thread(worker.number)


class _Thread:
    """A thread that does not keep the program from ending."""

    def __init__(self, number: int) -> None:
        self.number, self.desk = number, Desk()
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.answers: SimpleQueue[Any] = SimpleQueue()
        work = (self.desk, self.tasks, self.answers)  # not self, so that a crew nobody uses ends
        self.thread = threading.Thread(target=_work, args=work, name=f"dualanchor-{number}", daemon=True)
        self.thread.start()
        weakref.finalize(self, self.tasks.put, None)


def _work(desk: Desk, tasks: SimpleQueue[Any], answers: SimpleQueue[Any]) -> None:
    while (task := tasks.get()) is not None:
        key, oracle, *rest = task
        desk.put(key, oracle)
        try:
            answer = desk.sums(key, *rest)
        except BaseException as error:  # sys.exit, for one, which would end this thread and leave others waiting
            answer = failed(error, "evaluating a batch", None)
        answers.put(answer)
        del task, oracle, rest, answer


class _Processes:
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


def _accepting(loaded: Loaded, workers: int) -> _Processes | None:
    """Processes that can take in the oracle, if there are any."""
    try:
        pickled(loaded.oracle)  # before processes are started
        processes = _Processes(workers)
    except CapabilityError:
        return None
    if processes.accepts(loaded):
        return processes
    processes.close()
    return None


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


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_workers(workers: Any, owner: str) -> int | None:
    """Raise unless the number of workers is a whole number, at least 1, or None."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1):
        raise ArgumentError(explain(f"{owner}: workers must be a whole number >= 1", repr(workers), "Use workers=2"))
    return None if workers is None else int(workers)
