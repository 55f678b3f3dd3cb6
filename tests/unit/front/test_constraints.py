"""Constraints and penalties at the front doors: what counts as progress, small sets, theorems without L."""

import warnings

import numpy as np
import pytest
from scipy.optimize import Bounds
from tests.unit.front.samplers import Counted

import dualanchor as da
from dualanchor.core.errors import ArgumentError

KNOWN_L = {"L": 1.0}
ROCK = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0.0]]) + 0.5
THIRD = np.full(3, 1 / 3)


@pytest.mark.slow
def test_a_constraint_does_not_hide_that_x0_is_a_solution():
    """What the normal cone takes up is no residual of x0: no run from a solution is a success."""
    S = da.prox.simplex()

    def u(u, v, n, rng):
        return ROCK @ rng.multinomial(n, v / v.sum()) / n

    def v(u, v, n, rng):
        return rng.multinomial(n, u / u.sum()) @ ROCK / n

    games = [da.saddle(u, v, (THIRD, THIRD), budget=400, seed=s, prox_u=S, prox_v=S) for s in range(8)]
    assert not any(one.success for one in games)
    root = np.array([0.6, 0.8])
    sample = Counted(lambda x: x - 2 * root)
    ball = da.prox.ball(1.0)
    assert not any(
        da.inclusion(sample, ball, root, budget=2000, seed=s, **kw).success for s in range(4) for kw in ({}, KNOWN_L)
    )
    assert all(
        da.inclusion(sample, ball, np.zeros(2), budget=2000, seed=s, **kw).success
        for s in range(4)
        for kw in ({}, KNOWN_L)
    )


@pytest.mark.parametrize("bounds", [(-0.01, 0.01), (-1e-6, 1e-6), (1e6, 1e6 + 1)])
def test_small_sets_need_no_constants(bounds):
    result = da.root(Counted(lambda x: np.array([x[1], -x[0]]) - [1.0, 2.0]), np.zeros(2), bounds=bounds, budget=600)
    assert result.success
    assert bounds[0] <= result.x.min() <= result.x.max() <= bounds[1]


LOWER, UPPER = np.zeros(2), np.array([1.0, 0.25])


@pytest.mark.parametrize(
    "bounds", [(LOWER, UPPER), [LOWER, UPPER], ([0, 0], UPPER), (LOWER, [1.0, 0.25]), ([0, 0], [1.0, 0.25])]
)
def test_two_arrays_in_two_dimensions_are_refused(bounds):
    """They were read as a pair for each coordinate."""
    with pytest.raises(
        TypeError, match=r"root: bounds .* two arrays .* Got .* Use scipy\.optimize\.Bounds\(lower, upper"
    ):
        da.root(Counted(), np.zeros(2), bounds=bounds, budget=600)


@pytest.mark.parametrize(
    "bounds", [(0, UPPER), [(0, 1.0), (0, 0.25)], np.stack([LOWER, UPPER], axis=1), Bounds(LOWER, UPPER)]
)
def test_bounds_that_can_be_read_in_one_way_only(bounds):
    result = da.root(Counted(lambda x: x - 10), np.zeros(2), bounds=bounds, budget=600)
    np.testing.assert_allclose(result.x, UPPER)


def test_two_arrays_in_other_dimensions_are_refused():
    with pytest.raises(TypeError, match=r"3 pairs .* Use .* scipy\.optimize\.Bounds\(lower, upper\) for arrays"):
        da.root(Counted(lambda x: x, 3), np.zeros(3), bounds=(np.zeros(3), np.ones(3)), budget=600)


def test_a_set_of_one_point_is_refused():
    with pytest.raises(ArgumentError, match="more than one point"):
        da.root(Counted(), np.zeros(2), bounds=(1, 1), budget=600)


def test_an_accuracy_above_M_D_with_a_prox():
    result = da.inclusion(Counted(), da.prox.ball(1.0), np.zeros(2), eps=3.0, M=1.0, D=2.0, sigma=0.5)
    assert result.success
    assert result.plan.theorem.id == "theorem-m-prox"
    assert result.method["id"] == result.plan.method().id == "regularised-dual-ohm"
    assert result.method["parameters"]["delta"] == result.plan.method().delta > 0


def test_noise_that_x0_does_not_show_earns_no_claim():
    turn = np.array([[0, 1.0], [-1, 0]])

    def sample(x, n, rng):
        return turn @ x - [1.0, 2.0] + 0.8 * rng.normal(size=(n, 1)) * (turn @ x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [da.root(sample, np.zeros(2), M=1.3, budget=4000, guarantee=True, seed=s) for s in range(3)]
    for result in results:
        assert not result.claim.by_theorem
        assert not result.success
        assert np.linalg.norm(result.x) < 100


def test_a_little_strong_monotonicity_does_not_make_a_prox_dearer():
    def sample(x, n, rng):
        return x @ np.array([[0.05, -2], [2, 0.05]]) - 1 + 0.3 * rng.normal(size=2) / np.sqrt(n)

    known = {"eps": 0.3, "M": 2.5, "sigma": 0.5, "D": 2.0, "seed": 1}
    plans = [
        da.inclusion(sample, da.prox.ball(1.0), np.zeros(2), mu=mu, **known).plan.samples for mu in (0.0, 0.01, 0.04)
    ]
    assert plans[0] >= plans[1] >= plans[2]


def test_affine_operators_are_not_affine_behind_a_prox():
    known = {"L": 1.0, "sigma": 0.2, "D": 0.7}
    result = da.inclusion(
        Counted(lambda x: x), da.prox.nonnegative(), np.full(2, 0.5), budget=3000, guarantee=True, affine=True, **known
    )
    assert result.plan.theorem.id == "theorem-b"
    assert da.plan(eps=0.1, affine=True, prox=True, **known).theorem.id == "theorem-b"


def test_the_certificate_is_that_of_F_and_not_of_the_regularised_operator():
    def sample(x, n, rng):
        return np.array([x[1] - 0.3, 0.3 - x[0]])

    for more in ({}, {"guarantee": True}):
        result = da.inclusion(sample, da.prox.box(-2, 2), np.ones(2), eps=0.3, M=1.0, sigma=0.0, D=1.0, **more)
        assert result.success
        assert result.certificate.upper >= 0.999 * np.linalg.norm(sample(result.x, 1, None))


def test_no_L_is_compared_where_only_M_was_given():
    B = np.array([[0.01, 1.0], [-1, 0.01]])
    result = da.root(Counted(lambda x: B @ (x - 1)), np.zeros(2), M=1.01, D=1.5, sigma=0.3, eps=0.4, bounds=(-3, 3))
    assert result.claim.by_theorem


def test_a_block_that_is_a_single_point_stays_there():
    prox = da.prox.product([(1, da.prox.box(0.5, 0.5)), (2, da.prox.box(0, 1))])
    result = da.inclusion(Counted(lambda x: x - 10, 3), prox, np.zeros(3), budget=2000)
    assert result.success
    np.testing.assert_allclose(result.x, [0.5, 1.0, 1.0])


def test_fixed_points_within_bounds_are_those_of_the_projected_map():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])  # about (1, 1), which the bounds exclude

    def sample(x, n, rng):
        return 1 + turn @ (x - 1) + 0.1 * rng.normal(size=2) / np.sqrt(n)

    result = da.fixed_point(sample, np.zeros(2), bounds=(0, 0.5), budget=20_000)
    np.testing.assert_allclose(result.x, np.clip(1 + turn @ (result.x - 1), 0, 0.5), atol=0.1)
    assert result.x.max() <= 0.5


def test_a_violation_of_the_composite_alone_does_not_blame_F():
    """F is monotone; F with its prox is not where the step of 2/L is far too long."""
    F = np.array([[0.1, -1.0], [1.0, 0.1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = Counted(lambda x: F @ x)
        result = da.inclusion(sample, da.prox.ball(1.0), np.array([0.15, 0.0]), budget=20_000, L=0.2)
    (found,) = [one for one in result.findings if one.code == "not-monotone"]
    assert str(found).startswith("F with its prox is not monotone")


def test_too_small_a_budget_for_mirror_prox_blames_no_missing_L():
    for known, words in (({}, "without L .* Pass L"), (KNOWN_L, "for mirror-prox .* Leave method out")):
        with pytest.raises(ArgumentError, match=words):
            da.inclusion(Counted(), da.prox.ball(1.0), np.zeros(2), budget=20, method="mirror-prox", **known)


@pytest.mark.parametrize("keywords", [KNOWN_L, {}])
@pytest.mark.parametrize("prox", [da.prox.box(0.0, 0.5), da.prox.product([(1, da.prox.ball(0.5))])])
def test_a_number_may_be_the_start_with_a_set(prox, keywords):
    """It was refused, though `bounds` allowed it."""
    result = da.inclusion(Counted(), prox, 0.0, budget=600, **keywords)
    assert np.shape(result.x) == ()
    assert result.success
    assert result.x == 0.5
