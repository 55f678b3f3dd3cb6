"""The active rows of a run: one method, the states of its rows, their session and coins, all at the same step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Status
from dualanchor.core.session import Mark, Session, refuse_nan
from dualanchor.core.staged import END, Staged
from dualanchor.core.streams import Streams, per_row
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array, IntArray, Rows

WINDOW = 4  # where F is not known, samples of the first WINDOW steps are compared with those of the last
COMPILED_INTERVAL = 1024  # steps between two checks where JAX compiles them; the length of an array in compiled code


class Snapshot(NamedTuple):
    """Everything needed to take the same steps again."""

    k: int
    state: State
    mark: Mark
    trail: Trail | None


class Level(NamedTuple):
    """A stage that rows are in: stage `number` of a staged method, with the memory it was entered with."""

    method: Staged
    number: int
    end: float  # the step of the run at which the stage ends; infinite if it ends itself
    memory: State


@dataclass
class Ended:
    """Rows that have stopped, as they were then; arrays have one entry per row."""

    rows: IntArray
    state: State
    k: IntArray
    draws: IntArray
    evals: IntArray
    status: list[Status]
    residual: Array | None  # the true residual, where F is known
    growth: Array | None = None  # elsewhere: the squared norm of the last samples over that of the first
    resumable: ActiveRows | None = None  # if stopped from outside the method: from where another call may continue


@dataclass
class ActiveRows:
    """Rows of a run that take the same steps; method, state, session and coins have one row for each."""

    method: Method
    state: State
    session: Session
    coins: Streams
    rows: IntArray  # their numbers in the run
    k: int = 0  # steps taken in the present stage
    before: int = 0  # steps taken in earlier stages
    levels: tuple[Level, ...] = ()  # the present stage, outermost first: a stage may be a staged method itself
    checked_until: int = 1  # steps before this one are taken one by one and checked
    diverged_by: int | None = None  # a chunk of steps had diverged by this step; the rows are taking it again
    recorded: int = -1  # the last recorded step
    observed: Array | None = None  # residuals that the choice of the last stage has estimated, not yet recorded
    opening: Array | None = None  # (rows, 2): mean squared norm and batch size of the samples of the first steps
    closing: Array | None = None  # (rows, steps, 2): those of the last steps, one by one
    trail: Trail | None = None  # sums of the samples since the last record, where residuals are estimated from them
    stage: int = 0  # stages entered so far
    _residual: tuple[int, Array | None] = field(default=(-1, None), init=False)  # the step it belongs to, residuals
    _compiled: bool | None = field(default=None, init=False)  # None: not known yet

    def take(self, rows: Rows) -> ActiveRows:
        """The selected rows (a mask) on their own."""
        part = replace(
            self,
            method=self.method.take(rows).collapsed(),
            state=self.state.take(rows),
            session=self.session.take(rows),
            coins=self.coins.take(rows),
            rows=self.rows[rows],
            opening=None if self.opening is None else self.opening[rows],
            closing=None if self.closing is None else self.closing[rows],
            trail=None if self.trail is None else self.trail.take(rows),
            levels=tuple(level._replace(memory=level.memory.take(rows)) for level in self.levels),
        )
        step, residual = self._residual
        part._residual = (step, None if residual is None else residual[rows])
        return part

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.rows.size

    @property
    def steps(self) -> int:
        """Steps taken in the whole run."""
        return self.before + self.k

    @property
    def certifies(self) -> bool:
        """Whether the staged method certifies its points, so that the best one is known."""
        return bool(self.levels) and self.levels[0].method.observed(self.levels[0].memory) is not None

    @property
    def compiled(self) -> bool:
        """Whether steps are compiled by JAX."""
        if self._compiled is None:
            self._compiled = False
            if self.session.oracle.traceable:
                from dualanchor.run import compiled  # needs JAX

                self._compiled = compiled.can_compile(self.method, self.state, self.session)
        return self._compiled

    # -- stages ----------------------------------------------------------------------------------------------

    def enter(self, method: Staged, number: int, memory: State) -> ActiveRows:
        """The same rows at the beginning of a stage."""
        stage = method.stage(number, memory)
        end = np.inf if stage.steps is None else self.steps + stage.steps
        levels = (*self.levels, Level(method, number, end, memory))
        if isinstance(stage.method, Staged):
            return replace(self, levels=levels).enter(stage.method, 0, stage.state)
        return replace(
            self,
            method=stage.method,
            state=stage.state,
            k=0,
            before=self.steps,
            levels=levels,
            checked_until=0 if self.stage or self.session.oracle.traceable else 1,
            stage=self.stage + 1,
        )

    def next_stages(self) -> tuple[list[ActiveRows], list[ActiveRows]]:
        """Groups of rows in the stages that follow for them, and groups of rows that have no further stage.

        The choice may draw samples and may differ from row to row.
        """
        *outer, (method, number, _, memory) = self.levels
        if any(level.end <= self.steps for level in outer):  # the stage around this one has ended with it
            return self._leave_level().next_stages()
        self.session.checking = True
        return self.enter_chosen(np.asarray(method.choose(number, memory, self.state, self.session)))

    def enter_chosen(self, chosen: IntArray) -> tuple[list[ActiveRows], list[ActiveRows]]:
        """Groups of rows in the stages with these numbers, and groups of rows whose number is END."""
        following: list[ActiveRows] = []
        finished: list[ActiveRows] = []
        for next_number in np.unique(chosen).tolist():
            part = self if (chosen == next_number).all() else self.take(chosen == next_number)
            *outer, level = part.levels
            if not outer:
                part.observed = level.method.observed(level.memory)
            if next_number != END:
                outside = replace(part, levels=tuple(outer), diverged_by=None)
                following.append(outside.enter(level.method, next_number, level.memory))
            elif outer:
                inner_following, inner_finished = part._leave_level().next_stages()
                following += inner_following
                finished += inner_finished
            else:
                finished.append(part)
        return following, finished

    def recover(self) -> IntArray | None:
        """The number of the next stage of each of these rows, which have diverged; None if the run ends here."""
        if not self.levels:
            return None
        level = self.levels[-1]
        return level.method.recover(level.number, level.memory)

    def _leave_level(self) -> ActiveRows:
        """The rows at the end of a stage of the staged method around the innermost one."""
        *outer, level = self.levels
        end = State(x=level.method.point(level.number, level.memory, self.state))
        return replace(self, levels=tuple(outer), state=end)

    def remaining(self) -> Any:
        """Steps to the end of the stage or of the method's horizon, for all rows or per row; None without an end."""
        horizon: Any = self.method.horizon
        if horizon is not None:
            horizon = (horizon if isinstance(horizon, int) else np.asarray(horizon).ravel()) - 1 - self.k
        if not self.levels:
            return horizon
        to_end = min(level.end for level in self.levels) - self.steps
        return to_end if horizon is None else np.minimum(to_end, horizon)

    def at_end(self) -> Array:
        """Which rows have reached the end of their stage or of the method's horizon (a mask)."""
        return np.full(self.count, (remaining := self.remaining()) is not None and remaining <= 0)

    # -- steps -----------------------------------------------------------------------------------------------

    def tosses(self, count: int) -> Array | None:
        """The coins of the next steps, (rows, count); None for a method without coins."""
        probability = self.method.probability(np.arange(self.k, self.k + count))
        return None if probability is None else self.coins.uniforms(self.steps, count) < probability

    def costs(self, count: int, coins: Array | None) -> Cost:
        """Total draws and evaluations of the next 1, 2, .. steps: over steps, or over (rows, steps)."""
        return self.method.cost(np.arange(self.k, self.k + count), self.state, coins).totals(count)

    def advance(self, count: int, coins: Array | None) -> Array:
        """Take `count` steps. If one raises, k is the step that failed and the state is the one before it.

        Returns squared norm and batch size of the largest sample of each of the last steps, (steps, rows, 2): of those
        that compiled code notes, or of the last one if the session has examined it.
        """
        step, s, F, first = self.method.step, self.state, self.session, self.k
        if self.compiled:
            from dualanchor.run import compiled

            seen = compiled.advance(self.method, s, F, first, count, coins)
            self.k = first + count
            return seen
        F.largest = None
        if self.trail is not None:
            F.trail, self.trail.state = self.trail, s
        k = first
        try:
            if coins is None:
                for k in range(first, first + count):
                    step(k, s, F)
            else:
                for k in range(first, first + count):
                    step(k, s, F, coins[:, k - first])
        except BaseException:
            self.k = k
            raise
        finally:
            F.trail = None
        self.k = first + count
        return np.empty((0, self.count, 2)) if F.largest is None else F.largest[None]

    def note_samples(self, seen: Array) -> None:
        """Note what the last steps saw of samples, (steps, rows, 2): the mean of the first steps, and the last ones."""
        for step, norms in enumerate(seen, self.steps + 1 - len(seen)):
            if not np.isnan(norms).any():
                if step <= WINDOW:
                    self.opening = norms if self.opening is None else self.opening + (norms - self.opening) / step
                earlier = [] if self.closing is None else [self.closing[:, 1 - WINDOW :]]
                self.closing = np.concatenate([*earlier, norms[:, None]], axis=1)

    def growth(self) -> Array | None:
        """Squared norms of the last samples over those of the first ones, (rows,); None if they were not seen.

        Divided by what smaller batches explain; infinite where the last samples are too large to be squared.
        """
        if self.opening is None or self.closing is None:
            return None
        first_square, first_size = self.opening.T
        last_square, last_size = self.closing.mean(axis=1).T
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = last_square / first_square * np.minimum(1.0, last_size / first_size)
        return np.where(np.isinf(last_square), np.inf, np.where(first_square > 0, growth, 0.0))

    def bounded(self) -> Array:
        """Which rows have finite vectors, an iterate that can be squared, and no NaN in the rest of their state."""
        x = self.state.x
        bounded = np.isfinite(arrays.to_host(arrays.row_squares(x)))
        for value in [y for y in vars(self.state).values() if y is not x and not arrays.surely_finite(y)]:
            if value.shape == x.shape:
                bounded &= arrays.finite_rows(value)
            elif arrays.has_nan(value):
                bounded &= ~np.isnan(arrays.to_host(value).reshape(len(bounded), -1)).any(axis=1)
        return bounded

    def snapshot(self) -> Snapshot:
        """A copy of everything that steps change, for `restore`."""
        trail = None if self.trail is None else self.trail.take(np.arange(self.count))
        return Snapshot(self.k, self.state.copy(), self.session.mark(), trail)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot."""
        self.k, self.state, self.trail = snapshot.k, snapshot.state, snapshot.trail
        self.session.reset(snapshot.mark)

    # -- results ---------------------------------------------------------------------------------------------

    def point(self) -> Array:
        """The points that are returned if the run ends now, (rows, d)."""
        s = self.state
        for level in self.levels[::-1]:
            s = State(x=level.method.point(level.number, level.memory, s))
        return s.x

    def final_state(self) -> State:
        """The state in the result: of a staged method its memory, with the points returned as `x`."""
        if not self.levels:
            return self.state
        return State(**{**vars(self.levels[0].memory), "x": self.point()})

    def residual(self) -> Array | None:
        """The true residual of each row, not charged to the budget; None where F is not known."""
        if self._residual[0] != self.steps:
            self.session.streams.release()  # between steps nothing is read again
            self._residual = (self.steps, _residuals(self.session.oracle, self.point()))
        return self._residual[1]

    def ended(self, status: list[Status]) -> Ended:
        """All rows as they stand, with how they ended; a diverged row has an infinite residual."""
        F = self.session
        residual: Array | None
        if status[0] is Status.DIVERGED:
            residual = np.full(self.count, np.inf) if F.oracle.knows_operator else None
        else:
            try:
                residual = self.residual()
            except OracleError:
                if status[0] not in (Status.FAILED, Status.RUNNING):
                    raise
                residual = np.full(self.count, np.nan)  # the run has failed already, or is shown to a callback
        k, draws, evals = (per_row(value, self.count) for value in (self.steps, F.draws, F.evals))
        return Ended(self.rows, self.final_state(), k, draws, evals, status, residual, self.growth())


def _residuals(oracle: Oracle, x: Array) -> Array | None:
    if not oracle.knows_operator:
        return None
    try:
        value = oracle.operator(arrays.user_copy(x))
    except OracleError:
        raise
    except Exception as error:
        raise OracleError(
            "The true operator must not raise",
            f"{type(error).__name__}: {error}",
            "Fix the operator, or pass record=0 to evaluate it at the end only",
        ) from error
    if value is None:
        return None
    value = arrays.as_library_of(value, x)
    refuse_nan(x, value, oracle)
    return arrays.row_norms(value)
