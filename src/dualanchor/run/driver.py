"""The driver: advances active rows by chunks, checks them, records, and retires what has ended.

There is one way to take a step. All active rows advance by a chunk of steps without being checked: up to the next event
(a recorded step, a stopping rule, a horizon) or to the next multiple of CHECK_INTERVAL. Then they are checked once: is
each iterate finite and small enough to be squared? Rows that are not go back to where the chunk began and take the same
steps one by one, so that each is retired at the step at which it diverged; after an error all rows go back, and the
step that failed says where. Where steps are slow, or cannot be repeated, a chunk is one step. The driver knows rows,
budgets and statuses, and no method by name.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.callbacks import Progress
from dualanchor.core.errors import CheckpointError, OracleError
from dualanchor.core.finding import Finding
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Mark
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array
from dualanchor.run.observe import NestedInterruptError, Observer
from dualanchor.run.record import Recorder
from dualanchor.run.rows import WINDOW, ActiveRows, Ended
from dualanchor.run.stop import Budget, Outlook, Rule

CHECK_INTERVAL = 128  # steps; where rows of fast samplers are checked does not depend on the clock
COMPILED_INTERVAL = 1024  # the same for steps that JAX compiles
_CHUNK_SECONDS = 0.25  # chunks that are expected to take longer are taken step by step
_SNAPSHOT_SIZE = 1 << 21  # states with more numbers than this are checked after every step instead of copied


class Driver:
    """A run from its start, or from a checkpoint, to the end of its last row.

    `active` are groups of rows that take the same steps; one group works at a time, until it ends or falls into parts.
    `start` (replications, d) is where they begin, to which rows that diverge return. `result` makes a Result of rows
    that have ended and the residuals at the start, `place` names a row (None: all of them) in an error message.
    """

    def __init__(
        self,
        active: list[ActiveRows],
        start: Array,
        rule: Rule,
        recorder: Recorder,
        observer: Observer,
        result: Callable[[list[Ended], Array | None], Result],
        place: Callable[[int | None], str],
    ) -> None:
        self.active, self.ended, self.recorder = active, list[Ended](), recorder
        self._rule, self._observer = rule, observer
        self._assemble, self._place = result, place
        self._start = start
        self._start_residual: Array | None = None
        self.findings: list[Finding] = []
        self._total = sum(rows.rows.size for rows in active)
        for rows in active:
            oracle = rows.session.oracle
            if recorder.from_samples and not (oracle.knows_operator or oracle.traceable or rows.certifies):
                rows.trail = Trail.along(rows.state.x)
        self._seconds_per_eval = 0.0
        self._before_failure: Mark | None = None

    def run(self) -> Result:
        """Go on until every row has ended."""
        with arrays.quiet(), self._observer:
            try:
                self._measure_start()
                self._observer.resume(self)
                self._require_no_more_than_allowed()
                while self.active:
                    if self._round(self.active[-1]):
                        self._end_stage()
                        self._report()
            except NestedInterruptError:
                if self._before_failure is not None:
                    self.active[-1].session.reset(self._before_failure)
                self._interrupt()
            except OracleError as error:
                raise self._failed(error) from error
        self._observer.save(self)
        return self._result(self.ended)

    def _measure_start(self) -> None:
        """The true residual of each row at the start, where F is known."""
        residuals = [one for rows in self.active if (one := rows.residual()) is not None]
        if residuals:
            order = np.argsort(np.concatenate([rows.rows for rows in self.active]))
            self._start_residual = np.concatenate(residuals)[order]

    def _round(self, rows: ActiveRows) -> bool:
        """Retire the rows that must stop, or let all of them take the steps up to the next event; whether they did."""
        if rows.diverged_by is not None and rows.k >= rows.diverged_by:  # with other samples than before
            self._retire_diverged(rows, np.zeros(rows.rows.size, bool))
            return False
        if rows.recorded != rows.steps and self.recorder.wants(rows.steps):
            self._record(rows)
        checked = self._observer.stepwise or rows.k < rows.checked_until or not self._can_go_back(rows)
        sampled = not rows.session.oracle.knows_operator
        noted = sampled and rows.steps < WINDOW  # the first and the last samples are compared
        compiled = rows.session.oracle.traceable and not checked  # such steps note them themselves
        interval = COMPILED_INTERVAL if compiled else CHECK_INTERVAL
        chunk = 1 if checked or noted else interval - rows.k % interval
        chunk = WINDOW - rows.steps if compiled and noted else chunk
        coins = rows.tosses(chunk + WINDOW)
        outlook = Outlook(
            k=rows.steps,
            rows=rows.rows.size,
            evals=rows.session.evals,
            draws=rows.session.draws,
            ahead=rows.costs(chunk + WINDOW, coins),
            elapsed=self._observer.elapsed,
            residual=rows.residual,
        )
        allowance = np.asarray(self._rule.allowance(outlook))
        remaining = rows.remaining()
        steps = int(allowance.min() if remaining is None else np.minimum(allowance, remaining).min())
        if steps <= 0:
            self._stop(rows, allowance, remaining, outlook)
            return False
        count = min(steps, chunk, self.recorder.next_after(rows.steps) - rows.steps)
        if self._rule.every is not None:
            count = min(count, self._rule.every - rows.steps % self._rule.every)
        seconds = self._seconds_per_eval * _per_row(outlook.ahead.evals, count)
        if seconds > _CHUNK_SECONDS:  # one compiled step takes as long as hundreds: it is mostly the call
            count = max(1, int(count * _CHUNK_SECONDS / seconds)) if compiled else 1
        began = time.perf_counter()
        if not (compiled and self._advance(rows, count, coins, compiled)):
            noted |= sampled and steps <= WINDOW
            if checked or noted or count == 1:
                count = 1 if checked else count
                self._steps(rows, count, coins, noted)
            else:
                count = min(count, steps - WINDOW if sampled else steps)
                self._advance(rows, count, coins)
        self._seconds_per_eval = (time.perf_counter() - began) / max(1.0, _per_row(outlook.ahead.evals, count))
        return True

    # -- steps -----------------------------------------------------------------------------------------------

    def _can_go_back(self, rows: ActiveRows) -> bool:
        return rows.session.oracle.replayable is not False and rows.state.x.shape[1] * rows.rows.size <= _SNAPSHOT_SIZE

    def _advance(self, rows: ActiveRows, steps: int, coins: Array | None, compiled: bool = False) -> bool:
        """Take the steps without checks; rows for which that went wrong take them again one by one.

        False if steps that are to be `compiled` cannot be; they are not taken then.
        """
        before, until, seen = rows.snapshot(), rows.k + steps, None
        rows.session.checking = False
        try:
            if not compiled:
                rows.advance(steps, coins)
            elif (seen := rows.advance_compiled(steps, coins)) is None:
                rows.restore(before)
                return False
        except NestedInterruptError:
            rows.restore(before)
            raise
        except Exception:  # of whatever kind: it is met again, step by step
            rows.restore(before)
            rows.checked_until = until
            return True
        bounded = rows.bounded()
        if not bounded.all():
            others = [rows.take(bounded)] if bounded.any() else []
            rows.restore(before)
            rows.checked_until = rows.diverged_by = until
            self.active[-1:] = [*others, rows.take(~bounded)]
        if seen is not None and bounded.any() and not rows.session.oracle.knows_operator:
            self.active[-1 if bounded.all() else -2].note_samples(seen[:, bounded])
        return True

    def _steps(self, rows: ActiveRows, count: int, coins: Array | None, noted: bool) -> None:
        """Take steps one by one, until a row diverges; note what they have seen of samples, if that is wanted."""
        for step in range(count):
            rows.session.checking, rows.session.seen = True, None
            mark = rows.session.mark()
            try:
                rows.advance(1, None if coins is None else coins[:, step:])
            except (OracleError, NestedInterruptError):
                self._before_failure = mark
                raise
            if noted and rows.session.seen is not None:
                rows.note_samples(rows.session.seen[None])
            bounded = rows.bounded()
            if not bounded.all():
                self._retire_diverged(rows, bounded)
                return

    def _retire_diverged(self, rows: ActiveRows, bounded: Array) -> None:
        diverged = rows.take(~bounded).ended([Status.DIVERGED] * int(np.count_nonzero(~bounded)))
        if not rows.certifies:  # nothing is known of the points in between
            diverged.state.x = arrays.take(self._start, diverged.rows % len(self._start))
        self.recorder.add(diverged.rows, diverged.k, diverged.draws, diverged.evals, diverged.residual)
        self._replace(rows, diverged, bounded)

    # -- rows that end ---------------------------------------------------------------------------------------

    def _stop(self, rows: ActiveRows, allowance: Array, remaining: Any, outlook: Outlook) -> None:
        """Retire the rows that may not take another step, or let them go on with their next stage."""
        count = rows.rows.size
        stopped = np.broadcast_to(allowance <= 0, (count,))
        at_end = np.broadcast_to(False if remaining is None else np.asarray(remaining) <= 0, (count,))
        if rows.levels and at_end.any():
            self._next_stage(rows, at_end)
            return
        if at_end.any():
            self._retire(rows, at_end, [Status.HORIZON] * int(np.count_nonzero(at_end)), final=True)
        else:
            self._retire(rows, stopped, [one for one in self._rule.reasons(outlook) if one is not None])

    def _end_stage(self) -> None:
        """Let rows whose stage has ended with the last step go on with their next one."""
        rows = self.active[-1] if self.active else None
        if rows is not None and rows.levels:
            at_end = np.broadcast_to(np.asarray(rows.remaining()) <= 0, (rows.rows.size,))
            if at_end.any():
                self._next_stage(rows, at_end)

    def _next_stage(self, rows: ActiveRows, at_end: Array) -> None:
        """The rows whose stage has ended, in their next stages; one without a next stage has reached its end."""
        ending = rows if at_end.all() else rows.take(at_end)
        if ending.trail is not None and ending.recorded != ending.steps:
            self._record(ending)
        mark, memories = rows.session.mark(), [level.memory.copy() for level in ending.levels]
        try:
            following, finished = ending.next_stages()  # draws samples
        except (OracleError, NestedInterruptError):
            self._before_failure = mark  # a resumed run chooses again
            for level, memory in zip(ending.levels, memories, strict=True):
                vars(level.memory).update(vars(memory))
            raise
        self.active.pop()
        if not at_end.all():
            self.active.append(rows.take(~at_end))
        for group in (*following, *finished):
            if group.observed is not None:
                self.recorder.add(group.rows, group.steps, group.session.draws, group.session.evals, group.observed)
                group.observed, group.recorded = None, group.steps
        self.active += following
        for last in finished:
            self.active.append(last)
            level = last.levels[0]
            self._retire(last, np.ones(last.rows.size, bool), level.method.outcome(level.memory), final=True)

    def _retire(self, rows: ActiveRows, stopped: Array, status: list[Status], final: bool = False) -> None:
        """Write down rows (a mask) that have ended: by themselves (`final`), or so that they may go on later."""
        ending = rows if stopped.all() else rows.take(stopped)
        frozen = None if final else ending.frozen()  # before the end is recorded, which may not be the end
        if ending.recorded != ending.steps:
            self._record(ending)
        self._replace(rows, replace(ending.ended(status), frozen=frozen), ~stopped)

    def _replace(self, rows: ActiveRows, ended: Ended, others: Array) -> None:
        """Write down rows that have ended; the others (a mask) go on."""
        self.ended.append(ended)
        assert self.active.pop() is rows
        if others.any():
            self.active.append(rows.take(others))

    def _retire_all(self, status: Status) -> None:
        for rows in self.active[::-1]:
            self._retire(rows, np.ones(rows.rows.size, bool), [status] * rows.rows.size)

    def _failed(self, error: OracleError) -> OracleError:
        """Save and return what there is, and say where the oracle failed."""
        rows = self.active[-1]
        row = None if error.row is None else int(rows.rows[error.row])
        located = error.located(rows.steps, row, self._place(row))
        spent = rows.session.mark()
        rows.session.reset(self._before_failure or spent)  # a resumed run takes the failed step again
        self._observer.save(self, failed=True)
        rows.session.reset(spent)
        last = [one.ended([Status.FAILED] * one.rows.size) for one in self.active]
        located.result = self._result([*self.ended, *last])
        return located

    # -- the world -------------------------------------------------------------------------------------------

    def _require_no_more_than_allowed(self) -> None:
        """Raise where the run that is resumed has gone further than its rule now says."""
        spent: list[tuple[Any, ...]] = [(rows.steps, rows.session.draws, rows.session.evals) for rows in self.active]
        for k, draws, evals in [*spent, *((piece.k, piece.draws, piece.evals) for piece in self.ended)]:
            if np.any(self._rule.exceeded(k, draws, evals)):
                rule = "A run can be resumed with more steps or samples, not with fewer"
                received = f"a checkpoint of step {np.max(k)} with {np.max(evals)} evaluations, and {self._rule}"
                raise CheckpointError(rule, received, "Allow as many, or give another path to start anew")

    def _result(self, ended: list[Ended]) -> Result:
        result = self._assemble(ended, self._start_residual)
        findings = (*result.findings, *self.findings, *self._observer.findings)
        return replace(result, findings=findings) if findings else result

    def _record(self, rows: ActiveRows) -> None:
        if rows.certifies:
            return  # recorded where it is observed, at the ends of stages
        residual, seen = rows.residual(), (0.0, 0)
        if rows.trail is not None:
            squares, samples, rounds = rows.trail.seen()
            residual, seen = np.sqrt(squares), (samples, rounds)
            rows.trail.clear()
        counts = (rows.session.draws, rows.session.evals)
        self.recorder.add(rows.rows, rows.steps, *counts, residual, seen, rows.stage)
        rows.recorded = rows.steps

    def _report(self) -> None:
        """Callback, interrupts, progress, checkpoint: what may happen between two chunks."""
        observer = self._observer
        if self.active and observer.callback(self._present):
            self._retire_all(Status.CALLBACK)
        if observer.interrupted:
            self._interrupt()
        if self.active:
            observer.progress(lambda: self._progress(self.active[-1]))
        if observer.save_is_due:
            observer.save(self)

    def _interrupt(self) -> None:
        self._observer.save(self)  # before the residual at the end, which may take long
        self._retire_all(Status.INTERRUPTED)

    def _present(self) -> Result:
        """The run as it stands, in arrays of its own."""
        copies = [rows.take(np.ones(rows.rows.size, bool)) for rows in self.active]
        return self._result([*self.ended, *(rows.ended([Status.RUNNING] * rows.rows.size) for rows in copies)])

    def _progress(self, rows: ActiveRows) -> Progress:
        evals = int(np.max(rows.session.evals))
        parts = [evals / budget.evals for budget in self._rule.of(Budget)]
        if not rows.levels and rows.method.steps:
            parts.append(rows.k / rows.method.steps)
        active = sum(one.rows.size for one in self.active)
        fraction = min(1.0, max(parts)) if parts else None
        return Progress(rows.steps, fraction, active, self._total, evals, self._observer.elapsed)


def _per_row(totals: Array, steps: int) -> float:
    """The mean over rows of what these steps cost."""
    total = totals[..., steps - 1]
    return float(total if total.ndim == 0 else total.mean())
