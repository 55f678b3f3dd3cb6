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
    """Six CPUs, of which `pair` takes two."""
    engine = da.engines.Ray(workers=6)
    engine._connect()  # other engines find it running
    yield engine
    engine.close()
    import ray

    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def pair(cluster):
    """Two actors that are started once, for the tests after which they still work."""
    engine = da.engines.Ray(2)
    engine.processes()
    yield engine
    engine.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(pair, workers):
    alone = da.solve(problem(shards=32), METHOD, reps=2, seed=5)
    with da.engines.Ray(workers) as engine:
        result = da.solve(problem(), METHOD, reps=2, seed=5, engine=engine)
    np.testing.assert_array_equal(result.x, alone.x)


def test_large_points_travel_through_the_store(pair):
    large = da.Problem(da.Sampler(sample, shards=4), np.ones(30_000), constants=da.Constants(L=2.0))
    result = da.solve(large, da.SGDA(0.1, 4), stop=da.Steps(3), engine=pair)
    np.testing.assert_array_equal(result.x, da.solve(large, da.SGDA(0.1, 4), stop=da.Steps(3)).x)


def test_a_worker_killed_during_a_run_changes_nothing(pair):
    alone = da.solve(problem(shards=32), METHOD)
    before, steps = pair.processes(), []

    def kill(x):
        steps.append(1)
        if len(steps) == 3:
            os.kill(before[1], signal.SIGKILL)

    result = da.solve(problem(), METHOD, engine=pair, callback=kill)
    after = pair.processes()
    np.testing.assert_array_equal(result.x, alone.x)
    assert len(steps) == 11
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_worker_killed_in_the_midst_of_a_round_changes_nothing(pair, tmp_path):
    killed, calls = tmp_path / "killed", []

    def killing(x, n, rng):
        calls.append(1)
        if os.environ["DUALANCHOR_WORKER"] == "1" and len(calls) == 16 + 5 and not killed.exists():
            killed.touch()  # in its second round, once
            os.kill(os.getpid(), signal.SIGKILL)
        return sample(x, n, rng)

    method = da.SGDA(0.1, 64)
    alone = da.solve(problem(shards=32), method, stop=da.Steps(4))
    pid = pair.processes()[1]
    result = da.solve(problem(killing), method, stop=da.Steps(4), engine=pair)
    assert pair.processes()[1] != pid
    assert killed.exists()
    np.testing.assert_array_equal(result.x, alone.x)


def hang(x, hanging):
    hanging.touch()
    threading.Event().wait()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda x, hanging: 1 / 0, "ZeroDivisionError: division by zero on worker 1"),
        (lambda x, hanging: x * np.nan, "NaN on worker 1"),
        (hang, "timeout = 5 s. Got no reply on worker 1"),
    ],
)
def test_a_fault_on_one_worker_is_reported_with_worker_round_and_point(pair, fault, words, tmp_path, monkeypatch):
    calls, hanging = [], tmp_path / "hanging"

    def faulty(x, n, rng):
        if os.environ.get("DUALANCHOR_WORKER") == "1":
            calls.append(1)
            if len(calls) > 16 * 3:
                return fault(x, hanging)
        return sample(x, n, rng)

    if fault is hang:
        monkeypatch.setattr(pair, "timeout", 5.0)
        monkeypatch.setattr(pair, "_get", late(1, hanging))
    with pytest.raises(da.errors.OracleError, match=words) as caught:
        da.solve(problem(faulty), METHOD, engine=pair)
    assert caught.value.iteration == 3
    assert "point of norm" in str(caught.value)
    hanging.unlink(missing_ok=True)
    assert_still_works(pair)


def late(number, hanging):
    """In place of a deadline: this worker is late once the file is there; others have five minutes."""
    import ray

    def get(asked, call, deadline):
        end = time.monotonic() + 300
        while not ray.wait([call], timeout=0.05)[0]:
            if asked == number and hanging.exists():
                raise ray.exceptions.GetTimeoutError
            assert time.monotonic() < end
        return ray.get(call)

    return get


def assert_still_works(engine):
    np.testing.assert_array_equal(da.solve(problem(), METHOD, engine=engine).x, da.solve(problem(shards=32), METHOD).x)


class SlowToLoad:
    """A sampler that is loaded only when the file is there."""

    def __init__(self, loaded):
        self._loaded = loaded

    def __call__(self, x, n, rng):
        return sample(x, n, rng)

    def __reduce__(self):
        return _wait_for, (self._loaded,)


def _wait_for(loaded):
    end = time.monotonic() + 300
    while not loaded.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return SlowToLoad(loaded)


def test_the_timeout_of_a_round_does_not_include_loading(pair, tmp_path, monkeypatch):
    loaded, waited = tmp_path / "loaded", []
    get = pair._get

    def noted(number, call, deadline):
        waited.append(deadline - time.monotonic())
        loaded.touch()
        return get(number, call, None)

    monkeypatch.setattr(pair, "timeout", 1e-3)
    monkeypatch.setattr(pair, "_get", noted)
    da.solve(problem(SlowToLoad(loaded)), METHOD, engine=pair)
    assert min(waited[:2]) > 10 > 1e-3 >= max(waited[2:])


def test_actors_do_not_repeat_randomness_from_outside(pair, tmp_path):
    outside = np.random.default_rng(0)

    def drawing(x, n, rng):
        np.save(tmp_path / f"{os.getpid()}-{time.monotonic_ns()}.npy", outside.random())
        return x

    for _ in range(2):
        da.solve(problem(drawing, shards=4), da.SGDA(0.1, 4), stop=da.Steps(3), engine=pair)
    drawn = [float(np.load(path)) for path in tmp_path.iterdir()]
    assert len(drawn) == len(set(drawn)) == 2 * 3 * 4


def test_data_are_loaded_again_where_a_lost_worker_goes(pair):
    rows = np.random.default_rng(1).normal(size=(200, 5))
    blocks = da.engines.ShardedData(lambda x, a: x - a, lambda first, end: rows[first:end], n=200)
    task = da.Problem(blocks, np.zeros(5), constants=da.Constants(L=1.0))
    first = da.solve(task, METHOD, engine=pair)
    os.kill(pair.processes()[0], signal.SIGKILL)
    second = da.solve(task, METHOD, engine=pair)
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.x, da.solve(task, METHOD).x)


def test_what_cannot_be_pickled_is_named(pair):
    lock = threading.Lock()

    def locked(x, n, rng):
        with lock:
            return x

    with pytest.raises(da.errors.CapabilityError, match="must be picklable to be computed by Ray"):
        da.solve(problem(locked), METHOD, engine=pair)


def test_more_workers_than_cpus_are_turned_down(pair):
    with pytest.raises(da.errors.ArgumentError, match="at most the CPUs of the cluster, 6"):
        da.solve(problem(), METHOD, engine=da.engines.Ray(9))


def test_engines_beside_each_other_share_the_cpus(pair):
    with da.engines.Ray(3) as first:
        expected = da.solve(problem(), METHOD, engine=first).x
        with (
            da.engines.Ray(2) as second,
            pytest.raises(da.errors.ArgumentError, match=r"free CPUs, 1 of 6. Got 2, with 5 held by other engines"),
        ):
            da.solve(problem(), METHOD, engine=second)
        with da.engines.Ray(1) as third:
            np.testing.assert_array_equal(da.solve(problem(), METHOD, engine=third).x, expected)
        np.testing.assert_array_equal(da.solve(problem(), METHOD, engine=first).x, expected)


def test_actors_that_find_no_cpu_are_reported(pair, monkeypatch):
    import ray

    monkeypatch.setattr("dualanchor.engines.ray.START_SECONDS", 3.0)
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


def test_threads_of_a_program_take_turns(pair):
    alone = [da.solve(problem(shards=32), METHOD, seed=seed).x for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(da.solve, problem(), METHOD, seed=seed, engine=pair) for seed in range(3)]
        for run, expected in zip(runs, alone, strict=True):
            np.testing.assert_array_equal(run.result().x, expected)


def test_an_address_without_a_cluster_is_named(cluster, monkeypatch):
    def unreachable(**options):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(cluster._ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster._ray, "init", unreachable)
    with pytest.raises(da.errors.ArgumentError, match=r"address.* Got 'auto' \(Could not find .*`ray start --head`"):
        da.engines.Ray(address="auto")


def test_the_cluster_ends_with_the_last_engine_on_it(cluster, pair):
    import ray

    before = pair.processes()
    cluster.close()  # which started it
    assert ray.is_initialized()
    da.solve(problem(), METHOD, engine=pair)
    assert pair.processes() == before
    pair.close()
    assert not ray.is_initialized()
    cluster._connect()  # for the tests that follow
