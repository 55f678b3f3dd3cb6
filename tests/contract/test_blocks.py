"""A run that works on blocks of rows, as large ones do to stay in the cache, is the same run."""

import numpy as np
import pytest
from tests.contract.cases import SEED, every_case, every_method, every_stack

import dualanchor as da


@pytest.fixture
def in_blocks(monkeypatch):
    """Make small problems run in blocks of a few rows and stretches of a few steps."""

    def switch(on):
        monkeypatch.setattr("dualanchor.run.lane._BLOCK", 8 * 5 if on else 1 << 14)
        monkeypatch.setattr("dualanchor.run.lane._AHEAD", 8 * 3 * 7 if on else 1 << 19)
        monkeypatch.setattr("dualanchor.run.loop._SECONDS", 1e9)

    return switch


def assert_same(one, other):
    """Two results agree to the last bit."""
    for name in ("x", "status", "nit", "nfev", "draws", "residual"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name, value in one.state.items():
        np.testing.assert_array_equal(value, other.state[name], err_msg=name)
    for name, column in one.history.columns().items():
        np.testing.assert_array_equal(column, other.history.columns()[name], err_msg=name)


def both_ways(in_blocks, problem, methods, **options):
    results = []
    for on in (False, True):
        in_blocks(on)
        results.append(da.solve(problem, methods, seed=SEED, check=False, **options))
    assert_same(*results)


@every_stack
def test_blocks_change_nothing(case, methods, in_blocks):
    both_ways(in_blocks, case.problem, methods, budget=300, reps=3)


@every_case
def test_rows_that_diverge_leave_a_block_where_they_leave_the_whole(case, in_blocks):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6, 0.05, 700.0)]
    both_ways(in_blocks, case.problem, methods, stop=da.Steps(120), reps=3)


@every_method
def test_many_replications_of_one_configuration(case, in_blocks):
    both_ways(in_blocks, case.problem, case.make(horizon=60), stop=da.Steps(50), reps=17)
