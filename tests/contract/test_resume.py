"""A run that was interrupted and taken up again ends as if nothing had happened, bit for bit."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.contract.cases import SEED, assert_same_result, every_method, one_stack_each
from tests.contract.driver import CHUNK_STEPS, Clock
from tests.contract.oracles import WatchedProblem

import dualanchor as da
from dualanchor.core import files
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.methods.auto import Auto


class InterruptionError(Exception):
    """What the tests raise to end a run abruptly."""


def interrupt_at(step):
    """A callback that raises after `step` steps."""
    calls = []

    def callback(x):
        calls.append(1)
        if len(calls) == step:
            raise InterruptionError

    return callback


def active_rows(path):
    """The groups of rows in a checkpoint that may go on; none before the run has begun."""
    run = files.read_arrays(path)[0]["run"]
    return [] if run is None else run["active"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Whether a file reaches the disk before a power failure is not what these tests are about."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Copies of every checkpoint that is written, as an untimely end would leave them."""
    made = []

    def write(path, header, arrays):
        files.write_arrays(path, header, arrays)
        made.append(shutil.copy(path, tmp_path / f"copy-{len(made)}"))

    monkeypatch.setattr("dualanchor.run.checkpoint.write_arrays", write)
    return made


@one_stack_each
def test_resume_from_any_checkpoint_while_rows_end_one_by_one(case, methods, copies, tmp_path):
    options = {"budget": 80, "seed": SEED, "reps": 2, "record": 3, "check": False}
    whole = da.solve(case.problem, methods, **options)
    watched = da.solve(case.problem, methods, checkpoint=da.Checkpoint(tmp_path / "run", seconds=0), **options)
    assert_same_result(whole, watched)
    chosen = np.random.default_rng(SEED).choice(copies[:-1], size=2)
    for copy in chosen:
        assert_same_result(whole, da.solve(case.problem, methods, checkpoint=copy, **options))


@dataclass(frozen=True)
class Twice(Staged):
    """Stages within stages: a run of the inner method, its end halved, and a run of it again from there."""

    inner: Any
    step_size: Any = 1.0

    id, title, citation = "twice", "Twice", "dualanchor"

    def stage(self, number, memory):
        return Stage(self.inner, self.inner.begin(memory.x), None)

    def choose(self, number, memory, s, F):
        memory.x = 0.5 * s.x
        return np.full(len(s.x), number + 1 if number == 0 else END)


def spread(copies, count=10):
    """So many of the checkpoints, from the first to the last; resuming makes more of them."""
    return [copies[i] for i in np.unique(np.linspace(0, len(copies) - 1, count).astype(int))]


IN_STAGES = {
    "auto": Auto(1.0, 400),
    "anytime": da.AnytimeDualOHM(1.0, 0.003),
    "restarted": da.RestartedDualOHM(1.0, (9, 12, 30), (2, da.Tapered(30.0), 1)),
    "stages within stages": Twice(da.RestartedDualOHM(1.0, (9, 30), (2, 1))),
    "auto within stages": Twice(Auto(1.0, 300)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_STAGES)
def test_a_run_in_stages_resumes_from_checkpoints_all_along(name, copies, tmp_path, monkeypatch):
    """Rows are in different stages, where the method chooses; a checkpoint is written every 16 steps."""
    monkeypatch.setattr(CHUNK_STEPS, 16)
    problem = da.problems.finite_sum_cocoercive(components=9, dimension=8, rank=5)
    options = {"budget": 700, "seed": SEED, "reps": 4, "record": 5, "check": False}
    whole = da.solve(problem, IN_STAGES[name], **options)
    da.solve(problem, IN_STAGES[name], checkpoint=da.Checkpoint(tmp_path / "run", seconds=0), **options)
    stages = [rows["stages"] for copy in copies for rows in active_rows(copy)]
    assert len({str(levels) for levels in stages}) >= 2
    for copy in spread(copies):
        assert_same_result(whole, da.solve(problem, IN_STAGES[name], checkpoint=copy, **options))


@pytest.mark.slow
def test_a_request_for_an_accuracy_resumes_from_checkpoints_all_along(copies, tmp_path):
    """Certificates between stages that are in stages themselves, and corrections that are not."""
    asked = []

    def sample(x, n, rng):
        asked.append(n)
        return 0.5 * x - 1 + rng.normal(size=x.size) / n**0.5

    options = {"x0": np.zeros(3), "eps": 0.15, "L": 1.0, "reps": 2}
    whole, spent = da.root(sample, **options), sum(asked)
    da.root(sample, checkpoint=da.Checkpoint(tmp_path / "run", seconds=0), **options)
    assert {len(rows["stages"]) for copy in copies for rows in active_rows(copy)} == {1, 2}
    for copy in spread(copies):
        asked.clear()
        resumed = da.root(sample, checkpoint=copy, **options)
        assert sum(asked) < spent
        assert_same_result(whole, resumed)
        np.testing.assert_array_equal(resumed.certificate.upper, whole.certificate.upper)


@pytest.mark.slow
@every_method
def test_resume_next_to_rows_that_have_diverged(case, copies, tmp_path):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 1e6, 1e9)]
    options = {"stop": da.Steps(50), "seed": SEED, "reps": 2, "record": 3, "check": False}
    whole = da.solve(case.problem, methods, **options)
    da.solve(case.problem, methods, checkpoint=da.Checkpoint(tmp_path / "run", seconds=0), **options)
    for copy in (copies[len(copies) // 3], copies[-2]):
        assert_same_result(whole, da.solve(case.problem, methods, checkpoint=copy, **options))


@pytest.mark.slow
@every_method
def test_resume_many_times(case, tmp_path):
    """Every interval between two interruptions is short."""
    method = case.make(horizon=80)
    options = {"stop": da.Steps(20), "seed": SEED, "reps": 2, "record": "all"}
    path, ended = tmp_path / "run", None
    while ended is None:
        with contextlib.suppress(InterruptionError):
            ended = da.solve(
                case.problem, method, callback=interrupt_at(7), checkpoint=da.Checkpoint(path, seconds=0), **options
            )
    assert_same_result(da.solve(case.problem, method, **options), ended)


@pytest.mark.slow
@pytest.mark.parametrize("failing_call", [1, 17])
@every_method
def test_resume_after_the_oracle_failed_and_was_fixed(case, failing_call, tmp_path):
    problem, method = WatchedProblem(case.problem), case.make(horizon=40)
    options = {"budget": 90, "seed": SEED, "reps": 2, "record": 4}
    whole = da.solve(case.problem, method, **options)
    path = tmp_path / "run"

    def break_it(x):
        problem.log.broken = problem.log.calls >= failing_call

    problem.log.broken = failing_call == 1
    with pytest.raises(da.errors.OracleError) as caught:
        da.solve(problem, method, callback=break_it, checkpoint=path, **options)
    assert path.exists()
    failed = caught.value.result
    at_work = failed.status == da.Status.FAILED  # the others had spent their budget
    assert at_work.any()
    assert not failed.success[at_work].any()
    assert (failed.nit[at_work] == caught.value.iteration).all()
    problem.log.broken = False
    assert_same_result(whole, da.solve(problem, method, checkpoint=path, **options))


@pytest.mark.slow
@every_method
def test_an_oracle_that_fails_once_is_asked_again_or_raises(case, tmp_path):
    """Whether the failing call falls into a chunk of many steps or into a single one, nothing is lost."""
    options = {"budget": 200, "seed": SEED, "reps": 2, "record": 4}
    method = case.make(horizon=60)
    whole = da.solve(case.problem, method, **options)
    for call in (1, 2, 11):
        problem, path = WatchedProblem(case.problem), tmp_path / f"{call}"
        problem.log.fail_at = call
        try:
            result = da.solve(problem, method, checkpoint=path, **options)
        except da.errors.OracleError:
            result = da.solve(problem, method, checkpoint=path, **options)
        assert_same_result(whole, result)


def test_resume_after_an_operator_that_can_no_longer_be_asked_failed(tmp_path):
    """Here the true operator fails with the samples, so the run cannot even look at its residual."""
    broken = []

    def operator(x):
        if broken:
            raise ZeroDivisionError("a defect of the operator")
        return x

    def break_it(x):
        if x[0] < 0.8:
            broken.append(1)

    problem = da.Problem(da.AdditiveNoise(operator, 0.01), np.ones(3), constants=da.Constants(L=1.0))
    options = {"budget": 40, "record": 0}
    whole = da.solve(problem, da.SGDA(0.1), **options)
    with pytest.raises(da.errors.OracleError, match="iteration") as caught:
        da.solve(problem, da.SGDA(0.1), callback=break_it, checkpoint=tmp_path / "run", **options)
    assert caught.value.result is not None
    assert caught.value.result.nit == caught.value.iteration > 0
    assert (tmp_path / "run").exists()
    broken.clear()
    assert_same_result(whole, da.solve(problem, da.SGDA(0.1), checkpoint=tmp_path / "run", **options))


def test_a_finished_run_is_not_run_again(tmp_path):
    calls = []

    def sample(x, n, rng):
        calls.append(n)
        return x + rng.normal(size=x.size) / np.sqrt(n)

    problem = da.Problem(da.Sampler(sample), np.ones(3), constants=da.Constants(L=1.0))
    options = {"budget": 30, "checkpoint": tmp_path / "run"}
    first = da.solve(problem, "s-dual-ohm", **options)
    spent = len(calls)
    assert_same_result(first, da.solve(problem, "s-dual-ohm", **options))
    assert len(calls) <= spent + 1, "one sample shows whether F has changed"


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_ctrl_c_ends_after_the_present_step_and_the_run_goes_on_later(seconds, tmp_path):
    problem, method = da.problems.affine(dimension=4), da.DualOHM(1.0, 60)
    whole = da.solve(problem, method, reps=2, record=5)
    calls = []

    def callback(x):
        calls.append(1)
        if len(calls) == 20:
            os.kill(os.getpid(), signal.SIGINT)

    path = da.Checkpoint(tmp_path / "run", seconds)
    stopped = da.solve(problem, method, reps=2, record=5, callback=callback, checkpoint=path)
    assert (stopped.status == da.Status.INTERRUPTED).all()
    assert (stopped.nit == 20).all()
    assert not stopped.success.any()
    assert_same_result(whole, da.solve(problem, method, reps=2, record=5, checkpoint=path))


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_run_whose_time_was_up_goes_on_later(seconds, tmp_path, monkeypatch):
    clock = Clock(monkeypatch)

    def operator(x):
        clock.now += 1.0
        return x

    problem, method = da.Problem(da.AdditiveNoise(operator, 0.1), np.ones(4)), da.SGDA(0.1)
    whole = da.solve(problem, method, budget=40, record=[0])
    saved = da.Checkpoint(tmp_path / "run", seconds)
    options = {"budget": 40, "stop": da.WallTime(12.0), "record": [0], "checkpoint": saved}
    later = da.solve(problem, method, **options)
    assert later.status is da.Status.WALL_TIME
    while later.status is da.Status.WALL_TIME:
        later, before = da.solve(problem, method, **options), later
        assert later.nit > before.nit
    assert_same_result(whole, later)


def test_ctrl_c_twice_ends_at_once():
    def sample(x, n, rng):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return x

    handler = signal.getsignal(signal.SIGINT)
    problem = da.Problem(da.Sampler(sample), np.ones(2), constants=da.Constants(L=1.0))
    with pytest.raises(KeyboardInterrupt):
        da.solve(problem, "sgda", budget=10)
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_handler_of_ctrl_c_is_put_back():
    handler = signal.getsignal(signal.SIGINT)
    da.solve(da.problems.affine(dimension=4), "sgda", budget=10)
    with pytest.raises(InterruptionError):
        da.solve(da.problems.affine(dimension=4), "sgda", budget=10, callback=interrupt_at(2))
    assert signal.getsignal(signal.SIGINT) is handler


RUN = """
import sys
import numpy as np
import dualanchor as da

calls = []

def problem(last=None):
    def operator(x):
        calls.append(1)
        if len(calls) == last:  # tell whoever started this, and wait for the end
            print("ready", flush=True)
            sys.stdin.read()
        return np.linspace(0.1, 1.0, 4) * x

    return da.Problem(da.AdditiveNoise(operator, 0.2, vectorized=True), np.ones(4), constants=da.Constants(L=1.0))

METHODS = [da.HalpernPAGE(0.5, 7, 2), da.HalpernPAGE(0.5, 3, 1)]
OPTIONS = {"budget": 600, "seed": 3, "reps": 3, "record": 6}

if __name__ == "__main__":
    da.solve(problem(last=100), METHODS, checkpoint=da.Checkpoint(sys.argv[1], seconds=0.0), **OPTIONS)
"""


def test_resume_after_the_process_was_killed(tmp_path):
    script, path = tmp_path / "run.py", tmp_path / "checkpoint"
    script.write_text(RUN)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(script), str(path)], **pipes) as process:
        try:
            assert process.stdout.readline() == b"ready\n", "the run ended before it could be killed"
        finally:
            process.kill()  # SIGKILL where there is one: nothing of the process runs any more
    scope = {"__name__": "run"}
    exec(compile(RUN, "run.py", "exec"), scope)
    problem, methods, options = scope["problem"](), scope["METHODS"], scope["OPTIONS"]
    (saved,) = active_rows(path)
    resumed = da.solve(problem, methods, checkpoint=path, **options)
    assert_same_result(da.solve(problem, methods, **options), resumed)
    assert (resumed.nit > saved["k"]).any()


@pytest.mark.parametrize("stop", [da.Target(0.08, 3), da.Draws(60), da.Target(0.2) & da.Steps(30)], ids=str)
def test_resume_under_any_rule(stop, copies, tmp_path):
    problem, method = da.problems.affine(dimension=4, sigma=0.3), da.HalpernPAGE(0.5, 5, 1)
    options = {"budget": 120, "stop": stop, "reps": 3, "record": "all"}
    whole = da.solve(problem, method, **options)
    da.solve(problem, method, checkpoint=da.Checkpoint(tmp_path / "run", seconds=0), **options)
    for copy in copies[::6]:
        assert_same_result(whole, da.solve(problem, method, checkpoint=copy, **options))


@every_method
def test_a_checkpoint_of_another_run_is_refused(case, tmp_path):
    path, method = tmp_path / "run", case.make(horizon=40)
    options = {"budget": 60, "seed": SEED, "reps": 2}
    da.solve(case.problem, method, checkpoint=path, **options)
    before = path.read_bytes()
    others = [
        (method.with_changes(step_size=method.step_size / 2), options),
        (method, {**options, "seed": SEED + 1}),
        (method, {**options, "reps": 3}),
        (method, {**options, "x0": np.ones(8)}),
        ([method], options),
    ]
    for other, changed in others:
        with pytest.raises(da.errors.CheckpointError, match="must belong to the run"):
            da.solve(case.problem, other, checkpoint=path, **changed)
    with pytest.raises(da.errors.CheckpointError, match="not with fewer"):
        da.solve(case.problem, method, checkpoint=path, **{**options, "stop": da.Steps(1)})
    assert path.read_bytes() == before


def test_single_precision_resumes_too(copies, tmp_path):
    problem, method = da.problems.affine(dimension=4), da.HalpernPAGE(0.5, 5, 1)
    options = {"budget": 200, "x0": np.zeros(4, np.float32), "reps": 2, "record": 3}
    whole = da.solve(problem, method, **options)
    da.solve(problem, method, checkpoint=da.Checkpoint(tmp_path / "run", seconds=0), **options)
    for copy in copies[::3]:
        resumed = da.solve(problem, method, checkpoint=copy, **options)
        assert resumed.x.dtype == np.float32
        assert_same_result(whole, resumed)
    with pytest.raises(da.errors.CheckpointError):
        da.solve(problem, method, checkpoint=copies[0], **{**options, "x0": np.zeros(4)})


def test_ctrl_c_does_not_wait_for_batches_that_have_become_dear(monkeypatch):
    asked, sizes, clock = [], [1] * 1030 + [100] * 300, Clock(monkeypatch)

    def sample(x, n, rng):
        asked.append(n)
        if len(asked) == 1040:
            os.kill(os.getpid(), signal.SIGINT)
        clock.now += 2e-4 * n
        return x - 1

    oracle = da.Sampler(sample)
    oracle.replayable = True  # so that many steps are taken at once
    result = da.solve(da.Problem(oracle, np.zeros(3)), da.DualOHM(1.0, len(sizes) + 1, sizes), check=False, record=0)
    assert result.status is da.Status.INTERRUPTED
    assert result.nit < 1060


def test_resume_next_to_a_row_whose_samples_are_too_large_to_be_squared(tmp_path):
    """It has diverged in its first step; the file was refused as one that does not hold everything."""

    def sample(x, n, rng):
        return x * (1e200 if rng.random() < 0.2 else 1.0)

    problem = da.Problem(da.Sampler(sample), np.ones(2))
    options = {"seed": SEED, "reps": 4, "checkpoint": tmp_path / "run"}
    method = da.SGDA(0.1)
    first = da.solve(problem, method, stop=da.Steps(2), **options)
    assert 0 < np.count_nonzero(first.status == da.Status.DIVERGED) < 4
    assert_same_result(da.solve(problem, method, stop=da.Steps(2), **options), first)
