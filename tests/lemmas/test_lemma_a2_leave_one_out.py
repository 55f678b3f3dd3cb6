"""Lemma A.2: another batch in one round moves the last iterate of S-Dual-OHM by a bounded amount."""

from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import leave_one_out, leave_one_out_is_attained
from tests.lemmas.trajectory import Nonexpansive, nonexpansive

import dualanchor as da


@given(case=nonexpansive(most=25), data=st.data(), by_component=st.booleans())
def test_one_batch_moves_no_iterate_by_more(case: Nonexpansive, data: st.DataObject, by_component: bool) -> None:
    leave_one_out(da.DualOHM, case, data.draw(st.integers(0, case.N - 2), label="s"), by_component)


@given(N=st.integers(2, 30), data=st.data())
def test_the_bound_is_attained_where_nothing_contracts(N: int, data: st.DataObject) -> None:
    leave_one_out_is_attained(da.DualOHM, N, data.draw(st.integers(0, N - 2), label="s"))
