"""H-duality: OHM's table of step coefficients transposed about the anti-diagonal is Dual-OHM's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import anti_transpose

import dualanchor as da
from dualanchor.paper.verify.paper import step_table


@given(N=st.integers(2, 60), alpha=st.floats(0.01, 10.0))
def test_tables_are_anti_transposes(N: int, alpha: float) -> None:
    anti_transpose(da.OHM, da.DualOHM, N, alpha)


@given(N=st.integers(2, 40), alpha=st.floats(0.01, 10.0))
def test_ohm_has_the_published_table(N: int, alpha: float) -> None:
    """On the diagonal k/(k+1), below it -j/(k(k+1)), k and j from 1."""
    k = np.arange(1, N)[:, None]
    j = k.T
    published = np.where(k == j, k / (k + 1), np.where(j < k, -j / (k * (k + 1)), 0.0))
    np.testing.assert_allclose(step_table(da.OHM, N, alpha), published, rtol=0, atol=1e-13)


@pytest.mark.parametrize("cls", [da.OHM, da.DualOHM])
def test_tables_look_at_the_past_only(cls: type[da.Method]) -> None:
    table = step_table(cls, 12, 0.7)
    assert not np.triu(table, 1).any()
    assert (np.diag(table) > 0).all()
