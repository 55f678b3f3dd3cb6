"""The active rows of a run: a method, the state of its rows, their session and their coins, all at the same step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Status
from dualanchor.core.session import Mark, Session
from dualanchor.core.staged import END, Staged
from dualanchor.core.streams import Streams, per_row
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array, IntArray, Rows

WINDOW = 4  # steps at the beginning and at the end of which samples are looked at, where F is not known


class Snapshot(NamedTuple):
    """Where the rows stood: enough to take the same steps again."""

    k: int
    state: State
    mark: Mark
    trail: Trail | None = None


class Level(NamedTuple):
    """A stage that rows are in: of which method, its number, the step at which it ends, and what passes on from it."""

    method: Staged
    number: int
    end: float
    memory: State


PLACE = ("k", "before", "recorded", "diverged_by", "stage")
"""Where rows stand, beyond what their arrays and counts say."""
NOTED = ("opening", "closing")


class Frozen(NamedTuple):
    """Rows as plain values and arrays, one entry per row: enough to go on from there."""

    facts: dict[str, Any]
    arrays: dict[str, Any]


@dataclass
class Ended:
    """Rows that have stopped, as they were then; one entry per row in each array.

    `residual` where F is known; elsewhere `growth`, the squared norm of the last samples over that of the first ones.
    `frozen` where something outside of the method has stopped them, so that they may go on in another call.
    """

    rows: IntArray
    state: State
    k: IntArray
    draws: IntArray
    evals: IntArray
    status: list[Status]
    residual: Array | None
    frozen: Frozen | None = None
    growth: Array | None = None


@dataclass
class ActiveRows:
    """Rows of a run that take the same steps, one row per run in method, state, session and coins.

    `rows` are their numbers in the run; `k` and `before` the steps of the present stage and of those before it;
    `levels` the present stage of a method in stages, or several where a stage is such a method itself. Steps before
    `checked_until` are taken one by one and checked; rows with `diverged_by` were seen to have diverged by that step.
    `recorded` is the last recorded step, `observed` has residuals that the choice of the stage has estimated. `opening`
    (rows, 2) and `closing` (rows, steps, 2) are squared norms and batch sizes of samples in the first and last steps.
    `trail` has the samples since the last record, where residuals are estimated from them; `stage` counts stages.
    """

    method: Method
    state: State
    session: Session
    coins: Streams
    rows: IntArray
    k: int = 0
    before: int = 0
    levels: tuple[Level, ...] = ()
    checked_until: int = 1
    diverged_by: int | None = None
    recorded: int = -1
    observed: Array | None = None
    opening: Array | None = None
    closing: Array | None = None
    trail: Trail | None = None
    stage: int = 0

    def __post_init__(self) -> None:
        self._residual: tuple[int, Array | None] = (-1, None)
        self._bounded: tuple[int, Array | None] = (-1, None)

    def take(self, rows: Rows) -> ActiveRows:
        """A selection of the rows (a mask) on their own."""
        part = replace(
            self,
            method=self.method.take(rows).collapsed(),
            state=self.state.take(rows),
            session=self.session.take(rows),
            coins=self.coins.take(rows),
            rows=self.rows[rows],
            **{name: value[rows] for name in NOTED if (value := getattr(self, name)) is not None},
            trail=None if self.trail is None else self.trail.take(rows),
            levels=tuple(level._replace(memory=level.memory.take(rows)) for level in self.levels),
        )
        k, known = self._residual
        part._residual = (k, None if known is None else known[rows])
        return part

    @property
    def steps(self) -> int:
        """Steps taken in all."""
        return self.before + self.k

    @property
    def certifies(self) -> bool:
        """Whether the method in stages certifies its points, so that the best one is known."""
        return bool(self.levels) and self.levels[0].method.observed(self.levels[0].memory) is not None

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
        """The rows in the stages that follow for them, and the rows that have no further stage."""
        *outer, (method, number, _, memory) = self.levels
        if any(level.end <= self.steps for level in outer):  # the stage around this one has ended with it
            end = State(x=method.point(number, memory, self.state))
            return replace(self, levels=tuple(outer), state=end).next_stages()
        self.session.checking = True
        numbers = np.asarray(method.choose(number, memory, self.state, self.session))
        following, finished = list[ActiveRows](), list[ActiveRows]()
        for chosen in np.unique(numbers).tolist():
            part = self if (numbers == chosen).all() else self.take(numbers == chosen)
            *outer, level = part.levels
            if not outer:
                part.observed = method.observed(level.memory)
            if chosen != END:
                following.append(replace(part, levels=tuple(outer)).enter(method, chosen, level.memory))
            elif outer:  # the end of a stage of the method around it
                end = State(x=method.point(number, level.memory, part.state))
                more, over = replace(part, levels=tuple(outer), state=end).next_stages()
                following, finished = following + more, finished + over
            else:
                finished.append(part)
        return following, finished

    def remaining(self) -> Any:
        """Steps to the end of the stage or of the method's horizon, for all rows or per row; None without an end."""
        horizon = self.method.horizon
        if horizon is not None:
            horizon = horizon - 1 - self.k if isinstance(horizon, int) else np.asarray(horizon).ravel() - 1 - self.k
        if not self.levels:
            return horizon
        left = min(level.end for level in self.levels) - self.steps
        return left if horizon is None else np.minimum(left, horizon)

    # -- steps -----------------------------------------------------------------------------------------------

    def tosses(self, count: int) -> Array | None:
        """The coins of the next steps, (rows, count), or None for a method without."""
        probability = self.method.probability(np.arange(self.k, self.k + count))
        return None if probability is None else self.coins.uniforms(self.steps, count) < probability

    def costs(self, count: int, coins: Array | None) -> Cost:
        """Draws and evaluations of the next 1, 2, .. steps: over steps, or over (rows, steps)."""
        cost = self.method.cost(np.arange(self.k, self.k + count), self.state, coins)
        evals = _running_total(cost.evals, count)
        return Cost(evals if cost.draws is cost.evals else _running_total(cost.draws, count), evals)

    def advance(self, count: int, coins: Array | None) -> None:
        """Take `count` steps. If one raises, k is the step that failed and the state the one before it."""
        if (seen := self.advance_compiled(count, coins)) is not None:
            self.session.largest = None if self.session.oracle.knows_operator else seen[-1]
            return
        step, s, F, first, k = self.method.step, self.state, self.session, self.k, self.k
        if self.trail is not None:
            F.trail, self.trail.state = self.trail, s
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

    def advance_compiled(self, count: int, coins: Array | None) -> Array | None:
        """Take `count` steps at once; what the last of them saw of samples, (steps, rows, 2); None if impossible."""
        if not self.session.oracle.traceable:
            return None
        from dualanchor.run import compiled  # needs JAX

        if (taken := compiled.advance(self.method, self.state, self.session, self.k, count, coins)) is None:
            return None
        self.k, self._bounded = self.k + count, (self.k + count, taken.bounded)
        return taken.seen

    def note_samples(self, seen: Array) -> None:
        """Note what the last steps saw of samples, (steps, rows, 2): a mean over the first ones, and the last."""
        for step, one in enumerate(seen, self.steps + 1 - len(seen)):
            if not np.isnan(one).any():
                if step <= WINDOW:
                    self.opening = one if self.opening is None else self.opening + (one - self.opening) / step
                earlier = [] if self.closing is None else [self.closing[:, 1 - WINDOW :]]
                self.closing = np.concatenate([*earlier, one[:, None]], axis=1)

    def growth(self) -> Array | None:
        """Squared norms of the last samples over those of the first ones, (rows,); None if they were not seen.

        Where batches have become smaller, noise alone may have grown by as much; the quotient is divided by that.
        """
        if self.opening is None or self.closing is None:
            return None
        (first, size), (last, present) = self.opening.T, self.closing.mean(axis=1).T
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = last / first * np.minimum(1.0, present / size)
        return np.where(first > 0, growth, 0.0)

    def snapshot(self) -> Snapshot:
        """The present, to come back to."""
        trail = None if self.trail is None else self.trail.take(np.arange(self.rows.size))
        return Snapshot(self.k, self.state.copy(), self.session.mark(), trail)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot."""
        self.k, self.state, self.trail = snapshot.k, snapshot.state, snapshot.trail
        self.session.reset(snapshot.mark)

    def frozen(self) -> Frozen:
        """The present, for a checkpoint."""
        stages = [(level.number, None if level.end == np.inf else int(level.end)) for level in self.levels]
        facts = {"stages": stages, **{name: getattr(self, name) for name in PLACE}}
        counts = {name: per_row(value, self.rows.size) for name, value in self.session.mark()._asdict().items()}
        states = {"state": self.state} | {f"memory/{j}": level.memory for j, level in enumerate(self.levels)}
        saved = {f"{kind}/{name}": value for kind, state in states.items() for name, value in vars(state).items()}
        noted = {name: value for name in NOTED if (value := getattr(self, name)) is not None}
        noted |= {} if self.trail is None else {"trail": self.trail.packed()}
        return Frozen(facts, {"rows": self.rows, **counts, **saved, **noted})

    def bounded(self) -> Array:
        """Which rows have an iterate that is finite and can still be squared, and no NaN in the rest of their state."""
        k, known = self._bounded
        if known is not None and k == self.k:
            return known
        bounded = np.isfinite(arrays.to_host(arrays.row_squares(self.state.x)))
        for name, value in vars(self.state).items():
            if name != "x" and arrays.has_nan(value):
                bounded &= ~np.isnan(arrays.to_host(value).reshape(len(bounded), -1)).any(axis=1)
        return bounded

    # -- what is seen of them --------------------------------------------------------------------------------

    def point(self) -> Array:
        """What is returned for each row if the run ends now."""
        s = self.state
        for level in self.levels[::-1]:
            s = State(x=level.method.point(level.number, level.memory, s))
        return s.x

    def residual(self) -> Array | None:
        """The true residual of each row, outside of the budget; None where F is not known."""
        if self._residual[0] != self.steps:
            self.session.streams.release()  # between steps nothing is read again
            self._residual = (self.steps, _norms(self.session.oracle, self.point()))
        return self._residual[1]

    def ended(self, status: list[Status]) -> Ended:
        """All rows as they stand, with how they ended; a diverged row has an infinite residual."""
        count, F = self.rows.size, self.session
        residual: Array | None
        if status[0] is Status.DIVERGED:
            residual = np.full(count, np.inf) if F.oracle.knows_operator else None
        else:
            try:
                residual = self.residual()
            except OracleError:  # the operator fails where the run ends, or is saved, for that
                if status[0] not in (Status.FAILED, Status.RUNNING):
                    raise
                residual = np.full(count, np.nan)
        state = self.state
        if self.levels:
            state = State(**{**vars(self.levels[0].memory), "x": self.point()})
        k, draws, evals = (per_row(value, count) for value in (self.steps, F.draws, F.evals))
        return Ended(self.rows, state, k, draws, evals, status, residual, growth=self.growth())


def _norms(oracle: Oracle, x: Array) -> Array | None:
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
    return None if value is None else arrays.row_norms(arrays.as_library_of(value, x))


def _running_total(costs: Any, count: int) -> Array:
    if isinstance(costs, int):
        return costs * np.arange(1, count + 1)
    costs = np.asarray(costs)
    return np.cumsum(np.broadcast_to(costs, (*np.shape(costs)[:-1], count)), axis=-1)
