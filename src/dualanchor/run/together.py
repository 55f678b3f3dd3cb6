"""A run that the ranks of an MPI job take in step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dualanchor.core.result import Result, Status
from dualanchor.core.types import Array, IntArray
from dualanchor.engines import engine_of
from dualanchor.engines.mpi import MPI
from dualanchor.run.checkpoint import Saver
from dualanchor.run.lane import Lane
from dualanchor.run.loop import Loop
from dualanchor.run.record import Recorder
from dualanchor.run.stop import Outlook, Rule


class Together(Loop):
    """The loop on every rank at once: whatever a clock, a signal or a file decides is decided for all of them.

    Each rank goes through the same steps one by one. Ctrl-C on any rank and the clock of rank 0 travel with the sums of
    a round. Rank 0 alone writes checkpoints and calls callback and progress.
    """

    def __init__(
        self,
        lane: Lane,
        rule: Rule | None,
        recorder: Recorder,
        *,
        callback: Callable[[Result], bool] | None,
        progress: Callable[..., Any] | None,
        saver: Saver | None,
        **options: Any,
    ) -> None:
        engine = engine_of(lane.session._oracle)
        assert isinstance(engine, MPI)
        self._engine, self._own = engine, saver
        self._agreed = self._due = False
        self._clock = 0.0
        super().__init__(
            lane,
            None if rule is None else _ByOneClock(rule, lambda: self._clock),
            recorder,
            callback=None if callback is None else lambda result: engine.agree(lambda: callback(result)),
            progress=progress if engine.rank == 0 else None,
            saver=None,
            **options,
        )
        self._stepwise = True
        if saver is not None:
            self._saver = _Shared(saver, self)

    def run(self) -> Result:
        self._engine.couple(self._votes, self._told)
        return super().run()

    def _votes(self) -> tuple[float, ...]:
        """What this rank has to say: that it was interrupted; and on rank 0 whether to save, and the time."""
        if self._engine.rank:
            return float(self._signalled), 0.0, 0.0
        due = self._own is not None and self._own.due
        return float(self._signalled), float(due), time.perf_counter() - self._began

    def _told(self, votes: Array) -> None:
        self._agreed = bool(votes[0]) or self._agreed
        self._due, self._clock = bool(votes[1]), float(votes[2])

    @property
    def _interrupted(self) -> bool:
        return self._agreed  # with all other ranks, so that they end at the same step


class _Shared(Saver):
    """The saver of all ranks: rank 0 writes and reads."""

    def __init__(self, own: Saver, run: Together) -> None:
        self._of_rank_0, self._run = own, run

    @property
    def due(self) -> bool:
        return self._run._due

    def save(self, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        self._run._engine.agree(lambda: self._of_rank_0.save(header, arrays))

    def load(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        return self._run._engine.agree(self._of_rank_0.load)


@dataclass(frozen=True)
class _ByOneClock(Rule):
    """A rule for which time is what the clock of rank 0 said last."""

    rule: Rule
    clock: Callable[[], float]

    @property
    def every(self) -> int | None:  # type: ignore[override]
        return self.rule.every

    def allowance(self, outlook: Outlook) -> int | IntArray:
        return self.rule.allowance(replace(outlook, elapsed=self.clock()))

    def reasons(self, outlook: Outlook) -> list[Status | None]:
        return self.rule.reasons(replace(outlook, elapsed=self.clock()))

    def leaves(self) -> list[Rule]:
        return self.rule.leaves()
