"""On affine maps without noise Dual-OHM ends where OHM does, though the paths differ."""

import numpy as np
from hypothesis import given
from tests.lemmas.statements import same_endpoint
from tests.lemmas.trajectory import Nonexpansive, exact, follow, nonexpansive

import dualanchor as da


@given(nonexpansive(pieces=("turn", "shrink")))
def test_endpoints_agree(case: Nonexpansive) -> None:
    same_endpoint(da.OHM, da.DualOHM, case)


def test_paths_differ() -> None:
    case = Nonexpansive(seed=3, d=4, N=10, alpha=1.0, pieces=("turn",))
    one, two = (follow(cls(step_size=1.0, horizon=10), exact(case.operator), case.x0).x for cls in (da.OHM, da.DualOHM))
    assert all(np.abs(one[k] - two[k]).max() > 1e-3 for k in range(1, 9))
