"""Samples and evaluations: declared before a step, counted during it, and never more than the budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.cases import (
    CASES,
    ON_ONE,
    SEED,
    coin,
    every_method,
    every_plain_stack,
    every_plain_variant,
    one_stack_each,
    session_for,
)
from tests.contract.oracles import WatchedProblem

import dualanchor as da
from dualanchor.core.streams import Purpose


@every_plain_variant
def test_a_step_costs_what_it_declares(case, change):
    method = case.make(**change)
    start, session, coins = session_for(case, [4, 1, 0])
    s = method.init(start)
    for k in range(20):
        tossed = coin(method, coins, k)
        before = np.zeros(3, int) + session.draws, np.zeros(3, int) + session.evals
        declared = method.cost(k, s, tossed if tossed is None else tossed[:, None])
        method.step(k, s, session, tossed)
        spent = session.draws - before[0], session.evals - before[1]
        np.testing.assert_array_equal(spent[0], np.broadcast_to(np.ravel(declared.draws), 3))
        np.testing.assert_array_equal(spent[1], np.broadcast_to(np.ravel(declared.evals), 3))
    assert_costs_of_many_steps_are_the_costs_of_each(method, np.arange(3, 40, 3))


def assert_costs_of_many_steps_are_the_costs_of_each(method, ks):
    """The runner asks for many steps at once."""
    tossed = None
    if (probability := method.probability(ks)) is not None:
        tossed = da.Streams(SEED, np.arange(2), Purpose.COIN).uniforms(3, ks.size) < probability
    together = method.cost(ks, None, tossed)
    for i, k in enumerate(ks):
        for row in range(2):
            one = method.cost(int(k), None, None if tossed is None else tossed[row, i])
            for name in ("draws", "evals"):
                assert np.broadcast_to(getattr(together, name), (2, ks.size))[row, i] == getattr(one, name)


@every_plain_stack
def test_a_step_of_a_stack_costs_what_it_declares_row_by_row(case, methods):
    rows = len(methods)
    stacked = type(methods[0]).stack(methods)
    start, session, coins = session_for(case, list(range(rows)))
    s = stacked.init(start)
    for k in range(min(8, stacked.steps or 8)):
        tossed = coin(stacked, coins, k)
        before = np.zeros(rows, int) + session.draws, np.zeros(rows, int) + session.evals
        stacked.step(k, s, session, tossed)
        for row, method in enumerate(methods):
            declared = method.cost(k, s, None if tossed is None else tossed[row])
            assert np.broadcast_to(session.draws, rows)[row] - before[0][row] == declared.draws
            assert np.broadcast_to(session.evals, rows)[row] - before[1][row] == declared.evals


@one_stack_each
def test_counters_agree_for_stacks_whose_rows_end_at_different_times(case, methods):
    problem = WatchedProblem(case.problem)
    result = da.solve(problem, methods, budget=120, seed=SEED, reps=2, record=0, check=False)
    assert problem.log.evals == result.nfev.sum()
    assert problem.log.draws == result.draws.sum()


@every_method
def test_looking_costs_no_budget(case):
    problem = WatchedProblem(case.problem)
    options = {"budget": 200, "seed": SEED}
    quiet = da.solve(problem, case.make(), record=0, **options)
    seldom = problem.log.looks
    loud = da.solve(problem, case.make(), record="all", stop=da.Target(1e-90), **options)
    assert problem.log.looks - seldom > seldom
    assert (quiet.nfev, quiet.draws) == (loud.nfev, loud.draws)
    np.testing.assert_array_equal(quiet.x, loud.x)


def test_a_sampler_is_called_for_exactly_the_samples_that_are_charged():
    asked = []

    def sample(x, n, rng):
        asked.append(n)
        return x + rng.normal(size=(n, x.size)).mean(axis=0)

    problem = da.Problem(da.Sampler(sample, replayable=True), np.ones(3), constants=da.Constants(L=1.0))
    for method in (da.DualOHM(1.0, 40, da.Tapered(30.0)), da.SEG(0.3, 3), da.HalpernPAGE(1.0, 9, 4), da.OHM(0.5, 20)):
        asked.clear()
        result = da.solve(problem, method, budget=150, reps=3, record=0)
        assert sum(asked) == result.nfev.sum()


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_do_not_change_the_count(shards):
    asked = []

    def sample(x, n, rng):
        asked.append(n)
        return x

    problem = da.Problem(da.Sampler(sample, shards=shards), np.ones(2), constants=da.Constants(L=1.0))
    result = da.solve(problem, da.SGDA(0.1, [7, 2, 1, 5]), stop=da.Steps(4), record=0)
    assert sum(asked) == result.nfev == 15
    assert len(asked) == (4 if shards == 1 else 3 + 2 + 1 + 3)


HYPER = {
    "batch_size": st.one_of(
        st.integers(1, 40),
        st.floats(0.01, 3.0).map(da.Growing),
        st.lists(st.integers(1, 30), min_size=60, max_size=60).map(lambda sizes: 10 * sizes),  # enough for any horizon
    ),
    "big_batch": st.integers(1, 40),
    "small_batch": st.integers(1, 20),
    "horizon": st.integers(1, 61),
    "estimator": st.one_of(st.none(), st.builds(da.PAGE, st.integers(1, 30), st.integers(1, 9))),
}
"""What hypothesis draws for a hyper-parameter of this name."""


@pytest.mark.slow
@settings(max_examples=50)
@given(st.data())
def test_no_row_spends_more_than_its_budget_and_none_stops_too_early(data):
    case = data.draw(st.sampled_from(CASES))
    drawn = {
        name: data.draw(st.lists(HYPER[name], min_size=2, max_size=2)) for name in HYPER if name in case.parameters
    }
    methods = [case.make(**{name: values[i] for name, values in drawn.items()}) for i in range(2)]
    budget, reps = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 3))
    options = {"seed": SEED, "reps": reps, "record": 0, "check": False}

    def spent(method, steps):
        """What each row spends on its first steps."""
        return np.atleast_1d(da.solve(case.problem, method, stop=da.Steps(steps), **options).nfev)

    for method in methods:
        if spent(method, 1).max() > budget:
            with pytest.raises(da.errors.ArgumentError, match="budget"):
                da.solve(case.problem, method, budget=budget, stop=da.Steps(60), **options)
            continue
        result = da.solve(case.problem, method, budget=budget, stop=da.Steps(60), **options)
        for row in range(reps):
            status, nit, nfev = (np.atleast_1d(getattr(result, name))[row] for name in ("status", "nit", "nfev"))
            assert nfev == spent(method, int(nit))[row] <= budget
            if status is da.Status.BUDGET:
                assert spent(method, int(nit) + 1)[row] > budget
            elif not case.staged:
                assert nit == min(60, method.steps if method.steps is not None else 60)
            else:
                assert nit == 60 or (status is da.Status.HORIZON and nfev == spent(method, 1000)[row])


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_no_row_of_a_stack_spends_more_than_its_budget(data):
    case = data.draw(st.sampled_from(ON_ONE))
    names = [name for name in case.parameters if name in ("big_batch", "small_batch", "horizon", "batch_size")]
    sizes = st.integers(2, 30)
    methods = [case.make(**{name: data.draw(sizes) for name in names}) for _ in range(data.draw(st.integers(2, 5)))]
    budget = data.draw(st.integers(60, 300))
    result = da.solve(case.problem, methods, budget=budget, stop=da.Steps(50), seed=SEED, reps=2, record=0)
    assert (result.nfev <= budget).all()
    for i, method in enumerate(methods):
        alone = da.solve(case.problem, method, budget=budget, stop=da.Steps(50), seed=SEED, reps=2, record=0)
        np.testing.assert_array_equal(result.nfev[i], alone.nfev)
        np.testing.assert_array_equal(result.nit[i], alone.nit)
        np.testing.assert_array_equal(result.status[i], alone.status)


@pytest.mark.parametrize("budget", [1, 2, 5, 64, 65, 66, 127, 1000])
def test_a_budget_is_spent_to_the_last_sample(budget):
    problem = da.problems.affine(dimension=4)
    assert da.solve(problem, da.SGDA(0.1), budget=budget).nfev == budget
    assert da.solve(problem, da.SGDA(0.1, 3), budget=3 * budget).nfev == 3 * budget
    assert da.solve(problem, da.SGDA(0.1, 3), budget=3 * budget + 2).nfev == 3 * budget
