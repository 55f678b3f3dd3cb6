"""Progress and callbacks, as users pass them to a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dualanchor.core.check import signature_of
from dualanchor.core.errors import ArgumentTypeError, optional_module
from dualanchor.core.result import Result


@dataclass(frozen=True)
class Progress:
    """The progress of a run: step, fraction done (None if unknown), active rows, all rows, evaluations, seconds."""

    k: int
    fraction: float | None
    active: int
    rows: int
    evals: int
    elapsed: float


def as_progress(progress: Any, owner: str, unit: str) -> Callable[[Progress], Any] | None:
    """The function to call with Progress, or None; True stands for a bar on standard error, which counts `unit`s."""
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
        self._tqdm = optional_module("tqdm", "progress", f"{owner}(progress=True)").tqdm
        self._owner = owner
        self._unit = unit
        self._bar: Any = None

    def __call__(self, progress: Progress) -> None:
        if self._bar is None:
            has_end = {"total": 1.0, "bar_format": "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"}
            self._bar = self._tqdm(desc=self._owner, delay=2, **({} if progress.fraction is None else has_end))
        if progress.fraction is not None:
            self._bar.update(progress.fraction - self._bar.n)
        self._bar.set_postfix_str(f"{self._unit} {progress.k:,}, {progress.evals:,} evaluations")

    def close(self) -> None:
        """End the bar; the next call starts another one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Intermediate(Result):
    """The Result of a run as it stands, for a callback: a field is computed when it is first read.

    The run goes on in the same memory; `complete` computes all fields before it does, if the callback has kept it.
    """

    @classmethod
    def of(cls, field: Callable[[str], Any]) -> Self:
        """The result with `field(name)` as its fields."""
        result = object.__new__(cls)
        vars(result)["_field"] = field
        return result

    def complete(self) -> None:
        """Compute the fields that have not been read."""
        for name in self.__dataclass_fields__:
            getattr(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, tuple(getattr(self, name) for name in self.__dataclass_fields__)


class _Field:
    """A field of an Intermediate; what it computes is stored in the instance, which is then read directly."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, result: Any, owner: type) -> Any:
        if result is None:
            return self
        value = vars(result)[self._name] = result._field(self._name)
        return value


for _name in Result.__dataclass_fields__:
    setattr(Intermediate, _name, _Field(_name))


def as_callback(callback: Callable[..., Any]) -> Callable[[Result], bool]:
    """The function to call with each Result, from a SciPy-style callback; True means: stop.

    The callback gets x, or the Result if its only parameter is `intermediate_result`; it may raise StopIteration.
    """
    if not callable(callback):
        raise ArgumentTypeError("callback must be callable", repr(callback), "Pass a function of x")
    wants_result = list(signature_of(callback).parameters) == ["intermediate_result"]

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
