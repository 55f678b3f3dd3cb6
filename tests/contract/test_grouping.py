"""A row comes out the same whatever rows it is run with."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.contract.cases import (
    CASES,
    SEED,
    assert_close,
    bare,
    every_diverging_case,
    every_method,
    every_stack,
    every_variant,
    one_stack_each,
)
from tests.contract.driver import CHUNK_SECONDS, CHUNK_STEPS, SNAPSHOT_SIZE

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
        if not case.staged:  # whose state is that of their stages
            for name, value in vars(s).items():
                assert_close(case, together.state[name][some], value)
        np.testing.assert_array_equal(together.nfev[some], np.broadcast_to(session.evals, len(some)))
        np.testing.assert_array_equal(together.draws[some], np.broadcast_to(session.draws, len(some)))


@every_method
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
@one_stack_each
def test_the_order_of_configurations_does_not_matter(case, methods):
    options = {"budget": 200, "seed": SEED, "reps": 2, "check": False}
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


@pytest.mark.slow
@every_method
def test_looking_after_every_step_changes_nothing(case):
    """A callback makes the run look at every step; without one it looks now and then and finds its way back."""
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6)]
    options = {"stop": da.Steps(100), "seed": SEED, "reps": 2, "check": False, "record": 0}
    stacked = da.solve(case.problem, methods, **options)
    assert_rows_agree(case, stacked, da.solve(case.problem, methods, callback=lambda x: None, **options), ...)


@pytest.mark.slow
@every_method
def test_targets_retire_rows_at_their_own_time(case):
    methods = [case.make(horizon=100, step_size=size) for size in (0.05, 0.2)]
    start = da.solve(case.problem, methods[0], stop=da.Steps(0), seed=SEED, reps=3).residual
    options = {"stop": da.Target(0.9 * float(start.min()), every=3), "budget": 200, "seed": SEED, "reps": 3}
    stacked = da.solve(case.problem, methods, check=False, **options)
    for i, method in enumerate(methods):
        assert_rows_agree(case, stacked, da.solve(case.problem, method, check=False, **options), i)


@every_method
def test_how_far_the_run_goes_between_two_checks_changes_nothing(case, monkeypatch):
    """Steps between two checks depend on the clock; results must not."""
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0)]
    options = {"stop": da.Steps(120), "seed": SEED, "reps": 2, "check": False}
    usual = da.solve(case.problem, methods, **options)
    for reach in (5, 64):
        monkeypatch.setattr(CHUNK_STEPS, reach)
        monkeypatch.setattr(CHUNK_SECONDS, 1e9)
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
    monkeypatch.setattr(SNAPSHOT_SIZE, 0)
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


LONG = 70_001  # a row whose update does not fit the cache


def test_long_rows_come_out_the_same_whatever_is_beside_them():
    oracle = da.AdditiveNoise(lambda x: 0.5 * x, sigma=0.1)
    problem = da.Problem(oracle, np.ones(LONG), constants=da.Constants(L=1.0))
    methods = [da.DualOHM(0.5, 12), da.DualOHM(1.0, 9), da.DualOHM(0.7, 12)]
    together = da.solve(problem, methods, budget=9, reps=2, check=False)
    for i, method in enumerate(methods):
        alone = da.solve(problem, method, budget=9, reps=[1], check=False)
        np.testing.assert_array_equal(together.x[i, 1], alone.x[0])


def test_a_long_row_takes_the_steps_of_the_method():
    problem = da.Problem(da.AdditiveNoise(lambda x: 0.5 * x, sigma=0.1), np.ones(LONG), constants=da.Constants(L=1.0))
    method = da.DualOHM(step_size=1.0, horizon=12, batch_size=3)
    streams = da.Streams(0, np.arange(1), dimension=LONG)
    s, session = method.init(np.ones((1, LONG))), da.Session(problem.instance(streams).oracle, streams)
    for k in range(11):
        method.step(k, s, session)
    np.testing.assert_allclose(da.solve(problem, method).x, s.x[0], rtol=0, atol=1e-14)


class Neighbours(da.Oracle):
    """Coordinates and their neighbours, as a product of a sparse matrix with all rows gives them: column by column."""

    replayable = rowwise = True

    def draw(self, streams, size):
        return da.Batch(size, 0.01 * streams.normals())

    def mean(self, x, batch):
        return np.asfortranarray(x - 0.5 * np.roll(x, 1, axis=1) + batch.data)


class Itself(da.Oracle):
    """F(x) = x, returned as the very array that was passed."""

    def draw(self, streams, size):
        return da.Batch(size, None)

    def mean(self, x, batch):
        return x


def test_long_rows_of_a_value_with_another_memory_layout():
    problem, method = da.Problem(Neighbours(), np.cos(np.arange(LONG))), da.DualOHM(0.3, horizon=20)
    together = da.solve(problem, method, budget=15, reps=2, check=False).x
    for rep in range(2):
        alone = da.solve(problem, method, budget=15, reps=[rep], check=False).x
        np.testing.assert_array_equal(alone[0], together[rep])


@pytest.mark.parametrize("method", [da.DualOHM(0.5, horizon=20), da.OHM(0.5), da.SGDA(0.5), da.DualOCHalpern(0.5, 20)])
def test_an_oracle_that_returns_its_point_does_no_harm_in_long_rows(method):
    short, long = (da.solve(da.Problem(Itself(), np.ones(d)), method, budget=10, check=False).x for d in (3, LONG))
    np.testing.assert_allclose(long[:3], short, rtol=1e-14)


def test_rows_of_different_configurations_keep_their_own_start_and_end():
    """Those that remain when others have ended may look like all replications of one."""
    problem = da.Problem(da.AdditiveNoise(lambda x: np.array([1.0, 10.0]) * x), x0=np.ones(2))
    methods, x0 = [da.SGDA(size) for size in (0.08, 0.19, 0.005)], np.eye(2)
    options = {"x0": x0, "stop": da.Steps(2000) | da.Target(1e-3), "reps": 2}
    together = da.solve(problem, methods, **options)
    for i, method in enumerate(methods):
        alone = da.solve(problem, method, **options)
        np.testing.assert_array_equal(together.nit[i], alone.nit)
        np.testing.assert_array_equal(together.x[i], alone.x)


@dataclass(frozen=True)
class Normalised(da.SGDA):
    """A step that depends on all coordinates of a row."""

    id = "normalised"

    def update(self, k, s, G):
        s.x -= self.step_size * G / np.linalg.norm(G, axis=1, keepdims=True)


def test_an_update_that_is_not_elementwise_keeps_its_rows_apart():
    problem = da.problems.affine()
    methods = [Normalised(0.1), Normalised(0.2)]
    together = da.solve(problem, methods, reps=3, stop=da.Steps(9)).x
    for i, method in enumerate(methods):
        np.testing.assert_array_equal(together[i, 1], da.solve(problem, method, reps=[1], stop=da.Steps(9)).x[0])


def test_single_precision_is_rounded_alike_whatever_rows_are_beside(monkeypatch):
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(12, 4, 4)) + 3 * np.eye(4)
    problem = da.Problem(da.FiniteSum.linear(matrices), x0=np.ones(4))
    methods = [da.SGDA(size, batch_size=batch) for size, batch in ((0.03, 3), (0.04, 3), (40.0, 2))]
    options = {"reps": 3, "x0": rng.normal(size=(3, 4)).astype(np.float32), "stop": da.Steps(300), "check": False}
    found = []
    for seconds in (1e-9, 1e9):
        monkeypatch.setattr(CHUNK_SECONDS, seconds)
        found.append(da.solve(problem, methods, **options))
    alone = [da.solve(problem, [method], **options) for method in methods[:2]]
    assert found[0].x.dtype == np.float32
    np.testing.assert_array_equal(found[0].x, found[1].x)
    np.testing.assert_array_equal(found[0].x[:2], np.concatenate([one.x for one in alone]))


def test_batches_larger_than_a_sum_among_smaller_ones():
    """A batch of more than all components is drawn in another way."""
    problem = da.problems.finite_sum_cocoercive(components=20, dimension=8, rank=7)
    sizes = [1] * 20 + [21] * 20 + [1] * 19
    methods = [da.DualOHM(size, 60, batch_size=sizes) for size in (0.5, 0.05, 0.3)]
    together = da.solve(problem, methods, reps=2, check=False).x
    for i, method in enumerate(methods):
        np.testing.assert_allclose(together[i], da.solve(problem, method, reps=2, check=False).x, rtol=1e-12)


def test_what_is_recorded_does_not_depend_on_the_steps_between_two_checks(monkeypatch):
    """A full pass over a sum rounds differently beside other points."""
    problem = da.problems.finite_sum_cocoercive(dimension=50, rank=49, components=80)
    methods = [da.SGDA(size) for size in (0.001, 0.003, 0.01, 0.03, 0.1)]
    runs = []
    for steps in (1024, 7, 100):
        monkeypatch.setattr(CHUNK_STEPS, steps)
        history = da.solve(problem, methods, budget=400, reps=3, record=50).history
        order = np.lexsort((history.row, history.k))
        runs.append([history.k[order], history.residual[order]])
    for other in runs[1:]:
        np.testing.assert_array_equal(other, runs[0])
