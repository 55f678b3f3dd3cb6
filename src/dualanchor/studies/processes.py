"""Calls in processes: in this one and others that joblib's loky starts, or wherever joblib is told to make them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ClassVar

_IDLE_SECONDS = 300  # after which a process that is kept ends
_PATIENCE = 5.0  # seconds, at most, until calls have been sent
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def spread(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    jobs: int,
    least: int = 2,
    kin: Sequence[Hashable] | None = None,
    here: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Call a function with each of these arguments, in processes if there are at least so many calls and jobs allow.

    Returns the number and the value of each call as it ends. Processes begin at once and are kept for the next time;
    each prefers calls that are of one kin, and leaves others' to them as long as there is something else to begin.
    This process is one of them where calls are made `here` too; values of the others then wait until its call has
    ended. Another backend than joblib's own is chosen with `joblib.parallel_config`; some return all values at the end.
    """
    if jobs > 1 and len(calls) >= least:
        try:
            import joblib
        except ImportError:
            pass
        else:
            backend, _ = joblib.parallel.get_active_backend()
            if type(backend).__name__ == "LokyBackend":
                return _Team(function, calls, kin or [None] * len(calls), jobs, here).begun()
            if type(backend).__name__ == "DaskDistributedBackend":
                return _on_dask(backend, function, calls)
            order = "generator_unordered" if backend.supports_return_generator else "list"
            settings: dict[str, Any] = {"inner_max_num_threads": 1} if backend.supports_inner_max_num_threads else {}
            pool = joblib.Parallel(n_jobs=jobs, return_as=order, batch_size=1, pre_dispatch="all", **settings)
            return iter(pool(joblib.delayed(_numbered)(i, function, *call) for i, call in enumerate(calls)))
    return (_numbered(i, function, *call) for i, call in enumerate(calls))


def _on_dask(backend: Any, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    """Calls by dask's own client: joblib waits on where workers died, and goes on with calls that are given up."""
    from distributed import as_completed

    client, settings = backend.client, {"pure": False, **backend.submit_kwargs}
    begun = [client.submit(_numbered, i, function, *call, **settings) for i, call in enumerate(calls)]

    def values() -> Iterator[tuple[int, Any]]:
        try:
            for call in as_completed(begun):
                value = call.result()
                call.release()  # or it would be made again if its worker is lost
                yield value
        finally:
            client.cancel(begun)

    return values()


class _Team:
    """Processes with one call at a time each, and perhaps this one among them."""

    def __init__(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        kin: Sequence[Hashable],
        jobs: int,
        here: bool,
    ) -> None:
        self._function, self._calls, self._kin, self._here = function, calls, kin, here
        self._left, self._begun, self._lock = set(range(len(calls))), set[Hashable](), threading.Lock()
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()
        self._others = _Processes.taken(jobs - 1 if here else jobs)
        for _ in range(self._others.count):
            self._begin()

    def begun(self) -> Iterator[tuple[int, Any]]:
        """The number and the value of each call as it ends; who closes it ends the calls, even before the first."""
        values = self._values()
        next(values)
        return values

    def _values(self) -> Iterator[Any]:
        got = 0
        try:
            yield None
            while got < len(self._calls):
                mine = self._next(os.getpid()) if self._here else None
                if mine is not None:
                    yield _numbered(mine, self._function, *self._calls[mine])
                    got += 1
                while got < len(self._calls) and (mine is None or not self._ended.empty()):
                    _, i, value = self._ended.get().result()
                    yield i, value
                    got += 1
        except BaseException:
            with self._lock:
                self._left.clear()
            self._others.end()
            raise
        self._others.give_back()

    def _begin(self, process: int | None = None) -> None:
        """Have another process begin a call: the one that is known to be free, or any."""
        if (i := self._next(process)) is None:
            return
        call: Future[Any]
        try:
            call = self._others.submit(_placed, i, self._function, *self._calls[i])
        except Exception as error:  # no process is there any more; said where values are waited for
            call = Future()
            call.set_exception(error)
        call.add_done_callback(self._go_on)

    def _go_on(self, call: Future[Any]) -> None:
        """Keep a value, in a thread of the executor's, and have the process that is free now begin another call."""
        if not call.cancelled() and call.exception() is None:
            process, i, _ = call.result()
            _LAST.setdefault(process, self._kin[i])
            self._begin(process)
        self._ended.put(call)

    def _next(self, process: int | None) -> int | None:
        """Which call a process had best make: one of its last kin, or of a kin that nobody has begun, or any."""
        with self._lock:
            if not self._left:
                return None
            last = None if process is None else _LAST.get(process)
            i = min(self._left, key=lambda i: (self._kin[i] != last, self._kin[i] in self._begun, i))
            self._left.remove(i)
            self._begun.add(self._kin[i])
            if process is not None:
                _LAST[process] = self._kin[i]
            return i


class _Processes:
    """Some processes that nobody else uses at the same time, and that are kept for the next one to take them."""

    _idle: ClassVar[list[_Processes]] = []

    def __init__(self, count: int) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        self.count, self._calls = count, list[Future[Any]]()
        self._executor = ProcessPoolExecutor(
            count, timeout=_IDLE_SECONDS, initializer=_leave_interrupts_to_the_main_process, env=_ONE_THREAD
        )

    @classmethod
    def taken(cls, count: int) -> _Processes:
        """So many processes that are idle and alive, or new ones."""
        for processes in [one for one in cls._idle if one.count == count]:
            with suppress(ValueError):  # somebody else was quicker
                cls._idle.remove(processes)
                if processes._alive():
                    return processes
        return cls(count)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a process make a call."""
        call = self._executor.submit(function, *arguments)
        self._calls = [*(one for one in self._calls if not one.done()), call]
        return call

    def give_back(self) -> None:
        """Keep them for the next one."""
        self._idle.append(self)

    def end(self) -> None:
        """End them, whatever they are doing."""
        late = time.monotonic() + _PATIENCE
        while not all(call.running() or call.done() for call in self._calls) and time.monotonic() < late:
            time.sleep(1e-3)  # loky's thread fails, with a traceback, over calls that it has not sent yet
        self._executor.shutdown(wait=True, kill_workers=True)

    def _alive(self) -> bool:
        try:
            self.submit(int)
        except Exception:  # one of them has died
            return False
        return True


_LAST: dict[int, Hashable] = {}
"""The kin of the last call in each process."""


def _placed(i: int, function: Callable[..., Any], *arguments: Any) -> tuple[int, int, Any]:
    """Where the call was made, its number and its value."""
    return os.getpid(), *_numbered(i, function, *arguments)


def _numbered(i: int, function: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    return i, function(*arguments)


def _leave_interrupts_to_the_main_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
