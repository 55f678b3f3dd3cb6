"""Errors, whose messages have three parts: the rule, what was received, what to do.

Examples
--------
>>> import dualanchor as da
>>> try:
...     da.plan(eps=-1.0, L=1.0, sigma=1.0, D=1.0)
... except da.errors.ArgumentError as error:
...     print(type(error).__name__)
ArgumentError
"""

import difflib
import importlib
import sys
import warnings
from collections.abc import Iterable
from typing import Any, Self

_NOT_CALLERS = ("dualanchor", "torch", "weakref")  # PyTorch wraps the steps of optimisers; weakref: finalizers


class DualAnchorError(Exception):
    """Base class of the library's errors; the three parts of the message are in `parts`."""

    def __init__(self, rule: str, received: object, remedy: str) -> None:
        super().__init__(rule, str(received), remedy)

    @property
    def parts(self) -> tuple[str, str, str]:
        return self.args

    def __str__(self) -> str:
        return explain(*self.parts)


class ArgumentError(DualAnchorError, ValueError):
    """An argument has an inadmissible value."""


class ArgumentTypeError(DualAnchorError, TypeError):
    """An argument has the wrong type."""


class UnknownNameError(DualAnchorError, ValueError):
    """No method, problem or parameter has this name."""


class CapabilityError(DualAnchorError, TypeError):
    """A method needs a capability that its oracle lacks."""


class HorizonError(DualAnchorError, ValueError):
    """A step past a method's horizon was asked for."""


class CheckpointError(DualAnchorError, ValueError):
    """A saved file cannot be used: it is unreadable, truncated, or from another run."""


class MissingExtraError(DualAnchorError, ImportError):
    """An optional dependency is not installed."""


class UnsuccessfulError(DualAnchorError, RuntimeError):
    """Raised by `Result.raise_for_status`; it has the result as `result`."""

    def __init__(self, rule: str, received: object, remedy: str, result: Any = None) -> None:
        super().__init__(rule, received, remedy)
        self.result = result


class AssumptionWarning(UserWarning):
    """Samples contradict an assumption of every guarantee, or show a likely defect of the oracle."""


class HorizonWarning(UserWarning):
    """An optimiser was used past its last step, or abandoned before it, or goes on with settings of a loaded state."""


class OracleError(DualAnchorError, RuntimeError):
    """The user's oracle raised an exception, or returned something other than F_B(x).

    `iteration` and `row` (configuration-major; None: all rows) say where; `result` is the result up to that step.
    """

    iteration: int | None
    norm: float | None  # of the point at which a user's function raised

    def __init__(self, rule: str, received: str, remedy: str, row: int | None = None) -> None:
        super().__init__(rule, received, remedy)
        self.row, self.iteration, self.norm = row, None, None
        self.result: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.parts, self.row), {"iteration": self.iteration, "norm": self.norm}

    def located(self, iteration: int, row: int | None, place: str) -> Self:
        """The same error with the place where it happened in its message."""
        rule, received, remedy = self.parts
        if self.norm is not None and iteration > 0:
            place += f", |x| = {self.norm:.3g}"
            remedy += ". If x should not have come there, check the sign of F and the step, or set bounds"
        error = type(self)(rule, f"{received} at iteration {iteration}, {place}", remedy, row)
        error.iteration, error.norm = iteration, self.norm
        return error


def explain(rule: str, received: object, remedy: str) -> str:
    """The message that consists of these three parts."""
    end = "" if remedy.endswith((".", "?")) else "."
    return f"{rule.rstrip('.')}. Got {received}. {remedy}{end}"


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn at the stack level of the first caller outside of this package and of PyTorch."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_CALLERS:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for an unknown name, with close matches."""
    names = sorted(known)
    normalised = {option.lower().replace("_", "-"): option for option in names}
    word = str(name).lower().replace("_", "-")
    close = [normalised[match] for match in difflib.get_close_matches(word, normalised, n=3, cutoff=0.5)]
    remedy = f"Did you mean {' or '.join(close)}?" if close else f"Choose one of {', '.join(names)}"
    return UnknownNameError(f"{kind} must be a known name", repr(name), remedy)


def install_command(extra: str) -> str:
    """The command that installs an extra, by name or in a checkout."""
    return f"pip install 'dualanchor[{extra}]', or '.[{extra}]' in a checkout"


def optional_module(name: str, extra: str, purpose: str) -> Any:
    """The module of an optional dependency; raises with the command that installs it if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise missing_extra(name.partition(".")[0].replace("_", "-"), extra, purpose) from None


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The error for an optional dependency that is not installed."""
    remedy = f"Install it with: {install_command(extra)}"
    return MissingExtraError(f"{purpose} needs the package {package}", "an environment without it", remedy)
