"""Rows that move in step under one method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import DualAnchorError, OracleError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Batch, Oracle, Session, in_precision_of, raised
from dualanchor.core.result import Status
from dualanchor.core.streams import Streams, shared
from dualanchor.core.types import Array, Counts, IntArray, Rows
from dualanchor.estimators.minibatch import Minibatch
from dualanchor.fast import checked_every, compiled_steps, compiled_update
from dualanchor.run.block import Block, can_be_joined, in_blocks, joining
from dualanchor.run.combine import combined_update
from dualanchor.run.outcome import Ended

LONG = 1 << 16  # coordinates; the arrays of a step on one such row leave the cache
_TOGETHER = 1 << 14  # numbers of points whose residuals are computed in one go
_AHEAD = 1 << 19  # numbers of one noise vector per step and replication that are read again by every block


Mark: TypeAlias = "tuple[Counts, Counts, Counts]"


@dataclass(frozen=True)
class Origin:
    """Where a stretch of steps began: enough to take it again."""

    k: int
    state: State
    mark: Mark


class Leap(NamedTuple):
    """Where many steps have led: true residuals on the way, and after how many steps each row left, 0 if it did not."""

    residuals: Sequence[Array | None]
    gone_after: IntArray


class Lane:
    """A method, the state of its rows, their session and their coins, all at the same step k."""

    def __init__(
        self,
        method: Method,
        state: State,
        session: Session,
        coins: Streams,
        rows: IntArray,
        replications: int,
    ) -> None:
        self.method, self.state, self.session, self.rows = method, state, session, rows
        self.k = 0
        self.every = checked_every(state.x.shape[1])  # so many steps rows are checked
        self.compiled = False  # whether to take steps in compiled stretches where there are any
        self.mark: Any = None  # counts and positions before a step that failed
        self._oracle, self._coins, self._replications = session._oracle, coins, replications
        self._residual: tuple[int, Array | None] = (-1, None)
        self._started: Origin | None = None  # of the last leap, where it began and was checked: arrays to use again
        self._checked: Origin | None = None
        self._knows_operator = type(session._oracle).operator is not Oracle.operator

    def take(self, rows: Rows) -> Lane:
        """A lane of its own for a selection of the rows (a mask)."""
        part = Lane(
            self.method.take(rows).settled(),
            self.state.take(rows),
            self.session.take(rows),
            self._coins.take(rows),
            self.rows[rows],
            self._replications,
        )
        part.k, part.compiled = self.k, self.compiled
        known = self._residual[1]
        part._residual = (self._residual[0], None if known is None else known[rows])
        return part

    @property
    def rowwise(self) -> bool:
        """Whether rows come out the same to the last bit whatever rows are computed beside them."""
        return self._oracle.rowwise

    @property
    def sure(self) -> bool:
        """Whether the oracle is one that compiled steps know, which does not fail on the way."""
        return self.session.recipe is not None

    @property
    def repeatable(self) -> bool:
        """Whether a stretch of steps can be taken again with the same samples for sure."""
        return self._oracle.replayable is True

    def origin(self, old: Origin | None = None) -> Origin:
        """The present, to come back to; in the arrays of an old one that is no more needed."""
        return Origin(self.k, self.state.copy(None if old is None else old.state), self.session.mark())

    def rewind(self, origin: Origin) -> None:
        """Go back to where a stretch began."""
        self.k, self.state = origin.k, origin.state
        self._started = self._checked = None
        self.session.reset(origin.mark)

    def leap(self, count: int, coins: Array | None, asked: Sequence[int]) -> Leap | None:
        """Take so many steps without looking after each of them, and find out afterwards what has happened.

        True residuals are kept after the numbers of steps asked for. The leap ends early where a row is then found to
        have left, or where steps can no more be compiled, or can again. Where something goes wrong the answer is None
        and nothing is done.
        """
        if self._stretch is not None:
            ks, tossed = range(self.k, self.k + count), None if coins is None else coins[:, :count]
            count = self._stretch.alike_ahead(self.method, self.state, self.session, ks, tossed)
            asked = [after for after in asked if after <= count]
        if (found := self._compiled(count, coins, asked)) is not None:
            return Leap(self._residuals_there(asked, *found), found[1])
        start = checked = self._started = self.origin(self._started)
        residuals: list[Array | None] = []
        self.session.checking = False
        looks = {*range(self.every - self.k % self.every, count, self.every), count}
        try:
            for end in sorted({*asked, *looks}):
                done = self.k - start.k
                self.advance(end - done, None if coins is None else coins[:, done:end])
                if end in looks:
                    left = self._left_since(checked, start.k, coins)
                    if left is None or left.any():
                        break
                    if end < count:
                        checked = self._checked = self.origin(self._checked)
                if end in asked:
                    residuals.append(self._residual_in_bounds())
        except Exception:  # of whatever kind: it is met again, step by step
            left = None
        if left is None:
            self.rewind(start)
            return None
        return Leap(residuals, left)

    def _residual_in_bounds(self) -> Array | None:
        """The residuals of the rows that are in bounds, computed as if there were no others, which have none."""
        bounded = self.bounded()
        if bounded.all():
            return self.residual()
        values = np.full(bounded.size, np.inf)
        if bounded.any():
            known = self.take(bounded).residual()
            if known is None:
                return None
            values[bounded] = known
        return values

    def _residuals_there(self, asked: Sequence[int], points: Array, left: IntArray) -> list[Array | None]:
        """The residuals after the numbers of steps asked for, infinite for rows that have left by then."""
        if not asked:
            return []
        there = (left == 0) | (np.array(asked)[:, None] < left)
        values, oracle = np.full(there.shape, np.inf), self._oracle
        if oracle.components is None and points.size <= _TOGETHER:  # each row by itself: all in one evaluation
            every = oracle.take(np.arange(there.size) % self.rows.size)
            norms = _norms(every, points.reshape(-1, points.shape[2]))
            return list(np.where(there, norms.reshape(there.shape), np.inf))
        for x, some, into in zip(points, there, values, strict=True):
            if oracle.components is None:  # those that have left do not matter
                norms = self.residual_at(x)
                assert norms is not None  # what is compiled is known
                into[some] = norms[some]
            elif some.any():  # a full pass: its rounding depends on what is evaluated together
                into[some] = _norms(oracle.take(np.flatnonzero(some)), x[some])
        return list(values)

    def _left_since(self, checked: Origin, start: int, coins: Array | None) -> IntArray | None:
        """After how many steps from the start each row left, which then stands there; None if that cannot be told.

        It did where it was first out of bounds since it was checked, if it is so now. Where the steps are checked must
        not depend on the clock: a row may come back.
        """
        left, bounded = np.zeros(self.rows.size, np.int64), self.bounded()
        if bounded.all():
            return left
        coins = None if coins is None else coins[:, checked.k - start :]
        for piece in self._retrace(checked, ~bounded, coins) if self.rowwise else ():
            at = np.searchsorted(self.rows, piece.rows)
            left[at] = piece.k - start
            for name, value in vars(piece.state).items():
                setattr(self.state, name, arrays.put(getattr(self.state, name), at, value))
        return left if left.any() else None

    def _retrace(self, origin: Origin, rows: Rows, coins: Array | None) -> list[Ended]:
        """These rows (a mask) left on the way since the origin: where each of them did; nothing if one did not."""
        part = self.take(rows)
        part.rewind(Origin(origin.k, origin.state.take(rows), _of_rows(origin.mark, rows)))
        part.session.checking = not self.sure
        coins = None if coins is None else coins[rows]
        gone: list[Ended] = []
        while part.rows.size:
            if part.k == self.k:
                return []
            bounded = part.watch(self.k - part.k, None if coins is None else coins[:, part.k - origin.k :])
            if bounded.all():
                return []
            gone.append(part.diverged(~bounded))
            part, coins = part.take(bounded), None if coins is None else coins[bounded]
        return gone

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
        ks, coins = range(self.k, self.k + count), None if coins is None else coins[:, :count]
        if self._compiled(count, coins) is not None:
            return
        if self.session.checking or self._alone:  # a step that is checked and fails leaves all rows together
            self._step(self._stepping, self.state, self.session, ks, coins)
            return
        first, ahead = self.k, max(1, _AHEAD // (self._replications * self.state.x.shape[1]))
        for start in range(first, first + count, ahead):
            stop = min(start + ahead, first + count)
            mark, marks = self.session.mark(), []
            for block in self._blocks:
                block.session.reset(_of_rows(mark, block.rows))
                block.session.checking = False
                tossed = None if coins is None else coins[block.rows, start - first : stop - first]
                with block.of_state(self.state) as mine:
                    self._step(block.method, mine, block.session, range(start, stop), tossed)
                marks.append(block.session.mark())
            draws, evals, position = (self._together(counts) for counts in zip(*marks, strict=True))
            self.session.reset((draws, evals, position))

    def _step(self, method: Method, s: State, F: Session, ks: range, coins: Array | None) -> None:
        step, k = method.step, ks.start
        size = None if F.checking or coins is not None or arrays.is_foreign(s.x) else _plain_batch(method)
        if size is not None and (batches := F.draw_many(size, len(ks))) is not None:
            self._walk(method, s, F, ks, batches)
            F.count(0, len(ks) * size)
            return
        try:
            if coins is None:
                for k in ks:
                    step(k, s, F)
            else:
                for k in ks:
                    step(k, s, F, coins[:, k - ks.start])
        except BaseException:
            self.k = k
            raise
        self.k = ks.stop

    def _walk(self, method: Method, s: State, F: Session, ks: range, batches: Iterator[Batch]) -> None:
        """Steps of one evaluation each, with batches drawn in advance: what `step` does without what it looks after.

        Where something goes wrong the run goes back and takes these steps one by one.
        """
        mean, update, shape, dtype, k = F.oracle.mean, method.update, s.x.shape, s.x.dtype, ks.start
        try:
            for k, batch in zip(ks, batches, strict=True):
                G = mean(s.x, batch)
                if G.shape != shape:
                    raise ValueError(f"shape {G.shape} for x of shape {shape}")
                if G.dtype is not dtype:
                    G = in_precision_of(s.x, G)
                update(k, s, G)
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "evaluating a batch") from error
        finally:
            self.k = k
        self.k = ks.stop

    @property
    def has_compiled_steps(self) -> bool:
        """Whether there are any for these rows."""
        return self._stretch is not None

    @property
    def has_compiled_form(self) -> bool:
        """Whether there are, or at least a compiled update of long rows."""
        if self.has_compiled_steps or arrays.is_foreign(self.state.x) or self.state.x.shape[1] < LONG:
            return self.has_compiled_steps
        return compiled_update(self.method, self.state) is not None

    def _compiled(self, count: int, coins: Array | None, asked: Sequence[int] = ()) -> tuple[Array, IntArray] | None:
        """Take the steps in compiled code where there is any: iterates on the way, and when each row left."""
        if self._stretch is None:
            return None
        ks, coins = range(self.k, self.k + count), None if coins is None else coins[:, :count]
        found = self._stretch.advance(self.method, self.state, self.session, ks, coins, asked)
        if found is not None:
            self.k = ks.stop
        return found

    @cached_property
    def _stretch(self) -> Any:
        """The compiled steps of these rows, if they are wanted and there are any."""
        wanted = self.compiled and self.rows.size > 0 and not arrays.is_foreign(self.state.x)
        return compiled_steps(self.method, self.state, self.session) if wanted else None

    @cached_property
    def _stepping(self) -> Method:
        return self._for_long_rows(self.method)

    def _for_long_rows(self, method: Method) -> Method:
        """The method; where rows are long its elementwise update is compiled, or done in pieces that fit the cache."""
        if self.state.x.shape[1] < LONG or type(method).step is not Method.step or arrays.is_foreign(self.state.x):
            return method
        compiled = compiled_update(method, self.state) if self.compiled else None
        return method.with_update(compiled or combined_update(method, self.state) or method.update_in_pieces)

    @cached_property
    def _alone(self) -> bool:
        """Whether all rows are one block, as they are."""
        return len(self._blocks) == 1 and self._blocks[0].joined == 1

    @cached_property
    def _blocks(self) -> list[Block]:
        """Rows in groups that fit the cache, joined where that is quicker."""
        rows, replications, d = self.rows, self._replications, self.state.x.shape[1]
        if arrays.is_foreign(self.state.x):
            return [Block(slice(0, rows.size), self.method, self.session)]
        apart = self.rowwise and 2 * replications * d <= _AHEAD
        blocks = []
        some: Any
        for some in in_blocks(rows, replications, d) if apart else [slice(0, rows.size)]:
            joined = replications if can_be_joined(self.method, self.state, rows[some], replications) else 1
            every: Any = slice(some.start, some.stop, joined)
            method = self._for_long_rows(self.method.take(every).settled())
            session = self.session if some.stop - some.start == rows.size else self.session.take(some)
            blocks.append(Block(some, method, joining(session, joined), joined))
        return blocks

    def _together(self, counts: Sequence[Counts]) -> Counts:
        """The counts of all blocks as those of the lane."""
        if all(isinstance(count, int) and count == counts[0] for count in counts):
            return counts[0]
        sizes = (block.rows.stop - block.rows.start for block in self._blocks)
        return shared(np.concatenate([per_row(count, size) for count, size in zip(counts, sizes, strict=True)]))

    def bounded(self) -> Array:
        """Which rows have an iterate that is finite and can still be squared."""
        return np.isfinite(arrays.to_host(arrays.row_squares(self.state.x)))

    def residual(self) -> Array | None:
        """The true residual of each row, outside of the budget; None where F is not known."""
        if self._residual[0] != self.k:
            self._residual = (self.k, self.residual_at(self.state.x))
        return self._residual[1]

    def residual_at(self, x: Array) -> Array | None:
        """The same with other iterates."""
        norms = [_norms(block.oracle, x[block.rows]) for block in self._blocks]
        return None if any(one is None for one in norms) else np.concatenate(norms)

    def diverged(self, rows: Rows) -> Ended:
        """The rows (a mask) as they stand, gone beyond all bounds."""
        return self.ended(rows, [Status.DIVERGED] * int(np.count_nonzero(rows)))

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


def _plain_batch(method: Method) -> int | None:
    """The batch size of a method whose steps are an update with the mean of a fresh batch, always as large."""
    estimator = method.estimator_in_use
    if type(method).step is not Method.step or type(estimator) is not Minibatch:
        return None
    return estimator.batch_size if isinstance(estimator.batch_size, int) else None


def _norms(oracle: Oracle, x: Array) -> Any:
    try:
        value = oracle.operator(arrays.lent(x))
    except OracleError:
        raise
    except Exception as error:
        raise OracleError(
            "The true operator must not raise",
            f"{type(error).__name__}: {error}",
            "Mend the operator, or pass record=0 to evaluate it at the end only",
        ) from error
    return None if value is None else arrays.row_norms(arrays.settled(value, x))


def _running_total(costs: Any, count: int) -> Array:
    if isinstance(costs, int):
        return costs * np.arange(1, count + 1)
    costs = np.asarray(costs)
    return np.cumsum(np.broadcast_to(costs, (*np.shape(costs)[:-1], count)), axis=-1)


def _of_rows(mark: Mark, rows: Rows | slice) -> Mark:
    draws, evals, position = (count if isinstance(count, int) else shared(count[rows]) for count in mark)
    return draws, evals, position


def per_row(counts: Counts, rows: int) -> IntArray:
    """One count for each row."""
    return np.broadcast_to(np.asarray(counts, dtype=np.int64), (rows,))
