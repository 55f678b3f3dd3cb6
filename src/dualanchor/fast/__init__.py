"""Compiled steps, the extra `fast`: what the readable steps compute, many steps and rows at a time.

A method's own step is run once on symbols (`trace.py`) and compiled from what it does (`steps.py`, `code.py`), so no
formula is written twice; `operators.py` has the named problems' operators; `stretch.py` puts the two together. Nothing
here is imported unless a run is long.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from os import environ
from typing import TYPE_CHECKING

from dualanchor.core.method import Method, State
from dualanchor.core.oracle import Session
from dualanchor.core.types import Array

if TYPE_CHECKING:
    from dualanchor.fast.stretch import Stretch


def checked_every(d: int) -> int:
    """Iterates are checked where the number of steps is a multiple of this, compiled or not, and at the end.

    Short rows are checked less often: there it is the check that costs, not steps after a row has left.
    """
    return 64 if d < 1024 else 16


def installed() -> bool:
    """Whether the extra is installed."""
    return find_spec("llvmlite") is not None


def available() -> bool:
    """Whether the extra is installed and not switched off by DUALANCHOR_FAST=0 in the environment."""
    return environ.get("DUALANCHOR_FAST") != "0" and installed()


def compiled_steps(method: Method, state: State, session: Session) -> Stretch | None:
    """The compiled form of these rows' steps, or None where there is none."""
    if session.recipe is None or not available():
        return None
    from dualanchor.fast.stretch import Stretch

    return Stretch.of(method, state, session.recipe)


def compiled_update(method: Method, state: State) -> Callable[[int, State, Array], None] | None:
    """The compiled form of a method's elementwise update, for rows of any length, or None where there is none."""
    if not available():
        return None
    from dualanchor.fast.stretch import update_of

    return update_of(method, state)
