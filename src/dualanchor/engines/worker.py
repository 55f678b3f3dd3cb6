"""The program of a worker process: it gets oracles and tickets through a socket, x and sums through shared memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import socket
import sys
import traceback
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.types import Array
from dualanchor.engines.share import Desk, Failure, Ticket
from dualanchor.oracles.shards import Span

BEGIN, MESSAGE = b"+", b"m"
"""What a worker is sent: that its next round begins, or that a message follows."""
DONE, FAILED = b".", b"!"
"""What it answers: that all went well, or that a Failure follows."""


def main(descriptor: int) -> None:
    """Answer until the other end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that gives the work
    with contextlib.suppress(EOFError, OSError), arrays.quiet():
        _serve(socket.socket(fileno=descriptor))


def _serve(channel: socket.socket) -> None:
    desk, memory, share = Desk(), mmap.mmap(-1, 1), None
    channel.sendall(DONE)  # ready
    while word := channel.recv(1):
        if word == BEGIN:
            assert share is not None
            _answer(channel, share.computed(desk))
            continue
        subject, *given = receive(channel)
        if subject == "put":
            _answer(channel, _taken_in(desk, *given))
        elif subject == "drop":
            desk.drop(*given)
        elif subject == "memory":
            _, (file, *_), _, _ = socket.recv_fds(channel, 1, 1)
            memory = mmap.mmap(file, 0)
            os.close(file)
        else:
            share = _Share(memory, *given)


def _answer(channel: socket.socket, failure: Failure | None) -> None:
    if failure is None:
        channel.sendall(DONE)
    else:
        send(channel, FAILED, failure)


def send(channel: socket.socket, word: bytes, value: Any) -> None:
    """Send a word and the value that follows it, at once: Ctrl-C must not come between them."""
    data = pickle.dumps(value)
    channel.sendall(word + len(data).to_bytes(8) + data)


def receive(channel: socket.socket) -> Any:
    """The value that follows a word."""
    return pickle.loads(_read(channel, int.from_bytes(_read(channel, 8))))


def _read(channel: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        if not (count := channel.recv_into(rest)):
            raise EOFError
        rest = rest[count:]
    return data


def places(memory: mmap.mmap, shape: tuple[int, ...], dtype: Any, start: int, first: int, end: int) -> list[Array]:
    """Arrays first .. end - 1 of those, all of one shape and dtype, that lie in the memory one after another."""
    size = prod(shape) * np.dtype(dtype).itemsize
    return [np.ndarray(shape, dtype, memory, start + i * size) for i in range(first, end)]


class _Share:
    """What a worker computes in rounds of one kind: some spans of an oracle's shards."""

    def __init__(
        self, memory: mmap.mmap, key: int, mine: list[Span], shape: tuple[int, ...], dtype: str, start: int, first: int
    ) -> None:
        self._memory, self._key, self._mine = memory, key, mine
        (self._x,) = places(memory, shape, dtype, start, 0, 1)
        self._x.flags.writeable = False
        self._sums = places(memory, shape, dtype, start, first, first + len(mine))

    def computed(self, desk: Desk) -> Failure | None:
        """Leave the sums for the ticket and the x of this round in the memory, or say what went wrong."""
        found = desk.sums(self._key, self._x, Ticket(*pickle.loads(self._memory)), self._mine, self._sums)
        if isinstance(found, Failure):
            return found
        for room, value in zip(self._sums, found, strict=True):
            if value is not room:
                room[...] = value
        return None


def _taken_in(desk: Desk, key: int, blob: bytes, path: list[str]) -> Failure | None:
    """Put an oracle on the desk, or say what went wrong."""
    try:
        sys.path[:] = [*sys.path, *(one for one in path if one not in sys.path)]
        desk.put(key, pickle.loads(blob))
    except Exception as error:
        parts = (
            "The oracle must be known to worker processes",
            f"{type(error).__name__}: {error}",
            "Put its functions into a module, or use Local(kind='threads')",
        )
        return Failure(parts, None, None, "".join(traceback.format_exception(error)))
    return None
