"""The updates as the paper writes them, along the paths of the library's two-vector forms."""

from hypothesis import given
from tests.lemmas.statements import update_by_anchor, update_by_differences
from tests.lemmas.trajectory import Wild, wild

import dualanchor as da


@given(wild(least=2))
def test_dual_ohm_moves_by_differences_of_T(case: Wild) -> None:
    update_by_differences(da.DualOHM, case)


@given(wild(least=2))
def test_ohm_moves_towards_its_start(case: Wild) -> None:
    update_by_anchor(da.OHM, case)
