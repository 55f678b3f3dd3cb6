"""When to stop: rules that are values and combine with | (whichever comes first) and & (when all agree).

A rule says how many more steps each row may take, and a row that may take none stops. So a run takes many steps between
two evaluations of the rule, and no row ever starts a step that it cannot pay for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentTypeError, CheckpointError
from dualanchor.core.method import Cost
from dualanchor.core.result import Status
from dualanchor.core.types import Array, IntArray

if TYPE_CHECKING:
    from dualanchor.run.rows import ActiveRows, Ended

UNLIMITED = 1 << 62
R = TypeVar("R", bound="Rule")


@dataclass
class Outlook:
    """What a rule decides by: where the rows stand and what their next steps cost."""

    k: int  # steps taken
    rows: int  # how many rows there are
    evals: Any  # so far, for all rows or per row
    draws: Any
    ahead: Cost  # total draws and evaluations of the next 1, 2, .. steps: over steps or over (rows, steps)
    elapsed: float  # seconds
    residual: Callable[[], Array | None]  # the true residuals, (rows,)


class Rule(ABC):
    """A stopping rule."""

    every: int | None = None  # the rule is evaluated at every multiple of this number of steps
    status: Status  # of the rows that it stops

    @abstractmethod
    def allowance(self, outlook: Outlook) -> int | IntArray:
        """How many more steps each row may take, as far as the outlook reaches.

        0 stops it now. Less than 0: it has taken more than it may, as a run that is resumed with a smaller limit has.
        """

    def reasons(self, outlook: Outlook) -> list[Status | None]:
        """For each row the status that the rule gives it, or None for a row that goes on."""
        stopped = np.broadcast_to(np.asarray(self.allowance(outlook)) <= 0, (outlook.rows,))
        return [self.status if stop else None for stop in stopped]

    def leaves(self) -> list[Rule]:
        """The simple rules that it consists of."""
        return [self]

    def of(self, kind: type[R]) -> list[R]:
        """The simple rules of one kind that it consists of."""
        return [rule for rule in self.leaves() if isinstance(rule, kind)]

    def __or__(self, other: Rule) -> Rule:
        return _Any(self, other)

    def __and__(self, other: Rule) -> Rule:
        return _All(self, other)


@dataclass(frozen=True)
class Budget(Rule):
    """Spend at most this many operator evaluations per row; the last step is the last one that fits.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.solve(da.problems.affine(), da.SEG(0.1), stop=da.Budget(101)).nfev
    100
    """

    evals: int
    status = Status.BUDGET

    def __post_init__(self) -> None:
        check.count(self.evals, "Budget: budget")

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return _affordable(self.evals, outlook.evals, outlook.ahead.evals)


@dataclass(frozen=True)
class Draws(Rule):
    """Spend at most this many fresh samples per row, however often each is evaluated.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.solve(da.problems.affine(), da.SGDA(0.1), stop=da.Draws(50)).draws
    50
    """

    samples: int
    status = Status.BUDGET

    def __post_init__(self) -> None:
        check.count(self.samples, "Draws: samples")

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return _affordable(self.samples, outlook.draws, outlook.ahead.draws)


@dataclass(frozen=True)
class Steps(Rule):
    """Take this many steps.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.solve(da.problems.affine(), da.SGDA(0.1), stop=da.Steps(20) | da.WallTime(60.0)).nit
    20
    """

    count: int
    status = Status.STEPS

    def __post_init__(self) -> None:
        check.count(self.count, "Steps: count", 0)

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return self.count - outlook.k


NEVER = Steps(UNLIMITED)
"""No rule: the run ends at the method's horizon."""


@dataclass(frozen=True)
class Target(Rule):
    """Stop a row when its true residual is at most `eps`, evaluated at every `every`-th step.

    Needs a problem whose operator is known, and costs no budget. A row that is stopped because its residual is small
    does not return the iterate that a last-iterate theorem is about.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(mu=0.5), da.SGDA(0.5), stop=da.Target(0.5) | da.Steps(1000))
    >>> bool(result.residual <= 0.5)
    True
    """

    eps: float
    every: int = 1
    status = Status.TARGET

    def __post_init__(self) -> None:
        check.number(self.eps, "Target: eps", positive=True, remedy="Use eps > 0")
        check.count(self.every, "Target: every")

    def allowance(self, outlook: Outlook) -> int | IntArray:
        if outlook.k % self.every:
            return UNLIMITED
        residual = outlook.residual()
        assert residual is not None  # `solve` has checked that F is known
        return np.where(residual <= self.eps, 0, UNLIMITED)


@dataclass(frozen=True)
class WallTime(Rule):
    """Stop after this number of seconds.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.solve(da.problems.affine(), da.SGDA(0.1), stop=da.WallTime(60.0) | da.Steps(5)).nit
    5
    """

    seconds: float
    status = Status.WALL_TIME

    def __post_init__(self) -> None:
        check.number(self.seconds, "WallTime: seconds", remedy="Use seconds > 0")

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return 0 if outlook.elapsed >= self.seconds else UNLIMITED


@dataclass(frozen=True)
class _Pair(Rule):
    first: Rule
    second: Rule

    def __post_init__(self) -> None:
        if not isinstance(self.second, Rule):
            remedy = "Use Budget(q), Steps(k), Target(eps) or WallTime(s)"
            raise ArgumentTypeError("A stopping rule combines with another rule", repr(self.second), remedy)

    @property
    def every(self) -> int | None:  # type: ignore[override]
        periods = [rule.every for rule in self.leaves() if rule.every is not None]
        return gcd(*periods) if periods else None

    def leaves(self) -> list[Rule]:
        return self.first.leaves() + self.second.leaves()


class _Any(_Pair):
    def allowance(self, outlook: Outlook) -> int | IntArray:
        return np.minimum(self.first.allowance(outlook), self.second.allowance(outlook))

    def reasons(self, outlook: Outlook) -> list[Status | None]:
        return [a or b for a, b in zip(self.first.reasons(outlook), self.second.reasons(outlook), strict=True)]


class _All(_Pair):
    def allowance(self, outlook: Outlook) -> int | IntArray:
        return np.maximum(self.first.allowance(outlook), self.second.allowance(outlook))

    def reasons(self, outlook: Outlook) -> list[Status | None]:
        return [a and b for a, b in zip(self.first.reasons(outlook), self.second.reasons(outlook), strict=True)]


def _affordable(limit: int, spent: Any, ahead: Array) -> IntArray:
    """How many of the next steps the rest of a limit pays for; -1 if more than the limit is spent."""
    rest = limit - np.asarray(spent)
    return np.asarray(np.count_nonzero(ahead <= rest[..., None], axis=-1) - (rest < 0))


def require_allowed(rule: Rule, active: list[ActiveRows], ended: list[Ended]) -> None:
    """Raise if a resumed run, with rows that go on and rows that have ended, is further than the rule allows."""
    spent: list[tuple[Any, ...]] = [(rows.steps, rows.session.evals, rows.session.draws) for rows in active]
    for piece in ended:
        spent += zip(piece.k.tolist(), piece.evals.tolist(), piece.draws.tolist(), strict=True)
    nothing = Cost(np.empty(0), np.empty(0))
    for k, evals, draws in spent:
        outlook = Outlook(k, 1, evals, draws, nothing, elapsed=0.0, residual=lambda: np.array([np.inf]))
        if np.any(np.asarray(rule.allowance(outlook)) < 0):
            text = "A run can be resumed with more steps or samples, not with fewer"
            received = f"a checkpoint of step {k} with {np.max(evals)} evaluations, and {rule}"
            raise CheckpointError(text, received, "Allow as many, or give another path to start anew")
