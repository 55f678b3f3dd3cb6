"""Callbacks and progress of a run, and stopping it from there."""

import dataclasses
import pickle

import numpy as np
import pytest
from tests.contract.cases import SEED, bare, every_method, every_plain_method
from tests.contract.driver import Clock

import dualanchor as da
from dualanchor.core.streams import Purpose
from dualanchor.run import driver


@every_method
def test_a_callback_sees_every_iterate(case):
    method, seen = case.make(horizon=40), []
    options = {"stop": da.Steps(6), "seed": SEED, "reps": 2}
    result = da.solve(case.problem, method, callback=lambda x: seen.append(x.copy()), **options)
    assert len(seen) == 6
    np.testing.assert_array_equal(seen[-1], result.x)
    for k, x in enumerate(seen, start=1):
        s, _ = bare(case, method, [0, 1], k)
        np.testing.assert_allclose(x, s.x, rtol=1e-12, atol=1e-14)
    quiet = da.solve(case.problem, method, **options)
    np.testing.assert_array_equal(quiet.x, result.x)


@every_plain_method
def test_what_a_callback_keeps_does_not_change_afterwards(case):
    results, copies = [], []

    def callback(intermediate_result):
        results.append(intermediate_result)
        copies.append((intermediate_result.x.copy(), {k: v.copy() for k, v in intermediate_result.state.items()}))

    points = []
    da.solve(case.problem, case.make(horizon=40), stop=da.Steps(12), seed=SEED, callback=callback)
    da.solve(case.problem, case.make(horizon=40), stop=da.Steps(12), seed=SEED, callback=lambda x: points.append(x))
    assert len({b"".join(value.tobytes() for value in state.values()) for _, state in copies}) > 1
    for result, point, (x, state) in zip(results, points, copies, strict=True):
        np.testing.assert_array_equal(result.x, x)
        np.testing.assert_array_equal(point, x)
        for name, value in state.items():
            np.testing.assert_array_equal(result.state[name], value, err_msg=name)


@every_method
def test_a_callback_cannot_disturb_the_run(case):
    def callback(x):
        x[...] = 1e9

    options = {"stop": da.Steps(9), "seed": SEED, "reps": 2}
    disturbed = da.solve(case.problem, case.make(horizon=40), callback=callback, **options)
    np.testing.assert_array_equal(disturbed.x, da.solve(case.problem, case.make(horizon=40), **options).x)


@every_method
def test_an_intermediate_result_is_a_result(case):
    seen = []

    def callback(intermediate_result):
        seen.append((intermediate_result.nit, intermediate_result.nfev, intermediate_result.status))
        assert isinstance(intermediate_result, da.Result)
        assert "still running" in repr(intermediate_result)
        assert not intermediate_result.success

    result = da.solve(case.problem, case.make(horizon=40), stop=da.Steps(4), seed=SEED, callback=callback)
    assert [nit for nit, _, _ in seen] == [1, 2, 3, 4]
    assert seen[-1][1] == result.nfev
    assert {status for _, _, status in seen} == {da.Status.RUNNING}


def stop_with_true(x):
    return len(x) == 8


def stop_with_a_numpy_bool(x):
    return np.isfinite(x).all()


def stop_with_an_exception(x):
    raise StopIteration


@every_method
def test_a_callback_stops_the_run(case):
    for callback in (stop_with_true, stop_with_a_numpy_bool, stop_with_an_exception):
        result = da.solve(case.problem, case.make(horizon=40), stop=da.Steps(9), seed=SEED, callback=callback)
        assert result.nit == 1
        assert result.status is da.Status.CALLBACK
        assert result.status.ended_as_asked
        assert result.history.k[-1] == 1


@pytest.mark.parametrize("answer", [None, False, 0, "yes", [], np.False_])
def test_other_answers_do_not_stop_the_run(answer):
    result = da.solve(da.problems.affine(dimension=4), "sgda", budget=9, callback=lambda x: answer)
    assert result.nit == 9


def test_a_callback_sees_all_rows_with_those_that_have_ended():
    methods = [da.DualOHM(1.0, 3), da.DualOHM(1.0, 9), da.DualOHM(1e9, 9)]
    shapes, statuses = [], []

    def callback(intermediate_result):
        shapes.append(intermediate_result.x.shape)
        statuses.append([status.name for status in intermediate_result.status[:, 0]])

    da.solve(da.problems.affine(dimension=4), methods, reps=2, callback=callback, check=False)
    assert shapes == [(3, 2, 4)] * 8
    assert statuses[0] == ["RUNNING", "RUNNING", "RUNNING"]
    assert statuses[2][0] == "HORIZON"


def counted(monkeypatch, owner, name):
    """A list that grows by one with each call of `owner.name`."""
    calls, original = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments: calls.append(1) or original(*arguments))
    return calls


def counts(intermediate_result):
    return intermediate_result.nit + intermediate_result.nfev + intermediate_result.draws < 0


@pytest.mark.parametrize("callback", [lambda x: None, lambda intermediate_result: None, counts])
def test_a_callback_costs_only_what_it_reads(callback, monkeypatch):
    """The rest of a Result is assembled once, at the end, and the rule is asked for many steps at a time."""

    def sample(x, n, rng):
        return x - 1 + rng.normal(size=2) / np.sqrt(n)

    assembled = counted(monkeypatch, driver, "assemble")
    asked = counted(monkeypatch, da.Budget, "allowance")
    result = da.root(sample, np.zeros(2), budget=3000, callback=callback)
    assert result.nit > 500
    assert len(assembled) == 1
    assert len(asked) < result.nit / 10


def test_what_a_callback_keeps_without_reading_it_does_not_change_afterwards():
    results, read = [], []

    def sample(x, n, rng):
        return {"a": x["a"] - 1 + rng.normal(size=2) / np.sqrt(n)}

    def read_all(intermediate_result):
        read.append(pickle.loads(pickle.dumps(intermediate_result)))

    for callback in (lambda intermediate_result: results.append(intermediate_result), read_all):
        da.root(sample, {"a": np.zeros(2)}, budget=200, reps=2, callback=callback)
    assert len({one.x["a"].tobytes() for one in results}) > 10
    for one, other in zip(results, read, strict=True):
        assert type(other) is da.Result
        assert one.keys() == other.keys()
        assert repr(one) == repr(other)
        for name in ("nit", "nfev", "draws", "status", "findings"):
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        np.testing.assert_array_equal(one.x["a"], other.x["a"])
        np.testing.assert_array_equal(one.state["x"], other.state["x"])
        np.testing.assert_array_equal(one.history.k, other.history.k)
        assert dataclasses.replace(one, seed=5).nit is one.nit


def test_a_callback_error_is_the_callers_own():
    def callback(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        da.solve(da.problems.affine(dimension=4), "sgda", budget=9, callback=callback)


def test_callbacks_of_any_kind_of_callable():
    class Counter:
        def __init__(self):
            self.seen = 0

        def __call__(self, intermediate_result):
            self.seen += intermediate_result.nit

        def method(self, x):
            self.seen += 1

    counter = Counter()
    problem = da.problems.affine(dimension=4)
    da.solve(problem, "sgda", budget=3, callback=counter)
    assert counter.seen == 6
    da.solve(problem, "sgda", budget=3, callback=counter.method)
    assert counter.seen == 9
    points = []
    da.solve(problem, "sgda", budget=3, callback=points.append)
    assert len(points) == 3


def test_progress_is_reported_now_and_then(monkeypatch):
    clock = Clock(monkeypatch)

    def operator(x):
        clock.now += 0.004
        return x

    problem = da.Problem(da.AdditiveNoise(operator, 0.1, vectorized=True), np.ones(3), constants=da.Constants(L=1.0))
    for method, options, ends in [
        (da.SGDA(0.1), {"budget": 60}, True),
        (da.DualOHM(0.1, 61), {}, True),
        (da.SGDA(0.1), {"stop": da.Steps(60)}, False),
    ]:
        reports = []
        result = da.solve(problem, method, reps=2, progress=reports.append, record=0, **options)
        assert reports
        assert (np.diff([where.elapsed for where in reports]) > 0.09).all()
        assert [where.k for where in reports] == sorted({where.k for where in reports})
        for where in reports:
            assert (where.rows, where.active) == (2, 2)
            assert where.evals == where.k
            assert where.elapsed > 0
            assert where.fraction is None or where.fraction == pytest.approx(where.k / 60)
        assert all(where.fraction is not None for where in reports) or not ends
        assert (result.nit == 60).all()


def test_problem_streams_are_not_those_of_the_callback():
    """Drawing random numbers in a callback does not move any stream of the run."""
    problem = da.problems.affine(dimension=4)
    streams = da.Streams(0, np.arange(1), Purpose.NOISE, 4)
    noisy = da.solve(problem, "sgda", budget=20, callback=lambda x: bool(streams.normals().sum() > 1e9))
    np.testing.assert_array_equal(noisy.x, da.solve(problem, "sgda", budget=20).x)


def test_a_callback_that_takes_x_for_a_result_is_told_so():
    with pytest.raises(AttributeError, match="residual") as caught:
        da.solve(da.problems.affine(), budget=100, callback=lambda r: r.residual < 1)
    assert "name its only parameter intermediate_result" in caught.value.__notes__[0]
    with pytest.raises(AttributeError, match="resdual") as caught:
        da.solve(da.problems.affine(), budget=100, callback=lambda intermediate_result: intermediate_result.resdual)
    assert not hasattr(caught.value, "__notes__")
