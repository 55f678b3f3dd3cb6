"""The companion of Lemma 4.2 for S-OHM (the paper's intuition for why S-Dual-OHM is stable).

Rounding: 1e-11 of the sum of the terms' sizes, inner products counted as products of norms.
"""

from hypothesis import given
from tests.lemmas.statements import anchor_identity
from tests.lemmas.trajectory import Wild, wild

import dualanchor as da


@given(wild())
def test_identity_with_the_true_operator_at_the_end(case: Wild) -> None:
    anchor_identity(da.OHM, case)


@given(wild())
def test_identity_with_any_ghost_batch_at_the_end(case: Wild) -> None:
    anchor_identity(da.OHM, case, last=case.ghost)
