"""Pieces of a study by joblib's backends: the same numbers, files and errors as in this process."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import joblib
import numpy as np
import pytest
from click.testing import CliRunner

import dualanchor as da
from dualanchor.cli.app import app
from dualanchor.core.result import to_json
from dualanchor.studies.pieces import in_parallel

pytestmark = pytest.mark.slow

PANEL = """
id = "{0}"
title = "Panel {0}"
problem = "affine"
budget = 60
seeds_per_block = 2
[options]
dimension = 6
[methods.s-dual-ohm.grid]
batch_size = [1, 5]
[methods.sgda.grid]
step_size = [0.1, 1.0, 50.0]
"""


@contextmanager
def on_dask():
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    patient = dict.fromkeys(("distributed.comm.timeouts.connect", "distributed.comm.timeouts.tcp"), "300s")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0, **patient}),  # calls of lost workers are given up
        distributed.LocalCluster(processes=True, **settings) as cluster,
        distributed.Client(cluster),
    ):
        yield


@contextmanager
def on_ray():
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    register_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


CLUSTERS = {"loky": nullcontext, "threading": nullcontext, "dask": on_dask, "ray": on_ray}
RAY = [
    # Ray leaves pipes of its own processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", params=["loky", "threading", "dask", pytest.param("ray", marks=RAY)])
def cluster(request):
    with CLUSTERS[request.param]():
        yield request.param


@pytest.fixture
def backend(cluster):
    with joblib.parallel_config(backend=cluster):
        yield cluster


CALLS = [(i,) for i in range(5)]
ON_DASK = pytest.mark.parametrize("cluster", ["dask"], indirect=True)


def square(i):
    return i * i, os.getpid()


def failing(i):
    raise da.errors.OracleError("F must be known", f"call {i}", "Fix it", row=3).located(7, 3, "row 3")


def die(i):
    """The first call kills its worker; a second one would do so while the next study runs."""
    if i == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def note(i, folder):
    """Leave a word; but for the first call, wait for one."""
    (folder / f"begun-{i}").touch()
    end = time.monotonic() + 5
    while i and not (folder / f"go-{i}").exists() and time.monotonic() < end:
        time.sleep(0.01)


def own():
    A = np.array([[1.0, 2.0], [-2.0, 1.0]])

    def sample(x, n, rng):
        return A @ x + rng.normal(size=(n, 2)).mean(axis=0)

    return da.Problem(da.Sampler(sample), [3.0, 1.0], constants=da.Constants(L=5.0), name="own")


def everything(comparison):
    """Every number that was found, in as many digits as tell floats apart."""
    return to_json(comparison.study.results), comparison.study.curves_csv()


def test_every_call_is_made_once_and_elsewhere(backend):
    found = list(in_parallel(square, CALLS, 2))
    assert sorted(value for value, _ in found) == [0, 1, 4, 9, 16]
    assert all((process == os.getpid()) == (backend == "threading") for _, process in found)
    assert {process for _, process in in_parallel(square, CALLS, 1)} == {os.getpid()}


@pytest.mark.parametrize("problem", [da.problems.affine(dimension=4), own()], ids=["named", "own"])
def test_a_comparison_finds_the_same_to_the_last_bit(backend, problem):
    here, there = (da.compare(problem, ["sgda", "s-dual-ohm"], budget=200, seeds=3, jobs=jobs) for jobs in (1, 2))
    assert everything(here) == everything(there)


def test_reproduce_writes_the_same_files(backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where workers that have been started before are not
    for name in "abc":  # with three figures one is drawn elsewhere
        (tmp_path / f"{name}.toml").write_text(PANEL.format(name))
    for jobs in "12":
        words = ["reproduce", "a.toml", "b.toml", "c.toml", "--seeds", "4", "--jobs", jobs, "--out", jobs]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / jobs).glob("*.*")} for jobs in "12")
    assert {"results.json", "curves.csv", "report.html", "a.png", "b.svg"} <= set(one)
    assert one == two
    one, two = (sorted(path.name for path in (tmp_path / jobs / "store").iterdir()) for jobs in "12")
    assert one == two != []


def test_errors_of_an_oracle_come_through_whole(backend):
    with pytest.raises(da.errors.OracleError, match=r"Got call . at iteration 7, row 3. Fix it.") as caught:
        list(in_parallel(failing, CALLS, 2))
    rule, received, remedy = caught.value.parts
    assert (rule, received[6:], remedy) == ("F must be known", " at iteration 7, row 3", "Fix it")
    assert (caught.value.row, caught.value.iteration) == (3, 7)
    assert len(list(in_parallel(square, CALLS, 2))) == 5


def test_an_oracle_that_raises_ends_a_comparison_as_it_does_here(backend):
    def sample(x, n, rng):
        raise ZeroDivisionError(f"process {os.getpid()}")

    problem, said, places = da.Problem(da.Sampler(sample), [3.0, 1.0], constants=da.Constants(L=5.0)), [], []
    for jobs in (1, 2):
        with pytest.raises(da.errors.OracleError, match="ZeroDivisionError: process") as caught:
            da.compare(problem, ["sgda", "s-dual-ohm"], budget=200, seeds=2, jobs=jobs)
        places.append(re.search(r"process (\d+)", str(caught.value))[1])
        words = [part.replace(places[-1], "") for part in (str(caught.value), *caught.value.parts)]
        said.append((words, caught.value.iteration, caught.value.row))
    assert said[0] == said[1]
    assert (places[0] == places[1]) == (backend == "threading")


def died(backend):
    """What a worker that dies raises."""
    if backend == "dask":
        from distributed import KilledWorker

        return KilledWorker
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    return TerminatedWorkerError


@pytest.mark.parametrize("cluster", ["loky", "dask"], indirect=True)
def test_a_worker_that_dies_is_an_error_and_the_next_study_has_others(backend):
    with pytest.raises(died(backend)):
        list(in_parallel(die, CALLS[:2], 2))
    assert len(list(in_parallel(square, CALLS, 2))) == 5


@ON_DASK
def test_a_value_that_dask_cannot_send_is_an_error(backend):
    with pytest.raises(TypeError, match="serialize"):
        list(in_parallel(lambda i: threading.Lock(), CALLS[:2], 2))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # loky may look up a call given up
@pytest.mark.parametrize("cluster", ["loky", "dask"], indirect=True)
def test_calls_that_are_given_up_are_not_begun(backend, tmp_path):
    found = in_parallel(note, [(i, tmp_path) for i in range(40)], 2)
    next(found)
    found.close()
    begun = [path.name.partition("-")[2] for path in tmp_path.glob("begun-*")]
    for number in begun:
        (tmp_path / f"go-{number}").touch()
    assert len(list(in_parallel(square, CALLS, 2))) == 5  # behind what had begun
    assert len(list(tmp_path.glob("begun-*"))) <= len(begun) + 2  # one for each worker, while the word went round


PROGRAM = """
import sys
from pathlib import Path
import numpy as np, dualanchor as da
import module_beside_the_program

folder = Path(sys.argv[1])

def sample(x, n, rng):
    module_beside_the_program.hang(folder)

problem = da.Problem(da.Sampler(sample), [3.0, 1.0], constants=da.Constants(L=5.0))
da.compare(problem, ["sgda", "seg", "s-dual-ohm"], budget=200, seeds=2, jobs=3)
"""


def family(ancestor):
    """The processes started by this one, and by those."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
    found = [ancestor]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def wait_for(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_study_leaves_nothing_behind(tmp_path, sent):
    script, folder, temporary = tmp_path / "program.py", tmp_path / "folder", tmp_path / "temporary"
    script.write_text(PROGRAM)
    (tmp_path / "module_beside_the_program.py").write_text(
        "import os, threading\n"
        "def hang(folder):\n"
        "    (folder / f'worker-{os.getpid()}').touch()\n"
        "    threading.Event().wait()\n"
    )
    folder.mkdir(), temporary.mkdir()
    for name in ("random", "mmap", "socket"):
        (folder / f"{name}.py").write_text("open('imported', 'w').close()\n")
    before = set(Path("/dev/shm").iterdir())
    words = [sys.executable, str(script), str(folder)]
    with subprocess.Popen(words, cwd=folder, env={**os.environ, "TMPDIR": str(temporary)}, stderr=-1) as program:
        wait_for(lambda: len(list(folder.glob("worker-*"))) == 3)
        workers = family(program.pid)
        assert {f"worker-{pid}" for pid in workers} >= {path.name for path in folder.glob("worker-*")}
        program.send_signal(sent)
        program.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    mine = f"-{program.pid}-"
    wait_for(lambda: not [path for path in set(Path("/dev/shm").iterdir()) - before if mine in path.name])
    wait_for(lambda: not list(temporary.iterdir()))
    assert not (folder / "imported").exists()


def test_pieces_do_not_repeat_randomness_from_outside(tmp_path):
    outside = np.random.default_rng(0)

    def sample(x, n, rng):
        np.save(tmp_path / f"{os.getpid()}-{time.monotonic_ns()}.npy", outside.random())
        return x

    problem = da.Problem(da.Sampler(sample), [3.0, 1.0], constants=da.Constants(L=5.0))
    da.compare(problem, ["sgda", "seg"], budget=10, seeds=2, jobs=2)
    drawn = [float(np.load(path)) for path in tmp_path.iterdir()]
    assert len(drawn) >= 20
    assert len(set(drawn)) == len(drawn)
