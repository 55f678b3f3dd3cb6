"""What every worker process needs: to end with its parent, its own random states, and a safe module path."""

from __future__ import annotations

import gc
import os
import random
import sys
import sysconfig
import threading
import time

import numpy as np

from dualanchor.core.errors import CapabilityError

_INTERVAL = 0.5  # seconds between two checks whether the parent is alive
_WRITE_SECONDS = 5.0  # that the writing of a file may still take


def end_with_parent(parent: int, writing: threading.Lock | None = None) -> None:
    """Start a thread that exits this process, a child of `parent`, once the parent has ended.

    While the lock `writing` is held a file is being written, which is finished first.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_INTERVAL)
        if writing is not None:
            writing.acquire(timeout=_WRITE_SECONDS)
        os._exit(1)

    if os.name == "posix":  # elsewhere a process keeps the number of a parent that has ended
        threading.Thread(target=watch, name="dualanchor-parent", daemon=True).start()


def reseed_generators() -> None:
    """Give every random generator in this process, global or held by an object, a new state from the system.

    Otherwise copies of a generator that were sent to several workers would give the same numbers on each. Generators of
    streams are not affected: their state is set whenever they are used. Only for processes with one working thread.
    """
    torch = sys.modules.get("torch")
    kinds = (np.random.BitGenerator, random.Random, *(() if torch is None else (torch.Generator,)))
    referents = gc.get_referents(*gc.get_objects())
    generators = {id(value): value for value in referents if issubclass(type(value), kinds)}
    for generator in generators.values():
        try:
            if isinstance(generator, np.random.BitGenerator):
                generator.state = type(generator)().state
            else:
                generator.seed()
        except Exception as error:
            rule = "A generator that the sampler holds must be one that can be seeded anew on each worker"
            received = f"a {type(generator).__name__} ({type(error).__name__}: {error})"
            raise CapabilityError(rule, received, "Draw from the rng that is passed to the sampler") from error


def module_path() -> list[str]:
    """The folders of `sys.path`, the standard library's first: no other file is imported in place of its modules."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    path = [os.path.abspath(folder) for folder in sys.path]  # "" is the working directory
    return sorted(path, key=lambda folder: folder not in standard)
