"""Stopping rules in a run: which row stops when, and with which status."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.cases import SEED, every_method
from tests.contract.driver import TickingClock

import dualanchor as da

QUIET = da.problems.affine(dimension=4, sigma=0.0, mu=0.5)
NOISY = da.problems.affine(dimension=4, sigma=0.5)


def residuals(method=None, steps=40, problem=QUIET):
    """The residual after 0, 1, .. steps."""
    history = da.solve(problem, method or da.SGDA(0.3), stop=da.Steps(steps), record="all").history
    return history.residual


@every_method
def test_each_rule_alone(case):
    method = case.make()
    steps = da.solve(case.problem, method, stop=da.Steps(5), seed=SEED)
    assert (steps.nit, steps.status) == (5, da.Status.STEPS)
    budget = da.solve(case.problem, method, stop=da.Budget(60), seed=SEED)
    assert budget.status is da.Status.BUDGET
    same = da.solve(case.problem, method, budget=60, seed=SEED)
    assert (same.nit, same.nfev) == (budget.nit, budget.nfev)
    clock = da.solve(case.problem, method, stop=da.WallTime(0), seed=SEED)
    assert (clock.nit, clock.status) == (0, da.Status.WALL_TIME)
    start = da.solve(case.problem, method, stop=da.Steps(0), seed=SEED).residual
    target = da.solve(case.problem, method, stop=da.Target(2 * start), seed=SEED)
    assert (target.nit, target.status) == (0, da.Status.TARGET)
    for run in (steps, budget, clock):
        assert run.status.ended_as_asked
        assert run.success == (run.nit == 0 or run.residual < start)
    assert target.success


@every_method
def test_samples_can_be_limited_instead_of_evaluations(case):
    """The last step is the last one whose samples fit; a full pass needs none."""
    options = {"seed": SEED, "reps": 2, "record": "all"}
    result = da.solve(case.problem, case.make(), stop=da.Draws(30), **options)
    assert (result.draws <= 30).all()
    assert set(result.status) <= {da.Status.BUDGET, da.Status.HORIZON}
    longer = da.solve(case.problem, case.make(), stop=da.Steps(int(result.nit.max()) + 1), **options)
    for row in range(2):
        if result.status[row] is da.Status.BUDGET:
            lines = longer.history.of(row)
            assert lines.draws[lines.k == result.nit[row] + 1] > 30


@every_method
def test_whichever_comes_first_and_when_all_agree(case):
    def run(stop):
        result = da.solve(case.problem, case.make(), stop=stop, seed=SEED, record=0)
        return result.nit, result.status.name

    assert run(da.Steps(4) | da.Steps(7)) == (4, "STEPS")
    assert run(da.Steps(7) | da.Steps(4)) == (4, "STEPS")
    assert run(da.Steps(4) & da.Steps(7)) == (7, "STEPS")
    assert run(da.Steps(7) & da.Steps(4)) == (7, "STEPS")
    assert run((da.Steps(4) & da.Steps(7)) | da.Steps(5)) == (5, "STEPS")
    assert run((da.Steps(4) | da.Steps(7)) & da.Steps(5)) == (5, "STEPS")
    assert run(da.Steps(6) & da.WallTime(0)) == (6, "WALL_TIME")
    assert run(da.Steps(6) | da.WallTime(1e6)) == (6, "STEPS")
    in_budget = run(da.Budget(100))[0]
    assert run(da.Steps(10_000) | da.Budget(100)) == (in_budget, "BUDGET")
    assert run(da.Budget(100) & da.Steps(in_budget + 3)) == (in_budget + 3, "STEPS")
    assert run(da.Budget(100) & da.Steps(1)) == (in_budget, "STEPS")


leaves = st.one_of(
    st.integers(0, 90).map(da.Steps),
    st.integers(1, 200).map(da.Budget),
    st.tuples(st.floats(1e-6, 1.0), st.integers(1, 5)).map(lambda pair: da.Target(*pair)),
)


def _pair(parts):
    first, second, any_of_them = parts
    return first | second if any_of_them else first & second


rules = st.recursive(leaves, lambda inner: st.tuples(inner, inner, st.booleans()).map(_pair), max_leaves=4)


def holds(rule, k, batch, path):
    """Whether the rule wants the run to stop after k steps of a constant cost."""
    if isinstance(rule, da.Steps):
        return k >= rule.count
    if isinstance(rule, da.Budget):
        return (k + 1) * batch > rule.evals
    if isinstance(rule, da.Target):
        return k % rule.every == 0 and path[k] <= rule.eps
    first, second = holds(rule.first, k, batch, path), holds(rule.second, k, batch, path)
    return first or second if type(rule).__name__ == "_Any" else first and second


@settings(max_examples=30)
@given(rules, st.integers(1, 3), st.sampled_from([0, 7, "all"]))
def test_any_combination_stops_at_the_first_step_at_which_it_holds(rule, batch, record):
    """Against a loop that asks after every single step, whatever is recorded on the way."""
    method = da.SGDA(0.2, batch)
    path = residuals(method, 120, NOISY)
    expected = next((k for k in range(100) if holds(rule, k, batch, path)), 100)
    guarded = rule | da.Steps(100)
    try:
        result = da.solve(NOISY, method, stop=guarded, record=record)
    except da.errors.ArgumentError:  # refused before the start: no batch fits the budget
        assert any(isinstance(leaf, da.Budget) and leaf.evals < batch for leaf in rule.leaves())
    else:
        assert result.nit == expected


def test_a_target_is_met_at_the_first_look_and_not_before():
    path = residuals()
    eps = float(path[13])
    for every, expected in ((1, 13), (13, 13), (5, 15), (10, 20)):
        result = da.solve(QUIET, da.SGDA(0.3), stop=da.Target(eps, every), budget=500)
        assert (result.nit, result.status, result.success) == (expected, da.Status.TARGET, True)
        assert result.residual <= eps
        assert "theorem does not apply" in repr(result)


def test_two_targets_with_looks_of_their_own():
    """Each looks at its own multiples, whatever the other does and whatever is recorded."""
    path = residuals()
    for record in (0, 3, "all"):
        stop = da.Target(1e-90, 4) | da.Target(path[6], 6)
        result = da.solve(QUIET, da.SGDA(0.3), stop=stop, budget=40, record=record)
        assert (result.nit, result.status) == (6, da.Status.TARGET)


def test_a_target_that_is_not_reached_is_no_success():
    result = da.solve(QUIET, da.SGDA(0.3), stop=da.Target(1e-90), budget=10)
    assert result.status is da.Status.BUDGET
    assert not result.success
    with pytest.raises(da.errors.UnsuccessfulError, match="budget"):
        result.raise_for_status()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (da.SGDA(0.3), {"budget": 20}),
        (da.SGDA(0.3), {"steps": 20}),
        (da.DualOHM(0.3, 21), {}),
    ],
    ids=["budget", "steps", "horizon"],
)
def test_a_target_met_when_the_run_ends_anyway_is_a_success(method, options):
    """Success means: ended as asked, and the target met. The very last step may be the one that meets it."""
    path = residuals(method, 20)
    assert path[20] < path[:20].min()
    stop = da.Target(float(path[20]) * (1 + 1e-9))
    if "steps" in options:
        stop = da.Steps(options["steps"]) | stop
    result = da.solve(QUIET, method, stop=stop, budget=options.get("budget"))
    assert result.nit == 20
    assert result.residual <= stop.leaves()[-1].eps
    assert result.success


def test_rows_stop_at_their_own_targets():
    alone = [da.solve(NOISY, da.SGDA(0.3), stop=da.Target(0.2), budget=200, seed=SEED, reps=n) for n in (5, 3)]
    assert len(set(alone[0].nit.tolist())) > 1
    np.testing.assert_array_equal(alone[0].nit[:3], alone[1].nit)
    np.testing.assert_array_equal(alone[0].x[:3], alone[1].x)
    met = alone[0].status == da.Status.TARGET
    np.testing.assert_array_equal(met, alone[0].success)
    assert (alone[0].residual[met] <= 0.2).all()


def test_the_clock_stops_a_run(monkeypatch):
    assert da.solve(NOISY, da.SGDA(0.1), stop=da.WallTime(0.01), record=0).status is da.Status.WALL_TIME
    TickingClock(monkeypatch)
    result = da.solve(NOISY, da.SGDA(0.1), stop=da.WallTime(50.0), record=0)
    assert result.status is da.Status.WALL_TIME
    assert result.nit > 10


def test_every_row_has_its_last_line_whenever_the_clock_strikes(monkeypatch):
    """A clock that ticks whenever it is read may strike between the end of one row and the next step of the others."""
    methods = [da.DualOHM(0.1, 5), da.DualOHM(0.1, 12), da.DualOHM(0.1, 7)]
    for strikes in range(8, 40):
        TickingClock(monkeypatch)
        result = da.solve(NOISY, methods, stop=da.WallTime(strikes), record=[0])
        for row in range(3):
            assert result.history.of(row).k[-1] == result.nit[row, 0]


def test_a_horizon_is_reached_in_any_case():
    result = da.solve(QUIET, da.DualOHM(0.5, 10), budget=1000, stop=da.Steps(500))
    assert (result.nit, result.status, result.success) == (9, da.Status.HORIZON, True)
    result = da.solve(QUIET, da.DualOHM(0.5, 10), stop=da.Steps(500) & da.Budget(10_000))
    assert result.nit == 9
    shorter = da.solve(QUIET, da.DualOHM(0.5, 10), budget=5)
    assert (shorter.nit, shorter.status) == (5, da.Status.BUDGET)


def test_rules_are_values():
    assert da.Steps(3) == da.Steps(3)
    assert da.Budget(3) != da.Budget(4)
    assert (da.Steps(3) | da.Budget(4)) == (da.Steps(3) | da.Budget(4))
    assert repr(da.Target(0.5, 2)) == "Target(eps=0.5, every=2)"
    assert hash(da.WallTime(1.0)) == hash(da.WallTime(1.0))


def test_a_batch_beyond_the_budget_is_refused_beside_a_configuration_that_takes_no_step():
    problem = da.problems.affine()
    for methods in (da.DualOHM(0.5, 50, 20), [da.DualOHM(0.5, 1), da.DualOHM(0.5, 50, 20)]):
        with pytest.raises(da.errors.ArgumentError, match="must not be larger than the budget, 5 evaluations"):
            da.solve(problem, methods, budget=5)


@pytest.mark.parametrize("method", [da.DualOHM(0.5, 100, da.Tapered(1e30)), da.AnytimeDualOHM(0.5, 1e30)])
def test_batches_beyond_all_numbers_are_beyond_the_budget(method):
    with pytest.raises(da.errors.ArgumentError, match="must not be larger than the budget, 300 evaluations"):
        da.solve(da.problems.affine(), method, budget=300)
