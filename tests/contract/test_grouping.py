"""A row comes out the same whatever rows it is run with."""

import numpy as np
import pytest
from tests.contract.cases import (
    CASES,
    SEED,
    assert_close,
    bare,
    every_case,
    every_diverging_case,
    every_method,
    every_stack,
    every_variant,
)

import dualanchor as da
from dualanchor.core.streams import Purpose

COUNTED = ("status", "nit", "nfev", "draws", "success")


def assert_rows_agree(case, stacked, alone, where):
    """The rows `where` of one result are those of another, in the point, the counts and the status."""
    for name in COUNTED:
        np.testing.assert_array_equal(getattr(stacked, name)[where], getattr(alone, name), err_msg=name)
    assert_close(case, stacked.x[where], alone.x)
    assert_close(case, stacked.residual[where], alone.residual)


@every_variant
def test_any_set_of_replications_gives_the_same_rows(case, change):
    method, steps = case.make(**change), 15
    together = da.solve(case.problem, method, stop=da.Steps(steps), seed=SEED, reps=7, record=0)
    for some in ([5, 2, 2], [6]):
        s, session = bare(case, method, some, steps)
        assert_close(case, together.x[some], s.x)
        for name, value in vars(s).items():
            assert_close(case, together.state[name][some], value)
        np.testing.assert_array_equal(together.nfev[some], np.broadcast_to(session.evals, len(some)))
        np.testing.assert_array_equal(together.draws[some], np.broadcast_to(session.draws, len(some)))


@every_case
def test_named_replications_are_those_of_the_run(case):
    """Any choice of replications, in any order, in a grid whose rows end at different times or diverge."""
    methods = [case.make(horizon=70, step_size=size) for size in (0.1, 1e6, 0.02)]
    options = {"budget": 200, "stop": da.Steps(60), "seed": SEED, "check": False, "record": 0}
    together = da.solve(case.problem, methods, reps=7, **options)
    for some in ([5, 2], [6, 0, 3]):
        assert_rows_agree(case, together, da.solve(case.problem, methods, reps=some, **options), (slice(None), some))
    assert_rows_agree(case, together, da.solve(case.problem, methods[2], reps=[4], **options), (2, [4]))


@every_stack
def test_configurations_in_one_array_equal_one_by_one(case, methods):
    """Rows retire one after another: by their horizon, and because batches eat the budget at different speeds."""
    options = {"budget": 120, "seed": SEED, "reps": 2, "check": False, "record": 0}
    stacked = da.solve(case.problem, methods, **options)
    assert stacked.shape == (len(methods), 2)
    for i, method in enumerate(methods):
        assert_rows_agree(case, stacked, da.solve(case.problem, method, **options), i)


@pytest.mark.slow
@every_stack
def test_the_order_of_configurations_does_not_matter(case, methods):
    options = {"budget": 600, "seed": SEED, "reps": 3, "check": False}
    forwards = da.solve(case.problem, methods, **options)
    backwards = da.solve(case.problem, methods[::-1], **options)
    assert_rows_agree(case, backwards, forwards, slice(None, None, -1))


@every_diverging_case
def test_rows_that_diverge_do_not_disturb_the_others(case):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6, 0.05)]
    options = {"stop": da.Steps(120), "seed": SEED, "reps": 2, "check": False, "record": 0}
    stacked = da.solve(case.problem, methods, **options)
    diverged = stacked.status == da.Status.DIVERGED
    assert diverged[1:3].all()
    assert not diverged[[0, 3]].any()
    for i, method in enumerate(methods):
        assert_rows_agree(case, stacked, da.solve(case.problem, method, **options), i)


@every_method
def test_looking_after_every_step_changes_nothing(case):
    """A callback makes the run look at every step; without one it looks now and then and finds its way back."""
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6)]
    options = {"stop": da.Steps(100), "seed": SEED, "reps": 2, "check": False, "record": 0}
    stacked = da.solve(case.problem, methods, **options)
    assert_rows_agree(case, stacked, da.solve(case.problem, methods, callback=lambda x: None, **options), ...)


@every_method
def test_targets_retire_rows_at_their_own_time(case):
    methods = [case.make(horizon=100, step_size=size) for size in (0.05, 0.2)]
    start = da.solve(case.problem, methods[0], stop=da.Steps(0), seed=SEED, reps=3).residual
    options = {"stop": da.Target(0.9 * float(start.min()), every=3), "budget": 200, "seed": SEED, "reps": 3}
    stacked = da.solve(case.problem, methods, check=False, **options)
    for i, method in enumerate(methods):
        assert_rows_agree(case, stacked, da.solve(case.problem, method, check=False, **options), i)


@pytest.mark.parametrize("fast", [False, True])
@every_method
def test_how_far_the_run_looks_ahead_changes_nothing(case, fast, monkeypatch):
    """Steps between two looks depend on the clock; results must not."""
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0)]
    options = {"stop": da.Steps(120), "seed": SEED, "reps": 2, "check": False, "fast": fast}
    usual = da.solve(case.problem, methods, **options)
    for reach in (5, 64):
        monkeypatch.setattr("dualanchor.run.loop._REACH", reach)
        monkeypatch.setattr("dualanchor.run.loop._SECONDS", 1e9)
        other = da.solve(case.problem, methods, **options)
        np.testing.assert_array_equal(usual.x, other.x)
        for name in COUNTED:
            np.testing.assert_array_equal(getattr(usual, name), getattr(other, name), err_msg=name)
        for name, column in usual.history.columns().items():
            np.testing.assert_array_equal(column, other.history.columns()[name], err_msg=name)


@every_method
def test_large_states_are_not_copied_and_agree(case, monkeypatch):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0)]
    options = {"stop": da.Steps(120), "seed": SEED, "reps": 2, "check": False, "record": 0}
    usual = da.solve(case.problem, methods, **options)
    monkeypatch.setattr("dualanchor.run.loop._SNAPSHOT", 0)
    other = da.solve(case.problem, methods, **options)
    np.testing.assert_array_equal(usual.x, other.x)
    np.testing.assert_array_equal(usual.nit, other.nit)


def own_problem(dtype):
    """A user's operator that keeps the type of its argument."""
    scale = np.linspace(0.2, 1.0, 5).astype(dtype)
    oracle = da.AdditiveNoise(lambda x: scale * x, sigma=0.3, vectorized=True)
    return da.Problem(oracle, np.ones(5, dtype), constants=da.Constants(L=1.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "methods",
    [
        [da.DualOHM(0.3, 50), da.DualOHM(0.7, 50), da.DualOHM(0.7, 20, 3)],
        [da.OHM(0.3, 50), da.OHM(0.7, 50)],
        [da.SGDA(0.3), da.SGDA(0.7)],
        [da.SEG(0.3), da.SEG(0.7, 4)],
        [da.RAIN(0.1, 0.01, 0.01), da.RAIN(0.1, 0.02, 0.3), da.RAIN(0.1, 0.02, 0.03)],
        [da.HalpernPAGE(0.3, 5, 1), da.HalpernPAGE(0.7, 5, 2)],
    ],
    ids=lambda methods: type(methods[0]).__name__,
)
def test_stacks_agree_in_single_precision_too(dtype, methods):
    problem = own_problem(dtype)
    stacked = da.solve(problem, methods, budget=200, reps=2)
    assert stacked.x.dtype == dtype
    for i, method in enumerate(methods):
        alone = da.solve(problem, method, budget=200, reps=2)
        assert alone.x.dtype == dtype
        np.testing.assert_array_equal(stacked.x[i], alone.x)


def test_the_same_configuration_twice_gives_the_same_row_twice():
    for case in CASES[:3]:
        method = case.make(horizon=40)
        twice = da.solve(case.problem, [method, method], budget=100, reps=2)
        np.testing.assert_array_equal(twice.x[0], twice.x[1])


def test_configurations_share_the_noise_of_their_replication():
    """Common random numbers: two batch sizes read the same unit vectors."""
    problem = da.Problem(da.AdditiveNoise(lambda x: 0 * x, sigma=1.0, vectorized=True), np.zeros(3))
    both = da.solve(problem, [da.SGDA(1.0, 1), da.SGDA(1.0, 4)], stop=da.Steps(1), reps=2)
    np.testing.assert_allclose(both.x[0], 2 * both.x[1], rtol=1e-14)
    unit = da.Streams(0, np.arange(2), Purpose.NOISE, 3).normals()
    np.testing.assert_allclose(both.x[0], -unit / np.sqrt(3), rtol=1e-14)
