"""The mean of the iterates of any method: every method in the wrapper is held to what it is held to by itself."""

import os

import numpy as np
import pytest
from tests.contract.cases import CASES, ON_ONE, SEED, assert_close
from tests.contract.literal import mean_of

import dualanchor as da
from dualanchor.methods import registry

OPTIONS = {"seed": SEED, "reps": 2, "record": 0}


@pytest.mark.parametrize(("number", "case"), list(enumerate(case for case in ON_ONE if not case.staged)), ids=str)
def test_it_is_the_mean_of_the_iterates(number, case):
    """Point, counts and the inner state are those of the method by itself."""
    method, steps, points, weights = case.make(horizon=60), 25, [], ("linear", "uniform")[number % 2]
    alone = da.solve(
        case.problem, method, stop=da.Steps(steps), seed=SEED, record=0, callback=lambda x: points.append(x.copy())
    )
    if method.mean_of != "x":
        ends = [da.solve(case.problem, method, stop=da.Steps(k), seed=SEED, record=0) for k in range(1, steps + 1)]
        points = [end.state[method.mean_of][0] for end in ends]
    mean = da.solve(case.problem, da.averaged(method, weights), stop=da.Steps(steps), seed=SEED, record=0)
    expected = mean_of(points, weights)
    scale = 1 + max(np.linalg.norm(point) for point in points)
    assert np.linalg.norm(mean.x - expected) <= 1e-12 * scale
    assert (mean.nit, mean.draws, mean.nfev) == (alone.nit, alone.draws, alone.nfev)
    assert set(mean.state) == {"x", *(f"inner_{name}" for name in alone.state)}
    for name, value in alone.state.items():
        assert_close(case, mean.state[f"inner_{name}"], value)


STRUCTURES = {
    "two evaluations": da.SEG(0.1, batch_size=3),
    "a coin": da.HalpernPAGE(0.2, 7, 2),
    "a horizon": da.DualOHM(0.2, horizon=30),
    "full passes": da.HalpernVRFinite(0.1, components=9),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_it_keeps_to_the_contract_of_methods(structure, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    da.check_method(da.averaged(STRUCTURES[structure]))


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
        (lambda: da.averaged(da.AnytimeDualOHM(0.2, 0.01)), "without stages"),
        (lambda: da.averaged(da.SGDA(0.1), "geometric"), "weights must be one of 'linear', 'uniform'"),
        (lambda: da.AveragedSGDA(0.1, weights=3), "weights must be one of 'linear', 'uniform'"),
    ],
)
def test_what_it_refuses(call, message):
    with pytest.raises(da.errors.DualAnchorError, match=message):
        call()
