"""Threads and processes of this machine as workers, with the faults they may have."""

import contextlib
import importlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

import dualanchor as da
import dualanchor.engines.pool
from dualanchor.cli.app import app
from dualanchor.engines.local import run_in_parallel
from dualanchor.engines.pool import pickled

METHOD = da.DualOHM(0.4, 12, 64)
KINDS = ["threads", pytest.param("processes", marks=pytest.mark.slow)]
SHARDS_OF_A_WORKER = 16  # of 32, with two workers


@pytest.fixture(scope="module")
def engines():
    """Two workers of each kind, started once for the tests that leave them as they are."""
    made = {}
    yield lambda kind: made.setdefault(kind, da.engines.Local(2, kind))
    for engine in made.values():
        engine.close()


@pytest.fixture
def engine(engines, request):
    return engines(request.param)


EACH_KIND = pytest.mark.parametrize("engine", KINDS, indirect=True)


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


def wait_for(condition):
    """Whether a condition comes true in time."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
    return True


def gone(pid):
    """Whether a process ends; a zombie counts as ended."""

    def ended():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    return wait_for(ended)


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing():
    alone = da.solve(problem(shards=32), METHOD, reps=2, seed=5)
    for kind in ("threads", "processes"):
        for workers in (1, 2, 4):
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


@EACH_KIND
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda x: 1 / 0, "ZeroDivisionError: division by zero on worker 1"),
        (lambda x: x * np.nan, "NaN on worker 1"),
        (lambda x: x[:2], "shape \\(2,\\) for x of shape \\(40,\\) and n = 2 on worker 1"),
    ],
)
def test_a_fault_on_one_worker_is_reported_with_worker_round_and_point(engine, fault, words):
    with pytest.raises(da.errors.OracleError, match=words) as caught:
        da.solve(problem(failing(fault)), METHOD, engine=engine)
    error = caught.value
    assert error.iteration == 3
    assert error.result.nit == 3
    assert "at iteration 3, row 0" in str(error)
    point = float(str(error).split("point of norm ")[1].split(" ")[0])
    assert point == pytest.approx(np.linalg.norm(error.result.x), rel=1e-5)
    assert_still_works(engine)


@EACH_KIND
def test_nan_far_out_is_divergence_with_an_engine_as_without(engine):
    oracle = da.Sampler(outgrown, shards=32)
    alone, here = (
        da.solve(da.Problem(oracle, np.ones(2)), da.SGDA(1.0, 4), budget=400, engine=one) for one in (None, engine)
    )
    assert alone.status is here.status is da.Status.DIVERGED
    assert alone.nit == here.nit


def outgrown(x, n, rng):
    return np.where(np.abs(x) > 1e15, np.nan, -3 * x)


def assert_still_works(engine):
    np.testing.assert_array_equal(da.solve(problem(), METHOD, engine=engine).x, da.solve(problem(shards=32), METHOD).x)


@EACH_KIND
def test_threads_of_a_program_take_turns(engine):
    method = da.DualOHM(0.4, 60, 64)
    alone = [da.solve(problem(shards=32), method, seed=seed).x for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(da.solve, problem(), method, seed=seed, engine=engine) for seed in range(4)]
        for run, expected in zip(runs, alone, strict=True):
            np.testing.assert_array_equal(run.result().x, expected)


def test_a_sampler_that_ends_its_thread_is_reported():
    with da.engines.Local(2, "threads", timeout=300) as engine:
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
        da.engines.Local(2, "threads", timeout=300) as engine,
        pytest.raises(da.errors.OracleError, match=r"by its own workers.*Use another engine in the sampler"),
    ):
        da.solve(problem(lambda x, n, rng: use(engine)), METHOD, engine=engine)


def test_another_engine_may_be_used_by_workers():
    with da.engines.Local(2, "threads", timeout=300) as engine, da.engines.Local(2, "threads", timeout=300) as other:
        nested = problem(lambda x, n, rng: x - da.solve(problem(), METHOD, engine=other).x)
        assert da.solve(nested, da.SGDA(0.1, 4), stop=da.Steps(2), engine=engine).nit == 2


def late(number, hanging):
    """In place of a deadline: this worker is late once the file is there; others have five minutes."""

    def received(worker, deadline):
        end = time.monotonic() + 300
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                return worker.receive(0.01)
            if worker.number == number and hanging.exists():
                break
        raise TimeoutError

    return received


def never(worker, deadline):
    raise TimeoutError


@EACH_KIND
def test_a_worker_that_hangs_is_reported_and_replaced(engine, tmp_path, monkeypatch):
    hanging = tmp_path / "hanging"
    monkeypatch.setattr("dualanchor.engines.pool._received", late(1, hanging))
    monkeypatch.setattr(engine, "timeout", 3.0)

    def hang(x):
        hanging.touch()
        threading.Event().wait()

    before = engine.processes()
    with pytest.raises(da.errors.OracleError, match=r"timeout = 3 s. Got no reply on worker 1") as caught:
        da.solve(problem(failing(hang)), METHOD, engine=engine)
    assert caught.value.iteration == 3
    assert "point of norm" in str(caught.value)
    if before:
        assert gone(before[1])
        assert engine.processes()[0] == before[0]
    hanging.unlink()
    assert_still_works(engine)


@pytest.mark.slow
def test_deadlines_are_kept_by_the_clock():
    with (
        da.engines.Local(2, "processes", timeout=0.5) as engine,
        pytest.raises(da.errors.OracleError, match=r"must reply within timeout = 0.5 s.* Fix the sampler"),
    ):
        da.solve(problem(lambda x, n, rng: threading.Event().wait()), METHOD, engine=engine)


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


class NeverLoaded:
    """A sampler that does not arrive in a process."""

    def __init__(self, hanging):
        self._hanging = hanging

    def __call__(self, x, n, rng):
        return x

    def __reduce__(self):
        return _load_forever, (self._hanging,)


def _load_forever(hanging):
    if os.environ["DUALANCHOR_WORKER"] == "0":
        hanging.touch()
        threading.Event().wait()
    return NeverLoaded(hanging)


@pytest.mark.slow
@pytest.mark.parametrize(("timeout", "seconds"), [(None, 60), (2.0, 60), (90.0, 90)])
def test_loading_the_oracle_has_a_time_of_its_own(engines, timeout, seconds, tmp_path, monkeypatch):
    engine, hanging = engines("processes"), tmp_path / "hanging"
    monkeypatch.setattr("dualanchor.engines.pool._received", late(0, hanging))
    monkeypatch.setattr(engine, "timeout", timeout)
    with pytest.raises(
        da.errors.OracleError, match=rf"must load the oracle within {seconds} s. Got no reply on worker 0"
    ):
        da.solve(problem(NeverLoaded(hanging)), METHOD, engine=engine)
    hanging.unlink()
    assert_still_works(engine)


@pytest.mark.slow
def test_a_worker_that_does_not_start_is_reported(monkeypatch):
    monkeypatch.setattr("dualanchor.engines.pool._received", never)
    with pytest.raises(da.errors.CapabilityError, match=r"must start. Got no reply. Use Local\(kind='threads'\)"):
        da.engines.Local(1, "processes").processes()


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_replaces_another_is_reported_with_the_result(monkeypatch):
    with da.engines.Local(2, "processes") as engine:
        steps = []

        def kill(x):
            steps.append(1)
            if len(steps) == 3:
                monkeypatch.setattr(sys, "executable", "/bin/false")  # what replaces it exits at once
                os.kill(engine.processes()[1], signal.SIGKILL)

        with pytest.raises(da.errors.OracleError, match=r"exited twice \(code 1\) on worker 1") as caught:
            da.solve(problem(), METHOD, engine=engine, callback=kill)
        assert caught.value.result.nit == 3
        monkeypatch.undo()
        assert_still_works(engine)


@pytest.mark.parametrize(
    ("one", "two", "parallel"),
    [
        ([1.0], [0.5], True),
        ([1.0], [0.74], True),
        ([1.0], [0.9], False),
        ([1.0], [3.0, 0.9, 0.6], False),  # no more after 0.2 s
        ([0.02], [0.06, 0.03, 0.011], True),  # disturbed, then not
        ([1.5, 1.0], [0.9], False),  # one thread was slow by chance
    ],
)
def test_threads_run_in_parallel_if_two_are_seen_to_be_faster_than_one(one, two, parallel):
    def given(seconds):
        return lambda: seconds.pop(0) if len(seconds) > 1 else seconds[0]

    assert run_in_parallel(given(one), given(two)) is parallel


def auto(function):
    """An engine with kind="auto" after a run of two steps."""
    engine = da.engines.Local(2)
    result = da.solve(problem(function, shards=2), da.SGDA(0.1, 4), stop=da.Steps(2), engine=engine)
    assert result.nit == 2
    return engine


@pytest.mark.slow
def test_auto_never_takes_threads_for_a_sampler_that_holds_the_lock():
    def busy(x, n, rng):
        for _ in range(1_000_000):
            pass
        return x

    with auto(busy) as engine:
        assert engine.in_use == "processes"


def test_auto_measures_again_after_a_batch_that_is_too_short(monkeypatch):
    monkeypatch.setattr("dualanchor.engines.local._MEASURABLE", 1000.0)
    with auto(sample) as engine:
        assert not engine._decided
        assert engine.in_use == "threads"


@pytest.mark.slow
def test_auto_stays_with_threads_where_processes_do_not_know_the_sampler(monkeypatch):
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        monkeypatch.setitem(sys.modules, name, None)
    here = ModuleType("known_to_this_process_only")
    monkeypatch.setitem(sys.modules, here.__name__, here)
    exec("def identity(x, n, rng):\n    return x\n", vars(here))
    monkeypatch.setattr("dualanchor.engines.local._MEASURABLE", 0.0)
    monkeypatch.setattr("dualanchor.engines.local.run_in_parallel", lambda one, two: False)
    with auto(here.identity) as engine:
        assert engine._decided
        assert engine.in_use == "threads"


@pytest.mark.slow
def test_threads_and_processes_agree_on_values_of_another_precision(engines):
    def wide(x, n, rngs):
        return 2 * x.astype(np.float64) - 1 + np.stack([rng.normal(size=40) for rng in rngs])

    found = []
    for kind in ("threads", "processes"):
        engine, start = engines(kind), np.ones(40, np.float32)
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
def test_what_cannot_be_pickled_is_named(engines):
    lock = threading.Lock()

    def locked(x, n, rng):
        with lock:
            return x

    with pytest.raises(da.errors.CapabilityError, match=r"must be picklable.*threads") as caught:
        da.solve(problem(locked), METHOD, engine=engines("processes"))
    assert "install" not in str(caught.value)


def test_a_pickler_for_functions_is_advised_where_there_is_none(monkeypatch):
    with pytest.raises(da.errors.CapabilityError) as caught:
        pickled(threading.Lock())
    assert "install" not in str(caught.value)
    monkeypatch.setattr("dualanchor.engines.pool._pickler", lambda: pickle)
    with pytest.raises(da.errors.CapabilityError, match=r"'dualanchor\[report\]'.* brings joblib"):
        pickled(lambda x: x)


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


OUTSIDE = np.random.default_rng(0)
LEGACY, PYTHON = np.random.RandomState(0), random.Random(0)


class Simulator:
    own = np.random.default_rng(0)  # of the class

    def __init__(self):
        self.state = np.random.default_rng(0)  # and of the object

    def __call__(self, x, n, rng):
        return np.array([self.own.random(), self.state.random()])


def from_globals(x, n, rng):
    return np.array([OUTSIDE.random(), LEGACY.random_sample(), PYTHON.random(), np.random.random(), random.random()])  # noqa: NPY002


def in_a_closure():
    held = np.random.Generator(np.random.MT19937(0))
    return lambda x, n, rng: np.array([held.random()])


def in_a_module(folder):
    """A function of a module that is imported on each worker, and seeds what it draws from."""
    (folder / "outside_module.py").write_text(
        "import random, numpy as np\n"
        "np.random.seed(0), random.seed(0)\n"
        "rng = np.random.default_rng(0)\n"
        "def sample(x, n, _):\n    return np.array([rng.random(), np.random.random(), random.random()])\n"
    )
    return importlib.import_module("outside_module").sample


def from_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    held = torch.Generator().manual_seed(0)
    return lambda x, n, rng: np.array([torch.rand(1).item(), torch.rand(1, generator=held).item()])


@pytest.mark.slow
@pytest.mark.parametrize("where", ["globals", "object", "closure", "module", "torch"])
def test_workers_do_not_repeat_randomness_from_outside(where, engines, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    made = {
        "globals": lambda: from_globals,
        "object": Simulator,
        "closure": in_a_closure,
        "module": lambda: in_a_module(tmp_path),
        "torch": from_torch,
    }
    inner = made[where]()

    def noted(x, n, rng):
        drawn = inner(x, n, rng)
        name = f"{os.environ['DUALANCHOR_WORKER']}-{os.getpid()}-{time.monotonic_ns()}.npy"
        np.save(tmp_path / name, drawn)
        return x

    with as_main_program():
        for _ in range(2):  # a second run gets the same copies of generators
            da.solve(problem(noted, shards=4), da.SGDA(0.1, 4), stop=da.Steps(3), engine=engines("processes"))
    drawn = np.array([np.load(path) for path in tmp_path.glob("*.npy")])
    assert len(drawn) == 2 * 3 * 4
    for column in drawn.T:
        assert len(set(column)) == len(column)


@contextlib.contextmanager
def as_main_program():
    """Functions of this module are sent by value, as those of a main program are."""
    pickler, module = dualanchor.engines.pool._pickler(), sys.modules[__name__]
    pickler.register_pickle_by_value(module)
    yield
    pickler.unregister_pickle_by_value(module)


class Unseedable(random.Random):
    def seed(self, value):
        super().seed(value)


@pytest.mark.slow
def test_a_generator_that_cannot_be_seeded_anew_is_refused(engines):
    held = Unseedable(0)
    with pytest.raises(
        da.errors.OracleError, match=r"seeded anew on each worker. Got a Unseedable .*Draw from the rng that is passed"
    ):
        da.solve(problem(lambda x, n, rng: x + held.random()), METHOD, engine=engines("processes"))
    assert_still_works(engines("processes"))


@EACH_KIND
def test_an_engine_is_not_used_after_a_fork(engine):
    da.solve(problem(), METHOD, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
        child = os.fork()
    if child == 0:
        try:
            da.solve(problem(), METHOD, engine=engine)
        except da.errors.CapabilityError as error:
            if "in the process that made it" in str(error) and "Make another engine after the fork" in str(error):
                engine.close()  # leaves the workers to the parent
                with da.engines.Local(1, "threads") as other:
                    da.solve(problem(), METHOD, engine=other)
                os._exit(7)
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert_still_works(engine)


PROGRAM = """
import os, sys, time
import numpy as np, dualanchor as da
from module_beside_the_program import scale

hanging = sys.argv[1] if len(sys.argv) > 1 else None

def sample(x, n, rng):
    if hanging and os.environ["DUALANCHOR_WORKER"] == "1":
        open(hanging, "w").close()
        time.sleep(1000)  # never ends
    return scale * x + rng.normal(size=x.size)

engine = da.engines.Local(2, "processes")
print(*engine.processes(), flush=True)
problem = da.Problem(da.Sampler(sample), np.ones(3), constants=da.Constants(L=2.0))
def show(x):
    print("step", flush=True)
result = da.solve(problem, da.SGDA(0.01, 32), stop=da.Steps(10**6), engine=engine, callback=show)
print(result.message)
"""


@pytest.fixture
def script(tmp_path):
    """A program with a module beside it, and a folder in which files have names of the standard library's modules."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "module_beside_the_program.py").write_text("scale = 1.0\n")
    (tmp_path / "program" / "program.py").write_text(PROGRAM)
    (tmp_path / "elsewhere").mkdir()
    for name in ("mmap", "random", "socket", "pickle", "encodings", "subprocess"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text("open('imported', 'w').close()\n")
    return tmp_path / "program" / "program.py"


@contextlib.contextmanager
def running(script, *words):
    """The program on its way, and its workers."""
    command, folder = [sys.executable, str(script), *map(str, words)], script.parent.parent / "elsewhere"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as program:
        try:
            yield program, [int(word) for word in program.stdout.readline().split()]
        finally:
            program.kill()


@pytest.mark.slow
def test_ctrl_c_ends_program_and_workers_and_files_of_the_folder_are_not_imported(script):
    with running(script) as (program, pids):
        assert len(pids) == 2
        assert program.stdout.readline() == "step\n"
        program.send_signal(signal.SIGINT)
        out, _ = program.communicate(timeout=300)
    assert program.returncode == 0
    assert "interrupted" in out
    assert all(gone(pid) for pid in pids)
    assert not (script.parent.parent / "elsewhere" / "imported").exists()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_program_even_in_the_midst_of_a_sample(script, sent):
    hanging = script.parent / "hanging"
    with running(script, hanging) as (program, pids):
        wait_for(hanging.exists)
        program.send_signal(sent)
        program.wait(timeout=300)
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


@pytest.mark.slow
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
