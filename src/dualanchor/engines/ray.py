"""Batches computed by the actors of a Ray cluster."""

import logging
import os
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, OracleError, optional_module
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.engines.base import Engine, LoadedOracle
from dualanchor.engines.local import cores
from dualanchor.engines.protocol import (
    START_SECONDS,
    WORKER,
    BatchSpec,
    Failure,
    WorkerState,
    assign,
    combine,
    not_picklable,
)

_INLINE_BYTES = 100_000  # a smaller x is sent with the call, a larger one through the object store
_ATTEMPTS = 3  # of an actor that exits: it is replaced twice in a round
_LOST = object()  # stands for the reply of an actor that has exited


class Ray(Engine):
    """Batches computed by Ray actors, on this machine or on a cluster.

    A worker that is lost is replaced, and its sums are computed again. The cluster is the one that the program is
    connected to; else the one at `address` or in RAY_ADDRESS; else one on this machine, ended with its last engine.

    Parameters
    ----------
    workers : int, actors with one CPU each; as many as there are CPUs if left out
    address : str, of a cluster, as for `ray.init`
    timeout : float, seconds after which an actor that has not replied is reported and replaced
    """

    _connection = threading.Lock()  # guards the connection of this program to Ray, which its engines share
    _engines: ClassVar["weakref.WeakSet[Ray]"] = weakref.WeakSet()  # engines that have actors
    _connected: ClassVar[bool] = False  # whether an engine has connected; the last engine then disconnects

    def __init__(self, workers: int | None = None, address: str | None = None, timeout: float | None = None) -> None:
        super().__init__(timeout)
        self._ray = ray = optional_module("ray", "ray", "engine='ray'")
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._actors: list[Any] = []
        self._stored: dict[int, Any] = {}  # oracles in Ray's object store
        if workers is not None:
            self.workers = check.count(workers, "Ray: workers")
        elif self._address is None and not ray.is_initialized():
            self.workers = cores()
        else:
            with self._connection:
                self._connect()
            self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def _total(self, loaded: LoadedOracle, x: Array, spec: BatchSpec, batch: Batch) -> Array:
        self._start()
        while self._stale:
            key = self._stale.pop()
            self._stored.pop(key, None)
            for actor in self._actors:
                actor.drop.remote(key)
        if loaded.key not in self._stored:
            try:
                self._stored[loaded.key] = self._ray.put(loaded.oracle)
            except Exception as error:
                raise not_picklable(error, "by Ray") from error
        shards = loaded.oracle.cut(batch)
        assignment = assign(shards, min(shards, self.workers))
        point = self._ray.put(x) if x.nbytes > _INLINE_BYTES else None
        small = x if point is None else None
        # Ray sends bytes much faster than objects that it has to inspect.
        tasks = {i: pickle.dumps((loaded.key, small, tuple(spec), spans)) for i, spans in enumerate(assignment)}
        replies: dict[int, Any] = {}
        for _ in range(_ATTEMPTS):
            replies |= self._load(loaded.key, tasks)
            ready = [number for number in tasks if replies.get(number) is None]
            calls = {number: self._actors[number].sums.remote(tasks[number], point) for number in ready}
            replies |= self._results(
                calls, self.timeout, "Fix the sampler (its actor was replaced), or allow more time"
            )
            tasks = {number: task for number, task in tasks.items() if replies[number] is _LOST}
            if not tasks:
                break
            for number in tasks:
                del replies[number]
        for number in tasks:
            parts = ("A worker must not exit", f"one that exited {_ATTEMPTS} times", "See Ray's logs")
            replies[number] = Failure(parts)
        sums = [replies[number] for number in range(len(assignment))]
        return combine(x, shards, assignment, sums, "worker {} (ray actor)".format)

    def processes(self) -> list[int]:
        """The process id of each worker, on its machine."""
        with self._exclusive():
            self._start()
            calls = {number: actor.process.remote() for number, actor in enumerate(self._actors)}
            while _LOST in (processes := self._results(calls, None)).values():
                calls = {number: actor.process.remote() for number, actor in enumerate(self._actors)}
            return list(processes.values())

    def _stop(self) -> None:
        with self._connection:
            self._end_actors()
            if Ray._connected and not self._engines:
                self._ray.shutdown()
                Ray._connected = False

    def _load(self, key: int, numbers: Iterable[int]) -> dict[int, Any]:
        """Let actors load an oracle that they do not have; returns replies as `_results` does."""
        oracle = (self._stored[key],)  # in a tuple, so that an actor fetches it itself
        new = [number for number in numbers if key not in self._loaded[number]]
        calls = {number: self._actors[number].load.remote(key, oracle) for number in new}
        seconds = max(START_SECONDS, self.timeout or 0.0)
        replies = self._results(calls, seconds, "Make it quicker to load", "load the oracle within")
        for number in (number for number in new if replies[number] is None):
            self._loaded[number].add(key)
        return replies

    def _results(self, calls: dict[int, Any], timeout: float | None, *late: str) -> dict[int, Any]:
        """What calls of actors return; a Failure or _LOST for actors that are late or exit, which are replaced."""
        errors, results = self._ray.exceptions, dict[int, Any]()
        deadline = None if timeout is None else time.monotonic() + timeout
        for number, call in calls.items():
            try:
                result = self._get(number, call, deadline)
                results[number] = pickle.loads(result) if isinstance(result, bytes) else result
            except errors.RayTaskError as error:  # mostly when the oracle is unpickled
                parts = ("The oracle must be known to Ray's workers", str(error.cause), "Put it into a module there")
                results[number] = Failure(parts, trace=str(error))
            except errors.GetTimeoutError:
                assert timeout is not None
                results[number] = Failure.timed_out(timeout, *late)
                self._replace(number)
            except (errors.RayActorError, errors.ObjectLostError):
                results[number] = _LOST
                self._replace(number)
        return results

    def _get(self, number: int, call: Any, deadline: float | None) -> Any:
        return self._ray.get(call, timeout=deadline and max(0.0, deadline - time.monotonic()))

    def _replace(self, number: int) -> None:
        self._ray.kill(self._actors[number])
        self._actors[number], self._loaded[number] = self._actor(number), set()

    def _start(self) -> None:
        if self._actors:
            return
        with self._connection:
            self._connect()
            cpus = int(self._ray.cluster_resources().get("CPU", 0))
            taken = sum(len(engine._actors) for engine in self._engines)
            if cpus < self.workers:
                rule = f"Ray: workers must be at most the CPUs of the cluster, {cpus}"
                raise ArgumentError(rule, self.workers, "Use fewer workers, or a larger cluster")
            if cpus - taken < self.workers:
                rule = f"Ray: workers must be at most the free CPUs, {cpus - taken} of {cpus}"
                received = f"{self.workers}, with {taken} held by other engines of this program"
                raise ArgumentError(rule, received, "Close those, use fewer workers, or a larger cluster")
            self._actors = [self._actor(number) for number in range(self.workers)]
            self._loaded = [set[int]() for _ in self._actors]
            self._engines.add(self)
        patience = max(START_SECONDS, self.timeout or 0.0)
        try:
            self._ray.get([actor.process.remote() for actor in self._actors], timeout=patience)
        except self._ray.exceptions.GetTimeoutError:
            free = int(self._ray.available_resources().get("CPU", 0))
            with self._connection:
                self._end_actors()
            rule = f"Ray: actors must start within {patience:g} s"
            received = f"{free} free CPUs for {self.workers} workers"
            raise OracleError(rule, received, "Free CPUs of the cluster, or use fewer workers") from None

    def _actor(self, number: int) -> Any:
        return self._ray.remote(num_cpus=1)(Actor).remote(number)

    def _end_actors(self) -> None:
        actors, self._actors, self._stored = self._actors, [], {}
        self._engines.discard(self)
        if self._ray.is_initialized():
            for actor in actors:
                self._ray.kill(actor)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"address": self._address}
        if self._address is None:
            options = {"address": "local", "num_cpus": self.workers, "include_dashboard": False}
        try:
            with warnings.catch_warnings(action="ignore"):
                self._ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if self._address is None:
                raise
            rule, received = "Ray: address, or RAY_ADDRESS, must be that of a running cluster", str(error).strip()
            remedy = "Start one with `ray start --head`, or leave both out for workers on this machine"
            raise ArgumentError(rule, f"{self._address!r} ({received.rstrip('.')})", remedy) from error
        Ray._connected = True


class Actor:
    """A worker in the cluster."""

    def __init__(self, number: int) -> None:
        os.environ[WORKER] = str(number)
        self._state = WorkerState()

    def load(self, key: int, oracle: tuple[Any]) -> bytes:
        import ray

        return pickle.dumps(self._state.load(key, lambda: ray.get(oracle[0])))

    def sums(self, task: bytes, stored: Array | None) -> Any:
        key, x, spec, spans = pickle.loads(task)
        with arrays.quiet():
            sums = self._state.sums(self._state.oracles[key], x if stored is None else stored, BatchSpec(*spec), spans)
        if stored is None or isinstance(sums, Failure):
            return pickle.dumps(sums)
        return sums[0][None] if len(sums) == 1 else np.stack(sums)

    def drop(self, key: int) -> None:
        self._state.oracles.pop(key, None)

    def process(self) -> int:
        return os.getpid()
