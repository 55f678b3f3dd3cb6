"""Progress and callbacks, as users pass them to a run."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentTypeError, missing_extra
from dualanchor.core.result import Result


@dataclass(frozen=True)
class Progress:
    """Where a run stands: step, fraction done (None if not known), active rows, all rows, evaluations, seconds."""

    k: int
    fraction: float | None
    active: int
    rows: int
    evals: int
    elapsed: float


def as_progress(progress: Any, owner: str, unit: str) -> Callable[[Progress], Any] | None:
    """A function that is shown progress; True means a bar on standard error, which counts in `unit`s."""
    if progress is True:
        return ProgressBar(owner, unit)
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise ArgumentTypeError(f"{owner}: progress must be True or a function", repr(progress), "Use True")
    return progress


class ProgressBar:
    """A tqdm bar on standard error, shown for runs of more than two seconds."""

    def __init__(self, owner: str, unit: str) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            raise missing_extra("tqdm", "progress", f"{owner}(progress=True)") from None
        self._make, self._owner, self._unit = tqdm, owner, unit
        self._bar: Any = None

    def __call__(self, now: Progress) -> None:
        if self._bar is None:
            layout = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
            known = now.fraction is not None
            self._bar = self._make(
                total=1.0 if known else None, desc=self._owner, delay=2, bar_format=layout if known else None
            )
        if now.fraction is not None:
            self._bar.update(now.fraction - self._bar.n)
        self._bar.set_postfix_str(f"{self._unit} {now.k:,}, {now.evals:,} evaluations")

    def close(self) -> None:
        """End the bar; the next call begins another one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


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
