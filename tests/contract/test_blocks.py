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
