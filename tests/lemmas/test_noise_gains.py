"""Exact laws of the residual under noise on linear maps, read off the methods by unit impulses.

The same laws are tested with random numbers in the statistical tests; here the coefficients are exact.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import cyclic, gain_on_the_flip, gain_on_the_turn
from tests.lemmas.trajectory import exact, follow

import dualanchor as da

horizons = st.integers(2, 60)


@given(horizons)
def test_dual_ohm_lets_a_bounded_share_through_on_the_turn(N: int) -> None:
    np.testing.assert_allclose(gain_on_the_turn(da.DualOHM, N), 1 - 1 / N, rtol=1e-12)


@given(horizons)
def test_ohm_lets_errors_accumulate_on_the_turn(N: int) -> None:
    np.testing.assert_allclose(gain_on_the_turn(da.OHM, N), (N - 1) * (2 * N - 1) / (3 * N), rtol=1e-12)


@given(horizons)
def test_dual_ohm_lets_a_bounded_share_through_on_the_flip(N: int) -> None:
    """D_N = sum over even m <= N of 1/(m-1)^2 + sum over odd 3 <= m <= N of 1/m^2, below pi^2/4 - 1."""
    D_N = sum(1 / (m - 1) ** 2 for m in range(2, N + 1, 2)) + sum(1 / m**2 for m in range(3, N + 1, 2))
    np.testing.assert_allclose(gain_on_the_flip(da.DualOHM, N), D_N, rtol=1e-12)
    assert np.pi**2 / 4 - 1 > D_N


@given(horizons)
def test_ohm_lets_errors_accumulate_on_the_flip(N: int) -> None:
    np.testing.assert_allclose(gain_on_the_flip(da.OHM, N), 2 * (N - 1) * (2 * N - 1) / (3 * N), rtol=1e-11)


@pytest.mark.parametrize("cls", [da.OHM, da.DualOHM])
@given(d=st.integers(2, 40), data=st.data())
def test_mean_over_the_shift_without_noise(cls: type[da.Method], d: int, data: st.DataObject) -> None:
    """Experiment 1: the mean of |F(y_{N-1})|^2 over x_0 - root = -(s + 1/sqrt(d)), s ~ N(0, I), is (2d + 4N/d)/N^2.

    The mean of a quadratic form is its trace plus its value at 1/sqrt(d).
    """
    N = data.draw(st.integers(1, d - 1), label="N")
    starts = np.vstack([np.eye(d), np.full(d, 1 / np.sqrt(d))])
    operator = cyclic(d, 1.0, root=0.0)
    y = follow(cls(step_size=1.0, horizon=N), exact(operator), starts).x[-1]
    np.testing.assert_allclose((operator(y) ** 2).sum(), (2 * d + 4 * N / d) / N**2, rtol=1e-11)
