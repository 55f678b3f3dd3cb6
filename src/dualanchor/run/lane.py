"""Rows that move in step under one method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.errors import OracleError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.result import Status
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, Counts, IntArray, Rows
from dualanchor.run.outcome import Ended


@dataclass(frozen=True)
class Origin:
    """Where a stretch of steps began: enough to take it again."""

    k: int
    state: State
    mark: Any


class Lane:
    """A method, the state of its rows, their session and their coins, all at the same step k."""

    def __init__(
        self, method: Method, state: State, session: Session, oracle: Oracle, coins: Streams, rows: IntArray
    ) -> None:
        self.method, self.state, self.session, self.rows = method, state, session, rows
        self.k = 0
        self.mark: Any = None  # counts and positions before a step that failed
        self._oracle, self._coins = oracle, coins
        self._residual: tuple[int, Array | None] = (-1, None)
        self._knows_operator = type(oracle).operator is not Oracle.operator

    def take(self, rows: Rows) -> Lane:
        """A lane of its own for a selection of the rows (a mask)."""
        part = Lane(
            self.method.take(rows),
            self.state.take(rows),
            self.session.take(rows),
            self._oracle.take(rows),
            self._coins.take(rows),
            self.rows[rows],
        )
        part.k = self.k
        known = self._residual[1]
        part._residual = (self._residual[0], None if known is None else known[rows])
        return part

    @property
    def repeatable(self) -> bool:
        """Whether a stretch of steps can be taken again with the same samples for sure."""
        return self._oracle.replayable is True

    def origin(self) -> Origin:
        """The present, to come back to."""
        return Origin(self.k, self.state.copy(), self.session.mark())

    def rewind(self, origin: Origin) -> None:
        """Go back to where a stretch began."""
        self.k, self.state = origin.k, origin.state
        self.session.reset(origin.mark)

    def coins(self, count: int) -> Array | None:
        """The coins of the next steps, (rows, count), or None for a method without."""
        ks = np.arange(self.k, self.k + count)
        probability = self.method.probability(ks)
        return None if probability is None else self._coins.uniforms(self.k, count) < probability

    def costs(self, count: int, coins: Array | None) -> Cost:
        """Draws and evaluations of the next 1, 2, .. steps: over steps, or over (rows, steps)."""
        cost = self.method.cost(np.arange(self.k, self.k + count), self.state, coins)
        evals = _running_total(cost.evals, count)
        return Cost(evals if cost.draws is cost.evals else _running_total(cost.draws, count), evals)

    def steps_left(self) -> Any:
        """Steps to the horizon, for all rows or per row; None without one."""
        horizon = self.method.horizon
        if horizon is None:
            return None
        return horizon - 1 - self.k if isinstance(horizon, int) else np.asarray(horizon).ravel() - 1 - self.k

    def watch(self, count: int, coins: Array | None) -> Array:
        """Take so many steps, but stop where a row leaves the finite numbers; which rows are bounded."""
        for i in range(count):
            self.mark = self.session.mark()
            self.advance(1, None if coins is None else coins[:, i : i + 1])
            self.mark = None
            bounded = self.bounded()
            if not bounded.all():
                break
        return bounded

    def advance(self, count: int, coins: Array | None) -> None:
        """Take so many steps. If one raises, k is the step that failed and the state the one before it."""
        step, s, F = self.method.step, self.state, self.session
        start = k = self.k
        try:
            if coins is None:
                for k in range(start, start + count):
                    step(k, s, F)
            else:
                for k in range(start, start + count):
                    step(k, s, F, coins[:, k - start])
        except BaseException:
            self.k = k
            raise
        self.k = start + count

    def bounded(self) -> Array:
        """Which rows have an iterate that is finite and can still be squared."""
        x = self.state.x
        return np.isfinite(np.einsum("ij,ij->i", x, x))

    def residual(self) -> Array | None:
        """The true residual of each row, outside of the budget; None where F is not known."""
        if self._residual[0] != self.k:
            try:
                value = self._oracle.operator(self.state.x.copy())
            except OracleError:
                raise
            except Exception as error:
                raise OracleError(
                    "The true operator must not raise",
                    f"{type(error).__name__}: {error}",
                    "Mend the operator, or pass record=0 to evaluate it at the end only",
                ) from error
            self._residual = (self.k, None if value is None else np.linalg.norm(value, axis=1))
        return self._residual[1]

    def ended(self, rows: Rows, status: list[Status]) -> Ended:
        """The rows (a mask) as they stand, with how they ended."""
        return Ended(
            rows=self.rows[rows],
            state=self.state if rows.all() else self.state.take(rows),
            k=np.full(len(status), self.k),
            draws=per_row(self.session.draws, self.rows.size)[rows],
            evals=per_row(self.session.evals, self.rows.size)[rows],
            status=status,
            residual=self._last_residual(rows, status[0]),
        )

    def _last_residual(self, rows: Rows, status: Status) -> Array | None:
        """Infinite for diverged rows; not a number where the operator fails and the run ends or is saved for that."""
        if status is Status.DIVERGED:
            return np.full(np.count_nonzero(rows), np.inf) if self._knows_operator else None
        try:
            known = self.residual()
        except OracleError:
            if status not in (Status.FAILED, Status.RUNNING):
                raise
            known = np.full(self.rows.size, np.nan)
        return None if known is None else known[rows]


def _running_total(costs: Any, count: int) -> Array:
    if isinstance(costs, int):
        return costs * np.arange(1, count + 1)
    costs = np.asarray(costs)
    return np.cumsum(np.broadcast_to(costs, (*np.shape(costs)[:-1], count)), axis=-1)


def per_row(counts: Counts, rows: int) -> IntArray:
    """One count for each row."""
    return np.broadcast_to(np.asarray(counts, dtype=np.int64), (rows,))
