"""What is known of the other methods without noise: rates, common end points, coefficients of averages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.trajectory import Nonexpansive, assert_zero, exact, follow, nonexpansive, norm

import dualanchor as da
from dualanchor.core.method import State
from dualanchor.core.session import Session
from dualanchor.methods.averaged import share
from dualanchor.methods.oc_halpern import anchor_weight

pytestmark = pytest.mark.slow

# -- monotone Lipschitz operators ------------------------------------------------------------------------------


@dataclass
class Monotone:
    """A rotation, a positive semidefinite matrix and the gradient of a convex function, added up around one root."""

    seed: int
    d: int
    rotation: float
    curvature: float
    curve: float
    M: float = field(init=False)
    root: np.ndarray = field(init=False, repr=False)
    x0: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng, d = np.random.default_rng(self.seed), self.d
        A, B = rng.normal(size=(2, d, d))
        self._linear = self.rotation * (A - A.T) + self.curvature * B.T @ B / d
        self._W = np.sqrt(self.curve) * rng.normal(size=(d, d)) / np.sqrt(d)
        self.root = rng.normal(size=d)
        self.x0 = self.root + rng.normal(size=(2, d)) * 10.0 ** rng.uniform(-2, 2)
        self.M = float(np.linalg.norm(self._linear, 2) + np.linalg.norm(self._W, 2) ** 2) + 1e-12

    def operator(self, x: np.ndarray) -> np.ndarray:
        y = x - self.root
        return y @ self._linear.T + np.clip(y @ self._W.T, -0.3, 1.0) @ self._W

    @property
    def D(self) -> np.ndarray:
        return norm(self.x0 - self.root)

    @property
    def rounding(self) -> np.ndarray:
        return 1e-12 * self.M * (self.D + norm(self.root))


def monotone(curved: bool = True) -> st.SearchStrategy[Monotone]:
    return st.builds(
        Monotone,
        seed=st.integers(0, 2**32 - 1),
        d=st.integers(2, 6),
        rotation=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
        curvature=st.sampled_from([0.0, 0.01, 1.0]),
        curve=st.sampled_from([0.0, 1.0, 4.0] if curved else [0.0]),
    )


TURN = Monotone(seed=1, d=4, rotation=1.0, curvature=0.0, curve=0.0)


def residuals(case: Monotone, method: da.Method, steps: int | None = None) -> np.ndarray:
    path = follow(method, exact(case.operator), case.x0, steps).x
    return np.array([norm(case.operator(x)) for x in path])


@given(case=monotone(), part=st.floats(0.1, 1.0))
def test_rate_of_eag(case: Monotone, part: float) -> None:
    """|F(z_k)|^2 <= 4 (1 + aM + a^2M^2) / (a^2 (1 + aM)) D^2 / (k+1)^2, a <= 1/(8M), at every k."""
    a = part / (8 * case.M)
    aM = a * case.M
    constant = np.sqrt(4 * (1 + aM + aM**2) / (a**2 * (1 + aM)))
    for k, residual in enumerate(residuals(case, da.EAG(a), 40)):
        assert (residual <= constant * case.D / (k + 1) + case.rounding).all(), k


def test_the_largest_step_of_eag_has_the_published_constant() -> None:
    assert 259 < 4 * 64 * (1 + 1 / 8 + 1 / 64) / (1 + 1 / 8) <= 260


@given(case=monotone())
def test_rate_of_feg(case: Monotone) -> None:
    """|F(z_k)| <= 2MD/k at every k >= 1, with the step 1/M."""
    for k, residual in enumerate(residuals(case, da.FEG(1 / case.M), 40)):
        if k:
            assert (residual <= 2 * case.M * case.D / k + case.rounding).all(), k


def dual_feg_rate(make: Any, case: Monotone, N: int) -> None:
    """|F(z_N)| <= 2MD/N."""
    end = residuals(case, make(step_size=1 / case.M, horizon=N + 1))[-1]
    assert (end <= 2 * case.M * case.D / N + case.rounding).all(), "the rate of Dual-FEG"


@given(case=monotone(), N=st.integers(1, 40))
def test_rate_of_dual_feg(case: Monotone, N: int) -> None:
    dual_feg_rate(da.DualFEG, case, N)


def feg_and_dual_feg_end_together(make: Any, case: Monotone, N: int) -> None:
    a = 1 / case.M
    one = follow(da.FEG(a), exact(case.operator), case.x0, N).x[-1]
    two = follow(make(step_size=a, horizon=N + 1), exact(case.operator), case.x0).x[-1]
    assert_zero(one - two, np.max(case.D + norm(case.root)), "the common end point", 1e-12)


@given(case=monotone(curved=False), N=st.integers(1, 40))
def test_dual_feg_ends_where_feg_does_on_linear_operators(case: Monotone, N: int) -> None:
    feg_and_dual_feg_end_together(da.DualFEG, case, N)


def test_the_paths_of_feg_and_dual_feg_differ() -> None:
    a, N = 1 / TURN.M, 10
    one = follow(da.FEG(a), exact(TURN.operator), TURN.x0, N).x
    two = follow(da.DualFEG(a, N + 1), exact(TURN.operator), TURN.x0).x
    assert all(np.abs(one[k] - two[k]).max() > 1e-3 * TURN.D.max() for k in range(2, N - 1))


class WrongDualFEG(da.DualFEG):
    """N counted as the other methods do: one step short of the source's."""

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        N, alpha = self.horizon, self.step_size
        here = F(s.x, F.draw(1))
        half = s.x - alpha * (s.w + here)
        there = F(half, F.draw(1))
        s.w *= (N - k - 1) / (N - k)
        s.w -= there / (N - k)
        s.x[...] = half - (N - k - 1) / (N - k) * alpha * (there - here)


def test_a_wrong_dual_feg_is_rejected() -> None:
    feg_and_dual_feg_end_together(da.DualFEG, TURN, 9)
    with pytest.raises(AssertionError, match="common end point"):
        feg_and_dual_feg_end_together(WrongDualFEG, TURN, 9)


# -- contractions ----------------------------------------------------------------------------------------------

CONTRACTIVE = ("turn", "halfspace", "ball", "ball reflection", "fold")
both = pytest.mark.parametrize("cls", [da.OCHalpern, da.DualOCHalpern])


def rate_for_contractions(make: Any, case: Nonexpansive) -> None:
    """|y_{N-1} - T y_{N-1}| <= (1 + g) D / sum_{i<N} g^(-i), g the Lipschitz constant of T."""
    g, N = case.contraction, case.N
    method = make(step_size=case.alpha, horizon=N, contraction=g)
    y = follow(method, exact(case.operator), case.x0).x[-1]
    bound = (1 + g) * case.D / sum(g**-i for i in range(N))
    rounding = 1e-13 * (case.D + norm(case.root))
    assert (case.alpha * norm(case.operator(y)) <= bound + rounding).all(), "the rate for contractions"


@both
@given(case=nonexpansive(pieces=CONTRACTIVE, most=25, contraction=st.floats(0.3, 1.0)))
def test_rate_for_contractions(cls: Any, case: Nonexpansive) -> None:
    rate_for_contractions(cls, case)


@pytest.mark.parametrize("g", [0.8, 0.9])
def test_without_the_fading_the_rate_for_contractions_is_missed(g: float) -> None:
    """Plain OHM, contraction = 1, on T = g I."""
    case = Nonexpansive(seed=3, d=3, N=25, alpha=1.0, pieces=(), contraction=g)
    rate_for_contractions(da.OCHalpern, case)
    rate_for_contractions(da.DualOCHalpern, case)
    for cls in (da.OCHalpern, da.DualOCHalpern):
        with pytest.raises(AssertionError, match="rate for contractions"):
            rate_for_contractions(lambda contraction, cls=cls, **rest: cls(**rest), case)


@given(case=nonexpansive(pieces=("turn", "shrink"), most=25, contraction=st.floats(0.3, 1.0)))
def test_both_end_at_one_point_on_affine_maps(case: Nonexpansive) -> None:
    options = {"step_size": case.alpha, "horizon": case.N, "contraction": case.contraction}
    one, two = (follow(c(**options), exact(case.operator), case.x0).x[-1] for c in (da.OCHalpern, da.DualOCHalpern))
    assert_zero(one - two, np.max(case.D + norm(case.root)), "the common end point", 1e-12)


@pytest.mark.parametrize(("fading", "plain"), [(da.OCHalpern, da.OHM), (da.DualOCHalpern, da.DualOHM)])
@given(case=nonexpansive())
def test_without_contraction_they_are_ohm_and_dual_ohm(fading: Any, plain: Any, case: Nonexpansive) -> None:
    options = {"step_size": case.alpha, "horizon": case.N}
    one, two = (follow(cls(**options), exact(case.operator), case.x0).x for cls in (fading, plain))
    assert_zero(one - two, np.max(case.D + norm(case.root)), "the path at contraction 1", 1e-11)


@given(k=st.integers(0, 60), g=st.floats(0.05, 1.0))
def test_weights_of_the_anchor(k: int, g: float) -> None:
    expected = 1 / sum(g ** (-2 * i) for i in range(k + 1))
    np.testing.assert_allclose(anchor_weight(k, g), expected, rtol=1e-12)
    np.testing.assert_allclose(anchor_weight(k, np.array([[g], [1.0]])), [[expected], [1 / (k + 1)]], rtol=1e-12)


def test_weights_of_a_long_run_vanish_quietly() -> None:
    assert anchor_weight(10**6, 0.5) == 0.0
    assert anchor_weight(10**6, 1.0) == pytest.approx(1e-6, rel=1e-5)


# -- averages --------------------------------------------------------------------------------------------------


def coefficients_of_the_average(make: Any, case: Nonexpansive, n: int, j: int, largest: float) -> None:
    """The error of round j reaches F(x_n), affine F, with a coefficient of norm at most 2 w_n; so does (x_0 - x*)/a."""
    method = make(step_size=case.alpha)
    noise = case.noise[j]

    def end(start: np.ndarray, of: Any) -> np.ndarray:
        return case.operator(follow(method, of, start, n).x[-1])

    root = np.tile(case.root, (2, 1))
    felt = end(root, lambda k, x: case.operator(x) + (noise if k == j else 0))
    rounding = 1e-12 * (norm(noise) + norm(root) / case.alpha)
    assert (norm(felt) <= 2 * largest * norm(noise) + rounding).all(), "the coefficient of an error"
    felt = end(case.x0, exact(case.operator))
    rounding = 1e-12 * (case.D + norm(case.root)) / case.alpha
    assert (norm(felt) <= 2 * largest * case.D / case.alpha + rounding).all(), "the coefficient of the start"


@pytest.mark.parametrize("weights", ["linear", "uniform"])
@given(case=nonexpansive(pieces=("turn", "shrink")), n=st.integers(1, 40), data=st.data())
def test_no_error_weighs_more_than_twice_the_last_weight(
    weights: str, case: Nonexpansive, n: int, data: st.DataObject
) -> None:
    """The whole proof of E|F(x_n)|^2 <= 16D^2/(a^2n^2) + 16 sigma^2/n: n errors, uncorrelated, w_n = 2/(n+1)."""
    j = data.draw(st.integers(0, min(n, 2 * case.N) - 1))
    coefficients_of_the_average(
        lambda step_size: da.AveragedSGDA(step_size, weights=weights), case, n, j, share(n, weights)
    )


class Forgetful(da.AveragedSGDA):
    """A mean that forgets: the newest iterate always has weight 1/2."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        s.y -= self.step_size * G
        s.x += 0.5 * (s.y - s.x)


class Stubborn(da.AveragedSGDA):
    """A mean in which the first iterates count most."""

    def update(self, k: int, s: State, G: np.ndarray) -> None:
        s.y -= self.step_size * G
        s.x += (s.y - s.x) / (k + 1) ** 2


@pytest.mark.parametrize(("wrong", "where"), [(Forgetful, "an error"), (Stubborn, "the start")])
def test_other_averages_are_rejected(wrong: Any, where: str) -> None:
    """T = -I: a forgetful mean feels the last error with 1/2 and not 2/22, a stubborn one is still near y_1."""
    flip = Nonexpansive(seed=1, d=2, N=20, alpha=1.0, pieces=(), contraction=-1.0)
    coefficients_of_the_average(da.AveragedSGDA, flip, 21, 20, share(21, "linear"))
    with pytest.raises(AssertionError, match=f"the coefficient of {where}"):
        coefficients_of_the_average(wrong, flip, 21, 20, share(21, "linear"))


@given(case=nonexpansive(pieces=("turn", "shrink")))
def test_the_uniform_mean_is_where_ohm_ends_on_affine_maps(case: Nonexpansive) -> None:
    """The mean of y_0 .. y_{N-1} without noise; the method's own begins with y_1."""
    N = case.N
    y = follow(da.SGDA(case.alpha), exact(case.operator), case.x0, N - 1).x
    end = follow(da.OHM(case.alpha, N), exact(case.operator), case.x0).x[-1]
    assert_zero(y.mean(axis=0) - end, np.max(case.D + norm(case.root)), "the mean and OHM's end", 1e-12)
