"""Ray actors as workers: one cluster on this machine for all of these tests."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dualanchor as da

pytestmark = [
    pytest.mark.slow,
    # Ray leaves pipes of its own processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

METHOD = da.DualOHM(0.4, 12, 64)


def sample(x, n, rng):
    return 2 * x - 1 + rng.normal(size=(n, x.size)).mean(axis=0)


def problem(function=sample, **options):
    return da.Problem(da.Sampler(function, **options), np.ones(40), constants=da.Constants(L=2.0))


@pytest.fixture(scope="module")
def cluster():
    engine = da.engines.Ray(workers=4)
    engine.processes()  # starts it; other engines find it running
    yield engine
    engine.close()
    import ray

    assert not ray.is_initialized()


@pytest.fixture
def free(cluster):
    """The cluster with its CPUs free for the actors of other engines."""
    import ray

    for actor in cluster._actors:
        ray.kill(actor)
    cluster._actors = []
    return cluster


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_number_of_workers_changes_nothing(free, workers):
    alone = da.solve(problem(shards=32), METHOD, reps=2, seed=5)
    with da.engines.Ray(workers) as engine:
        result = da.solve(problem(), METHOD, reps=2, seed=5, engine=engine)
    np.testing.assert_array_equal(result.x, alone.x)


def test_large_points_travel_through_the_store(free):
    large = da.Problem(da.Sampler(sample, shards=4), np.ones(30_000), constants=da.Constants(L=2.0))
    with da.engines.Ray(2) as engine:
        result = da.solve(large, da.SGDA(0.1, 4), stop=da.Steps(3), engine=engine)
    np.testing.assert_array_equal(result.x, da.solve(large, da.SGDA(0.1, 4), stop=da.Steps(3)).x)


def test_a_worker_killed_during_a_run_changes_nothing(free):
    alone = da.solve(problem(shards=32), METHOD)
    with da.engines.Ray(2) as engine:
        before, steps = engine.processes(), []

        def kill(x):
            steps.append(1)
            if len(steps) == 3:
                os.kill(before[1], signal.SIGKILL)

        result = da.solve(problem(), METHOD, engine=engine, callback=kill)
        after = engine.processes()
    np.testing.assert_array_equal(result.x, alone.x)
    assert len(steps) == 11
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_worker_killed_in_the_midst_of_a_round_changes_nothing(free, tmp_path):
    killed, calls = tmp_path / "killed", []

    def killing(x, n, rng):
        calls.append(1)
        if os.environ["DUALANCHOR_WORKER"] == "1" and len(calls) == 16 + 5 and not killed.exists():
            killed.touch()  # in its second round, once
            os.kill(os.getpid(), signal.SIGKILL)
        return sample(x, n, rng)

    method = da.SGDA(0.1, 64)
    alone = da.solve(problem(shards=32), method, stop=da.Steps(4))
    with da.engines.Ray(2) as engine:
        pid = engine.processes()[1]
        result = da.solve(problem(killing), method, stop=da.Steps(4), engine=engine)
        assert engine.processes()[1] != pid
    assert killed.exists()
    np.testing.assert_array_equal(result.x, alone.x)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda x: 1 / 0, "ZeroDivisionError: division by zero on worker 1"),
        (lambda x: x * np.nan, "NaN on worker 1"),
        (lambda x: time.sleep(1000), "timeout = 5 s. Got no reply on worker 1"),
    ],
)
def test_a_fault_on_one_worker_is_reported_with_worker_round_and_point(free, fault, words):
    calls = []

    def faulty(x, n, rng):
        if os.environ.get("DUALANCHOR_WORKER") == "1":
            calls.append(1)
            if len(calls) > 16 * 3:
                return fault(x)
        return sample(x, n, rng)

    with da.engines.Ray(2, timeout=5.0) as engine:
        with pytest.raises(da.errors.OracleError, match=words) as caught:
            da.solve(problem(faulty), METHOD, engine=engine)
        assert caught.value.iteration == 3
        assert "point of norm" in str(caught.value)
        np.testing.assert_array_equal(
            da.solve(problem(), METHOD, engine=engine).x, da.solve(problem(shards=32), METHOD).x
        )


def test_data_are_loaded_again_where_a_lost_worker_goes(free):
    rows = np.random.default_rng(1).normal(size=(200, 5))
    blocks = da.engines.ShardedData(lambda x, a: x - a, lambda first, end: rows[first:end], n=200)
    task = da.Problem(blocks, np.zeros(5), constants=da.Constants(L=1.0))
    with da.engines.Ray(2) as engine:
        first = da.solve(task, METHOD, engine=engine)
        os.kill(engine.processes()[0], signal.SIGKILL)
        second = da.solve(task, METHOD, engine=engine)
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.x, da.solve(task, METHOD).x)


def test_what_cannot_be_pickled_is_named(free):
    lock = threading.Lock()

    def locked(x, n, rng):
        with lock:
            return x

    with (
        da.engines.Ray(1) as engine,
        pytest.raises(da.errors.CapabilityError, match="must be picklable to be computed by Ray"),
    ):
        da.solve(problem(locked), METHOD, engine=engine)


def test_more_workers_than_cpus_are_turned_down(free):
    with pytest.raises(da.errors.ArgumentError, match="at most the CPUs of the cluster, 4"):
        da.solve(problem(), METHOD, engine=da.engines.Ray(9))


def test_engines_beside_each_other_share_the_cpus(free):
    with da.engines.Ray(3) as first:
        expected = da.solve(problem(), METHOD, engine=first).x
        with (
            da.engines.Ray(2) as second,
            pytest.raises(da.errors.ArgumentError, match=r"free CPUs, 1 of 4. Got 2, with 3 held by other engines"),
        ):
            da.solve(problem(), METHOD, engine=second)
        with da.engines.Ray(1) as third:
            np.testing.assert_array_equal(da.solve(problem(), METHOD, engine=third).x, expected)
        np.testing.assert_array_equal(da.solve(problem(), METHOD, engine=first).x, expected)


def test_actors_that_find_no_cpu_are_reported(free, monkeypatch):
    import ray

    monkeypatch.setattr("dualanchor.engines.ray._START", 3.0)
    holder = ray.remote(num_cpus=4)(Holder).remote()  # of somebody else, so that engines do not know of it
    assert ray.get(holder.hold.remote())
    with da.engines.Ray(2, timeout=1.0) as engine:
        with pytest.raises(da.errors.OracleError, match=r"must start within 3 s. Got 0 free CPUs for 2 workers"):
            da.solve(problem(), METHOD, engine=engine)
        assert engine._actors == []
        ray.kill(holder)
        monkeypatch.undo()
        engine.timeout = None
        np.testing.assert_array_equal(
            da.solve(problem(), METHOD, engine=engine).x, da.solve(problem(shards=32), METHOD).x
        )


class Holder:
    def hold(self):
        return True


def test_threads_of_a_program_take_turns(free):
    alone = [da.solve(problem(shards=32), METHOD, seed=seed).x for seed in range(3)]
    with da.engines.Ray(2) as engine, ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(da.solve, problem(), METHOD, seed=seed, engine=engine) for seed in range(3)]
        for run, expected in zip(runs, alone, strict=True):
            np.testing.assert_array_equal(run.result().x, expected)


def test_an_address_without_a_cluster_is_named(free, monkeypatch):
    def unreachable(**options):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(free._ray, "is_initialized", lambda: False)
    monkeypatch.setattr(free._ray, "init", unreachable)
    with pytest.raises(da.errors.ArgumentError, match=r"address.* Got 'auto' \(Could not find .*`ray start --head`"):
        da.engines.Ray(address="auto")


def test_the_cluster_ends_with_the_last_engine_on_it(free):
    import ray

    with da.engines.Ray(2) as other:
        before = other.processes()
        free.close()  # which started the cluster
        assert ray.is_initialized()
        da.solve(problem(), METHOD, engine=other)
        assert other.processes() == before
    assert not ray.is_initialized()
    free.processes()  # starts it again, for the tests that follow
