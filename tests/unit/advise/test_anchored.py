"""Bounds on F at a point that was chosen by the estimate at another one."""

import numpy as np
import pytest
from scipy.stats import binom

import dualanchor as da
from dualanchor.advise.anchored import bound, estimate
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.theory.confidence import deviation

A = np.array([[2.0, 1.0], [-1.0, 0.5]])
ROOT = np.array([1.0, -2.0])


def session(oracle, rows, seed=0, d=2):
    return Session(oracle.take(np.arange(rows)), Streams(seed, np.arange(rows), Purpose.NOISE, d, np.dtype(float)))


def additive(sigma=1.0):
    return da.AdditiveNoise(lambda x: (x - ROOT) @ A.T, sigma, vectorized=True)


def test_pooled_estimates_are_weighted_by_their_samples():
    F, w = session(additive(), 3), np.zeros((3, 2))
    first, second = estimate(F, w, 512), estimate(F, w, 1024)
    both = first.pooled(second)
    np.testing.assert_allclose(both.value, (first.value + 2 * second.value) / 3, rtol=1e-12)
    assert F.draws == 1536
    assert both.samples == first.samples + second.samples == 1536
    np.testing.assert_allclose(both.deviation.trace, 1 / 1536, rtol=0.2)
    np.testing.assert_array_less(both.radius(0.05), first.radius(0.05))


def test_pairs_on_additive_noise_have_no_noise():
    x, w = np.ones((2, 2)), np.zeros((2, 2))
    change = estimate(session(additive(), 2), x, 64, minus=w)
    np.testing.assert_allclose(change.value, (x - w) @ A.T, rtol=1e-12)
    assert change.radius(0.01).max() < 1e-12


def bounds_at_corrected_points(rows, samples, seed=0):
    """The true residual, the bound, and the naive bound, where x is chosen so that the estimate at x is zero."""
    w = np.tile(ROOT + 0.1, (rows, 1))
    F = session(additive(), rows, seed)
    at = estimate(F, w, samples)
    x = w - at.value @ np.linalg.inv(A).T
    size, upper = bound(at, estimate(F, x, 64, minus=w), 0.04, 0.01)
    return np.linalg.norm((x - ROOT) @ A.T, axis=1), size, upper


def test_the_bound_holds_where_the_point_was_chosen_by_the_estimate():
    """Fails correct code with a probability of 1e-6."""
    true, size, upper = bounds_at_corrected_points(400, 512)
    assert np.count_nonzero(true > upper) <= binom.ppf(1 - 1e-6, 400, 0.05)
    assert size.max() < 1e-10
    assert np.count_nonzero(true > size) == 400  # the estimate at x says nothing of the error that chose x
    assert np.median(upper) < 3 / np.sqrt(512)


def test_without_the_error_of_the_estimate_it_would_not_hold():
    true, _, upper = bounds_at_corrected_points(200, 512, seed=1)
    shorter = 0.5 * upper
    assert np.count_nonzero(true > shorter) > binom.ppf(1 - 1e-6, 200, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("kind", ["normal", "exponential", "rare"])
def test_the_radius_covers(kind, d):
    """At 95 % nominal, at least 93 % of 1,000 runs: 90 % coverage would pass with a probability below 1e-3."""
    rng = np.random.default_rng(5)
    noise = {
        "normal": lambda shape: rng.normal(size=shape),
        "exponential": lambda shape: rng.exponential(size=shape) - 1,
        "rare": lambda shape: (rng.random(shape) < 0.02) - 0.02,
    }[kind]
    means = noise((1000, 256, 4, d)).mean(axis=2)
    covered = np.linalg.norm(means.mean(axis=1), axis=1) <= deviation(means).radius(256, 0.05)
    assert np.count_nonzero(covered) >= 930
