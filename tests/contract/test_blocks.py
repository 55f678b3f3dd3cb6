"""A run that works on blocks of rows, as large ones do to stay in the cache, is the same run."""

import numpy as np
import pytest
from tests.contract.cases import SEED, assert_close, every_case, every_method, every_stack

import dualanchor as da

pytestmark = pytest.mark.slow


@pytest.fixture
def in_blocks(monkeypatch):
    """Make small problems run in blocks of a few rows and stretches of a few steps."""

    def switch(on):
        monkeypatch.setattr("dualanchor.run.lane._BLOCK", 8 * 5 if on else 1 << 15)
        monkeypatch.setattr("dualanchor.run.lane._AHEAD", 8 * 3 * 7 if on else 1 << 19)
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


def both_ways(in_blocks, case, methods, **options):
    results = []
    for on in (False, True):
        in_blocks(on)
        results.append(da.solve(case.problem, methods, seed=SEED, check=False, **options))
    assert_same(case, *results)


@every_stack
def test_blocks_change_nothing(case, methods, in_blocks):
    both_ways(in_blocks, case, methods, budget=300, reps=3)


@every_case
def test_rows_that_diverge_leave_a_block_where_they_leave_the_whole(case, in_blocks):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6, 0.05, 700.0)]
    both_ways(in_blocks, case, methods, stop=da.Steps(120), reps=3)


@every_method
def test_many_replications_of_one_configuration(case, in_blocks):
    both_ways(in_blocks, case, case.make(horizon=60), stop=da.Steps(50), reps=17)
