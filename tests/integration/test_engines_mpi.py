"""MPI jobs, started as a user starts them: with mpiexec."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da

pytestmark = pytest.mark.slow

COMPARED = 2  # calls by which a rank shows that its sampler is that of the others

COMMON = """
import json, os, sys, time
from pathlib import Path
import numpy as np, dualanchor as da

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
calls = []

def sample(x, n, rng):
    calls.append(1)
    fault(len(calls))
    return 2 * x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)

def fault(call):
    pass

problem = da.Problem(da.Sampler(sample), np.ones(40), constants=da.Constants(L=2.0))
method = da.DualOHM(0.4, 12, 64)

def tell(**facts):
    print(json.dumps(facts), flush=True)
"""


def sample(x, n, rng):
    return 2 * x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)


def alone(**options):
    problem = da.Problem(da.Sampler(sample, shards=32), np.ones(40), constants=da.Constants(L=2.0))
    return da.solve(problem, da.DualOHM(0.4, 12, 64), **options)


def launcher(folder, ranks, *words):
    """Command and environment of a job; what an aborted one leaves of its shared memory is left in the folder."""
    launcher = Path(sys.executable).parent / "mpiexec"
    command = [str(launcher), "-n", str(ranks), "--oversubscribe", "--allow-run-as-root", *map(str, words)]
    # Ranks that wait give way: there may be fewer cores than ranks.
    settings = {"mpi_yield_when_idle": "1", "btl_sm_backing_directory": str(folder)}
    env = {**os.environ, **{f"OMPI_MCA_{name}": value for name, value in settings.items()}, "OMP_NUM_THREADS": "1"}
    return command, env


def mpiexec(folder, ranks, *words, timeout=300):
    """Run a program on several ranks."""
    command, env = launcher(folder, ranks, *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)


@pytest.fixture
def job(tmp_path):
    """Run a program with what is common to all of them; the facts that its ranks tell."""

    def run(ranks, text, code=0, **options):
        script = tmp_path / "program.py"
        script.write_text(COMMON + text)
        done = mpiexec(tmp_path, ranks, sys.executable, script, **options)
        assert (done.returncode == 0) == (code == 0), done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done

    return run


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_number_of_ranks_changes_nothing_but_rounding(job, ranks):
    facts, _ = job(
        ranks,
        """
result = da.solve(problem, method, reps=2, seed=5, engine="mpi")
tell(rank=RANK, x=result.x.tolist(), nfev=result.nfev.tolist(), calls=len(calls))
""",
    )
    expected = alone(reps=2, seed=5)
    assert sorted(one["rank"] for one in facts) == list(range(ranks))
    for one in facts:
        np.testing.assert_allclose(one["x"], expected.x, rtol=1e-12)
        assert one["x"] == facts[0]["x"]  # ranks agree to the last bit
        assert one["nfev"] == expected.nfev.tolist()
        assert one["calls"] == 11 * 2 * 32 // ranks + COMPARED  # rounds, rows, shards


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_may_have_several_spans_or_none(job, ranks):
    facts, _ = job(
        ranks,
        """
problem = da.Problem(da.Sampler(sample, shards=3), np.ones(40), constants=da.Constants(L=2.0))
tell(rank=RANK, x=da.solve(problem, method, engine="mpi").x.tolist(), calls=len(calls))
""",
    )
    three = da.Problem(da.Sampler(sample, shards=3), np.ones(40), constants=da.Constants(L=2.0))
    for one in facts:
        np.testing.assert_allclose(one["x"], da.solve(three, da.DualOHM(0.4, 12, 64)).x, rtol=1e-12)
    calls = {one["rank"]: (one["calls"] - COMPARED) // 11 for one in facts}
    assert calls == ({0: 1, 1: 2} if ranks == 2 else {0: 0, 1: 1, 2: 1, 3: 1})


def test_rows_with_data_of_their_own_keep_them_when_some_are_evaluated_alone(job):
    facts, _ = job(
        2,
        """
sums = da.problems.finite_sum_cocoercive(components=40, dimension=20, rank=18)
engine = da.engines.MPI()
runs = {"coins": "halpern-page", "sizes": [da.SGDA(.5, 2), da.SGDA(.1, 3)], "ends": [da.SGDA(1e30), da.SGDA(.5)]}
tell(**{name: da.solve(sums, method, budget=300, reps=2, check=False, engine=engine).residual.ravel().tolist()
        for name, method in runs.items()})
""",
    )
    sums = da.problems.finite_sum_cocoercive(components=40, dimension=20, rank=18)
    runs = {
        "coins": "halpern-page",
        "sizes": [da.SGDA(0.5, 2), da.SGDA(0.1, 3)],
        "ends": [da.SGDA(1e30), da.SGDA(0.5)],
    }
    for name, method in runs.items():
        expected = da.solve(sums, method, budget=300, reps=2, check=False).residual.ravel()
        for one in facts:
            np.testing.assert_allclose(one[name], expected, rtol=1e-9)


def test_front_doors_finite_sums_and_other_decisions_are_made_together(job):
    facts, _ = job(
        2,
        """
engine = da.engines.MPI()
found = da.root(sample, np.zeros(3), budget=4000, L=2.0, engine=engine)
rows = np.random.default_rng(1).normal(size=(100, 3))
lengths = []
def load(first, end):
    lengths.append(end - first)
    return rows[first:end]
data = da.engines.ShardedData(lambda x, a: x - a, load, n=100, shards=8)
summed = da.solve(da.Problem(data, np.zeros(3), constants=da.Constants(L=1.0)), method, engine=engine)
timed = da.solve(problem, da.SGDA(0.1, 32), stop=da.WallTime(0.3), engine=engine)
seen = []
called = da.solve(problem, da.SGDA(0.1, 32), stop=da.Steps(50), engine=engine,
                  callback=lambda x: seen.append(1) or (len(seen) == 7))
diverged = da.solve(problem, da.SGDA(1e90, 32), stop=da.Steps(50), engine=engine, check=False)
latency = engine.measure(1000)
tell(rank=engine.rank, x=found.x.tolist(), upper=float(found.certificate.upper), loaded=sum(lengths),
     summed=summed.x.tolist(), residual=summed.residual, timed=timed.nit, called=called.nit, seen=len(seen),
     diverged=[diverged.status.name, diverged.nit], latency=latency.latency)
""",
    )
    first, second = sorted(facts, key=lambda one: one["rank"])
    assert first["seen"] == 7
    assert second["seen"] == 0
    assert first["loaded"] == second["loaded"] == 50  # half of the rows each
    for name in set(first) - {"rank", "seen"}:
        assert first[name] == second[name], name
    assert np.abs(np.array(first["x"]) - 0.5).max() < 0.2
    assert first["timed"] > 0
    assert first["called"] == 7
    assert first["diverged"][0] == "DIVERGED"
    rows = np.random.default_rng(1).normal(size=(100, 3))
    finite = da.FiniteSum.from_data(rows, lambda x, a: x - a)
    plain = da.solve(da.Problem(finite, np.zeros(3), constants=da.Constants(L=1.0)), da.DualOHM(0.4, 12, 64))
    np.testing.assert_allclose(first["summed"], plain.x, rtol=1e-12)
    assert first["residual"] == pytest.approx(plain.residual, rel=1e-9)


FAULTY = """
first = 0  # call of the present run
def failing(value):
    global first
    first = len(calls)

    def faulty(x, n, rng):
        plain = sample(x, n, rng)
        return plain if RANK != 1 or len(calls) - first <= {before} else plain + value()

    return da.Problem(da.Sampler(faulty), np.ones(40), constants=da.Constants(L=2.0))

def boom():
    raise ValueError("boom")

def report(value, engine):
    try:
        da.solve(failing(value), method, engine=engine)
    except da.errors.OracleError as error:
        tell(rank=RANK, text=str(error), k=error.iteration, norm=float(np.linalg.norm(error.result.x)))
"""


def assert_located(fact, words):
    assert words in fact["text"]
    assert fact["k"] == 3
    assert "at iteration 3" in fact["text"]
    norm = float(fact["text"].split("point of norm ")[1].split(" ")[0])
    assert norm == pytest.approx(fact["norm"], rel=1e-5)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_fault_on_one_rank_is_reported_on_all_and_nobody_hangs(job, ranks):
    facts, _ = job(
        ranks,
        FAULTY.format(before=COMPARED + 32 // ranks * 3)
        + """
engine = da.engines.MPI()
for value in boom, lambda: np.nan, lambda: np.where(np.arange(40) == 7, np.nan, 0.0):
    report(value, engine)
""",
    )
    for rank in range(ranks):
        found = [one for one in facts if one["rank"] == rank]
        for words, fact in zip(("ValueError: boom", "NaN", "NaN"), found, strict=True):
            assert_located(fact, f"{words} on worker 1 (rank 1)")


def test_a_rank_that_hangs_is_reported_on_the_others_and_the_job_ends(job):
    before = COMPARED + 8 * 3
    facts, _ = job(
        4,
        FAULTY.format(before=before)
        + f"""
engine = da.engines.MPI()
inner = sample
def sample(x, n, rng):
    if len(calls) == {before}:  # the last round; those before it have no deadline
        engine.timeout = 10.0  # enough for ranks that share a core with others
    return inner(x, n, rng)

report(lambda: time.sleep(1000), engine)
folder = Path(__file__).parent
(folder / f"{{RANK}}.reported").touch()
while len(list(folder.glob("*.reported"))) < 3:  # the first rank that ends the job would silence the others
    time.sleep(0.05)
""",
        code=1,
    )
    assert {one["rank"] for one in facts} == {0, 2, 3}
    for one in facts:
        assert_located(one, "Got no reply on worker 1 (rank 1)")


def test_nan_behind_a_constraint_and_in_a_full_pass_is_traced_to_its_rank(job):
    facts, _ = job(
        2,
        """
from dualanchor.oracles.composite import Composite

def ill(x, n, rng):
    return x + np.where((RANK == 1) & (np.arange(40) == 7), np.nan, 0.0)

def component(x, a):
    return x - a + (np.nan if RANK == 1 else 0.0)

data = np.ones((64, 40))
engine, constants = da.engines.MPI(), da.Constants(L=2.0)
texts = []
oracle = Composite(da.Sampler(ill), da.prox.box(-1.0, 1.0), 0.4)
constrained = da.Problem(oracle, np.ones(40), constants=constants)
finite = da.FiniteSum.from_data(data, component)
summed = da.Problem(finite, np.zeros(40), constants=constants)
for problem in constrained, summed:
    try:
        da.solve(problem, method, engine=engine, check=False)
    except da.errors.OracleError as error:
        texts.append(str(error))
try:
    engine.attach(finite).operator(np.zeros((1, 40)))
except da.errors.OracleError as error:
    texts.append(str(error))
tell(rank=RANK, texts=texts)
""",
    )
    for one in facts:
        assert len(one["texts"]) == 3
        assert all("NaN on worker 1 (rank 1)" in text for text in one["texts"]), one["texts"]


@pytest.mark.parametrize("then", ["raise KeyboardInterrupt", "time.sleep(1000)"])
def test_a_rank_that_leaves_while_nan_is_traced_does_not_keep_the_others_waiting(job, then):
    job(
        2,
        f"""
calls = 0
def ill(x, n, rng):
    global calls
    calls += 1
    if RANK == 1 and calls > {COMPARED + 16}:  # its sums, once more
        {then}
    return x + (np.nan if RANK == 1 else 0.0)

problem = da.Problem(da.Sampler(ill), np.ones(40), constants=da.Constants(L=2.0))
da.solve(problem, method, engine=da.engines.MPI(timeout=2.0), check=False)
""",
        code=1,
    )


def test_the_death_of_a_rank_ends_the_job_and_a_checkpoint_goes_on_with_other_ranks(job, tmp_path):
    path = tmp_path / "run.npz"
    text = f"""
def fault(call):
    if RANK == 1 and os.environ.get("DIE") and call > {2 * COMPARED + 16 * 6}:
        os.kill(os.getpid(), 9)

result = da.solve(problem, method, engine="mpi", checkpoint=da.Checkpoint({str(path)!r}, seconds=0))
tell(rank=RANK, x=result.x.tolist(), notes=[str(one) for one in result.findings])
"""
    _, done = job(2, 'os.environ["DIE"] = "1"\n' + text, code=1)
    assert "rank 1" in done.stderr
    assert "signal 9" in done.stderr
    assert path.exists()
    facts, _ = job(3, text)
    expected = alone()
    assert len(facts) == 3
    for one in facts:
        np.testing.assert_allclose(one["x"], expected.x, rtol=1e-12)
        assert "resumed from a checkpoint of step 6" in str(one["notes"])


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])  # the second is what a launcher makes of Ctrl-C
def test_interrupting_one_rank_ends_the_run_on_all_after_the_same_step(job, tmp_path, sent):
    facts, _ = job(
        2,
        f"""
def fault(call):
    if RANK == 1 and call == {2 * COMPARED + 16 * 5}:
        os.kill(os.getpid(), {int(sent)})

result = da.solve(problem, method, engine="mpi", checkpoint={str(tmp_path / "run.npz")!r})
tell(rank=RANK, status=result.status.name, nit=result.nit)
""",
    )
    assert [one["status"] for one in facts] == ["INTERRUPTED"] * 2
    assert facts[0]["nit"] == facts[1]["nit"] == 5
    assert (tmp_path / "run.npz").exists()


def test_ranks_with_another_problem_start_seed_or_method_are_an_error_on_all(job):
    facts, _ = job(
        2,
        """
engine = da.engines.MPI()
A = np.eye(40) * (2 + RANK)

def other(x, n, rng):
    return A @ x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)

def drawn(x, n, rng):  # from a generator of its own
    return 2 * x - 1 + np.random.default_rng().normal(size=(n, x.size)).mean(axis=0)

def given(function=sample, **constants):
    return da.Problem(da.Sampler(function), np.ones(40), constants=da.Constants(L=2.0, **constants))

def texts():
    for call in (
        lambda: da.solve(problem, method, engine=engine, x0=np.full(40, 1.0 + RANK)),
        lambda: da.solve(problem, method, engine=engine, seed=RANK),
        lambda: da.solve(problem, da.DualOHM(0.4, 12 + RANK, 64), engine=engine),
        lambda: da.solve(problem, "sgda", budget=640 * (1 + RANK), engine=engine),
        lambda: da.solve(given(other), method, engine=engine),
        lambda: da.root(sample, np.full(3, float(RANK)), budget=4000, engine=engine),
        lambda: da.certify(engine.attach(other), np.ones(40), samples=256),
        lambda: da.solve(given(drawn), method, engine=engine),
    ):
        try:
            call()
            yield None
        except da.errors.ArgumentError as error:
            yield str(error)

tell(rank=RANK, texts=list(texts()))
""",
    )
    assert len(facts) == 2
    for one in facts:
        *differ, random = one["texts"]
        words = ["x0", "seed", "method", "stop", "sample", "point", "sample"]
        for word, text in zip(words, differ, strict=True):
            assert text is not None, word
            assert re.search(rf"all ranks must make the same calls.* Got another .*{word}.* on rank 1", text), text
        assert random is None  # what does not repeat cannot be compared


def test_after_ctrl_c_at_the_launcher_the_checkpoint_goes_on(tmp_path):
    script, path = tmp_path / "program.py", tmp_path / "run.npz"
    saved = f"da.Checkpoint({str(path)!r}, seconds=0)"  # the launcher leaves a rank a quarter of a second at best
    script.write_text(
        f"{COMMON}\nda.solve(problem, da.SGDA(0.01, 64), stop=da.Steps(10**6), engine='mpi', checkpoint={saved})\n"
    )
    command, env = launcher(tmp_path, 2, sys.executable, script)
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 300
        while not path.exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) != 0
    plain = da.Problem(da.Sampler(sample, shards=32), np.ones(40), constants=da.Constants(L=2.0))
    checkpoint = da.Checkpoint(path, check_code=False)
    result = da.solve(plain, da.SGDA(0.01, 64), stop=da.Steps(10**6), checkpoint=checkpoint, callback=lambda x: True)
    (resumed,) = [one for one in result.findings if one.code == "resumed"]
    assert result.nit == resumed.values["step"] + 1


def test_only_the_main_thread_asks_for_rounds(job):
    facts, _ = job(
        2,
        """
from concurrent.futures import ThreadPoolExecutor

engine = da.engines.MPI()
try:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(da.solve, problem, method, engine=engine).result()
except da.errors.CapabilityError as error:
    tell(text=str(error), nit=da.solve(problem, method, engine=engine).nit)
""",
    )
    assert len(facts) == 2
    for one in facts:
        assert "only the main thread" in one["text"]
        assert one["nit"] == 11


def test_the_command_line_speaks_once(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np, dualanchor as da\n"
        "def sample(x, n, rng):\n    return 2 * x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)\n"
        "problem = da.Problem(da.Sampler(sample), np.ones(4), constants=da.Constants(L=2.0, D=1.0, sigma=2.0))\n"
    )
    words = ["-m", "dualanchor", "solve", f"{file}:problem", "--budget", "6400", "-p", "batch_size=64", "--json"]
    done = mpiexec(tmp_path, 2, sys.executable, *words, "--engine", "mpi")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    one = subprocess.run(
        [sys.executable, *words, "--engine", "local", "--workers", "2"], capture_output=True, text=True, timeout=300
    )
    assert one.returncode == 0, one.stderr
    assert found["nfev"] == json.loads(one.stdout)["nfev"]
    wrong = mpiexec(tmp_path, 2, sys.executable, *words, "--engine", "mpi", "--workers", "3")
    assert wrong.returncode != 0
    assert "mpiexec -n 3" in wrong.stderr
