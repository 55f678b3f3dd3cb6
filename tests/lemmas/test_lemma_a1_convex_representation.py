"""Lemma A.1: every iterate of S-Dual-OHM is a convex combination of x_0 and the T_{B_t}(x_t)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import convex_representation, convex_weights, convex_weights_of
from tests.lemmas.trajectory import Wild, wild

import dualanchor as da


@given(wild(least=2))
def test_iterates_are_the_combination(case: Wild) -> None:
    convex_representation(da.DualOHM, case)


@given(N=st.integers(2, 60), alpha=st.floats(0.01, 10.0))
def test_weights_read_off_the_method_are_convex_and_the_lemmas(N: int, alpha: float) -> None:
    weights = convex_weights_of(da.DualOHM, N, alpha)
    assert (weights >= -1e-14).all()
    for k in range(1, N):
        np.testing.assert_allclose(weights[k, 0], 1 / N, rtol=0, atol=1e-13)
        np.testing.assert_allclose(weights[k, 1 : k + 1], convex_weights(N, k), rtol=0, atol=1e-13)
        np.testing.assert_allclose(weights[k, 1:].sum(), 1 - 1 / N, rtol=0, atol=1e-13)
