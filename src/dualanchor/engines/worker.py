"""The program of a worker process: it gets oracles and tickets through a socket, x and sums through shared memory."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection

import numpy as np

from dualanchor.engines.base import Desk, Failure


def main(descriptor: int) -> None:
    """Answer until the other end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that gives the work
    channel = socket.socket(fileno=descriptor)
    line = Connection(os.dup(descriptor))
    desk, memory = Desk(), None
    line.send_bytes(b"")  # ready
    while True:
        try:
            word, *given = pickle.loads(line.recv_bytes())
        except (EOFError, OSError):
            return
        if word == "drop":
            desk.drop(*given)
            continue
        if word == "memory":
            _, (file, *_), _, _ = socket.recv_fds(channel, 1, 1)
            memory = mmap.mmap(file, 0)
            os.close(file)
            continue
        answer: Failure | None = None
        if word == "put":
            key, blob, path = given
            try:
                sys.path[:] = [*sys.path, *(one for one in path if one not in sys.path)]
                desk.put(key, pickle.loads(blob))
            except Exception as error:
                parts = (
                    "The oracle must be known to worker processes",
                    f"{type(error).__name__}: {error}",
                    "Put its functions into a module, or use Local(kind='threads')",
                )
                answer = Failure(parts, None, None, "".join(traceback.format_exception(error)))
        else:
            key, ticket, mine, shape, dtype, offset = given
            assert memory is not None
            x = np.ndarray(shape, dtype, memory)
            x.flags.writeable = False
            found = desk.sums(key, x, pickle.loads(ticket), mine)
            if isinstance(found, Failure):
                answer = found
            else:
                for i, value in enumerate(found):
                    np.ndarray(shape, dtype, memory, offset + i * x.nbytes)[...] = value
        try:
            line.send_bytes(b"" if answer is None else pickle.dumps(answer))
        except OSError:
            return
