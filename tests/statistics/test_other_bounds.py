"""Bounds of the methods beside Dual-OHM: averages of affine operators, decreasing steps under strong monotonicity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.statistics.evidence import assert_mean_at_most

import dualanchor as da

pytestmark = pytest.mark.slow

AFFINE = [
    da.problems.affine(sigma=1.0),
    da.problems.affine(sigma=1.0, rotation=1.0, L=3.0),
    da.problems.worst_case_nonexpansive(dimension=101, sigma=1.0),
    da.problems.finite_sum_cocoercive(components=25, dimension=10, rank=9),
]


def average_holds(method: Any, problem: da.Problem, n: int, constant: float) -> None:
    """E|F(x_n)|^2 <= c D^2/(a^2 n^2) + c sigma^2/n, c = 16 for weights 1, 2, .. and 4 for equal ones."""
    known = problem.constants
    assert known.D is not None
    assert known.sigma is not None
    result = da.solve(problem, method, stop=da.Steps(n), reps=60, seed=31, record=0)
    bound = constant * (known.D**2 / (method.step_size * n) ** 2 + known.sigma**2 / n)
    assert_mean_at_most(np.square(result.residual), bound, f"{problem.name}, n = {n}")


@pytest.mark.parametrize("problem", AFFINE, ids=repr)
@pytest.mark.parametrize(("weights", "constant"), [("linear", 16.0), ("uniform", 4.0)])
@pytest.mark.parametrize("n", [1, 10, 300])
def test_averages_of_affine_operators(problem: da.Problem, weights: str, constant: float, n: int) -> None:
    """60 replications, the largest step 2/L. False failures: 7e-6 each at equality (Student, 59 degrees)."""
    assert problem.constants.L is not None
    average_holds(da.AveragedSGDA(2 / problem.constants.L, weights=weights), problem, n, constant)


def test_what_is_not_averaged_breaks_the_bound() -> None:
    """The last iterate keeps its noise; equal weights do not reach half of their constant."""
    problem = da.problems.affine(sigma=1.0)
    with pytest.raises(AssertionError, match="above"):
        average_holds(da.SGDA(1.0), problem, 300, 16.0)
    oracle = da.AdditiveNoise(lambda x: 2 * x, 0.0, vectorized=True)
    flip = da.Problem(oracle, np.ones(1), constants=da.Constants(L=2.0, sigma=0.0, D=1.0))
    average_holds(da.AveragedSGDA(1.0, weights="uniform"), flip, 9, 4.0)
    with pytest.raises(AssertionError, match="above"):
        average_holds(da.AveragedSGDA(1.0, weights="uniform"), flip, 9, 3.9)


def decreasing_holds(method: Any, problem: da.Problem, steps: int) -> None:
    """E|x_k - x*|^2 <= d_k, d_{k+1} = (1 - a_k mu (2 - a_k L)) d_k + a_k^2 sigma^2, d_0 = D^2."""
    known = problem.constants
    assert known.D is not None
    assert known.L is not None
    assert known.sigma is not None
    d = known.D**2
    for k in range(steps):
        a = min(1 / known.L, 1 / (known.mu * (k + 1)))
        d = (1 - a * known.mu * (2 - a * known.L)) * d + a**2 * known.sigma**2
    result = da.solve(problem, method, stop=da.Steps(steps), reps=60, seed=37, record=0)
    root = problem.instance(da.Streams(37, np.arange(60))).root
    assert_mean_at_most(np.sum((result.x - root) ** 2, axis=1), d, f"{problem.name}, k = {steps}")


@pytest.mark.parametrize("mu", [0.05, 0.5])
@pytest.mark.parametrize("steps", [1, 30, 1000])
def test_decreasing_steps(mu: float, steps: int) -> None:
    """60 replications. False failures: 7e-6 each at equality (Student, 59 degrees)."""
    problem = da.problems.affine(mu=mu, sigma=1.0)
    decreasing_holds(da.DecreasingSGDA.for_problem(problem), problem, steps)


def test_constant_steps_break_the_bound_of_decreasing_ones() -> None:
    problem = da.problems.affine(mu=0.5, sigma=1.0)
    with pytest.raises(AssertionError, match="above"):
        decreasing_holds(da.SGDA(1.0), problem, 1000)
