"""Theorem 4.1: E|F(x_{N-1})|^2 <= 4D^2/(alpha^2 N^2) + 6 sigma^2/B under Assumptions 3.1 and 3.2, 0 < alpha <= 2/L."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.statistics.evidence import assert_mean_at_most

import dualanchor as da

pytestmark = pytest.mark.slow

NAMED = [
    *((entry.id, {}) for entry in da.list_problems() if da.problems.make(entry.id, {}).constants.L is not None),
    ("affine", {"L": 4.0, "rotation": 1.0, "sigma": 2.0}),
    ("finite-sum-cocoercive", {"components": 25, "dimension": 10, "rank": 9}),
    ("huber-minimax", {"sigma": 1.5}),
    ("worst-case-nonexpansive", {"dimension": 101, "sigma": 20.0}),
]


def flip(sigma: float) -> da.Problem:
    """T = -I at alpha = 2/L, where the first term is attained at odd N."""
    oracle = da.AdditiveNoise(lambda x: 4.0 * x, sigma, vectorized=True)
    return da.Problem(oracle, x0=np.full(50, 0.3), constants=da.Constants(L=4.0, sigma=sigma, D=0.3 * np.sqrt(50)))


def bound_holds(cls: Any, problem: da.Problem, alpha: float, N: int, B: int, reps: int = 60) -> None:
    L, sigma, D = problem.constants.L, problem.constants.sigma, problem.constants.D
    assert L is not None
    assert sigma is not None
    assert D is not None
    assert alpha <= 2 / L
    result = da.solve(problem, cls(step_size=alpha, horizon=N, batch_size=B), reps=reps, seed=41, record=0)
    bound = 4 * D**2 / (alpha * N) ** 2 + 6 * sigma**2 / B
    assert_mean_at_most(np.square(result.residual), bound, f"{problem.name}, alpha = {alpha:g}, N = {N}, B = {B}")


@pytest.mark.parametrize(("name", "options"), NAMED, ids=lambda value: str(value))
@pytest.mark.parametrize("largest_step", [False, True])
@pytest.mark.parametrize(("N", "B"), [(2, 1), (20, 1), (100, 10)])
def test_bound_on_the_named_problems(name: str, options: dict[str, Any], largest_step: bool, N: int, B: int) -> None:
    """60 replications. False failures: 7e-6 each at equality (Student, 59 degrees); here they are rarer still.

    The bound is for the worst case: the means are at 0.5 of it on the worst-case problem, below 0.2 on affine and
    Huber's, near 0.01 on the finite sum. A residual too large by that factor is found; finer defects are the business
    of the exact laws.
    """
    problem = da.problems.make(name, options)
    assert problem.constants.L is not None
    step = problem.step_size
    assert step is not None
    bound_holds(da.DualOHM, problem, 2 / problem.constants.L if largest_step else step, N, B)


@pytest.mark.parametrize("N", [3, 25, 101])
@pytest.mark.parametrize("sigma", [1e-3, 1.0])
def test_bound_where_it_is_nearly_attained(N: int, sigma: float) -> None:
    """T = -I, where the first term is attained. False failures: 7e-6 each (Student, 59 degrees).

    With sigma = 1e-3 the mean is at 0.998 of the bound or more and its standard error below 0.06 % of it, so half a
    percent too much is found with 99 %. With sigma = 1 the mean is at 0.64 (N = 3) and 0.25 of the bound.
    """
    bound_holds(da.DualOHM, flip(sigma), 0.5, N, B=1)


def test_anchoring_breaks_the_bound() -> None:
    """S-OHM lets 2(N-1)(2N-1)/(3N) sigma^2/B through: 79 at N = 60, where the theorem would allow 6."""
    with pytest.raises(AssertionError, match="above"):
        bound_holds(da.OHM, flip(1.0), 0.5, N=60, B=1)


def test_a_step_that_is_too_long_breaks_the_bound() -> None:
    """With F(x) = 4x declared as L = 3.9 and alpha = 2/3.9, T is expansive."""
    oracle = da.AdditiveNoise(lambda x: 4.0 * x, 1e-3, vectorized=True)
    constants = da.Constants(L=3.9, sigma=1e-3, D=0.3 * np.sqrt(50))
    problem = da.Problem(oracle, x0=np.full(50, 0.3), constants=constants)
    with pytest.raises(AssertionError, match="above"):
        bound_holds(da.DualOHM, problem, 2 / 3.9, N=101, B=1)
