"""Every method against its update written out as a loop, with the same samples.

Samples depend on the point, so one batch at two points differs from two batches. The rounding allowed is 1e-9 of
the largest iterate: the samples are not nonexpansive, so rounding may grow from step to step.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas import statements
from tests.lemmas.trajectory import Nonexpansive, nonexpansive

import dualanchor as da
from dualanchor.paper.readings import FreshHalpernPAGE

pytestmark = pytest.mark.slow

LOOPS = {
    "dual-ohm": (da.DualOHM, statements.dual_ohm_loop),
    "ohm": (da.OHM, statements.ohm_loop),
    "sgda": (da.SGDA, statements.sgda_loop),
    "seg": (da.SEG, statements.seg_loop),
    "halpern-page": (da.HalpernPAGE, statements.halpern_page_loop),
}


@pytest.mark.parametrize("name", LOOPS)
@given(case=nonexpansive(most=24))
def test_method_is_its_loop(name: str, case: Nonexpansive) -> None:
    cls, loop = LOOPS[name]
    loop(cls, case)


@given(case=nonexpansive(most=24))
def test_halpern_page_with_fresh_samples_is_its_loop(case: Nonexpansive) -> None:
    statements.halpern_page_loop(FreshHalpernPAGE, case, same_samples=False)


@given(case=nonexpansive(most=24), anchor_weight=st.floats(0.01, 0.5), growth=st.floats(0.001, 0.2))
def test_rain_is_its_loop(case: Nonexpansive, anchor_weight: float, growth: float) -> None:
    statements.rain_loop(da.RAIN, case, anchor_weight, growth)


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 30))
def test_halpern_vr_finite_is_its_loop(seed: int, steps: int) -> None:
    statements.halpern_vr_finite_loop(da.HalpernVRFinite, seed, steps)


@given(seed=st.integers(0, 2**32 - 1))
def test_page_differences_share_their_samples(seed: int) -> None:
    statements.page_shares_samples(da.PAGE, seed)


def test_page_tosses_the_published_coins() -> None:
    """p_k = min(1, 2/(k+2)), so the first estimate is fresh."""
    expected = [min(1.0, 2 / (k + 2)) for k in range(50)]
    np.testing.assert_allclose(da.HalpernPAGE(step_size=1.0).probability(np.arange(50)), expected, rtol=1e-15)


@pytest.mark.parametrize("n", [1, 10, 200])
def test_halpern_vr_finite_tosses_the_published_coins(n: int) -> None:
    """Full passes for k <= 1, then 4/(k+4) while k - 1 <= sqrt(n), then 4/(sqrt(n) + 5)."""
    expected = [
        1.0 if k <= 1 else min(1.0, 4 / (k + 4)) if k - 1 <= np.sqrt(n) else min(1.0, 4 / (np.sqrt(n) + 5))
        for k in range(60)
    ]
    method = da.HalpernVRFinite(step_size=0.1, components=n)
    np.testing.assert_allclose(method.probability(np.arange(60)), expected, rtol=1e-15)
