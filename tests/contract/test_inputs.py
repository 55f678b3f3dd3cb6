"""What goes in is left alone, and what comes out has the type and shape of what went in."""

import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.contract.cases import (
    ON_ONE,
    SEED,
    Case,
    bare,
    coin,
    every_method,
    every_plain_method,
    noiseless,
    serves,
    session_for,
    small,
)
from tests.contract.oracles import Watched, WatchedProblem

import dualanchor as da
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose

_QUIET = [problem for problem in map(noiseless, da.list_problems()) if not problem.constants.sigma]
NOISELESS = [
    Case(method, _QUIET[number % len(_QUIET)])
    for number, method in enumerate(da.list_methods())
    if serves(_QUIET[number % len(_QUIET)], method)
]
every_noiseless_case = pytest.mark.parametrize("case", NOISELESS, ids=str)
"""Every method but those for finite sums, whose samples differ in any case; problems take turns."""


def arrays_within(thing, seen=None):
    """Every array that can be reached through attributes, lists and closures."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return []
    seen[id(thing)] = thing
    if isinstance(thing, np.ndarray):
        return [thing]
    parts = []
    if isinstance(thing, (list, tuple)):
        parts = list(thing)
    elif isinstance(thing, dict):
        parts = list(thing.values())
    elif callable(thing) and getattr(thing, "__closure__", None):
        parts = [cell.cell_contents for cell in thing.__closure__]
    elif hasattr(thing, "__dict__") and not callable(thing):
        parts = list(vars(thing).values())
    return [array for part in parts for array in arrays_within(part, seen)]


@every_method
def test_the_start_and_the_problem_are_left_alone(case):
    instance = case.problem.instance(da.Streams(SEED, np.arange(2), Purpose.INSTANCE))
    arrays = arrays_within(instance)
    assert arrays
    before = copy.deepcopy(arrays)

    class Fixed(da.Problem):
        """The problem with this very instance, whatever is asked for."""

        def __init__(self):
            pass

        name, dimension, components = case.problem.name, case.problem.dimension, case.problem.components
        constants, step_size = case.problem.constants, case.problem.step_size

        def instance(self, streams):
            return instance

        def describe(self):
            return {"name": self.name}

    method = case.make(horizon=50)
    before_method = copy.deepcopy(method.parameters())
    x0 = np.linspace(-1.0, 1.0, 8)
    unchanged = x0.copy()
    for start in (None, x0, np.stack([x0, -x0])):
        start_copy = None if start is None else start.copy()
        da.solve(Fixed(), method, budget=200, seed=SEED, reps=2, x0=start)
        if start is not None:
            np.testing.assert_array_equal(start, start_copy)
    np.testing.assert_array_equal(x0, unchanged)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)
    assert method.parameters() == before_method


@every_method
def test_the_result_does_not_share_memory_with_what_went_in(case):
    x0 = np.linspace(-1.0, 1.0, 8)
    first = da.solve(case.problem, case.make(horizon=1 if "horizon" in case.parameters else 9), stop=da.Steps(0), x0=x0)
    assert not np.shares_memory(first.x, x0)
    second = da.solve(case.problem, case.make(horizon=9), stop=da.Steps(3), x0=first)
    assert not np.shares_memory(second.x, first.x)
    np.testing.assert_array_equal(first.x, x0)


@every_plain_method
def test_a_step_that_failed_can_be_taken_again(case):
    """At the first or second evaluation of a step, with every kind of coin; then everything is as if it never had."""
    method = case.make(horizon=50)
    for replications in ([0, 1, 2], [3]):
        start, session, coins = session_for(case, replications)
        oracle = Watched(session.oracle)
        session = Session(oracle, session.streams)
        s = method.init(start)
        for k in range(12):
            for failing_call in (1, 2):
                oracle.log.calls, oracle.log.fail_at = 0, failing_call
                tried, mark = s.copy(), session.mark()
                with contextlib.suppress(da.errors.OracleError):
                    method.step(k, tried, session, coin(method, coins, k))
                    assert oracle.log.calls < failing_call
                session.reset(mark)
            oracle.log.fail_at = None
            method.step(k, s, session, coin(method, coins, k))
        expected, fresh = bare(case, method, replications, 12)
        np.testing.assert_array_equal(s.x, expected.x)
        np.testing.assert_array_equal(session.evals, fresh.evals)
        np.testing.assert_array_equal(session.draws, fresh.draws)


@every_plain_method
def test_a_draw_that_fails_leaves_the_state_as_it_was(case):
    class NoDraws(Watched):
        def draw(self, streams, size):
            raise ZeroDivisionError("no samples today")

    method = case.make(horizon=50)
    start, session, coins = session_for(case, [0, 1])
    s = method.init(start)
    for k in range(3):
        method.step(k, s, session, coin(method, coins, k))
    before, failing = s.copy(), Session(NoDraws(session.oracle), session.streams)
    tails = None if coin(method, coins, 3) is None else np.zeros(2, bool)
    with pytest.raises(da.errors.OracleError, match="no samples today"):
        method.step(3, s, failing, tails)
    for name, value in vars(s).items():
        np.testing.assert_array_equal(value, getattr(before, name))


@every_noiseless_case
def test_single_precision_is_close_to_double(case):
    """Without noise: the unit vectors of the two precisions are different numbers."""
    method, x0 = case.make(horizon=60), np.linspace(-1.0, 1.0, 8)
    options = {"stop": da.Steps(50), "seed": SEED, "reps": 2}
    single = da.solve(case.problem, method, x0=x0.astype(np.float32), **options)
    double = da.solve(case.problem, method, x0=x0.astype(np.float32).astype(float), **options)
    assert (single.x.dtype, double.x.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(single.nfev, double.nfev)
    np.testing.assert_allclose(single.x, double.x, atol=2e-5 * np.abs(double.x).max())
    for name, value in single.state.items():
        np.testing.assert_allclose(value, double.state[name], atol=2e-5 * max(1.0, np.abs(double.state[name]).max()))


@every_method
def test_whole_numbers_become_floats(case):
    method = case.make(horizon=30)
    whole, floats = [1, -2, 3, 0, 5, 6, 7, 8], [1.0, -2.0, 3.0, 0.0, 5.0, 6.0, 7.0, 8.0]
    options = {"budget": 100, "seed": SEED}
    one = da.solve(case.problem, method, x0=whole, **options)
    other = da.solve(case.problem, method, x0=np.array(floats), **options)
    np.testing.assert_array_equal(one.x, other.x)
    assert one.x.dtype == np.float64
    assert da.solve(case.problem, method, x0=np.array(whole, np.int8), **options).x.dtype == np.float64


@pytest.mark.parametrize("case", [case for case in ON_ONE if "horizon" in case.parameters], ids=str)
def test_a_horizon_of_one_returns_the_start_at_no_cost(case):
    problem = WatchedProblem(case.problem)
    for reps in (1, 3):
        result = da.solve(problem, case.make(horizon=1), budget=5, seed=SEED, reps=reps)
        start = case.problem.instance(da.Streams(SEED, np.arange(reps), Purpose.INSTANCE)).x0
        np.testing.assert_array_equal(result.x, start.reshape(result.x.shape))
        for name in ("nit", "nfev", "draws"):
            assert np.all(getattr(result, name) == 0)
        assert np.all(result.success)
        assert np.all(np.atleast_1d(result.status) == da.Status.HORIZON)
    assert problem.log.calls == problem.log.draws == 0


@every_method
def test_no_steps_return_the_start_at_no_cost(case):
    problem = WatchedProblem(case.problem)
    result = da.solve(problem, case.make(), stop=da.Steps(0), seed=SEED)
    assert (result.nit, result.nfev, result.draws, result.status) == (0, 0, 0, da.Status.STEPS)
    assert problem.log.calls == 0


@every_noiseless_case
def test_without_noise_batches_only_cost_more(case):
    """A deterministic method is the same class on a noiseless oracle."""
    options = {"stop": da.Steps(50), "seed": SEED, "reps": 2}
    usual = da.solve(case.problem, case.make(horizon=60), **options)
    for name in ("batch_size", "big_batch", "small_batch"):
        if name in case.parameters:
            other = da.solve(case.problem, case.make(horizon=60, **{name: 17}), **options)
            np.testing.assert_array_equal(usual.x, other.x)
            assert (other.nfev > usual.nfev).all()


@every_noiseless_case
def test_without_noise_residuals_shrink(case):
    method = case.make(horizon=201)
    start = da.solve(case.problem, method, stop=da.Steps(0), seed=SEED).residual
    assert da.solve(case.problem, method, stop=da.Steps(200), seed=SEED).residual < 0.5 * start


@pytest.mark.slow
@every_method
def test_a_result_can_be_the_start_of_another_run(case):
    method = case.make(horizon=40)
    for reps in (1, 3):
        first = da.solve(case.problem, method, budget=100, seed=SEED, reps=reps)
        again = da.solve(case.problem, method, budget=100, seed=SEED + 1, reps=reps, x0=first)
        same = da.solve(case.problem, method, budget=100, seed=SEED + 1, reps=reps, x0=first.x)
        np.testing.assert_array_equal(again.x, same.x)
        assert again.x.shape == first.x.shape


@pytest.mark.parametrize("entry", da.list_problems(), ids=lambda entry: entry.id)
def test_the_root_is_a_root_and_the_start_is_as_far_as_declared(entry):
    problem = small(entry)
    oracle, x0, root = problem.instance(da.Streams(SEED, np.arange(200), Purpose.INSTANCE))
    assert x0.shape == root.shape == (200, problem.dimension)
    np.testing.assert_allclose(oracle.operator(root), 0.0, atol=1e-12)
    # The root mean square over 200 draws; its relative error is at most about 1/sqrt(200 d), far below 20 percent.
    distance = np.sqrt(np.mean(np.sum((x0 - root) ** 2, axis=1)))
    assert distance == pytest.approx(problem.constants.D, rel=0.2)


@every_method
def test_an_oracle_may_hand_back_its_argument(case):
    """F(x) = x, answered with x itself: the step must not change what it still needs."""

    class Identity(da.Oracle):
        components = 5

        def __init__(self, answer):
            self.answer = answer

        def draw(self, streams, size):
            return da.Batch(size, None)

        def mean(self, x, batch):
            return self.answer(x)

        def full_batch(self):
            return da.Batch(5, None)

    results = []
    for answer in (lambda x: x, lambda x: x.copy()):
        problem = da.Problem(Identity(answer), np.arange(1.0, 4.0), constants=da.Constants(L=1.0, M=1.0))
        method = Case(case.method, problem).make(horizon=40)
        results.append(da.solve(problem, method, stop=da.Steps(20), reps=2, seed=SEED))
    np.testing.assert_array_equal(results[0].x, results[1].x)


def test_a_run_in_another_thread():
    """Ctrl-C can only be caught in the main thread; a run elsewhere goes without."""
    found = []
    problem = da.problems.affine(dimension=4)
    thread = threading.Thread(target=lambda: found.append(da.solve(problem, "sgda", budget=50)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0].x, da.solve(problem, "sgda", budget=50).x)


def test_runs_in_several_threads_do_not_disturb_each_other():
    problem = da.problems.finite_sum_cocoercive(components=20, dimension=10, rank=9)
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda seed: da.solve(problem, "halpern-page", budget=300, seed=seed).x, range(4)))
    for seed, x in enumerate(together):
        np.testing.assert_array_equal(x, da.solve(problem, "halpern-page", budget=300, seed=seed).x)
