"""Run the checks of a contract and report the outcome of each."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any, NamedTuple

from dualanchor.core.errors import unknown_name


class Outcome(NamedTuple):
    """The outcome of a check: its error, None if it passed, and the reason to expect a failure, None without one."""

    name: str
    error: str | None
    reason: str | None

    @property
    def as_expected(self) -> bool:
        return (self.error is None) == (self.reason is None)

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.name}: passed" + ("" if self.reason is None else f", but should fail ({self.reason})")
        return f"{self.name}: " + (f"expected failure ({self.reason})" if self.reason else f"failed. {self.error}")


class Report(NamedTuple):
    """The outcomes of the checks of a method or an oracle; printed as one line per check."""

    subject: str
    outcomes: list[Outcome]

    def __str__(self) -> str:
        return "\n  ".join([self.subject, *map(str, self.outcomes)])


class CheckError(AssertionError):
    """A check failed, or passed where a failure was expected; all outcomes are in `report`."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def run_checks(subject: str, cases: Sequence[Any], expected: Mapping[str, str] | None) -> Report:
    """Run the public functions of the cases; the name of a check is that of its function, with spaces."""
    checks = {name.replace("_", " "): name for name in vars(type(cases[0])) if not name.startswith("_")}
    for name in set(expected or {}) - set(checks):
        raise unknown_name("expected_failures: check", name, checks)
    outcomes = [Outcome(name, _error(cases, check), (expected or {}).get(name)) for name, check in checks.items()]
    if not all(outcome.as_expected for outcome in outcomes):
        raise CheckError(Report(subject, outcomes))
    return Report(subject, outcomes)


def _error(cases: Sequence[Any], check: str) -> str | None:
    for case in cases:
        try:
            getattr(case, check)()
        except Exception as error:  # whatever a user's class raises is what the report shows
            return f"{type(case.oracle).__name__}: {type(error).__name__}: {shorten(str(error), 250)}"
    return None
