"""The loop: it knows rows, budgets and statuses, and no method by name."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import CheckpointError, OracleError
from dualanchor.core.method import State
from dualanchor.core.result import History, Result, Status
from dualanchor.core.streams import shared
from dualanchor.core.types import Array
from dualanchor.run.checkpoint import Saver
from dualanchor.run.lane import Lane, per_row
from dualanchor.run.outcome import Ended, assemble
from dualanchor.run.record import Recorder
from dualanchor.run.stop import UNLIMITED, Budget, Outlook, Rule, Target
from dualanchor.run.told import Progress

_REACH = 1024  # steps between two looks at the iterates, at most
_SECONDS = 0.25  # and about so long
_SNAPSHOT = 1 << 21  # states with more numbers than this are looked at after every step instead of copied
_POINTS = 1 << 21  # numbers of iterates that compiled steps keep until their residuals are recorded
_BUFFER = 128  # numbers; NumPy copies broadcast and strided rows that are shorter than its buffer into it


class Loop:
    """A run of one lane from its start, or from a checkpoint, to the end of its last row."""

    def __init__(
        self,
        lane: Lane,
        rule: Rule | None,
        recorder: Recorder,
        *,
        describe: dict[str, Any],
        shape: tuple[int, ...],
        callback: Callable[..., Any] | None,
        progress: Callable[[Progress], Any] | None,
        saver: Saver | None,
    ) -> None:
        self._lane, self._rule, self._recorder = lane, rule, recorder
        self._describe, self._shape = describe, shape
        self._callback, self._progress, self._saver = callback, progress, saver
        self._total = lane.rows.size
        self._ended: list[Ended] = []
        self._recorded_at = -1
        self._period = None if rule is None else rule.every
        # Taking several steps before looking at the iterates needs a way back: a copy, and samples that repeat.
        large = lane.rows.size * lane.state.x.shape[1] > _SNAPSHOT and not lane.has_compiled_steps
        self._stepwise = callback is not None or large
        self._watching = not lane.repeatable
        self._careful_until = 1  # the first step is looked at in any case
        self._reach = 1
        self._price = 0.0  # seconds of an evaluation, lately
        self._signalled = False
        self._taken_up: str | None = None
        self._to_be_continued = False  # ended for now, but its checkpoint goes on
        self._began = self._reported = time.perf_counter()

    def run(self) -> Result:
        """Go on until every row has ended."""
        if self._saver is not None and (saved := self._saver.load()) is not None:
            self._restore(*saved)
        self._began = self._reported = time.perf_counter()
        with arrays.quiet(), _fast_arrays(), self._interruptible():
            try:
                while self._lane.rows.size:
                    self._round()
            except OracleError as error:
                raise self._failed(error) from error
        if not self._to_be_continued:
            self._save()
        return self._result(self._ended)

    def _round(self) -> None:
        """Retire the rows that must stop, or let all of them take the steps up to the next event."""
        lane = self._lane
        if self._recorded_at != lane.k and self._recorder.wants(lane.k):
            self._record(lane)
        reach = 1 if self._stepwise or lane.k < self._careful_until else self._reach
        coins = lane.coins(reach)
        outlook = Outlook(
            k=lane.k,
            rows=lane.rows.size,
            evals=lane.session.evals,
            draws=lane.session.draws,
            ahead=lane.costs(reach, coins),
            elapsed=time.perf_counter() - self._began,
            residual=lane.residual,
        )
        allowance = np.asarray(UNLIMITED if self._rule is None else self._rule.allowance(outlook))
        if (left := lane.steps_left()) is not None:
            allowance = np.minimum(allowance, left)
        steps = int(allowance.min())
        if steps <= 0:
            self._retire_stopped(allowance <= 0, outlook)
            return
        reach = min(reach, self._affordable(outlook.ahead.evals))
        if steps > reach:  # which depends on the clock; where rows are checked must not
            steps = reach if reach < lane.every else reach - (lane.k + reach) % lane.every
        if self._period is not None:
            steps = min(steps, self._period - lane.k % self._period)
        watching = self._watching or self._stepwise or lane.k < self._careful_until
        if watching or not lane.sure:
            steps = min(steps, self._recorder.next_after(lane.k) - lane.k)
        if watching:
            self._watch(steps, outlook, coins)
        else:
            self._leap(steps, outlook, coins)
        self._report()

    def _watch(self, steps: int, outlook: Outlook, coins: Array | None) -> None:
        """Take the steps one by one, looking at all rows after each."""
        lane, clock = self._lane, time.perf_counter()
        lane.session.checking = True
        bounded = lane.watch(steps, coins)
        if bounded.all():
            self._pace(steps, outlook, time.perf_counter() - clock)
        else:
            self._end(lane.diverged(~bounded), bounded)

    def _leap(self, steps: int, outlook: Outlook, coins: Array | None) -> None:
        """Take the steps at once, recording on the way; if something goes wrong, go through them carefully next."""
        lane, clock = self._lane, time.perf_counter()
        wanted = self._recorder.between(lane.k, lane.k + steps)
        most = max(1, _POINTS // math.prod(lane.state.x.shape)) if lane.has_compiled_steps else len(wanted)
        if len(wanted) > most:
            wanted, steps = wanted[:most], wanted[most - 1] - lane.k
        found = lane.leap(steps, coins, [k - lane.k for k in wanted])
        if found is None:
            self._careful_until, self._reach = lane.k + steps, 1
            return
        self._pace(lane.k - outlook.k, outlook, time.perf_counter() - clock)
        if wanted := wanted[: len(found.residuals)]:
            after = np.array(wanted)[:, None] - outlook.k
            there = (found.gone_after == 0) | (after < found.gone_after)
            rows, ks = (np.broadcast_to(values, there.shape)[there] for values in (lane.rows, after + outlook.k))
            draws, evals = (spent[there] for spent in outlook.spent(after))
            known = [one for one in found.residuals if one is not None]
            self._recorder.add(rows, ks, draws, evals, np.stack(known)[there] if known else None)
            self._recorded_at = wanted[-1]
        if (gone := found.gone_after > 0).any():
            draws, evals = (spent[gone] for spent in outlook.spent(found.gone_after))
            self._end(
                replace(lane.diverged(gone), k=outlook.k + found.gone_after[gone], draws=draws, evals=evals), ~gone
            )

    def _pace(self, steps: int, outlook: Outlook, seconds: float) -> None:
        """How many steps to take next, after so many took so long: one, or as many as rows are checked after."""
        every, affordable = self._lane.every, int(_SECONDS * steps / max(seconds, 1e-9))
        self._reach = 1 if affordable < every else min(_REACH, max(every, 4 * steps), affordable)
        self._price = seconds / max(1.0, float(np.mean(outlook.ahead.evals[..., steps - 1])))

    def _affordable(self, evals: Array) -> int:
        """How many of the next steps, which take so many evaluations, are likely to end in time: batches may grow."""
        each = evals if evals.ndim == 1 else evals.mean(axis=0)
        count = int(np.searchsorted(self._price * each, _SECONDS, side="right"))
        return count if count >= self._lane.every else 1

    # -- rows that end ---------------------------------------------------------------------------------------

    def _end(self, gone: Ended, others: Array) -> None:
        """Write down rows that have left the finite numbers; the others (a mask) go on."""
        self._recorder.add(gone.rows, gone.k, gone.draws, gone.evals, gone.residual)
        self._ended.append(gone)
        self._lane = self._lane.take(others)
        fewer = max(self._lane.every, self._reach // 2)  # where one row leaves, others may follow
        self._reach = min(self._reach, fewer)

    def _retire_stopped(self, stopped: Array, outlook: Outlook) -> None:
        rows = np.broadcast_to(stopped, (outlook.rows,))
        left = self._lane.steps_left()
        at_horizon = np.broadcast_to(False if left is None else np.asarray(left) <= 0, rows.shape)
        reasons = [None] * outlook.rows if self._rule is None else self._rule.reasons(outlook)
        status = [Status.HORIZON if at else reason for at, reason in zip(at_horizon, reasons, strict=True)]
        if Status.WALL_TIME in status:
            self._leave_checkpoint()
        self._retire(rows, [one for one, stop in zip(status, rows, strict=True) if stop and one is not None])

    def _retire(self, rows: Array, status: list[Status]) -> None:
        lane, others = self._lane, self._lane.take(~rows)
        ending = lane if rows.all() else lane.take(rows)
        if self._recorded_at != lane.k:
            self._recorder.add(ending.rows, ending.k, ending.session.draws, ending.session.evals, ending.residual())
        self._ended.append(ending.ended(np.ones(ending.rows.size, bool), status))
        self._lane = others

    def _retire_all(self, status: Status) -> None:
        if self._lane.rows.size:
            self._retire(np.ones(self._lane.rows.size, bool), [status] * self._lane.rows.size)

    def _failed(self, error: OracleError) -> OracleError:
        """Keep what there is, and say where the oracle failed."""
        lane = self._lane
        row = None if error.row is None else int(lane.rows[error.row])
        located = error.located(lane.k, row, self._place(row))
        spent = lane.session.mark()
        lane.session.reset(lane.mark or spent)  # a run that goes on from here takes the failed step again
        self._save()
        lane.session.reset(spent)
        everyone = np.ones(lane.rows.size, bool)
        self._ended.append(lane.ended(everyone, [Status.FAILED] * lane.rows.size))
        located.result = self._result(self._ended)
        return located

    def _place(self, row: int | None) -> str:
        if row is None:
            return "all rows" if self._total > 1 else "row 0"
        if len(self._shape) == 2:
            configuration, replication = divmod(row, self._shape[1])
            return f"row {row} (configuration {configuration}, replication {replication})"
        return f"row {row}"

    # -- telling the world -----------------------------------------------------------------------------------

    def _record(self, lane: Lane) -> None:
        rows = lane.rows
        self._recorder.add(rows, lane.k, lane.session.draws, lane.session.evals, lane.residual())
        self._recorded_at = lane.k

    def _report(self) -> None:
        if self._callback is not None and self._lane.rows.size:
            everyone = np.ones(self._lane.rows.size, bool)
            present = self._lane.take(everyone).ended(everyone, [Status.RUNNING] * self._lane.rows.size)  # a copy
            if self._callback(self._result([*self._ended, present])):
                self._retire_all(Status.CALLBACK)
        if self._interrupted:
            self._leave_checkpoint()
            self._retire_all(Status.INTERRUPTED)
        now = time.perf_counter()
        if self._progress is not None and now - self._reported > 0.1:
            self._reported = now
            self._progress(self._where(now))
        if self._saver is not None and self._saver.due:
            self._save()

    def _where(self, now: float) -> Progress:
        lane = self._lane
        evals = int(np.max(lane.session.evals))
        budgets = [] if self._rule is None else [r.evals for r in self._rule.leaves() if isinstance(r, Budget)]
        parts = [evals / budget for budget in budgets]
        if lane.method.steps:
            parts.append(lane.k / lane.method.steps)
        fraction = min(1.0, max(parts)) if parts else None
        return Progress(lane.k, fraction, lane.rows.size, self._total, evals, now - self._began)

    @property
    def _interrupted(self) -> bool:
        """Whether the run is to end here."""
        return self._signalled

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the run after the present step; a second one ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(signum: int, frame: Any) -> None:
            if self._signalled:
                raise KeyboardInterrupt
            self._signalled = True

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _result(self, ended: list[Ended]) -> Result:
        leaves = [] if self._rule is None else self._rule.leaves()
        target = min((rule.eps for rule in leaves if isinstance(rule, Target)), default=None)
        result = assemble(ended, self._recorder.history(), self._shape, self._describe, target)
        return replace(result, notes=(*result.notes, self._taken_up)) if self._taken_up else result

    # -- checkpoints -----------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._saver is None or self._to_be_continued:
            return
        lane, pieces = self._lane, list(self._ended)
        if lane.rows.size:
            pieces.append(lane.ended(np.ones(lane.rows.size, bool), [Status.RUNNING] * lane.rows.size))
        header = {
            "k": lane.k,
            "recorded_at": self._recorded_at,
            "status": [[one.name for one in piece.status] for piece in pieces],
        }
        saved = {f"history/{name}": value for name, value in vars(self._recorder.history()).items()}
        saved["position"] = per_row(lane.session.mark()[2], lane.rows.size)
        for i, piece in enumerate(pieces):
            saved |= {f"{i}/state/{name}": arrays.to_host(value) for name, value in vars(piece.state).items()}
            saved |= {f"{i}/{name}": getattr(piece, name) for name in ("rows", "k", "draws", "evals")}
            if piece.residual is not None:
                saved[f"{i}/residual"] = piece.residual
        self._saver.save(header, saved)

    def _leave_checkpoint(self) -> None:
        """Save the run as it stands; what ends now goes on when it is taken up."""
        self._save()
        self._to_be_continued = True

    def _restore(self, header: dict[str, Any], saved: dict[str, Array]) -> None:
        try:
            history = {name: saved[f"history/{name}"] for name in ("row", "k", "draws", "evals", "residual")}
            self._recorder.restore(History(**history))
            self._recorded_at = int(header["recorded_at"])
            running: Ended | None = None
            for i, names in enumerate(header["status"]):
                piece = _piece(i, [Status[name] for name in names], saved, self._lane.state.x)
                if piece.status[0] is Status.RUNNING:
                    running = piece
                else:
                    self._ended.append(piece)
            rows = np.zeros(0, np.int64) if running is None else running.rows
            lane = self._lane.take(rows)
            if running is not None:
                lane.state = running.state
                position = shared(saved["position"])
                lane.session.reset((shared(running.draws), shared(running.evals), position))
            lane.k = int(header["k"])
            self._careful_until = lane.k + 1
            self._lane = lane
            self._taken_up = (
                f"went on from a checkpoint of step {lane.k}; it does not show whether a function has changed"
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise CheckpointError(
                "A checkpoint must hold everything that the run had written",
                f"a file without {error}",
                "Delete it to start anew",
            ) from error


@contextmanager
def _fast_arrays() -> Iterator[None]:
    """Settings under which NumPy computes with rows of a few hundred numbers without needless copies and pages."""
    arrays.keep_memory()
    before = np.setbufsize(_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


def _piece(i: int, status: list[Status], saved: dict[str, Array], x: Array) -> Ended:
    prefix = f"{i}/state/"
    names = [name[len(prefix) :] for name in saved if name.startswith(prefix)]
    state = State(**{name: arrays.like(saved[prefix + name], x) for name in names})
    columns = {name: saved[f"{i}/{name}"] for name in ("rows", "k", "draws", "evals")}
    return Ended(state=state, status=status, residual=saved.get(f"{i}/residual"), **columns)
