"""The mean of the iterates of any method: every method in the wrapper is held to what it is held to by itself."""

import os

import numpy as np
import pytest
from tests.contract.cases import CASES, ON_ONE, SEED, assert_close, assert_same_result, bare, coin, session_for
from tests.contract.literal import mean_of

import dualanchor as da
from dualanchor.methods import registry

every_method = pytest.mark.parametrize("case", ON_ONE, ids=str)
weightings = pytest.mark.parametrize("weights", ["linear", "uniform"])
OPTIONS = {"seed": SEED, "reps": 2, "record": 0}


@every_method
@weightings
def test_it_is_the_mean_of_the_iterates(case, weights):
    """Point, counts and the inner state are those of the method by itself."""
    method, steps, points = case.make(horizon=60), 25, []
    alone = da.solve(
        case.problem, method, stop=da.Steps(steps), seed=SEED, record=0, callback=lambda x: points.append(x.copy())
    )
    mean = da.solve(case.problem, da.averaged(method, weights), stop=da.Steps(steps), seed=SEED, record=0)
    expected = mean_of(points, weights)
    scale = 1 + max(np.linalg.norm(point) for point in points)
    assert np.linalg.norm(mean.x - expected) <= 1e-12 * scale
    assert (mean.nit, mean.draws, mean.nfev) == (alone.nit, alone.draws, alone.nfev)
    assert set(mean.state) == {"x", *(f"inner_{name}" for name in alone.state)}
    for name, value in alone.state.items():
        assert_close(case, mean.state[f"inner_{name}"], value)


@every_method
def test_rows_come_out_the_same_whatever_rows_are_beside_them(case):
    method, steps = da.averaged(case.make(horizon=60)), 15
    together = da.solve(case.problem, method, stop=da.Steps(steps), seed=SEED, reps=7, record=0)
    for some in ([5, 2, 2], [6]):
        s, _ = bare(case, method, some, steps)
        assert_close(case, together.x[some], s.x)


@every_method
def test_configurations_in_one_array_equal_one_by_one(case):
    methods = [da.averaged(case.make(horizon=60, step_size=size)) for size in (0.03, 0.11, 0.2)]
    options = {**OPTIONS, "budget": 200, "check": False}
    stacked = da.solve(case.problem, methods, **options)
    for i, method in enumerate(methods):
        alone = da.solve(case.problem, method, **options)
        assert_close(case, stacked.x[i], alone.x)
        np.testing.assert_array_equal(stacked.nfev[i], alone.nfev)
        np.testing.assert_array_equal(stacked.status[i], alone.status)


@every_method
def test_a_step_costs_what_it_declares(case):
    method = da.averaged(case.make(horizon=60))
    start, session, coins = session_for(case, [4, 1, 0])
    s = method.init(start)
    for k in range(12):
        tossed = coin(method, coins, k)
        before = np.zeros(3, int) + session.draws, np.zeros(3, int) + session.evals
        declared = method.cost(k, s, tossed if tossed is None else tossed[:, None])
        method.step(k, s, session, tossed)
        np.testing.assert_array_equal(session.draws - before[0], np.broadcast_to(np.ravel(declared.draws), 3))
        np.testing.assert_array_equal(session.evals - before[1], np.broadcast_to(np.ravel(declared.evals), 3))


@every_method
def test_it_resumes(case, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    method = da.averaged(case.make(horizon=60))
    options = {"stop": da.Steps(20), "seed": SEED, "reps": 2, "record": 5}
    calls = []

    def interrupt(x):
        calls.append(1)
        if len(calls) == 9:
            raise InterruptedError

    saved = da.Checkpoint(tmp_path / "run", seconds=0)
    with pytest.raises(InterruptedError):
        da.solve(case.problem, method, callback=interrupt, checkpoint=saved, **options)
    whole = da.solve(case.problem, method, **options)
    assert_same_result(whole, da.solve(case.problem, method, checkpoint=saved, **options))


def test_it_stops_where_the_method_stops():
    problem = da.problems.affine(dimension=4)
    result = da.solve(problem, da.averaged(da.DualOHM(1.0, 10)))
    assert (result.nit, result.status) == (9, da.Status.HORIZON)
    with pytest.raises(da.errors.ArgumentError, match="step_size must satisfy"):
        da.solve(problem, da.averaged(da.DualOHM(2.5, 10)))
    once = da.Problem(da.Sampler(lambda x, n, rng: x + rng.normal(size=x.size), replayable=False), np.ones(2))
    with pytest.raises(da.errors.CapabilityError, match="two points"):
        da.solve(once, da.averaged(da.HalpernPAGE(0.5)), budget=50)


def test_rows_diverge_with_their_method():
    case = CASES[0]
    methods = [da.averaged(da.SGDA(size)) for size in (0.1, 1e6)]
    result = da.solve(case.problem, methods, stop=da.Steps(100), **OPTIONS)
    assert (result.status[1] == da.Status.DIVERGED).all()
    assert (result.status[0] == da.Status.STEPS).all()


def test_sgda_in_the_wrapper_is_averaged_sgda():
    problem = da.problems.affine(dimension=4)
    one, two = (da.solve(problem, m, budget=50).x for m in (da.averaged(da.SGDA(0.3)), da.AveragedSGDA(0.3)))
    np.testing.assert_array_equal(one, two)


def test_a_mean_of_means_and_other_changes():
    twice = da.averaged(da.averaged(da.SEG(0.1), "uniform"))
    assert da.solve(da.problems.affine(dimension=4), twice, budget=50).nfev == 50
    changed = da.averaged(da.SEG(0.1)).with_changes(step_size=0.2, weights="uniform")
    assert changed == da.averaged(da.SEG(0.2), "uniform")
    assert hash(changed) == hash(da.averaged(da.SEG(0.2), "uniform"))
    assert changed.step_size == 0.2
    assert changed.parameters() == {"method": "seg", "step_size": 0.2, "batch_size": 1, "weights": "uniform"}


def test_it_has_a_name_for_results_but_is_not_in_the_list():
    result = da.solve(da.problems.affine(dimension=4), da.averaged(da.SEG(0.1)), budget=20)
    assert result.method["id"] == "averaged-iterates"
    assert result.method["parameters"]["method"] == "seg"
    assert "Polyak" in result.cite()
    assert result.method["id"] not in registry.all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: da.averaged("sgda"), "method must be a Method"),
        (lambda: da.averaged(da.SGDA(0.1), "geometric"), "weights must be one of linear, uniform"),
        (lambda: da.AveragedSGDA(0.1, weights=3), "weights must be one of linear, uniform"),
    ],
)
def test_what_it_refuses(call, message):
    with pytest.raises(da.errors.DualAnchorError, match=message):
        call()
