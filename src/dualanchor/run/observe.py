"""What goes on around a run: progress, callback, interrupts, and the clock by which checkpoints are due."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from dualanchor.core.callbacks import Intermediate, Progress
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.engines import engine_of
from dualanchor.engines.mpi import MPI

if TYPE_CHECKING:
    from dualanchor.run.checkpoint import Saver

_PROGRESS_SECONDS = 0.1  # between two calls of the progress function


class NestedInterruptError(KeyboardInterrupt):
    """Ctrl-C has ended a run inside a sampler or callback of another run, which then ends at its last complete step."""


class Observer:
    """Calls progress and callback, and tells the run of interrupts and when to save; a context around the run.

    Ctrl-C ends the run after the present chunk of steps, and then the runs that it is nested in; a second one ends them
    at once.

    On the ranks of an MPI job, all of which take the same steps, one by one, what depends on a clock or a signal is
    decided for all: interrupts of any rank, and the clock of rank 0, are sent along with the sums of a round. Rank 0
    alone calls callback and progress. Launchers turn Ctrl-C into SIGTERM.
    """

    _outer: Observer | None = None  # the observer of the run that this one is nested in

    def __init__(
        self,
        oracle: Oracle,
        callback: Callable[[Result], bool] | None,
        progress: Callable[[Progress], Any] | None,
        saver: Saver | None = None,
    ) -> None:
        engine = engine_of(oracle)
        self._ranks = engine if isinstance(engine, MPI) else None
        self.collective = self._ranks is not None  # whether several ranks decide together, so that chunks are one step
        self.stepwise = self.collective or callback is not None  # whether every step is reported
        self.saver = saver
        self._callback = callback
        self._progress = None if self._ranks is not None and self._ranks.rank else progress
        self._signalled = False
        self._votes: tuple[float, ...] = (0.0, 0.0, 0.0)  # of all ranks, added up
        self._began = self._shown = time.perf_counter()

    def __enter__(self) -> Observer:
        self._began = self._shown = time.perf_counter()
        self._exit = ExitStack()
        if threading.current_thread() is threading.main_thread():
            outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
            self._outer = outer if isinstance(outer, Observer) else None
            signals = (signal.SIGINT, signal.SIGTERM) if self.collective else (signal.SIGINT,)
            for number in () if self._outer is not None and self._outer.collective else signals:  # ranks end together
                self._exit.callback(signal.signal, number, signal.signal(number, self._on_signal))
        if (close := getattr(self._progress, "close", None)) is not None:
            self._exit.callback(close)
        if self._ranks is not None:
            self._ranks.couple(self._vote, self._receive)
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

    def _vote(self) -> tuple[float, ...]:
        """Whether this rank was interrupted; on rank 0 also whether to save, and the time."""
        if self._ranks is not None and self._ranks.rank:
            return float(self._signalled), 0.0, 0.0
        is_due = self.saver is not None and self.saver.due
        return float(self._signalled), float(is_due), time.perf_counter() - self._began

    def _receive(self, votes: Array) -> None:
        self._votes = tuple(votes.tolist())

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, or was resumed."""
        return time.perf_counter() - self._began if self._ranks is None else self._votes[2]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has asked the run to end."""
        return self._signalled if self._ranks is None else self._votes[0] > 0

    @property
    def save_is_due(self) -> bool:
        """Whether it is time to save a checkpoint."""
        return self._votes[1] > 0 if self._ranks is not None else self.saver is not None and self.saver.due

    def callback(self, present: Callable[[], Intermediate]) -> bool:
        """Call the callback, if there is one, with the run as it stands; returns whether it ends the run."""
        if (callback := self._callback) is None:
            return False
        result = present()
        if self._ranks is not None:
            result.complete()  # by all ranks together
            return bool(self._ranks.agree(partial(callback, result)))
        stop = callback(result)
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
