"""A run is the same run in blocks of rows, as large ones stay in the cache, and with replications joined to one row."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.contract.cases import SEED, assert_close, every_case, every_method, every_stack

import dualanchor as da
from dualanchor.run import lane

pytestmark = pytest.mark.slow


@pytest.fixture
def arranged(monkeypatch):
    """Have small problems run all rows at once, in blocks of a few rows and stretches of a few steps, or joined."""

    def switch(how):
        monkeypatch.setattr("dualanchor.run.block._BLOCK", 8 * 5 if how == "in blocks" else 1 << 15)
        monkeypatch.setattr("dualanchor.run.block._SHORT", 512 if how == "joined" else 0)
        monkeypatch.setattr("dualanchor.run.lane._AHEAD", 8 * 3 * 7 if how == "in blocks" else 1 << 19)
        monkeypatch.setattr("dualanchor.run.loop._SECONDS", 1e9)

    return switch


def assert_same(case, one, other):
    """Two results agree to the last bit; the true residual of a finite sum, a matrix product, to rounding."""
    for name in ("x", "status", "nit", "nfev", "draws"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name, value in one.state.items():
        np.testing.assert_array_equal(value, other.state[name], err_msg=name)
    for name in ("row", "k", "draws", "evals"):
        np.testing.assert_array_equal(getattr(one.history, name), getattr(other.history, name), err_msg=name)
    for result in (lambda run: run.residual, lambda run: run.history.residual):
        finite = np.isfinite(result(one))
        np.testing.assert_array_equal(finite, np.isfinite(result(other)))
        assert_close(case, result(one)[finite], result(other)[finite])


def all_ways(arranged, case, methods, **options):
    results = []
    for how in ("at once", "in blocks", "joined"):
        arranged(how)
        results.append(da.solve(case.problem, methods, seed=SEED, check=False, **options))
    for other in results[1:]:
        assert_same(case, results[0], other)


@every_stack
def test_blocks_change_nothing(case, methods, arranged):
    all_ways(arranged, case, methods, budget=300, reps=3)


@every_case
def test_rows_that_diverge_leave_a_block_where_they_leave_the_whole(case, arranged):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6, 0.05, 700.0)]
    all_ways(arranged, case, methods, stop=da.Steps(120), reps=3)


@every_method
def test_many_replications_of_one_configuration(case, arranged):
    all_ways(arranged, case, case.make(horizon=60), stop=da.Steps(50), reps=17)


def ways(arranged, solve):
    found = []
    for how in ("at once", "joined"):
        arranged(how)
        found.append(solve())
    return found


def test_rows_of_different_configurations_are_never_joined(arranged):
    """Those that are left when others have ended may look like all replications of one."""
    problem = da.Problem(da.AdditiveNoise(lambda x: np.array([1.0, 10.0]) * x), x0=np.ones(2))
    methods, x0 = [da.SGDA(size) for size in (0.08, 0.19, 0.005)], np.eye(2)
    stop = da.Steps(2000) | da.Target(1e-3)
    one, other = ways(arranged, lambda: da.solve(problem, methods, reps=2, x0=x0, stop=stop))
    np.testing.assert_array_equal(one.nit, other.nit)
    np.testing.assert_array_equal(one.x, other.x)


@pytest.mark.parametrize("fast", [False, True])
def test_steps_that_have_no_compiled_form_among_others_that_have(arranged, fast):
    problem = da.problems.finite_sum_cocoercive(components=20, dimension=8, rank=7)
    sizes = [1] * 100 + [21] * 60 + [1] * 139  # a batch of more than all components is drawn in another way
    methods = [da.DualOHM(size, 300, batch_size=sizes) for size in (0.5, 0.05, 0.3)]
    one, other = ways(arranged, lambda: da.solve(problem, methods, reps=2, check=False, fast=fast))
    np.testing.assert_array_equal(one.x, other.x)


def test_single_precision_is_rounded_alike_whatever_rows_are_beside(monkeypatch):
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(12, 4, 4)) + 3 * np.eye(4)
    problem = da.Problem(da.FiniteSum.linear(matrices), x0=np.ones(4))
    methods = [da.SGDA(size, batch_size=batch) for size, batch in ((0.03, 3), (0.04, 3), (40.0, 2))]
    x0 = rng.normal(size=(3, 4)).astype(np.float32)
    found = []
    for seconds in (1e-9, 1e9):
        monkeypatch.setattr("dualanchor.run.loop._SECONDS", seconds)
        found.append(da.solve(problem, methods, reps=3, x0=x0, stop=da.Steps(300), check=False))
    alone = [da.solve(problem, [method], reps=3, x0=x0, stop=da.Steps(300), check=False) for method in methods[:2]]
    assert found[0].x.dtype == np.float32
    np.testing.assert_array_equal(found[0].x, found[1].x)
    np.testing.assert_array_equal(found[0].x[:2], np.concatenate([one.x for one in alone]))


def test_only_elementwise_steps_are_joined(monkeypatch):
    seen = {}

    def joining(session, joined):
        seen[session] = joined
        return original(session, joined)

    original = lane.joining
    monkeypatch.setattr(lane, "joining", joining)
    for method, joined in [(da.SGDA, 3), (da.RAIN, 3), (da.HalpernPAGE, 1), (Normalised, 1)]:
        seen.clear()
        da.solve(da.problems.affine(), [method(0.1), method(0.2)], reps=3, stop=da.Steps(9))
        assert set(seen.values()) == {joined}, method


@dataclass(frozen=True)
class Normalised(da.SGDA):
    """A step that depends on all coordinates of a row."""

    id = "normalised"

    def update(self, k, s, G):
        s.x -= self.step_size * G / np.linalg.norm(G, axis=1, keepdims=True)
