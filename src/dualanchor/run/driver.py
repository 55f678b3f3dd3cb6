"""The driver: advances active rows by chunks of steps, checks them, records, and retires rows that have ended.

There is one way to take a step. All active rows advance by a chunk of steps without being checked: up to the next event
(a recorded step, a stopping rule, a horizon) or to the next multiple of CHECK_INTERVAL. Then they are checked once: is
each iterate finite and small enough to be squared? Rows that are not go back to where the chunk began and take the same
steps one by one, to find the step at which each diverged; after an error all rows go back, and the step that fails
again says where. Where steps are slow, or cannot be repeated, a chunk is one step. The driver knows no method by name.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.callbacks import Intermediate
from dualanchor.core.errors import OracleError
from dualanchor.core.finding import Finding
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Mark
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array
from dualanchor.run.observe import NestedInterruptError, Observer
from dualanchor.run.outcome import Running, assemble, progress_of, row_name
from dualanchor.run.record import Recorder
from dualanchor.run.rows import COMPILED_INTERVAL, WINDOW, ActiveRows, Ended
from dualanchor.run.stop import Outlook, Rule, Target, require_allowed

CHECK_INTERVAL = 128  # steps between two checks; a number, so that where rows are checked does not depend on the clock
_CHUNK_SECONDS = 0.25  # a chunk that is expected to take longer is one step
_SNAPSHOT_SIZE = 1 << 21  # a state with more numbers than this is checked after every step instead of being copied


class Driver:
    """A run from its start, or from a checkpoint, to the end of its last row.

    `active` is a stack of groups of rows that take the same steps; the last one advances until it ends or is split.
    `start` (replications, d) are the points that diverged rows return to. `shape` and `about` (problem, method, seed)
    are those of the result.
    """

    def __init__(
        self,
        active: list[ActiveRows],
        start: Array,
        rule: Rule,
        recorder: Recorder,
        observer: Observer,
        shape: tuple[int, ...],
        about: dict[str, Any],
    ) -> None:
        self.active = active
        self.ended: list[Ended] = []
        self.recorder = recorder
        self.findings: list[Finding] = []
        self._start = start
        self._start_residual: Array | None = None
        self._rule = rule
        self._observer = observer
        self._shape = shape
        self._about = about
        self._total = sum(rows.count for rows in active)
        self._seconds_per_eval = 0.0  # of the last chunk
        self._before_failure: Mark | None = None  # the counts and positions before a step that failed
        for rows in active:
            oracle = rows.session.oracle
            if recorder.from_samples and not (oracle.knows_operator or oracle.traceable or rows.certifies):
                rows.trail = Trail.along(rows.state.x)

    def run(self) -> Result:
        """Continue until every row has ended."""
        with arrays.quiet(), self._observer:
            try:
                self._measure_start()
                if self._observer.saver is not None:
                    self._observer.saver.resume(self)
                require_allowed(self._rule, self.active, self.ended)
                while self.active:
                    if self._advance_or_retire(self.active[-1]):
                        self._end_stage()
                        self._report()
            except NestedInterruptError:
                if self._before_failure is not None:
                    self.active[-1].session.reset(self._before_failure)
                self._interrupt()
            except OracleError as error:
                raise self._failed(error) from error
        self._save()
        return self._result(self.ended)

    def _measure_start(self) -> None:
        """The true residual of each row at the start, where F is known."""
        residuals = [residual for rows in self.active if (residual := rows.residual()) is not None]
        if residuals:
            order = np.argsort(np.concatenate([rows.rows for rows in self.active]))
            self._start_residual = np.concatenate(residuals)[order]

    def _advance_or_retire(self, rows: ActiveRows) -> bool:
        """Advance rows to the next event or, if some of them must stop, retire those; returns whether they advanced."""
        if rows.diverged_by is not None and rows.k >= rows.diverged_by:
            # The chunk had diverged by this step; taken again, with samples that do not repeat, it has not.
            self._retire_diverged(rows, np.zeros(rows.count, bool))
            return False
        if rows.recorded != rows.steps and self.recorder.wants(rows.steps):
            self._record(rows)

        alone = rows.k < rows.checked_until or not self._can_go_back(rows) or self._observer.collective
        reported = self._observer.stepwise and not alone  # steps are planned together, taken and reported one by one
        compiled = rows.compiled and not (alone or reported)
        samples_only = not rows.session.oracle.knows_operator  # then the first and the last samples are compared
        opening = samples_only and rows.steps < WINDOW
        interval = COMPILED_INTERVAL if compiled else CHECK_INTERVAL
        chunk = interval - rows.k % interval
        if alone or opening:  # a compiled chunk notes the samples of its last steps itself
            chunk = WINDOW - rows.steps if compiled else 1
        coins = rows.tosses(chunk + WINDOW)
        outlook = Outlook(
            k=rows.steps,
            rows=rows.count,
            evals=rows.session.evals,
            draws=rows.session.draws,
            ahead=rows.costs(chunk + WINDOW, coins),
            elapsed=self._observer.elapsed,
            residual=rows.residual,
        )
        allowance = np.asarray(self._rule.allowance(outlook))
        remaining = rows.remaining()
        steps_left = int(allowance.min() if remaining is None else np.minimum(allowance, remaining).min())
        if steps_left <= 0:
            self._stop(rows, allowance, outlook)
            return False

        count = min(steps_left, chunk, self.recorder.next_after(rows.steps) - rows.steps)
        if self._rule.every is not None:
            count = min(count, self._rule.every - rows.steps % self._rule.every)
        evals = outlook.ahead.evals if outlook.ahead.evals.ndim == 1 else outlook.ahead.evals.mean(axis=0)
        seconds = self._seconds_per_eval * evals[count - 1]
        if seconds > _CHUNK_SECONDS:  # one compiled step takes as long as hundreds: it is mostly the call
            count = max(1, int(count * _CHUNK_SECONDS / seconds)) if compiled else 1
        noted = min(count, max(0, count + WINDOW - steps_left)) if samples_only and not compiled else 0
        began = time.perf_counter()
        advanced = True
        if reported or (count == 1 and not compiled):
            advanced = self._advance_checked(rows, count, coins, max(noted, int(opening)))
        else:
            self._advance_unchecked(rows, count, coins, noted)
        self._seconds_per_eval = (time.perf_counter() - began) / max(1.0, evals[count - 1])
        return advanced

    # -- steps -----------------------------------------------------------------------------------------------

    def _can_go_back(self, rows: ActiveRows) -> bool:
        return rows.session.oracle.replayable is not False and rows.state.x.shape[1] * rows.count <= _SNAPSHOT_SIZE

    def _advance_unchecked(self, rows: ActiveRows, count: int, coins: Array | None, noted: int) -> None:
        """Take steps without checks in between, and note the samples of the last `noted`.

        Rows for which that went wrong go back, to take the steps one by one.
        """
        before = rows.snapshot()
        until = rows.k + count
        try:
            rows.session.checking = False
            seen = [rows.advance(count - noted, coins)]
            rows.session.checking = True
            for step in range(count - noted, count):
                seen.append(rows.advance(1, None if coins is None else coins[:, step:]))
        except NestedInterruptError:
            rows.restore(before)
            raise
        except Exception:  # of whatever kind: the step that fails again says where
            rows.restore(before)
            rows.checked_until = until
            return
        bounded = rows.bounded()
        if not bounded.all():
            others = [rows.take(bounded)] if bounded.any() else []
            rows.restore(before)
            rows.checked_until = rows.diverged_by = until
            self.active[-1:] = [*others, rows.take(~bounded)]
        if bounded.any() and not rows.session.oracle.knows_operator:
            self.active[-1 if bounded.all() else -2].note_samples(np.concatenate(seen)[:, bounded])

    def _advance_checked(self, rows: ActiveRows, count: int, coins: Array | None, noted: int) -> bool:
        """Take steps one by one until a row diverges, and note the samples of the last `noted`.

        All but the last are reported; returns whether that one is still to be reported.
        """
        for step in range(count):
            if step:
                self._report()
                if not self.active:  # the callback or an interrupt has ended the run
                    return False
            rows.session.checking = True
            mark = rows.session.mark()
            try:
                seen = rows.advance(1, None if coins is None else coins[:, step:])
            except (OracleError, NestedInterruptError):
                self._before_failure = mark
                raise
            if step >= count - noted:
                rows.note_samples(seen)
            bounded = rows.bounded()
            if not bounded.all():
                self._retire_diverged(rows, bounded)
                break
        return True

    # -- rows that end ---------------------------------------------------------------------------------------

    def _retire_diverged(self, rows: ActiveRows, bounded: Array) -> None:
        """Let the unbounded rows enter the stage with which a method recovers, or retire them at the start."""
        unbounded = rows.take(~bounded)
        if unbounded.trail is not None:
            unbounded.trail.clear()
        if (chosen := unbounded.recover()) is not None:
            self._enter(rows, bounded, *unbounded.enter_chosen(chosen))
            return
        diverged = unbounded.ended([Status.DIVERGED] * int(np.count_nonzero(~bounded)))
        if not rows.certifies:  # else a certificate has chosen the point
            diverged.state.x = arrays.take(self._start, diverged.rows % len(self._start))
        self.recorder.add(diverged.rows, diverged.k, diverged.draws, diverged.evals, diverged.residual)
        self._replace(rows, diverged, bounded)

    def _stop(self, rows: ActiveRows, allowance: Array, outlook: Outlook) -> None:
        """Retire the rows that may not take another step, or let them enter their next stage."""
        at_end = rows.at_end()
        if not at_end.any():
            stopped = np.broadcast_to(allowance <= 0, (rows.count,))
            self._retire(rows, stopped, [status for status in self._rule.reasons(outlook) if status is not None])
        elif rows.levels:
            self._next_stage(rows, at_end)
        else:
            self._retire(rows, at_end, [Status.HORIZON] * int(np.count_nonzero(at_end)), final=True)

    def _end_stage(self) -> None:
        """Let rows whose stage has ended with the last step enter their next one."""
        rows = self.active[-1] if self.active else None
        if rows is not None and rows.levels and (at_end := rows.at_end()).any():
            self._next_stage(rows, at_end)

    def _next_stage(self, rows: ActiveRows, at_end: Array) -> None:
        """Let rows (a mask) enter their next stages; one without a next stage has ended."""
        ending = rows if at_end.all() else rows.take(at_end)
        if ending.trail is not None and ending.recorded != ending.steps:
            self._record(ending)
        mark = rows.session.mark()
        memories = [level.memory.copy() for level in ending.levels]
        try:
            following, finished = ending.next_stages()  # draws samples
        except (OracleError, NestedInterruptError):
            self._before_failure = mark  # a resumed run chooses again
            for level, memory in zip(ending.levels, memories, strict=True):
                vars(level.memory).update(vars(memory))
            raise
        self._enter(rows, ~at_end, following, finished)

    def _enter(self, rows: ActiveRows, others: Array, following: list[ActiveRows], finished: list[ActiveRows]) -> None:
        """Replace rows by the `others` among them (a mask) and by groups that go on with a stage, or have ended."""
        assert self.active.pop() is rows
        if others.any():
            self.active.append(rows.take(others))
        for group in (*following, *finished):
            if group.observed is not None:
                self.recorder.add(group.rows, group.steps, group.session.draws, group.session.evals, group.observed)
                group.observed, group.recorded = None, group.steps
        self.active += following
        for last in finished:
            self.active.append(last)
            level = last.levels[0]
            self._retire(last, np.ones(last.count, bool), level.method.outcome(level.memory), final=True)

    def _retire(self, rows: ActiveRows, stopped: Array, status: list[Status], final: bool = False) -> None:
        """Retire rows (a mask) that the method has ended (`final`), or that were stopped and may continue later."""
        ending = rows if stopped.all() else rows.take(stopped)
        trail = ending.trail and ending.trail.take(np.arange(ending.count))  # without the end, which is recorded next
        resumable = None if final else replace(ending, trail=trail)
        if ending.recorded != ending.steps:
            self._record(ending)
        self._replace(rows, replace(ending.ended(status), resumable=resumable), ~stopped)

    def _replace(self, rows: ActiveRows, ended: Ended, others: Array) -> None:
        """Replace the present group by its rows (a mask) that go on; the rest has ended."""
        self.ended.append(ended)
        assert self.active.pop() is rows
        if others.any():
            self.active.append(rows.take(others))

    def _retire_all(self, status: Status) -> None:
        for rows in self.active[::-1]:
            self._retire(rows, np.ones(rows.count, bool), [status] * rows.count)

    def _failed(self, error: OracleError) -> OracleError:
        """The error with the place where the oracle failed and the result so far, after a checkpoint was saved."""
        rows = self.active[-1]
        row = None if error.row is None else int(rows.rows[error.row])
        located = error.located(rows.steps, row, row_name(row, self._shape))
        spent = rows.session.mark()
        rows.session.reset(self._before_failure or spent)  # a resumed run takes the failed step again
        self._save(failed=True)
        rows.session.reset(spent)
        failed = [group.ended([Status.FAILED] * group.count) for group in self.active]
        located.result = self._result([*self.ended, *failed])
        return located

    # -- records, callbacks, results -------------------------------------------------------------------------

    def _result(self, ended: list[Ended]) -> Result:
        target = min((rule.eps for rule in self._rule.of(Target)), default=None)
        history = self.recorder.history()
        result = assemble(ended, self._start_residual, history, self._shape, self._about, target)
        saved = [] if self._observer.saver is None else self._observer.saver.findings
        return replace(result, findings=(*result.findings, *self.findings, *saved))

    def _record(self, rows: ActiveRows) -> None:
        """Record the residuals of rows; of a method that certifies, that is done where stages end."""
        if rows.certifies:
            return
        residual, seen = rows.residual(), (0.0, 0)
        if rows.trail is not None:
            squares, samples, rounds = rows.trail.estimate()
            residual, seen = np.sqrt(squares), (samples, rounds)
            rows.trail.clear()
        self.recorder.add(rows.rows, rows.steps, rows.session.draws, rows.session.evals, residual, seen, rows.stage)
        rows.recorded = rows.steps

    def _report(self) -> None:
        """Callback, interrupts, progress and checkpoint, between two chunks."""
        observer = self._observer
        if self.active and observer.callback(self._present):
            self._retire_all(Status.CALLBACK)
        if observer.interrupted:
            self._interrupt()
        if self.active:
            observer.progress(lambda: progress_of(self.active, self._total, self._rule, observer.elapsed))
        if observer.save_is_due:
            self._save()

    def _interrupt(self) -> None:
        self._save()  # before the residuals at the end, which may take long
        self._retire_all(Status.INTERRUPTED)

    def _save(self, failed: bool = False) -> None:
        """Save a checkpoint, if the run has one."""
        if self._observer.saver is not None:
            self._observer.saver.save(self, failed)

    def _present(self) -> Intermediate:
        return Intermediate.of(Running(self.ended, self.active, self._shape, self._about, self._result))
