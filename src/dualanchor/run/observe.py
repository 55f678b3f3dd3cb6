"""What a run is connected to: progress, callback, interrupts, checkpoint; under MPI, decisions of all ranks."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dualanchor.core.callbacks import Intermediate, Progress
from dualanchor.core.finding import Finding
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.engines import engine_of
from dualanchor.engines.mpi import MPI

if TYPE_CHECKING:
    from dualanchor.run.checkpoint import Saver
    from dualanchor.run.driver import Driver

_PROGRESS_SECONDS = 0.1  # between two calls of the progress function


class NestedInterruptError(KeyboardInterrupt):
    """Ctrl-C has ended a run inside a sampler or callback of another run, which then ends at its last complete step."""


class Observer:
    """Calls progress and callback, saves checkpoints, and tells the run of interrupts; a context around the run.

    Ctrl-C ends the run after the present chunk of steps, and then the runs that it is nested in; a second one ends them
    at once.
    """

    signals: tuple[int, ...] = (signal.SIGINT,)
    collective = False  # whether several ranks decide together, so that chunks are one step
    _outer: Observer | None = None  # the observer of the run that this one is nested in

    def __init__(
        self,
        callback: Callable[[Result], bool] | None,
        progress: Callable[[Progress], Any] | None,
        saver: Saver | None = None,
    ) -> None:
        self._callback = callback
        self._progress = progress
        self._saver = saver
        self._signalled = False
        self._began = self._shown = time.perf_counter()

    def __enter__(self) -> Observer:
        self._began = self._shown = time.perf_counter()
        self._exit = ExitStack()
        if threading.current_thread() is threading.main_thread():
            outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
            self._outer = outer if isinstance(outer, Observer) else None
            for number in () if isinstance(outer, CollectiveObserver) else self.signals:  # there ranks end together
                self._exit.callback(signal.signal, number, signal.signal(number, self._on_signal))
        if (close := getattr(self._progress, "close", None)) is not None:
            self._exit.callback(close)
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        self._exit.close()
        if kind is None and self._outer is not None and self._signalled:
            raise NestedInterruptError

    def _on_signal(self, signum: int, frame: Any) -> None:
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True
        if self._outer is not None:
            self._outer._on_signal(signum, frame)

    @property
    def stepwise(self) -> bool:
        """Whether every step is reported."""
        return self._callback is not None

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, or was resumed."""
        return time.perf_counter() - self._began

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has asked the run to end."""
        return self._signalled

    def callback(self, present: Callable[[], Intermediate]) -> bool:
        """Call the callback, if there is one, with the run as it stands; returns whether it ends the run."""
        if self._callback is None:
            return False
        result = present()
        stop = self._callback(result)
        reference = weakref.ref(result)
        del result
        if (alive := reference()) is not None:  # somebody may read it later
            alive.complete()
        return stop

    def progress(self, now: Callable[[], Progress]) -> None:
        """Call the progress function, if there is one and it is time to."""
        if self._progress is not None and time.perf_counter() - self._shown > _PROGRESS_SECONDS:
            self._shown = time.perf_counter()
            self._progress(now())

    @property
    def save_is_due(self) -> bool:
        """Whether it is time to save a checkpoint."""
        return self._saver is not None and self._saver.due

    def save(self, run: Driver, failed: bool = False) -> None:
        """Save a checkpoint, if the run has one."""
        if self._saver is not None:
            self._saver.save(run, failed)

    def resume(self, run: Driver) -> None:
        """Put a run that has not begun into the state of its checkpoint, if there is one."""
        if self._saver is not None:
            self._saver.resume(run)

    @property
    def findings(self) -> list[Finding]:
        """Findings about the checkpoint."""
        return [] if self._saver is None else self._saver.findings


class CollectiveObserver(Observer):
    """The observer on each rank of an MPI job: what depends on a clock, a signal or a file is decided for all ranks.

    All ranks take the same steps, one by one. Ctrl-C on any rank and the clock of rank 0 are sent along with the sums
    of a round. Rank 0 alone writes checkpoints and calls callback and progress. Launchers turn Ctrl-C into SIGTERM.
    """

    signals = (signal.SIGINT, signal.SIGTERM)

    def __init__(
        self,
        engine: MPI,
        callback: Callable[[Result], bool] | None,
        progress: Callable[[Progress], Any] | None,
        saver: Saver | None,
    ) -> None:
        super().__init__(callback, progress if engine.rank == 0 else None, saver)
        self._engine = engine
        self._any_signalled = False  # on some rank
        self._save_is_due = False  # on rank 0
        self._elapsed = 0.0  # on rank 0

    def __enter__(self) -> Observer:
        super().__enter__()
        self._engine.couple(self._votes, self._receive)
        return self

    def _votes(self) -> tuple[float, ...]:
        """Whether this rank was interrupted; on rank 0 also whether to save, and the time. Ranks add them up."""
        if self._engine.rank:
            return float(self._signalled), 0.0, 0.0
        return float(self._signalled), float(super().save_is_due), super().elapsed

    def _receive(self, votes: Array) -> None:
        self._any_signalled = bool(votes[0]) or self._any_signalled
        self._save_is_due = bool(votes[1])
        self._elapsed = float(votes[2])

    stepwise = collective = True

    @property
    def elapsed(self) -> float:
        return self._elapsed

    @property
    def interrupted(self) -> bool:
        return self._any_signalled

    def callback(self, present: Callable[[], Intermediate]) -> bool:
        if self._callback is None:
            return False
        result = present()
        result.complete()  # by all ranks together
        return bool(self._engine.agree(lambda: super(CollectiveObserver, self).callback(lambda: result)))

    @property
    def save_is_due(self) -> bool:
        return self._save_is_due


def observer_of(
    oracle: Oracle,
    callback: Callable[[Result], bool] | None,
    progress: Callable[[Progress], Any] | None,
    saver: Saver | None = None,
) -> Observer:
    """The observer of a run on this oracle."""
    engine = engine_of(oracle)
    if isinstance(engine, MPI):
        return CollectiveObserver(engine, callback, progress, saver)
    return Observer(callback, progress, saver)
