"""How much error each identity lets in: the sums of its weights, in exact arithmetic."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import anchor_weights, convex_weights, dual_weights

horizons = st.integers(1, 200)
steps = st.fractions(Fraction(1, 100), 10)


@given(N=horizons, alpha=steps)
def test_dual_weights_sum_to_order_N(N: int, alpha: Fraction) -> None:
    assert sum(dual_weights(N, alpha)) == alpha * (N - 1) / 2


@given(N=horizons, alpha=steps)
def test_anchor_weights_sum_to_order_N_squared(N: int, alpha: Fraction) -> None:
    assert sum(anchor_weights(N, alpha)) == alpha * (N * N - 1) / 6


@given(N=st.integers(2, 100), data=st.data())
def test_convex_weights_sum_to_1_minus_1_over_N(N: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, N - 1), label="k")
    assert abs(sum(convex_weights(N, k)) - (1 - 1 / N)) < 1e-14
