"""Errors and the three parts of their messages: the rule, what was received, what to do.

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
from collections.abc import Iterable
from typing import Any, Self


class DualAnchorError(Exception):
    """Base class of the library's own errors; a message says the rule, the value received and what to do."""

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
    """A method needs something its oracle cannot do."""


class HorizonError(DualAnchorError, ValueError):
    """A step was asked for past a method's horizon."""


class CheckpointError(DualAnchorError, ValueError):
    """A saved file cannot be used: unreadable, truncated, or of another run."""


class MissingExtraError(DualAnchorError, ImportError):
    """An optional dependency is not installed."""


class UnsuccessfulError(DualAnchorError, RuntimeError):
    """Raised by `Result.raise_for_status`; it has the result as `result`."""

    def __init__(self, rule: str, received: object, remedy: str, result: Any = None) -> None:
        super().__init__(rule, received, remedy)
        self.result = result


class AssumptionWarning(UserWarning):
    """Samples speak against an assumption that every guarantee rests on, or the oracle itself seems to be wrong."""


class HorizonWarning(UserWarning):
    """An optimiser is used past its last step, or left before it."""


class OracleError(DualAnchorError, RuntimeError):
    """The user's oracle raised, or returned what is not F_B(x).

    In step `iteration` and `row` (configuration-major, None: in all); `result` has everything up to that step.
    """

    iteration: int | None

    def __init__(self, rule: str, received: str, remedy: str, row: int | None = None) -> None:
        super().__init__(rule, received, remedy)
        self.row, self.iteration = row, None
        self.result: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.parts, self.row), {"iteration": self.iteration}

    def located(self, iteration: int, row: int | None, place: str) -> Self:
        """The same error, saying where it happened."""
        rule, received, remedy = self.parts
        error = type(self)(rule, f"{received} at iteration {iteration}, {place}", remedy, row)
        error.iteration = iteration
        return error


def explain(rule: str, received: object, remedy: str) -> str:
    """Join the three parts of a message: the rule, the value received, what to do."""
    end = "" if remedy.endswith((".", "?")) else "."
    return f"{rule.rstrip('.')}. Got {received}. {remedy}{end}"


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that nothing has, with close matches."""
    names = sorted(known)
    alike = {one.lower().replace("_", "-"): one for one in names}
    word = str(name).lower().replace("_", "-")
    close = [alike[one] for one in difflib.get_close_matches(word, alike, n=3, cutoff=0.5)]
    remedy = f"Did you mean {' or '.join(close)}?" if close else f"Choose one of {', '.join(names)}"
    return UnknownNameError(f"{kind} must be a known name", repr(name), remedy)


def install_command(extra: str) -> str:
    """How an extra is installed, by name or in a checkout."""
    return f"pip install 'dualanchor[{extra}]', or '.[{extra}]' in a checkout"


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The error for an optional dependency that is not installed."""
    remedy = f"Install it with: {install_command(extra)}"
    return MissingExtraError(f"{purpose} needs the package {package}", "an environment without it", remedy)
