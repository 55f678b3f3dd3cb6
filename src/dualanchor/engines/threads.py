"""Threads as workers."""

from __future__ import annotations

import threading
import time
import weakref
from queue import Empty, SimpleQueue
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.types import Array
from dualanchor.engines.base import Loaded
from dualanchor.engines.share import Desk, Given, Ticket, failed, too_late


class Threads:
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
    with arrays.quiet():
        while (task := tasks.get()) is not None:
            key, oracle, *rest = task
            desk.put(key, oracle)
            try:
                answer = desk.sums(key, *rest)
            except BaseException as error:  # sys.exit, for one, which would end this thread and leave others waiting
                answer = failed(error, "evaluating a batch", None)
            answers.put(answer)
            del task, oracle, rest, answer
