"""Wrong versions of one line, each rejected by a named check of this suite that the right version passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.lemmas import statements
from tests.lemmas.trajectory import Nonexpansive, Wild

import dualanchor as da
from dualanchor.core.method import State

ANY = Wild(seed=1, d=3, N=9, alpha=0.7, noise=1.0, multiplicative=True)
LINEAR = Nonexpansive(seed=2, d=4, N=9, alpha=0.7, pieces=("turn", "shrink"))
CURVED = Nonexpansive(seed=3, d=4, N=12, alpha=0.7, pieces=("ball reflection", "turn", "box reflection"))


# -- Dual-OHM --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MomentumOffByOne(da.DualOHM):
    """(N-k-2)/(N-k-1) where (N-k-1)/(N-k) is meant."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        N, alpha = self.horizon, self.step_size
        s.z *= (N - k - 2) / max(N - k - 1, 1)
        s.z -= alpha / (N - k) * G
        s.x -= alpha * G + s.z


@dataclass(frozen=True)
class DivisorOffByOne(da.DualOHM):
    """G_k divided by N - k - 1 where N - k is meant."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        N, alpha = self.horizon, self.step_size
        s.z *= (N - k - 1) / (N - k)
        s.z -= alpha / (N - k - 1) * G
        s.x -= alpha * G + s.z


@dataclass(frozen=True)
class ShiftedHorizon(da.DualOHM):
    """Coefficients of the horizon N + 1."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        N, alpha = self.horizon + 1, self.step_size
        s.z *= (N - k - 1) / (N - k)
        s.z -= alpha / (N - k) * G
        s.x -= alpha * G + s.z


@dataclass(frozen=True)
class WithoutDualAnchor(da.DualOHM):
    """z left out of the step."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        s.x -= self.step_size * G


@dataclass(frozen=True)
class DualAnchorTooLate(da.DualOHM):
    """x moved by z_k where z_{k+1} is meant."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        N, alpha = self.horizon, self.step_size
        s.x -= alpha * G + s.z
        s.z *= (N - k - 1) / (N - k)
        s.z -= alpha / (N - k) * G


# -- OHM -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnchorOffByOne(da.OHM):
    """1/(k+3) where 1/(k+2) is meant."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        super().update(k + 1, s, G)


@dataclass(frozen=True)
class MovingAnchor(da.OHM):
    """Anchored at the last iterate and not at the first."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        before = s.x.copy()
        super().update(k, s, G)
        s.anchor = before


# -- the others ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreshBatchAtSecondPoint(da.PAGE):
    """A difference of two batches."""

    def difference(self, F: da.Session, x: np.ndarray, previous: np.ndarray, rows: np.ndarray) -> np.ndarray:
        size = self._size(self.small_batch, rows)
        return F(x, F.draw(size)) - F(previous, F.draw(size))


@dataclass(frozen=True)
class ForgetsWhereItWas(da.PAGE):
    """Differences to the start and not to the iterate before."""

    def estimate(self, k: int, s: State, F: da.Session, horizon: Any, coin: np.ndarray) -> np.ndarray:
        start = s.previous
        v = super().estimate(k, s, F, horizon, coin)
        s.previous = start
        return v


def with_estimator(estimator: type[da.PAGE], step_size: float) -> da.Method:
    return da.OHM(step_size=step_size, estimator=estimator(big_batch=10, small_batch=1))


@dataclass(frozen=True)
class WithoutNewestAnchor(da.RAIN):
    """The newest anchor z_k enters as zero."""

    def step(self, k: int, s: State, F: da.Session, coin: Any = None) -> None:
        before = s.x - s.gap
        super().step(k, s, F)
        weight = self.growth / (1 + self.growth - (1 + self.growth) ** -float(k))
        s.gap = s.x - (1 - weight) * before


@dataclass(frozen=True)
class AnchorsOfEqualWeight(da.RAIN):
    """The plain mean of the anchors."""

    def step(self, k: int, s: State, F: da.Session, coin: Any = None) -> None:
        before, z = s.x - s.gap, s.x.copy()
        super().step(k, s, F)
        s.gap = s.x - (before + (z - before) / (k + 1))


@dataclass(frozen=True)
class SameBatchTwice(da.SEG):
    """The half step's batch used again."""

    def step(self, k: int, s: State, F: da.Session, coin: Any = None) -> None:
        batch = F.draw(self.batch_size)
        s.x -= self.step_size * F(s.x - self.step_size * F(s.x, batch), batch)


@dataclass(frozen=True)
class StepFromTheHalfPoint(da.SEG):
    """The second step taken from x_{k+1/2}."""

    def step(self, k: int, s: State, F: da.Session, coin: Any = None) -> None:
        s.x -= self.step_size * self.first_call(k, s.x, F)
        s.x -= self.step_size * self.first_call(k, s.x, F)


@dataclass(frozen=True)
class HalpernsWeights(da.HalpernVRFinite):
    """1/(k+2) where 2/(k+4) is meant."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        s.x += (s.anchor - s.x) / (k + 2) - self.step_size * G


def gain_of_dual_ohm(make: Callable[..., da.Method]) -> None:
    assert abs(statements.gain_on_the_turn(make, 9) - 8 / 9) < 1e-12


def rain(make: Callable[..., da.Method]) -> None:
    statements.rain_loop(make, CURVED, anchor_weight=0.3, growth=0.1)


IDENTITY = partial(statements.lemma_4_2, case=ANY)
CONVEX = partial(statements.convex_representation, case=ANY)
DIFFERENCES = partial(statements.update_by_differences, case=ANY)
DUALITY = partial(statements.anti_transpose, da.OHM, N=9, alpha=0.7)
ENDPOINT = partial(statements.same_endpoint, da.OHM, case=LINEAR)
ATTAINED = partial(statements.rate_is_attained, N=9, alpha=0.7)
LEAVE_ONE_OUT = partial(statements.leave_one_out_is_attained, N=9, s=3)
ANCHOR_IDENTITY = partial(statements.anchor_identity, case=ANY)
ANCHORED = partial(statements.update_by_anchor, case=ANY)
PAGE_LOOP = partial(statements.halpern_page_loop, case=CURVED)
SEG_LOOP = partial(statements.seg_loop, case=CURVED)
SHARED_SAMPLES = partial(statements.page_shares_samples, seed=4)
VR_LOOP = partial(statements.halpern_vr_finite_loop, seed=5, steps=12)

EVERY_DUAL_CHECK = [IDENTITY, CONVEX, DIFFERENCES, DUALITY, ENDPOINT, ATTAINED, LEAVE_ONE_OUT, gain_of_dual_ohm]

REJECTED = [
    *((da.DualOHM, MomentumOffByOne, check) for check in EVERY_DUAL_CHECK),
    *((da.DualOHM, DivisorOffByOne, check) for check in EVERY_DUAL_CHECK),
    *((da.DualOHM, ShiftedHorizon, check) for check in EVERY_DUAL_CHECK),
    *((da.DualOHM, WithoutDualAnchor, check) for check in EVERY_DUAL_CHECK),
    *((da.DualOHM, DualAnchorTooLate, check) for check in EVERY_DUAL_CHECK),
    *((da.OHM, wrong, check) for wrong in (AnchorOffByOne, MovingAnchor) for check in (ANCHOR_IDENTITY, ANCHORED)),
    (da.PAGE, FreshBatchAtSecondPoint, SHARED_SAMPLES),
    (da.PAGE, ForgetsWhereItWas, SHARED_SAMPLES),
    (da.HalpernPAGE, partial(with_estimator, FreshBatchAtSecondPoint), PAGE_LOOP),
    (da.HalpernPAGE, partial(with_estimator, ForgetsWhereItWas), PAGE_LOOP),
    (da.HalpernPAGE, da.OHM, PAGE_LOOP),  # PAGE's coin ignored
    (da.RAIN, WithoutNewestAnchor, rain),
    (da.RAIN, AnchorsOfEqualWeight, rain),
    (da.SEG, SameBatchTwice, SEG_LOOP),
    (da.SEG, StepFromTheHalfPoint, SEG_LOOP),
    (da.HalpernVRFinite, HalpernsWeights, VR_LOOP),
]


def _name(thing: Any) -> str:
    if isinstance(thing, partial):
        inside = "" if not thing.args or thing.func is not with_estimator else f" {_name(thing.args[0])}"
        return f"{thing.func.__name__}{inside}"
    return str(thing.__name__)


@pytest.mark.parametrize(
    ("right", "wrong", "check"), REJECTED, ids=[f"{_name(wrong)} by {_name(check)}" for _, wrong, check in REJECTED]
)
def test_wrong_version_is_rejected_and_the_right_one_is_not(
    right: Callable[..., Any], wrong: Callable[..., Any], check: Callable[[Callable[..., Any]], None]
) -> None:
    check(right)
    with pytest.raises(AssertionError):
        check(wrong)
