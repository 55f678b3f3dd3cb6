"""Batches computed by the ranks of an MPI job, all of which run the same program."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from math import isnan, nan
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, CapabilityError, OracleError, missing_extra
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.engines.base import Engine, Latency, Loaded
from dualanchor.engines.share import Failure, Ticket, nan_failure, of_rows, shares, sums_of, too_late

_ASK, _HERE, _VERDICT = 7101, 7102, 7103  # tags of the messages about a rank that does not answer
_GRACE = 2.0  # seconds in which a rank that is waiting too says so
_PATIENT = 1e-3  # seconds after which a rank that waits with a timeout sleeps between looks
_MAIN = threading.main_thread().ident
_DUPLICATES: dict[int, Any] = {}  # one for each communicator, so that messages of engines meet no others
VOTES = 3
"""Numbers that travel beside every sum: see `couple`."""


class MPI(Engine):
    """Batches computed by all ranks of a communicator.

    Start the program with `mpiexec -n 4 python program.py`. Every rank runs the same solver on the same streams and
    computes its share of each batch; one Allreduce per round adds the shares up. A rank that fails makes the sum NaN,
    and then everybody asks everybody what happened. Only rank 0 writes checkpoints and calls callbacks and progress;
    results are the same on all ranks. A program that prints asks for `engine.rank == 0` first.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        COMM_WORLD if left out. The engine works on a duplicate of it.
    workers : int, optional
        If given, it must be the number of ranks.
    timeout : float, optional
        Seconds that a rank waits for others which have not finished their share. They are then reported, and the whole
        job is aborted when the program ends.

    Notes
    -----
    Sums are those of one worker to rounding: the order in which MPI adds shares depends on the number of ranks.

    All ranks must make the same calls in the same order. Threads of a program would not, so only its main thread may
    use the engine.
    """

    collective = True

    def __init__(self, comm: Any = None, workers: int | None = None, timeout: float | None = None) -> None:
        super().__init__(timeout)
        try:
            from mpi4py import MPI as mpi  # noqa: N811
        except ImportError as error:
            raise missing_extra("mpi4py", "mpi", "engine='mpi'") from error
        except RuntimeError as error:  # mpi4py is there, but no MPI library
            raise missing_extra("an MPI library, such as openmpi", "mpi", "engine='mpi'") from error
        self._mpi, self._in_place = mpi, mpi.IN_PLACE
        comm = mpi.COMM_WORLD if comm is None else comm
        if (handle := comm.py2f()) not in _DUPLICATES:
            _DUPLICATES[handle] = comm.Dup()
        self.comm = _DUPLICATES[handle]
        self.rank, self.workers = self.comm.Get_rank(), self.comm.Get_size()
        if workers not in (None, self.workers):
            raise ArgumentError(
                f"MPI: workers is the number of ranks, {self.workers}",
                workers,
                "Start the program with mpiexec -n " + str(workers),
            )
        self._broken: OracleError | None = None
        self._last: Any = None  # what the last round was about
        self._votes = np.zeros(VOTES)  # used again in every round
        self._ask: Callable[[], tuple[float, ...]] | None = None
        self._tell: Callable[[Array], None] | None = None

    def couple(self, ask: Callable[[], tuple[float, ...]], tell: Callable[[Array], None]) -> None:
        """Let numbers of each rank travel with every sum; `tell` gets their sums over ranks, the same everywhere."""
        self._ask, self._tell = ask, tell

    def _admit(self) -> None:
        if threading.get_ident() != _MAIN:
            raise CapabilityError(
                "MPI: rounds must have the same order on all ranks, so only the main thread may ask for them",
                f"a call in {threading.current_thread().name}",
                "Call it in the main thread, or use Local in threads",
            )

    def compute(self, loaded: Loaded, x: Array, ticket: Ticket, batch: Batch) -> Array:
        self._admit()  # the main thread only, so there is nobody to wait for
        return self.total(loaded, x, ticket, batch)

    def total(self, loaded: Loaded, x: Array, ticket: Ticket, batch: Batch) -> Array:
        if self._broken is not None:
            raise OracleError(*self._broken.parts)
        oracle = of_rows(loaded.oracle, ticket)
        mine = shares(oracle.cut(batch), self.workers)[self.rank]
        self._last = oracle, batch, x, mine
        try:
            found = sums_of(oracle, batch, x, mine)
            total = _share(x, found)
            self._add_up(total, x)
            if isnan(total.item(0)):
                self._raise_first(found if isinstance(found, Failure) else None, x)
        except OracleError:
            raise
        except BaseException as error:
            self._leave(error, x)
            raise
        return total

    def trace_nan(self) -> None:
        """Called by all ranks: each computes its share, which the total has overwritten, once more."""
        x = self._last[2]
        try:
            found = sums_of(*self._last)
            failures = [found] if isinstance(found, Failure) else [nan_failure(x, value) for value in found]
            if self.timeout is not None:
                self._wait([self.comm.Ibarrier()], x, self.timeout)
            self._raise_first(next(filter(None, failures), None), x)
        except OracleError:
            raise
        except BaseException as error:
            self._leave(error, x)
            raise

    def agree(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises on rank 0, on all ranks."""
        if self._broken is not None:
            return function() if self.rank == 0 else None
        answer: tuple[Any, Exception | None] = (None, None)
        if self.rank == 0:
            try:
                answer = function(), None
            except Exception as error:
                answer = None, error
        value, raised = self.comm.bcast(answer)
        if raised is not None:
            raise raised
        return value

    def measure(self, dimension: int = 1000) -> Latency:
        """As for other engines, called by all ranks; all get the numbers of rank 0."""
        return self.comm.bcast(super().measure(dimension))

    # -- failures --------------------------------------------------------------------------------------------

    def _raise_first(self, failure: Failure | None, x: Array) -> None:
        """Raise what the first of the failed ranks reports, on all of them."""
        for rank, other in enumerate(self.comm.allgather(failure)):
            if isinstance(other, Failure):
                raise other.error(f"worker {rank} (rank {rank})", x)

    def _add_up(self, total: Array, x: Array) -> None:
        """Add up over ranks, in place: the shares, and beside them, at the same time, the votes if there are any."""
        comm, in_place = self.comm, self._in_place
        if self.timeout is None and self._ask is None:
            comm.Allreduce(in_place, total)
            return
        requests = []
        if self._ask is not None:
            self._votes[:] = self._ask()
            requests.append(comm.Iallreduce(in_place, self._votes))
        if self.timeout is None:
            comm.Allreduce(in_place, total)
            for request in requests:
                request.Wait()
        else:
            self._wait([*requests, comm.Iallreduce(in_place, total)], x, self.timeout)
        if self._tell is not None:
            self._tell(self._votes)

    def _wait(self, requests: list[Any], x: Array, timeout: float) -> None:
        """Wait for sums, answer those who ask whether this rank waits too, and find out who does not."""
        began = time.monotonic()
        heard: set[int] | None = None
        while not self._mpi.Request.Testall(requests):
            waited = time.monotonic() - began
            if waited > _PATIENT:
                time.sleep(1e-4)
                status = self._mpi.Status()
                while self.comm.iprobe(tag=self._mpi.ANY_TAG, status=status):
                    message = self.comm.recv(source=status.source, tag=status.tag)
                    if status.tag == _ASK:
                        self.comm.isend(None, status.source, _HERE)
                    elif status.tag == _VERDICT:
                        raise self._given_up(message, x)
                    elif heard is not None:
                        heard.add(status.source)
            if heard is None and waited > timeout:
                heard = {self.rank}
                self._to_others(_ASK, None)
            elif heard is not None and waited > timeout + _GRACE:
                if missing := sorted(set(range(self.workers)) - heard):
                    self._to_others(_VERDICT, missing)
                    raise self._given_up(missing, x)
                began, heard = time.monotonic(), None  # all have arrived by now

    def _leave(self, error: BaseException, x: Array) -> None:
        """Leave the others behind, who are waiting, as after a second Ctrl-C."""
        self._give_up(Failure(("Ranks must stay together", repr(error), "Start again"), None, None, None), x)

    def _to_others(self, tag: int, message: Any) -> None:
        for rank in range(self.workers):
            if rank != self.rank:
                self.comm.isend(message, rank, tag)

    def _given_up(self, missing: list[int], x: Array) -> OracleError:
        assert self.timeout is not None
        who = ", ".join(f"worker {rank} (rank {rank})" for rank in missing)
        return self._give_up(too_late(self.timeout, "Mend the sampler, or allow more time"), x, who)

    def _give_up(self, failure: Failure, x: Array, who: str = "this rank") -> OracleError:
        """Out of step for good: from now on nothing is sent, and the job is aborted when this program ends."""
        if self._broken is None:
            self._broken = failure.error(who, x)
            atexit.register(self._abort)
        return self._broken

    def _abort(self) -> None:
        if self.rank:
            time.sleep(_GRACE)  # rank 0 may still be writing a checkpoint
        self.comm.Abort(1)


def _share(x: Array, found: list[Array] | Failure) -> Array:
    """The sum of what a rank found, in an array that MPI can write to; NaN if it failed."""
    if isinstance(found, Failure):
        return np.full(x.shape, nan, x.dtype)
    if len(found) == 1 and found[0].flags.carray:
        return found[0]
    total = np.zeros(x.shape, x.dtype)
    for value in found:
        total += value
    return total
