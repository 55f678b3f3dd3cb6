"""Lemma 4.7: under a contraction Dual-OHM comes near its last iterate at a geometric rate."""

from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import tail_of_contraction
from tests.lemmas.trajectory import Nonexpansive, nonexpansive

import dualanchor as da


@given(nonexpansive(contraction=st.floats(0.05, 0.95)))
def test_distance_to_the_last_iterate(case: Nonexpansive) -> None:
    tail_of_contraction(da.DualOHM, case)
