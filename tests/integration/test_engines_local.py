"""Threads and processes of this machine as workers, with the faults they may have."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

import dualanchor as da
from dualanchor.cli.app import app
from dualanchor.engines.pool import pickled

METHOD = da.DualOHM(0.4, 12, 64)
KINDS = ["threads", pytest.param("processes", marks=pytest.mark.slow)]
SHARDS_OF_A_WORKER = 16  # of 32, with two workers


def sample(x, n, rng):
    return 2 * x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)


def problem(function=sample, **options):
    return da.Problem(da.Sampler(function, **options), np.ones(40), constants=da.Constants(L=2.0))


def on_worker(number):
    return threading.current_thread().name == f"dualanchor-{number}" or os.environ.get("DUALANCHOR_WORKER") == str(
        number
    )


def failing(fault, at=3):
    """A sampler with a fault on worker 1, in round `at`."""
    calls = []

    def faulty(x, n, rng):
        if on_worker(1):
            calls.append(1)
            if len(calls) > SHARDS_OF_A_WORKER * at:
                return fault(x)
        return sample(x, n, rng)

    return faulty


def gone(pid, seconds=60.0):
    """Whether a process ends in time; a zombie counts as ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing():
    alone = da.solve(problem(shards=32), METHOD, reps=2, seed=5)
    for kind in ("threads", "processes"):
        for workers in (1, 2, 3, 4):
            with da.engines.Local(workers, kind) as engine:
                result = da.solve(problem(), METHOD, reps=2, seed=5, engine=engine)
            np.testing.assert_array_equal(result.x, alone.x, err_msg=f"{workers} {kind}")
            np.testing.assert_array_equal(result.nfev, alone.nfev)


def test_a_name_is_enough():
    alone = da.solve(problem(shards=32), METHOD)
    np.testing.assert_array_equal(da.solve(problem(), METHOD, engine="local").x, alone.x)


@pytest.mark.slow
@pytest.mark.parametrize("door", ["root", "fixed_point", "saddle", "inclusion"])
def test_front_doors_do_not_see_the_workers(door):
    def solved(engine):
        settings = {"budget": 6_000, "engine": engine, "seed": 2}
        if door == "root":
            return da.root(sample, np.zeros(3), L=2.0, **settings).x
        if door == "fixed_point":
            return da.fixed_point(lambda x, n, rng: x - 0.5 * sample(x, n, rng), np.zeros(3), **settings).x
        if door == "inclusion":
            return da.inclusion(sample, da.prox.box(0, 0.3), np.zeros(3), L=2.0, **settings).x

        def towards(u, v, n, rng):
            return u + v + rng.normal(size=2) / n**0.5

        def away(u, v, n, rng):
            return u - v + rng.normal(size=2) / n**0.5

        return np.concatenate(da.saddle(towards, away, (np.ones(2), np.ones(2)), L=2.0, **settings).x)

    found = []
    for workers in (1, 2, 3):
        with da.engines.Local(workers, "threads") as engine:
            found.append(solved(engine))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert np.abs(found[0] - {"saddle": 0.0, "inclusion": 0.3}.get(door, 0.5)).max() < 0.2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda x: 1 / 0, "ZeroDivisionError: division by zero on worker 1"),
        (lambda x: x * np.nan, "NaN on worker 1"),
        (lambda x: x[:2], "shape \\(2,\\) for x of shape \\(40,\\) and n = 2 on worker 1"),
    ],
)
def test_a_fault_on_one_worker_is_reported_with_worker_round_and_point(kind, fault, words):
    with da.engines.Local(2, kind) as engine:
        with pytest.raises(da.errors.OracleError, match=words) as caught:
            da.solve(problem(failing(fault)), METHOD, engine=engine)
        error = caught.value
        assert error.iteration == 3
        assert error.result.nit == 3
        assert "at iteration 3, row 0" in str(error)
        point = float(str(error).split("point of norm ")[1].split(" ")[0])
        assert point == pytest.approx(np.linalg.norm(error.result.x), rel=1e-5)
        # and the engine still works
        np.testing.assert_array_equal(
            da.solve(problem(), METHOD, engine=engine).x, da.solve(problem(shards=32), METHOD).x
        )


@pytest.mark.parametrize("kind", KINDS)
def test_threads_of_a_program_take_turns(kind):
    method = da.DualOHM(0.4, 60, 64)
    alone = [da.solve(problem(shards=32), method, seed=seed).x for seed in range(4)]
    with da.engines.Local(2, kind, timeout=60) as engine, ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(da.solve, problem(), method, seed=seed, engine=engine) for seed in range(4)]
        for run, expected in zip(runs, alone, strict=True):
            np.testing.assert_array_equal(run.result().x, expected)


def test_a_sampler_that_ends_its_thread_is_reported():
    with da.engines.Local(2, "threads", timeout=30) as engine:
        with pytest.raises(da.errors.OracleError, match="Got SystemExit: 3 on worker 1") as caught:
            da.solve(problem(failing(lambda x: sys.exit(3))), METHOD, engine=engine)
        assert caught.value.iteration == 3
        da.solve(problem(), METHOD, engine=engine)


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: da.solve(problem(), METHOD, engine=engine).x,
        lambda engine: engine.in_use,
        lambda engine: engine.processes(),
        lambda engine: engine.close(),
        lambda engine: engine.measure(),
    ],
)
def test_an_engine_is_not_used_by_its_own_workers(use):
    with (
        da.engines.Local(2, "threads", timeout=30) as engine,
        pytest.raises(da.errors.OracleError, match=r"by its own workers.*Use another engine in the sampler"),
    ):
        da.solve(problem(lambda x, n, rng: use(engine)), METHOD, engine=engine)


def test_another_engine_may_be_used_by_workers():
    with da.engines.Local(2, "threads", timeout=30) as engine, da.engines.Local(2, "threads", timeout=30) as other:
        nested = problem(lambda x, n, rng: x - da.solve(problem(), METHOD, engine=other).x)
        assert da.solve(nested, da.SGDA(0.1, 4), stop=da.Steps(2), engine=engine).nit == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_hangs_is_reported_and_replaced(kind):
    with da.engines.Local(2, kind, timeout=3.0) as engine:
        before = engine.processes()
        with pytest.raises(da.errors.OracleError, match=r"timeout = 3 s. Got no reply on worker 1") as caught:
            da.solve(problem(failing(lambda x: time.sleep(1000))), METHOD, engine=engine)
        assert caught.value.iteration == 3
        assert "point of norm" in str(caught.value)
        if kind == "processes":
            assert gone(before[1])
            assert engine.processes()[0] == before[0]
        da.solve(problem(), METHOD, engine=engine)


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_nothing_changes():
    alone = da.solve(problem(shards=32), METHOD)
    with da.engines.Local(2, "processes") as engine:
        seen = [engine.processes()]

        def kill(x):
            if len(seen) == 1:
                os.kill(seen[0][1], signal.SIGKILL)
            seen.append(engine.processes())

        result = da.solve(problem(), METHOD, engine=engine, callback=kill)
        assert seen[-1][0] == seen[0][0]
        assert seen[-1][1] != seen[0][1]
    np.testing.assert_array_equal(result.x, alone.x)
    assert all(gone(pid) for pids in seen for pid in pids)


@pytest.mark.slow
def test_a_process_that_always_dies_is_reported():
    with (
        da.engines.Local(2, "processes") as engine,
        pytest.raises(
            da.errors.OracleError,
            match=r"must not exit. Got one that exited twice \(code 5\) on worker 1.*See its stderr",
        ),
    ):
        da.solve(problem(failing(lambda x: os._exit(5), at=0)), METHOD, engine=engine)


class SlowToLoad:
    """A sampler that takes long to arrive in a process."""

    def __call__(self, x, n, rng):
        return x

    def __reduce__(self):
        return _loaded_late, (1000.0,)


def _loaded_late(seconds):
    time.sleep(seconds)
    return SlowToLoad()


@pytest.mark.slow
def test_the_timeout_includes_handing_the_oracle_over():
    with da.engines.Local(2, "processes", timeout=2.0) as engine:
        with pytest.raises(da.errors.OracleError, match=r"must load .* timeout = 2 s. Got no reply on worker 0"):
            da.solve(problem(SlowToLoad()), METHOD, engine=engine)
        np.testing.assert_array_equal(
            da.solve(problem(), METHOD, engine=engine).x, da.solve(problem(shards=32), METHOD).x
        )


class FakeClock:
    """Measurements of these many seconds, one after another; each is a call at its start and one at its end."""

    def __init__(self, *seconds):
        self.now, self.left = 0.0, [step for one in seconds for step in (0.0, one)]

    def __call__(self):
        self.now += self.left.pop(0)
        return self.now


def auto(clock, function=sample):
    """A run of two steps with kind="auto", measured by this clock."""
    engine = da.engines.Local(2, clock=clock)
    result = da.solve(problem(function, shards=2), da.SGDA(0.1, 4), stop=da.Steps(2), engine=engine)
    assert result.nit == 2
    assert not clock.left
    return engine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alone", "together", "kind"), [(1.0, 0.5, "threads"), (1.0, 0.74, "threads"), (1.0, 0.9, "processes")]
)
def test_auto_takes_processes_unless_two_threads_are_faster_than_one(alone, together, kind):
    with auto(FakeClock(alone, alone + 3, together + 3, together)) as engine:
        assert engine.in_use == kind


def test_auto_measures_again_after_a_batch_that_is_too_short():
    with auto(FakeClock(0.004, 0.004)) as engine:
        assert not engine._decided
        assert engine.in_use == "threads"


@pytest.mark.slow
def test_auto_stays_with_threads_where_processes_do_not_know_the_sampler(monkeypatch):
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        monkeypatch.setitem(sys.modules, name, None)
    here = ModuleType("known_to_this_process_only")
    monkeypatch.setitem(sys.modules, here.__name__, here)
    exec("def identity(x, n, rng):\n    return x\n", vars(here))
    with auto(FakeClock(1.0, 1.0, 1.0, 1.0), here.identity) as engine:
        assert engine._decided
        assert engine.in_use == "threads"


@pytest.mark.slow
def test_threads_and_processes_agree_on_values_of_another_precision():
    def wide(x, n, rngs):
        return 2 * x.astype(np.float64) - 1 + np.stack([rng.normal(size=40) for rng in rngs])

    found = []
    for kind in ("threads", "processes"):
        with da.engines.Local(2, kind) as engine:
            start = np.ones(40, np.float32)
            found.append(da.solve(problem(wide, vectorized=True), METHOD, x0=start, reps=2, engine=engine).x)
            with pytest.raises(da.errors.OracleError, match=r"real floating-point numbers. Got dtype complex128"):
                da.solve(problem(lambda x, n, rngs: x + 1j, vectorized=True), METHOD, engine=engine)
    assert found[0].dtype == np.float32
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_processes_compute_rounds_of_different_kinds_one_after_another():
    def solved(engine, shards, reps, dtype):
        given = problem(shards=shards)
        start = np.ones(40, dtype)
        return da.solve(given, da.SGDA(0.1, 64), x0=start, reps=reps, stop=da.Steps(3), engine=engine).x

    # other shapes, precisions, assignments and oracles; a specification of more than a page; and the first one again
    kinds = [(32, 2, float), (32, 2, np.float32), (3, 2, float), (1, 1, float), (4, 1200, float), (32, 2, float)]
    with da.engines.Local(3, "processes") as engine:
        for kind in kinds:
            np.testing.assert_array_equal(solved(engine, *kind), solved(None, *kind), err_msg=str(kind))


@pytest.mark.slow
def test_what_cannot_be_pickled_is_named():
    lock = threading.Lock()

    def locked(x, n, rng):
        with lock:
            return x

    with (
        da.engines.Local(2, "processes") as engine,
        pytest.raises(da.errors.CapabilityError, match=r"must be picklable.*threads") as caught,
    ):
        da.solve(problem(locked), METHOD, engine=engine)
    assert "install" not in str(caught.value)


def test_a_pickler_for_functions_is_advised_where_there_is_none(monkeypatch):
    with pytest.raises(da.errors.CapabilityError) as caught:
        pickled(threading.Lock())
    assert "install" not in str(caught.value)
    monkeypatch.setattr("dualanchor.engines.pool._pickler", lambda: pickle)
    with pytest.raises(da.errors.CapabilityError, match=r"'dualanchor\[report\]'.* brings joblib"):
        pickled(lambda x: x)


class SlowBoth:
    """Loaded in half a second, and never done."""

    def __call__(self, x, n, rng):
        time.sleep(1000.0)
        return x

    def __reduce__(self):
        return _slow_both, (0.5,)


def _slow_both(seconds):
    time.sleep(seconds)
    return SlowBoth()


@pytest.mark.slow
def test_loading_an_oracle_has_a_time_of_its_own():
    with (
        da.engines.Local(2, "processes", timeout=4.0) as engine,
        pytest.raises(da.errors.OracleError, match=r"must reply within timeout = 4 s.* Fix the sampler"),
    ):
        da.solve(problem(SlowBoth()), METHOD, engine=engine)


def test_a_plain_function_can_be_attached():
    def sample(x, n, rng):
        return x + rng.normal(size=x.size) / n**0.5

    with da.engines.Local(2, "threads") as engine:
        there = da.certify(engine.attach(sample), np.ones(2), samples=256)
    here = da.certify(da.Sampler(sample, shards=32), np.ones(2), samples=256)
    assert (there.residual, there.upper) == (here.residual, here.upper)


@pytest.mark.slow
def test_data_stay_with_their_worker():
    rows = np.random.default_rng(1).normal(size=(200, 5))
    finite = da.FiniteSum.from_data(rows, lambda x, a: x - a)
    blocks = da.engines.ShardedData(lambda x, a: x - a, lambda first, end: rows[first:end], n=200)
    expected = da.solve(da.Problem(finite, np.zeros(5), constants=da.Constants(L=1.0)), METHOD)
    found = []
    for oracle in (finite, blocks):
        for workers in (1, 2):
            with da.engines.Local(workers, "processes") as engine:
                task = da.Problem(oracle, np.zeros(5), constants=da.Constants(L=1.0))
                found.append(da.solve(task, METHOD, engine=engine))
    for result in found:
        np.testing.assert_allclose(result.x, expected.x, rtol=1e-12)
        assert result.residual == pytest.approx(expected.residual, rel=1e-9)
    np.testing.assert_array_equal(found[0].x, found[1].x)
    np.testing.assert_array_equal(found[2].x, found[3].x)


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_another_number_of_workers(tmp_path):
    path, steps = tmp_path / "run.npz", []

    def interrupt(x):
        steps.append(1)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with da.engines.Local(2, "threads") as engine:
        first = da.solve(problem(), METHOD, engine=engine, checkpoint=path, callback=interrupt)
    assert (first.status.name, first.nit) == ("INTERRUPTED", 4)
    with da.engines.Local(3, "processes") as engine:
        result = da.solve(problem(), METHOD, engine=engine, checkpoint=path)
    assert da.Finding.of("resumed", step=4) in result.findings
    np.testing.assert_array_equal(result.x, da.solve(problem(shards=32), METHOD).x)


PROGRAM = """
import sys, time
import numpy as np, dualanchor as da

def sample(x, n, rng):
    time.sleep(0.002)
    return x + rng.normal(size=x.size)

engine = da.engines.Local(2, "processes")
print(*engine.processes(), flush=True)
problem = da.Problem(da.Sampler(sample), np.ones(3), constants=da.Constants(L=2.0))
def show(x):
    print("step", flush=True)
result = da.solve(problem, da.SGDA(0.01, 32), stop=da.Steps(10**6), engine=engine, callback=show)
print(result.message)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_program(tmp_path, sent):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            pids = [int(word) for word in program.stdout.readline().split()]
            assert len(pids) == 2
            assert program.stdout.readline() == "step\n"
            program.send_signal(sent)
            out, _ = program.communicate(timeout=30)
        finally:
            program.kill()
    if sent == signal.SIGINT:
        assert program.returncode == 0
        assert "interrupted" in out
    assert all(gone(pid) for pid in pids)


def test_latency_is_measured_and_planned_with():
    with da.engines.Local(2, "threads") as engine:
        measured = engine.measure(1000)
        assert measured.latency > 0
        assert measured.per_number >= 0
        assert measured.seconds(1000) == measured.latency + 1000 * measured.per_number
        plan = da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0, workers=engine, sample_cost=1e-3, dimension=1000)
    assert plan.inputs["workers"] == 2
    assert plan.inputs["latency"] > 0
    again = da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0, workers=2, latency=plan.inputs["latency"], sample_cost=1e-3)
    assert (again.rounds, again.samples, again.seconds) == (plan.rounds, plan.samples, plan.seconds)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_pieces_of_a_comparison_run_on_other_backends(backend):
    joblib = pytest.importorskip("joblib")
    here = da.compare(da.problems.affine(dimension=4), ["sgda", "s-dual-ohm"], budget=200, seeds=2, jobs=1)
    with joblib.parallel_config(backend=backend):
        there = da.compare(da.problems.affine(dimension=4), ["sgda", "s-dual-ohm"], budget=200, seeds=2, jobs=2)
    assert repr(here) == repr(there)


def test_the_command_line_has_engines(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np, dualanchor as da\n"
        "def sample(x, n, rng):\n    return 2 * x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)\n"
        "problem = da.Problem(da.Sampler(sample), np.ones(4), constants=da.Constants(L=2.0))\n"
        "open_question = da.Problem(da.Sampler(sample), np.ones(4))\n"
    )

    def run(*words, code=0):
        done = CliRunner().invoke(app, ["solve", *words, "--json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if code == 0 else done.output

    given = [f"{file}:problem", "-b", "3200", "-p", "batch_size=64", "--engine", "local", "--workers"]
    one, two = run(*given, "1"), run(*given, "2")
    assert one == two
    assert one["nfev"] == 3136
    assert run(f"{file}:open_question", "-b", "3000", "--engine", "local", "--workers", "2")["success"]
    assert "--engine local" in run(f"{file}:problem", "-b", "3200", "--workers", "2", code=2)
    assert "one evaluation of F" in run("affine", "-b", "100", "--engine", "local", code=2)
