"""Batches computed by the actors of a Ray cluster."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
import warnings
import weakref
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, CapabilityError, OracleError, missing_extra
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.engines.base import Engine, Loaded
from dualanchor.engines.local import cores, require_workers
from dualanchor.engines.share import WORKER, Desk, Failure, Ticket, collected, shares, too_late
from dualanchor.oracles.shards import Shardable, Span

_INLINE = 100_000  # bytes; a smaller x travels with the call
_LIVES = 3  # how often a worker's share is given to a new actor in one round
_START = 60.0  # seconds in which actors start, at least; those of a busy cluster wait for CPUs


class _Cluster:
    """What the engines of a program share: one connection to Ray."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users: weakref.WeakSet[Ray] = weakref.WeakSet()  # engines with actors
        self.ours = False  # whether an engine connected the program


_CLUSTER = _Cluster()


class Ray(Engine):
    """Batches computed by Ray actors, on this machine or on a cluster.

    A worker that is lost is replaced, and its share computed again from the streams: the result does not change. Uses
    the cluster that the program is connected to; else the one at `address` or in RAY_ADDRESS; else it starts one on
    this machine, which ends when the last engine on it is closed.

    Parameters
    ----------
    workers : int, optional
        Actors, each with one CPU; as many as there are CPUs if left out.
    address : str, optional
        Of a cluster, as for `ray.init`.
    timeout : float, optional
        Seconds after which an actor that has not answered is reported and ended.
    """

    def __init__(self, workers: int | None = None, address: str | None = None, timeout: float | None = None) -> None:
        super().__init__(timeout)
        try:
            import ray
        except ImportError as error:
            raise missing_extra("ray", "ray", "engine='ray'") from error
        self._ray = ray
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._asked = require_workers(workers, "Ray")
        elsewhere = self._asked is None and (self._address is not None or ray.is_initialized())
        self._actors: list[Any] = []
        self._known: list[set[int]] = []  # oracles that each of them has
        self._blobs: dict[int, Any] = {}
        if elsewhere:
            with _CLUSTER.lock:
                self._connect()
            self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        else:
            self.workers = self._asked or cores()

    def total(self, loaded: Loaded, x: Array, ticket: Ticket, batch: Batch) -> Array:
        self._start()
        while self._stale:
            self._forget(self._stale.pop())
        if loaded.key not in self._blobs:
            self._blobs[loaded.key] = self._stored(loaded.oracle)
        shards = loaded.oracle.cut(batch)
        given = [mine for mine in shares(shards, self.workers) if mine]
        point = self._ray.put(x) if x.nbytes > _INLINE else x
        work = [(point, loaded.key, tuple(ticket), mine) for mine in given]
        replies = [self._call(number, *mine) for number, mine in enumerate(work)]
        end = None if self.timeout is None else time.monotonic() + self.timeout
        answers = [self._answer(number, replies[number], mine, end) for number, mine in enumerate(work)]
        return collected(x, shards, given, answers, "worker {} (ray actor)".format)

    def processes(self) -> list[int]:
        """The process of each worker, on its machine."""
        with self._turn:
            self._start()
            return self._ray.get([actor.process.remote() for actor in self._actors])

    def close(self) -> None:
        with self._turn, _CLUSTER.lock:
            self._dismiss()
            if _CLUSTER.ours and not _CLUSTER.users:
                self._ray.shutdown()
                _CLUSTER.ours = False

    def _stored(self, oracle: Shardable) -> Any:
        try:
            return self._ray.put(oracle)
        except Exception as error:
            raise CapabilityError(
                "An oracle must be picklable to be computed by Ray",
                f"{type(error).__name__}: {error}",
                "Let its functions make what cannot be sent, or use Local(kind='threads')",
            ) from error

    def _call(self, number: int, x: Any, key: int, ticket: tuple[Any, ...], mine: list[Span]) -> Any:
        # Bytes travel much faster than what Ray has to look into. The oracle goes along until it has arrived, and
        # within a tuple, or it would be fetched for every call.
        beside: dict[str, Any] = {} if key in self._known[number] else {"blob": (self._blobs[key],)}
        if not isinstance(x, np.ndarray):
            beside["stored"], x = x, None
        return self._actors[number].sums.remote(pickle.dumps((x, key, ticket, mine)), **beside)

    def _answer(self, number: int, reply: Any, work: tuple[Any, ...], end: float | None) -> Any:
        """What a worker answers; one that is lost is replaced, and its work given to the new one."""
        errors = self._ray.exceptions
        for _ in range(_LIVES):
            try:
                answer = self._ray.get(reply, timeout=None if end is None else max(0.0, end - time.monotonic()))
                self._known[number].add(work[1])
                return pickle.loads(answer) if isinstance(answer, bytes) else answer
            except errors.GetTimeoutError:
                assert self.timeout is not None
                self._replace(number)
                return too_late(self.timeout, "Mend the sampler (its actor was ended), or allow more time")
            except (errors.RayActorError, errors.ObjectLostError):
                self._replace(number)
                reply = self._call(number, *work)
                end = None if end is None else time.monotonic() + (self.timeout or 0.0)
            except errors.RayTaskError as error:  # of unpickling, in most cases
                parts = ("The oracle must be known to Ray's workers", str(error.cause), "Put it into a module there")
                return Failure(parts, None, None, str(error))
        parts = ("A worker must not die", f"its end, {_LIVES} times in one round", "Look at Ray's logs")
        return Failure(parts, None, None, None)

    def _start(self) -> None:
        if not self._actors:
            with _CLUSTER.lock:
                self._connect()
                self._require_room()
                self._actors = [self._actor(number) for number in range(self.workers)]
                self._known = [set() for _ in self._actors]
                _CLUSTER.users.add(self)
            self._wait(self._actors)

    def _require_room(self) -> None:
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        if cpus < self.workers:
            raise ArgumentError(
                f"Ray: workers must be at most the CPUs of the cluster, {cpus}",
                self.workers,
                "Use fewer workers, or a larger cluster",
            )
        taken = sum(len(engine._actors) for engine in _CLUSTER.users)
        if cpus - taken < self.workers:
            raise ArgumentError(
                f"Ray: workers must be at most the free CPUs, {cpus - taken} of {cpus}",
                f"{self.workers}, with {taken} held by other engines of this program",
                "Close those, use fewer workers, or a larger cluster",
            )

    def _wait(self, actors: list[Any]) -> None:
        """Wait until actors have started; if they do not, let all of them go."""
        patience = max(_START, self.timeout or 0.0)
        try:
            self._ray.get([actor.process.remote() for actor in actors], timeout=patience)
        except self._ray.exceptions.GetTimeoutError:
            free = int(self._ray.available_resources().get("CPU", 0))
            with _CLUSTER.lock:
                self._dismiss()
            raise OracleError(
                f"Ray: actors must start within {patience:g} s",
                f"{free} free CPUs for {len(actors)} of {self.workers} workers",
                "Free CPUs of the cluster, or use fewer workers",
            ) from None

    def _dismiss(self) -> None:
        actors, self._actors, self._known, self._blobs = self._actors, [], [], {}
        _CLUSTER.users.discard(self)
        if self._ray.is_initialized():
            for actor in actors:
                self._ray.kill(actor)

    def _actor(self, number: int) -> Any:
        return self._ray.remote(num_cpus=1, max_restarts=0)(Actor).remote(number)

    def _replace(self, number: int) -> None:
        self._ray.kill(self._actors[number])
        self._actors[number], self._known[number] = self._actor(number), set()
        self._wait([self._actors[number]])

    def _forget(self, key: int) -> None:
        if self._blobs.pop(key, None) is not None:
            for actor, known in zip(self._actors, self._known, strict=True):
                known.discard(key)
                actor.drop.remote(key)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._address is None:
                self._ray.init(address="local", num_cpus=self.workers, include_dashboard=False, **quiet)
            else:
                self._join(quiet)
        _CLUSTER.ours = True

    def _join(self, quiet: dict[str, Any]) -> None:
        try:
            self._ray.init(address=self._address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ArgumentError(
                "Ray: address, or RAY_ADDRESS, must be that of a running cluster",
                f"{self._address!r} ({str(error).strip().rstrip('.')})",
                "Start one with `ray start --head`, or leave both out for workers on this machine",
            ) from error


class Actor:
    """What runs in the cluster: a desk with oracles on it."""

    def __init__(self, number: int) -> None:
        os.environ[WORKER] = str(number)
        self._desk = Desk()

    def sums(self, work: bytes, stored: Array | None = None, blob: tuple[Any] | None = None) -> Any:
        """The sums of some spans, as bytes or, for an x that was stored, as one array; or a Failure."""
        x, key, ticket, mine = pickle.loads(work)
        if blob is not None:
            import ray

            self._desk.put(key, ray.get(blob[0]))
        with arrays.quiet():
            found = self._desk.sums(key, x if stored is None else stored, Ticket(*ticket), mine)
        if stored is None or isinstance(found, Failure):
            return pickle.dumps(found)
        return found[0][None] if len(found) == 1 else np.stack(found)

    def drop(self, key: int) -> None:
        """Forget an oracle."""
        self._desk.drop(key)

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()
