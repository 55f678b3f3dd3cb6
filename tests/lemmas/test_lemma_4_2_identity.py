"""Lemma 4.2: the identity of S-Dual-OHM, for any operator and any noise.

Rounding: 1e-11 of the sum of the terms' sizes, inner products counted as products of norms.
"""

from hypothesis import given
from tests.lemmas.statements import lemma_4_2
from tests.lemmas.trajectory import Wild, wild

import dualanchor as da


@given(wild())
def test_identity_with_the_true_operator_at_the_end(case: Wild) -> None:
    lemma_4_2(da.DualOHM, case)


@given(wild())
def test_identity_with_any_ghost_batch_at_the_end(case: Wild) -> None:
    lemma_4_2(da.DualOHM, case, last=case.ghost)
