"""When to stop: rules that are values and combine with | (whichever comes first) and & (when all agree).

A rule answers with the number of steps that each row may still take; a row with none left stops. Looking ahead like
this, a run goes many steps without asking, and no row ever starts a step that it cannot pay for.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.result import Status
from dualanchor.core.types import Array, IntArray

UNLIMITED = 1 << 62


@dataclass
class Outlook:
    """What a rule may look at: where the rows stand and what their next steps cost."""

    k: int
    rows: int
    evals: Any
    draws: Any
    ahead: Any
    """Draws and evaluations of the next 1, 2, .. steps: increasing, over steps or over (rows, steps)."""
    elapsed: float
    residual: Callable[[], Array | None]

    def spent(self, after: IntArray) -> list[IntArray]:
        """Draws and evaluations of all rows after so many of the next steps: along the last axis of `after`."""
        each, both = np.arange(self.rows), ((self.draws, self.ahead.draws), (self.evals, self.ahead.evals))
        return [
            before + np.broadcast_to(ahead, (self.rows, ahead.shape[-1]))[each, after - 1] for before, ahead in both
        ]


class Rule(ABC):
    """A stopping rule."""

    every: int | None = None
    """Look at least once in so many steps."""

    @abstractmethod
    def allowance(self, outlook: Outlook) -> int | IntArray:
        """How many more steps each row may take, as far as the outlook reaches; 0 stops it now."""

    @property
    def status(self) -> Status:
        """What a row is given that this rule stopped."""
        raise NotImplementedError

    def reasons(self, outlook: Outlook) -> list[Status | None]:
        """For each row the status that the rule gives it, or None for a row that goes on."""
        stopped = np.broadcast_to(np.asarray(self.allowance(outlook)) <= 0, (outlook.rows,))
        return [self.status if stop else None for stop in stopped]

    def leaves(self) -> list[Rule]:
        """The simple rules it consists of."""
        return [self]

    def __or__(self, other: Rule) -> Rule:
        return _Any(self, _as_rule(other))

    def __and__(self, other: Rule) -> Rule:
        return _All(self, _as_rule(other))


@dataclass(frozen=True)
class Budget(Rule):
    """Spend at most this many operator evaluations per row; the last step is the last one that fits."""

    evals: int
    status = Status.BUDGET

    def __post_init__(self) -> None:
        require_count(self.evals, "Budget", "budget", 1)

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return _affordable(self.evals, outlook.evals, outlook.ahead.evals)


@dataclass(frozen=True)
class Draws(Rule):
    """Spend at most this many fresh samples per row, however often each is evaluated."""

    samples: int
    status = Status.BUDGET

    def __post_init__(self) -> None:
        require_count(self.samples, "Draws", "samples", 1)

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return _affordable(self.samples, outlook.draws, outlook.ahead.draws)


@dataclass(frozen=True)
class Steps(Rule):
    """Take this many steps."""

    count: int
    status = Status.STEPS

    def __post_init__(self) -> None:
        require_count(self.count, "Steps", "count", 0)

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return self.count - outlook.k


@dataclass(frozen=True)
class Target(Rule):
    """Stop a row when its true residual is at most `eps`, looking at every `every`-th step.

    Needs a problem whose operator is known. Looking costs no budget, but a row that is stopped when it looks
    good is not the iterate that a last-iterate theorem speaks of.
    """

    eps: float
    every: int = 1
    status = Status.TARGET

    def __post_init__(self) -> None:
        if not (isinstance(self.eps, (int, float)) and np.isfinite(self.eps) and self.eps > 0):
            raise ArgumentError("Target: eps must be a positive number", repr(self.eps), "Use eps > 0")
        require_count(self.every, "Target", "every", 1)

    def allowance(self, outlook: Outlook) -> int | IntArray:
        if outlook.k % self.every:
            return UNLIMITED
        residual = outlook.residual()
        assert residual is not None  # the run has made sure that F is known
        return np.where(residual <= self.eps, 0, UNLIMITED)


@dataclass(frozen=True)
class WallTime(Rule):
    """Stop when so many seconds have passed."""

    seconds: float
    status = Status.WALL_TIME

    def __post_init__(self) -> None:
        if not (isinstance(self.seconds, (int, float)) and self.seconds >= 0):
            raise ArgumentError("WallTime: seconds must be a number >= 0", repr(self.seconds), "Use seconds > 0")

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return 0 if outlook.elapsed >= self.seconds else UNLIMITED


@dataclass(frozen=True)
class _Pair(Rule):
    first: Rule
    second: Rule

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


def what_decides(rule: Rule | None) -> str:
    """The rule as text, without seconds: they say how long a run goes on now, not which run it is."""
    return re.sub(r"WallTime\(seconds=[^)]*\)", "WallTime", repr(rule))


def _affordable(limit: int, spent: Any, ahead: Array) -> IntArray:
    """How many of the next steps fit into what is left."""
    left = limit - np.asarray(spent)
    return np.asarray(np.count_nonzero(ahead <= left[..., None], axis=-1))


def _as_rule(value: Any) -> Rule:
    if not isinstance(value, Rule):
        raise ArgumentTypeError(
            "A stopping rule combines with another rule",
            repr(value),
            "Use Budget(q), Steps(k), Target(eps) or WallTime(s)",
        )
    return value


def require_count(value: Any, owner: str, name: str, least: int) -> None:
    """Raise unless the value is a whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"{owner}: {name} must be an integer", repr(value), f"Use a whole number >= {least}")
    if value < least:
        raise ArgumentError(f"{owner}: {name} must be at least {least}", value, f"Use a whole number >= {least}")
