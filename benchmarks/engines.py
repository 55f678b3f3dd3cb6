"""What an engine adds to a round: against the bare primitive it is built on, and as efficiency of two workers.

Overhead: a round without samples, with two workers, in d = 1,000 and 1,000,000 dimensions, against the same vectors
sent by the primitive alone: a plain thread pool; two processes that are woken through pipes and copy a vector in shared
memory; MPI's Allreduce; two Ray actors that return the vector they get. Both take turns, and the lower quartiles of
their times are compared: the least disturbed quarter. Of several such ratios the middle one counts.

Efficiency: half the time of a round with one worker, over that with two. Two kinds of samplers: one that draws random
numbers for about 50 ms, which needs two free cores, and one that waits for 64 ms, as for a simulator elsewhere, which
needs none; with two workers a round of either still takes 20 ms or more. One worker and two take turns, and so do one
bare process and two that draw as many numbers without an engine: what the machine itself allows. The fastest rounds
are compared, since other programs on the machine can only slow a round down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_least, at_most, least, main
from dualanchor.core.session import Session
from dualanchor.engines import Engine, Local, Ray
from dualanchor.engines.base import EmptyOracle
from dualanchor.engines.protocol import BatchSpec

DIMENSIONS = (1_000, 1_000_000)
OVERHEAD, EFFICIENCY = 1.5, 0.85
REPEATS = 3


def rows(quick: bool = False) -> list[Row]:
    """One row per number: name, measured, against, ratio, target, met. Everything is measured three times."""
    passes = [
        [*local("threads", quick), *local("processes", quick), *mpi(quick), *ray_actors(quick)]
        for _ in range(1 if quick else 3)
    ]
    return [merged(list(same)) for same in zip(*passes, strict=True)]


def merged(found: list[Row]) -> Row:
    """The middle one of some overheads; the efficiency by the fastest rounds of all."""
    if found[0]["name"].startswith("overhead"):
        return sorted(found, key=lambda row: row["ratio"])[len(found) // 2]
    two, half = (min(row[which] for row in found) for which in ("measured", "against"))
    return at_least(found[0]["name"], two, half, found[0]["target"])


def overhead(name: str, engine: Callable[[], Any], raw: Callable[[], Any], count: int) -> Row:
    """Seconds of a round of the engine and of the primitive, which take turns: a quarter of the rounds were faster."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        engine(), raw()
    for _ in range(count):
        for into, call in zip(times, (engine, raw), strict=True):
            began = time.perf_counter()
            call()
            into.append(time.perf_counter() - began)
    measured, against = (float(np.quantile(one, 0.25)) for one in times)
    return at_most(name, measured, against, OVERHEAD)


def empty_round(engine: Engine, x: np.ndarray) -> Callable[[], Any]:
    """A round without samples."""
    loaded = engine.load(EmptyOracle(engine.workers))
    streams = da.Streams(0, np.zeros(1, np.int64), dimension=x.size)
    spec, batch = BatchSpec.following(streams, 2), loaded.oracle.draw(streams, 2)
    return lambda: engine.compute(loaded, x, spec, batch)


def sample(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return x + rng.standard_normal((n, x.size)).mean(axis=0)


def waiting(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    time.sleep(0.002)
    return x


SHARDS, SAMPLES, WIDTH = 32, 1_500, 100  # a round's shards, samples of each, and coordinates


def full_round(engine: Engine, sampler: Callable[..., Any]) -> Callable[[], Any]:
    """A round of 32 shards: of 150,000 normal numbers, or of 2 ms of waiting."""
    F = Session(engine.attach(da.Sampler(sampler)), da.Streams(0, np.zeros(1, np.int64), dimension=WIDTH))
    x = np.zeros((1, WIDTH))
    return lambda: F(x, F.draw(SHARDS * SAMPLES))


def efficiencies(
    name: str, one: Engine, two: Engine, quick: bool, alone: Callable[[Callable[[], Any]], Callable[[], Any]]
) -> list[Row]:
    """Rows of one worker against two, when computing, then with two bare processes, and when waiting.

    `alone` makes a round of two workers, if it needs both of them, of what the first does by itself.
    """
    count, found = 5 if quick else 50, []
    with bare_computing() as (bare_one, bare_two):
        times = least(
            {
                "one": alone(full_round(one, sample)),
                "two": full_round(two, sample),
                "bare one": alone(bare_one),
                "bare two": alone(bare_two),
            },
            count,
        )
    found.append(at_least(f"efficiency {name}, computing", times["two"], times["one"] / 2, EFFICIENCY))
    bare = f"two bare processes beside {name}, computing"
    found.append(at_least(bare, times["bare two"], times["bare one"] / 2, None))
    times = least({"one": alone(full_round(one, waiting)), "two": full_round(two, waiting)}, count)
    return [*found, at_least(f"efficiency {name}, waiting", times["two"], times["one"] / 2, EFFICIENCY)]


@contextmanager
def bare_computing() -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
    """A round's numbers drawn by one process, and by two, which are woken through pipes."""
    context = get_context("spawn")
    pipes, workers = [], []
    for _ in range(2):
        here, there = context.Pipe()
        workers.append(context.Process(target=_compute, args=(there,)))
        workers[-1].start()
        there.close()
        pipes.append(here)
        here.recv_bytes()

    def compute(shards: list[int]) -> None:
        for pipe, count in zip(pipes, shards, strict=False):
            pipe.send_bytes(bytes([count]))
        for pipe, _ in zip(pipes, shards, strict=False):
            pipe.recv_bytes()

    try:
        yield lambda: compute([SHARDS]), lambda: compute([SHARDS // 2, SHARDS // 2])
    finally:
        for pipe, worker in zip(pipes, workers, strict=True):
            pipe.send_bytes(b"")
            worker.join()


def _compute(pipe: Any) -> None:
    x = np.zeros(WIDTH)
    pipe.send_bytes(b"x")
    while message := pipe.recv_bytes():
        for shard in range(message[0]):
            sample(x, SAMPLES, np.random.default_rng(shard))
        pipe.send_bytes(b"x")


def counts(d: int, quick: bool) -> int:
    return (10 if quick else 30) if d > 10_000 else (50 if quick else 200)


# -- this machine ------------------------------------------------------------------------------------------------


def local(kind: str, quick: bool) -> list[Row]:
    found = [merged([empty_rounds(kind, d, quick) for _ in range(1 if quick else REPEATS)]) for d in DIMENSIONS]
    with Local(2, kind) as two, Local(1, kind) as one:
        return [*found, *efficiencies(kind, one, two, quick, alone=lambda call: call)]


def empty_rounds(kind: str, d: int, quick: bool) -> Row:
    """The overhead of new workers beside new bare ones: which core each is put on matters."""
    x = np.zeros((1, d))
    raw, close = (bare_threads if kind == "threads" else bare_processes)(x)
    try:
        with Local(2, kind) as two:
            return overhead(f"overhead {kind}, d = {d:,}", empty_round(two, x), raw, counts(d, quick))
    finally:
        close()


def bare_threads(x: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    pool = ThreadPoolExecutor(2)

    def call() -> np.ndarray:
        first, second = pool.map(lambda _: x.copy(), range(2))
        return first + second

    return call, pool.shutdown


def bare_processes(x: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    context = get_context("spawn")
    memory = SharedMemory(create=True, size=3 * x.nbytes)
    ours, workers = [], []
    for i in range(2):
        here, there = context.Pipe()
        workers.append(context.Process(target=_copy, args=(there, memory.name, x.size, i + 1)))
        workers[-1].start()
        there.close()
        ours.append(here)
        here.recv_bytes()
    parts = np.ndarray((3, x.size), buffer=memory.buf)

    def call() -> np.ndarray:
        parts[0] = x[0]
        for pipe in ours:
            pipe.send_bytes(b"x")
        for pipe in ours:
            pipe.recv_bytes()
        return parts[1] + parts[2]

    def close() -> None:
        nonlocal parts
        for pipe in ours:
            pipe.send_bytes(b"")
        for worker in workers:
            worker.join()
        parts = np.zeros(0)
        memory.close()
        memory.unlink()

    return call, close


def _copy(pipe: Any, name: str, d: int, place: int) -> None:
    memory = SharedMemory(name)
    parts = np.ndarray((3, d), buffer=memory.buf)
    pipe.send_bytes(b"x")
    while pipe.recv_bytes():
        parts[place] = parts[0]
        pipe.send_bytes(b"x")
    del parts
    memory.close()


# -- MPI ---------------------------------------------------------------------------------------------------------


def mpi(quick: bool) -> list[Row]:
    """Rows of this program, run again by mpiexec on two ranks."""
    launcher = Path(sys.executable).parent / "mpiexec"
    command = [str(launcher), "-n", "2", "--oversubscribe", "--allow-run-as-root", sys.executable]
    done = subprocess.run(
        [*command, "-m", "benchmarks.engines", "--mpi", *(["--quick"] if quick else [])],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def on_this_rank(quick: bool) -> None:
    engine = da.engines.MPI()
    found = []
    for d in DIMENSIONS:
        x = np.zeros((1, d))
        count = counts(d, quick) * (20 if d < 10_000 else 1)  # some take microseconds

        def bare(x: np.ndarray = x) -> np.ndarray:
            values = x.copy()
            engine.comm.Allreduce(engine._mpi.IN_PLACE, values)
            return values

        found.append(overhead(f"overhead mpi, d = {d:,}", empty_round(engine, x), bare, count))

    def alone(call: Callable[[], Any]) -> Callable[[], Any]:
        """The call by the first rank, while the other sleeps."""

        def both() -> None:
            if engine.rank == 0:
                call()
            ready = engine.comm.Ibarrier()
            while not ready.Test():
                time.sleep(0.001)

        return both

    found += efficiencies("mpi", da.engines.MPI(engine._mpi.COMM_SELF), engine, quick, alone)
    if engine.rank == 0:
        print(json.dumps(found), flush=True)


# -- Ray ---------------------------------------------------------------------------------------------------------


class Echo:
    def back(self, x: np.ndarray) -> np.ndarray:
        return x.copy()


def ray_actors(quick: bool) -> list[Row]:
    import ray

    found = []
    ray.init(address="local", num_cpus=3, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with Ray(2) as two, Ray(1) as one:
        two.processes(), one.processes()
        for d in DIMENSIONS:
            x = np.zeros((1, d))
            actors = [two._ray.remote(num_cpus=0)(Echo).remote() for _ in range(2)]

            def bare(x: np.ndarray = x, actors: Any = actors) -> np.ndarray:
                point = two._ray.put(x) if x.nbytes > 100_000 else x
                first, second = two._ray.get([actor.back.remote(point) for actor in actors])
                return first + second

            found.append(overhead(f"overhead ray, d = {d:,}", empty_round(two, x), bare, counts(d, quick)))
        found += efficiencies("ray", one, two, quick, alone=lambda call: call)
    ray.shutdown()
    return found


if __name__ == "__main__":
    if "--mpi" in sys.argv:
        on_this_rank("--quick" in sys.argv)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            main(rows, __doc__)
