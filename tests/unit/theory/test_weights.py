"""Closed forms against the sums that they stand for."""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np
import pytest

from dualanchor.theory import weights


@pytest.mark.parametrize("N", [2, 3, 7, 40, 500])
@pytest.mark.parametrize("tau", [2.0, 1.9, 1.0, 0.5, 0.01])
def test_weight_sum_is_the_sum(N, tau):
    m = np.arange(2, N + 1)
    assert weights.weight_sum(N, tau) == pytest.approx((weights.damping(m, tau) / (m * (m - 1))).sum(), rel=1e-13)


def test_weight_sum_takes_arrays_and_edges():
    np.testing.assert_allclose(weights.weight_sum(np.array([1, 2, 4, 1e15])), [0.0, 0.5, 0.75, 1.0], rtol=1e-14)
    assert weights.round_weights(7).sum() == pytest.approx(1 - 1 / 7)
    assert weights.round_weights(1).size == 0


@pytest.mark.parametrize("N", [1, 2, 3, 4095, 4096, 4097, 100_000])
def test_root_sum_is_the_sum(N):
    m = np.arange(2.0, N + 1)
    assert weights.root_sum(N) == pytest.approx((1 / np.sqrt(m * (m - 1))).sum(), rel=1e-12)


def test_root_sum_stays_near_the_logarithm():
    N = np.geomspace(2, 1e15, 60).round()
    gap = weights.root_sum(N) - np.log(N)
    assert gap.min() > 0.0139
    assert gap.max() < 0.0201


@pytest.mark.parametrize("N", [2, 5, 30])
def test_convex_weights_are_a_convex_combination(N):
    for k in range(N):
        w = weights.convex_weights(N, k)
        assert w.size == k + 1
        assert (w >= 0).all()
        assert w.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("N", [2, 3, 12, 60])
def test_leave_one_out_solves_its_recursion(N):
    """u_k = w_{k,s} + sum over s < t < k of w_{k,t} u_t, the recursion of Lemma A.2 for T = I with a unit change."""
    for s in range(N - 1):
        u = {}
        for k in range(s + 1, N):
            w = weights.convex_weights(N, k)[1:]
            u[k] = w[s] + sum(w[t] * u[t] for t in range(s + 1, k))
        np.testing.assert_allclose(list(u.values()), weights.leave_one_out(N, s, np.array(list(u))), rtol=1e-12)
        assert weights.leave_one_out(N, s, N - 1) == 0.5


@pytest.mark.parametrize(
    ("k", "rho", "N"),
    [
        (0, 0.5, 9),
        (1, 1.0, 2),
        (5, 1.0, 9),
        (100, 0.9, 200),
        (100, 1 - 1e-9, 200),
        (50, 0.0, 60),
        (2000, 1 - 1e-8, 1e9),
        (600, 0.9, np.inf),
    ],
)
def test_contraction_sum_is_the_sum(k, rho, N):
    with decimal.localcontext(prec=80):
        exact = Decimal(rho)
        total = sum(((exact**i if i else 1) * (1 - (i + 1) / Decimal(N)) for i in range(k)), Decimal(0))
        rest = 1 - (1 - exact) * total
    assert weights.contraction_sum(k, rho, N) == pytest.approx(float(total), rel=1e-10)
    assert weights.contraction_rest(k, rho, N) == pytest.approx(float(rest), rel=1e-10, abs=0)


def test_multipliers_sum_as_the_paper_says():
    """Sections 4.1 and 4.1.1: alpha (N - 1)/2 for the dual anchor, of order N squared for the anchor."""
    N, alpha = 40, 0.7
    assert weights.dual_multipliers(N, alpha).sum() == pytest.approx(alpha * (N - 1) / 2)
    assert weights.anchor_multipliers(N, alpha).sum() == pytest.approx(alpha * (N - 1) * (N + 1) / 6)
