"""Batches computed by the ranks of an MPI job, all of which run the same program."""

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from math import isclose, isnan, nan
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, CapabilityError, OracleError, missing_extra
from dualanchor.core.files import jsonable
from dualanchor.core.oracle import Batch
from dualanchor.core.session import one_sample
from dualanchor.core.types import Array
from dualanchor.engines.base import Engine, Latency, LoadedOracle
from dualanchor.engines.protocol import BatchSpec, Failure, assign, span_sums
from dualanchor.oracles.shards import Shardable, ShardedData

VOTES = 3  # numbers that are summed over ranks along with every total: see `MPI.couple`

_WAITING = 7101  # tag of the messages by which ranks tell each other that they wait for a round
_GRACE = 2.0  # seconds, after the timeout, that ranks have to say that they are waiting too
_SPIN = 1e-3  # seconds for which a rank polls without sleeping, if there is a timeout
_MAIN = threading.main_thread().ident
_DUPLICATES: dict[int, Any] = {}  # of communicators, so that messages of engines are not mixed with the user's


class MPI(Engine):
    """Batches computed by all ranks of a communicator.

    Start the program with `mpiexec -n 4 python program.py`. Every rank runs the same solver on the same streams and
    computes its spans of each batch; one Allreduce per round adds the sums up. Only rank 0 writes checkpoints and calls
    callbacks and progress; results are the same on all ranks, and those of one worker to rounding. All ranks must make
    the same calls in the same order, in the main thread; before the first round of an oracle they compare
    problem, point and one sample, free of charge. A program prints only where `engine.rank == 0`.

    Parameters
    ----------
    comm : mpi4py communicator, COMM_WORLD if left out; the engine works on a duplicate of it
    workers : int, if given, the number of ranks
    timeout : float, seconds that a rank waits for others, which are then reported; the program's end aborts the job
    """

    def __init__(self, comm: Any = None, workers: int | None = None, timeout: float | None = None) -> None:
        super().__init__(timeout)
        try:
            from mpi4py import MPI as mpi  # noqa: N811
        except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, but no MPI library
            missing = "mpi4py" if isinstance(error, ImportError) else "an MPI library, such as openmpi"
            raise missing_extra(missing, "mpi", "engine='mpi'") from error
        self._mpi, self._in_place = mpi, mpi.IN_PLACE
        comm = mpi.COMM_WORLD if comm is None else comm
        if (handle := comm.py2f()) not in _DUPLICATES:
            _DUPLICATES[handle] = comm.Dup()
        self.comm = _DUPLICATES[handle]
        self.rank, self.workers = self.comm.Get_rank(), self.comm.Get_size()
        if workers not in (None, self.workers):
            rule = f"MPI: workers is the number of ranks, {self.workers}"
            raise ArgumentError(rule, workers, f"Start the program with mpiexec -n {workers}")
        self._rounds = 0
        self._compared = 0  # the largest key of an oracle that ranks have compared
        self._broken: OracleError | None = None  # set once ranks are no longer in the same round
        self._last: Any = None  # the arguments of the last `span_sums`, for `trace_nan`
        self._votes = np.zeros(VOTES)
        self._couple: tuple[Callable[[], tuple[float, ...]], Callable[[Array], None]] | None = None

    def couple(self, votes: Callable[[], tuple[float, ...]], receive: Callable[[Array], None]) -> None:
        """With every total, sum `votes()`, VOTES numbers, over all ranks, and call `receive` with the sums on each."""
        self._couple = votes, receive

    def agree(self, function: Callable[[], Any]) -> Any:
        """Call the function on rank 0; all ranks return, or raise, what it does there."""
        if self._broken is not None:
            return function() if self.rank == 0 else None
        value, failed = None, None
        if self.rank == 0:
            try:
                value = function()
            except Exception as error:
                failed = error
        value, failed = self.comm.bcast((value, failed))
        if failed is not None:
            raise failed
        return value

    def compare(self, facts: dict[str, Any]) -> None:
        """Raise on all ranks, which must all call this, if facts differ; None is equal to anything."""
        theirs = self.comm.allgather(facts)
        for rank, other in enumerate(theirs):
            differ = [name for name, value in theirs[0].items() if not _alike(value, other.get(name))]
            if differ:
                rule = "MPI: all ranks must make the same calls, with the same problem, start and seed"
                received = f"another {' and '.join(differ)} on rank {rank} than on rank 0"
                remedy = "Make them the same on all ranks: seed what is random, or broadcast what rank 0 makes"
                raise ArgumentError(rule, received, remedy)

    def measure(self, dimension: int = 1000) -> Latency:
        """As for other engines; all ranks must call it, and get the numbers of rank 0."""
        return self.comm.bcast(super().measure(dimension))

    def _exclusive(self) -> AbstractContextManager[Any]:
        if threading.get_ident() != _MAIN:
            rule = "MPI: rounds must have the same order on all ranks, so only the main thread may call for them"
            received = f"a call in {threading.current_thread().name}"
            raise CapabilityError(rule, received, "Call it in the main thread, or use Local in threads")
        return super()._exclusive()

    def _total(self, loaded: LoadedOracle, x: Array, spec: BatchSpec, batch: Batch) -> Array:
        if self._broken is not None:
            raise OracleError(*self._broken.parts)
        oracle = spec.selected(loaded.oracle)
        if loaded.key > self._compared:
            self._compared = loaded.key
            self._compare_first_round(loaded.oracle, x, spec)
        self._last = oracle, batch, x, assign(oracle.cut(batch), self.workers)[self.rank]
        try:
            sums = span_sums(*self._last)
            total = _added(x, sums)
            self._add_up(total, x)
            if isnan(total.item(0)):
                self._raise_first(sums if isinstance(sums, Failure) else None, x)
        except BaseException as error:
            self._leave(error, x)
            raise
        return total

    def _compare_first_round(self, oracle: Shardable, x: Array, spec: BatchSpec) -> None:
        facts: dict[str, Any] = {"point": sha256(x.tobytes()).hexdigest(), "batch": repr(tuple(spec))}
        facts["oracle"] = repr(jsonable(oracle.describe()))
        sample = None if isinstance(oracle, ShardedData) else one_sample(oracle, x[0], 0, times=2)
        facts["sample"] = None if sample is None else float(np.abs(sample).sum())
        self.compare(facts)

    def trace_nan(self) -> None:
        """As for other engines; all ranks must call it, and compute their sums again, which the total has replaced."""
        x = self._last[2]
        try:
            sums = span_sums(*self._last)
            failures = [sums] if isinstance(sums, Failure) else [Failure.nan(x, value) for value in sums]
            if self.timeout is not None:
                self._wait([self.comm.Ibarrier()], x, self.timeout)
            self._raise_first(next(filter(None, failures), None), x)
        except BaseException as error:
            self._leave(error, x)
            raise

    def _add_up(self, total: Array, x: Array) -> None:
        """Sum the totals of all ranks in place, and their votes."""
        requests = []
        if self._couple is not None:
            self._votes[:] = self._couple[0]()
            requests.append(self.comm.Iallreduce(self._in_place, self._votes))
        if self.timeout is None:
            self.comm.Allreduce(self._in_place, total)
            for request in requests:
                request.Wait()
        else:
            self._wait([*requests, self.comm.Iallreduce(self._in_place, total)], x, self.timeout)
        if self._couple is not None:
            self._couple[1](self._votes)

    def _raise_first(self, failure: Failure | None, x: Array) -> None:
        """Raise, on all ranks, the failure of the first rank that has one."""
        for rank, other in enumerate(self.comm.allgather(failure)):
            if other is not None:
                raise other.error(f"worker {rank} (rank {rank})", x)

    def _wait(self, requests: list[Any], x: Array, timeout: float) -> None:
        """Wait for all ranks. After the timeout, ranks that wait tell each other, and report those that do not."""
        self._rounds += 1
        others = set(range(self.workers)) - {self.rank}
        missing, announced, began = set(others), False, time.monotonic()
        while not self._mpi.Request.Testall(requests):
            if (waited := time.monotonic() - began) < _SPIN:
                continue
            time.sleep(1e-4)
            status, reported = self._mpi.Status(), False
            while self.comm.iprobe(tag=_WAITING, status=status):
                number, reported_missing = self.comm.recv(source=status.source, tag=_WAITING)
                if number == self._rounds:  # not of an earlier round, in which this rank came last
                    reported = reported or bool(reported_missing)
                    missing = reported_missing or missing - {status.source}
                    announced = announced or self._announce(others, None)
            if waited > timeout:
                announced = announced or self._announce(others, None)
            if reported or (missing and waited > timeout + _GRACE):
                self._announce(others, missing)
                failure = Failure.timed_out(timeout, "Fix the sampler, or allow more time")
                raise self._give_up(failure, x, ", ".join(f"worker {rank} (rank {rank})" for rank in sorted(missing)))

    def _announce(self, others: set[int], missing: set[int] | None) -> bool:
        for rank in others:
            self.comm.isend((self._rounds, missing), rank, _WAITING)
        return True

    def _leave(self, error: BaseException, x: Array) -> None:
        """Give up if this rank leaves the others waiting, as after a second Ctrl-C; an OracleError is raised by all."""
        if not isinstance(error, OracleError):
            self._give_up(Failure(("Ranks must stay together", repr(error), "Start again")), x, "this rank")

    def _give_up(self, failure: Failure, x: Array, worker: str) -> OracleError:
        """The error of a job whose ranks are no longer in the same round; the job is aborted when the program ends."""
        if self._broken is None:
            self._broken = failure.error(worker, x)
            atexit.register(self._abort)
        return self._broken

    def _abort(self) -> None:
        if self.rank:
            time.sleep(_GRACE)  # rank 0 may still be writing a checkpoint
        self.comm.Abort(1)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=1e-6) or isnan(one) or isnan(other)
    return one is None or other is None or one == other


def _added(x: Array, sums: list[Array] | Failure) -> Array:
    if isinstance(sums, Failure):
        return np.full(x.shape, nan, x.dtype)
    if len(sums) == 1 and sums[0].flags.carray:
        return sums[0]
    total = np.zeros(x.shape, x.dtype)
    for value in sums:
        total += value
    return total
