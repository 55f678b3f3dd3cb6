"""Proposition 3.3: without noise |F(y_{N-1})| <= 2D/(alpha N), for OHM and for Dual-OHM."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import deterministic_rate, rate_is_attained
from tests.lemmas.trajectory import Nonexpansive, exact, follow, nonexpansive, norm

import dualanchor as da

both = pytest.mark.parametrize("cls", [da.OHM, da.DualOHM])


@both
@given(case=nonexpansive(least=1))
def test_rate_on_compositions_of_projections_reflections_and_turns(cls: type[da.Method], case: Nonexpansive) -> None:
    deterministic_rate(cls, case)


@given(case=nonexpansive(most=30))
def test_rate_of_ohm_holds_at_every_step(case: Nonexpansive) -> None:
    y = follow(da.OHM(step_size=case.alpha), exact(case.operator), case.x0, case.N).x
    for k in range(case.N + 1):
        rounding = 1e-13 * (case.D + norm(case.root)) / case.alpha
        assert (norm(case.operator(y[k])) <= 2 * case.D / (case.alpha * (k + 1)) + rounding).all()


@both
@given(N=st.integers(2, 60), alpha=st.floats(0.01, 10.0))
def test_rate_is_attained_by_the_worst_case_operator(cls: type[da.Method], N: int, alpha: float) -> None:
    rate_is_attained(cls, N, alpha)


@both
@pytest.mark.parametrize("d", [2, 11, 100])
def test_rate_is_attained_by_the_worst_case_problem(cls: type[da.Method], d: int) -> None:
    """Started at its shift, 1/sqrt(d) away from the root in every coordinate, the problem is at its worst."""
    problem = da.problems.worst_case_nonexpansive(dimension=d, sigma=0.0)
    root = problem.instance(da.Streams(5, np.arange(3))).root
    assert root is not None
    result = da.solve(problem, cls(step_size=1.0, horizon=d), seed=5, reps=3, x0=root - 1 / np.sqrt(d))
    np.testing.assert_allclose(result.residual, 2 / d, rtol=1e-11)


@both
@pytest.mark.parametrize("N", [1, 2, 3, 4, 5, 24, 25])
def test_flip_attains_the_rate_at_odd_horizons_and_vanishes_at_even_ones(cls: type[da.Method], N: int) -> None:
    """T = -I: F(x) = L x, alpha = 2/L."""
    L, D = 3.0, 5.0
    y = follow(cls(step_size=2 / L, horizon=N), exact(lambda x: L * x), np.array([[3.0, 4.0]])).x[-1]
    np.testing.assert_allclose(L * norm(y), D * L / N if N % 2 else 0.0, rtol=1e-12, atol=1e-13)
