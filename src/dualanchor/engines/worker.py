"""The program of a worker process, and the memory that it shares with the main program."""

import contextlib
import mmap
import os
import pickle
import signal
import socket
import sys
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.types import Array
from dualanchor.engines.isolation import end_with_parent
from dualanchor.engines.protocol import Assignment, BatchSpec, Failure, WorkerState

ROUND = b"+"  # compute a round with the layout of the last one
DONE = b"."  # the reply without a failure
MESSAGE = b"m"  # a pickled message, or in a reply a pickled Failure, follows
PAGE = 4096  # bytes; a specification gets whole pages, so that the layout stays if it becomes a little longer


class RoundMemory:
    """A file that processes map into memory: the specification of the batch, x, and the sums of all spans."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory: Any = b""

    def arrays(
        self, assignment: Assignment, shape: tuple[int, ...], dtype: str, pages: int
    ) -> tuple[memoryview, Array, list[list[Array]]]:
        """Views into the memory: the specification (bytes), x, and for each worker the sums of its spans."""
        start = pages * PAGE
        size = prod(shape) * np.dtype(dtype).itemsize  # bytes of one array
        ends = list(accumulate(map(len, assignment), initial=1))
        if (total := start + ends[-1] * size) > len(self._memory):
            if total > os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, total)
            self._memory = mmap.mmap(self._descriptor, total)
        x, *sums = (np.ndarray(shape, dtype, self._memory, start + i * size) for i in range(ends[-1]))
        return memoryview(self._memory)[:start], x, [sums[first - 1 : end - 1] for first, end in pairwise(ends)]


class ProcessWorker:
    """The methods that messages call; they return a Failure or None."""

    def __init__(self, memory: int, number: int) -> None:
        self._memory, self._number, self._state = RoundMemory(memory), number, WorkerState()
        self._task: Any = None

    def arrange(self, key: int, assignment: Assignment, *layout: Any) -> Failure | None:
        """Compute a round with another oracle or layout than the last one."""
        self._spec, x, sums = self._memory.arrays(assignment, *layout)
        x.flags.writeable = False
        self._task = self._state.oracles[key], x, assignment[self._number], sums[self._number]
        return self.compute()

    def compute(self) -> Failure | None:
        """Compute a round: the batch is that of the specification in the memory, and the sums go there."""
        oracle, x, spans, buffers = self._task
        sums = self._state.sums(oracle, x, BatchSpec(*pickle.loads(self._spec)), spans, buffers)
        if isinstance(sums, Failure):
            return sums
        for buffer, value in zip(buffers, sums, strict=True):
            if value is not buffer:
                buffer[...] = value
        return None

    def load(self, key: int, data: bytes, path: list[str]) -> Failure | None:
        sys.path.extend(folder for folder in path if folder not in sys.path)
        try:
            return self._state.load(key, lambda: pickle.loads(data))
        except Exception as error:
            rule, remedy = "The oracle must be known to worker processes", "Put its functions into a module"
            parts = (rule, f"{type(error).__name__}: {error}", f"{remedy}, or use Local(kind='threads')")
            return Failure.of(error, "unpickled")._replace(parts=parts)

    def drop(self, key: int) -> None:
        self._state.oracles.pop(key, None)
        self._task = None  # it may refer to the oracle; the next round is arranged anew


def main(parent: int, descriptor: int, memory: int, number: int) -> None:
    """Reply to messages until the other end of the socket is closed."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main program
    channel, worker = socket.socket(fileno=descriptor), ProcessWorker(memory, number)
    with contextlib.suppress(EOFError, OSError), arrays.quiet():
        channel.sendall(DONE)  # ready
        while first_byte := channel.recv(1):
            if first_byte == ROUND:
                failure = worker.compute()
            else:
                method, *arguments = pickle.load(channel.makefile("rb"))
                failure = getattr(worker, method)(*arguments)
            channel.sendall(DONE if failure is None else MESSAGE + pickle.dumps(failure))
