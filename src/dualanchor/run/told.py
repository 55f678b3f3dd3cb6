"""Those who are told how a run goes: progress and callbacks."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.result import Result


@dataclass(frozen=True)
class Progress:
    """Where a run stands: step, part of the way (None if not known), rows under way, evaluations, seconds."""

    k: int
    fraction: float | None
    active: int
    rows: int
    evals: int
    elapsed: float

    def line(self, word: str = "step") -> str:
        """All that in a line; `word` is what k counts."""
        part = "" if self.fraction is None else f"{self.fraction:4.0%}, "
        return f"{part}{word} {self.k:,}, {self.evals:,} evaluations, {self.elapsed:.0f} s"


def as_progress(progress: Any, owner: str, word: str) -> Callable[[Progress], Any] | None:
    """A function that is told how far a run is; True stands for lines on standard error, which count in `word`s."""
    if progress is True:
        return _lines_on_stderr(word)
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise ArgumentTypeError(f"{owner}: progress must be True or a function", repr(progress), "Use True")
    return progress


def _lines_on_stderr(word: str) -> Callable[[Progress], None]:
    """A line about the run every two seconds."""
    last = time.monotonic()

    def show(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= 2:
            last = time.monotonic()
            sys.stderr.write(f"{now.line(word)}\n")

    return show


def as_callback(callback: Callable[..., Any]) -> Callable[[Result], bool]:
    """A SciPy-style callback: called with x, or with a Result if its parameter is `intermediate_result`."""
    if not callable(callback):
        raise ArgumentTypeError("callback must be callable", repr(callback), "Pass a function of x")
    try:
        wants_result = list(inspect.signature(callback).parameters) == ["intermediate_result"]
    except (TypeError, ValueError):
        wants_result = False

    def call(result: Result) -> bool:
        try:
            answer = callback(intermediate_result=result) if wants_result else callback(result.x)
        except StopIteration:
            return True
        except AttributeError as error:
            if not wants_result and error.obj is result.x and hasattr(result, error.name or ""):
                error.add_note("A callback gets x; name its only parameter intermediate_result and it gets the Result.")
            raise
        return isinstance(answer, (bool, np.bool_)) and bool(answer)

    return call
