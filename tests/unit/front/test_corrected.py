"""An accuracy by correction: what it costs, what it claims, and where it is not used."""

import numpy as np
import pytest
from scipy.stats import binom

import dualanchor as da
from dualanchor.core.claim import ClaimKind

ROOT = np.linspace(-1, 1, 10)
ROWS = np.random.default_rng(3).normal(size=(400, 6))
TARGETS = ROWS @ np.ones(6) + np.random.default_rng(4).normal(size=400)


def linear(x, n, rng):
    return x - ROOT + rng.normal(size=10) / np.sqrt(10 * n)


def own_noise(x, n, rng):
    return x - ROOT + np.random.normal(size=10) / np.sqrt(10 * n)  # noqa: NPY002


def least_squares(x, n, rng):
    rows = rng.integers(0, 400, n)
    return ROWS[rows].T @ (ROWS[rows] @ x - TARGETS[rows]) / n


def test_few_times_the_samples_that_the_best_mean_needs():
    """The mean of n samples at the root has a residual of 1/sqrt(n): no method could do with fewer than 1/eps**2."""
    results = [da.root(linear, np.zeros(10), eps=0.03, seed=seed) for seed in range(5)]
    assert all(result.success and result.claim.kind is ClaimKind.CERTIFICATE for result in results)
    assert all(np.linalg.norm(result.x - ROOT) <= result.certificate.upper <= 0.03 for result in results)
    assert np.median([result.nfev for result in results]) < 8 / 0.03**2


def test_all_constants_cost_no_more_than_none():
    known = {"L": 1.0, "sigma": 1.0, "D": 2.1}
    none, all_of_them = (da.root(linear, np.zeros(10), eps=0.03, **given) for given in ({}, known))
    assert all_of_them.nfev <= 1.1 * none.nfev
    assert all_of_them.plan.samples > 5 * none.nfev


def test_a_guarantee_is_the_theorem():
    result = da.root(linear, np.zeros(10), eps=0.1, L=1.0, sigma=1.0, D=2.1, guarantee=True)
    assert result.claim.kind is ClaimKind.THEOREM_RMS
    assert result.nfev >= result.plan.samples


def test_the_plan_follows_where_nothing_is_certified_and_little_is_lost():
    given = {"L": 50.0, "sigma": 8.0, "D": 2.5, "eps": 0.3}  # nothing is certified within a seventh of so small a plan
    result = da.root(lambda x, n, rng: least_squares(x, n, rng), np.zeros(6), **given)
    assert result.nfev <= 1.15 * result.plan.samples + 1
    assert result.claim.kind in (ClaimKind.THEOREM_RMS, ClaimKind.CERTIFICATE)


@pytest.mark.slow
def test_claims_are_kept_with_noise_that_grows():
    """Fails correct code with a probability of 1e-3."""
    matrix, target = ROWS.T @ ROWS / 400, ROWS.T @ TARGETS / 400
    result = da.root(least_squares, np.zeros(6), eps=0.4, reps=40)
    assert result.success.all()
    true = np.linalg.norm(result.x @ matrix.T - target, axis=1)
    assert np.count_nonzero(true > 0.4) <= binom.ppf(1 - 1e-3, 40, 0.05)
    assert np.count_nonzero(true > result.certificate.upper) <= binom.ppf(1 - 1e-3, 40, 0.05)


def test_rows_do_not_depend_on_each_other():
    together = da.root(linear, np.zeros(10), eps=0.1, reps=3)
    alone = da.root(linear, np.zeros(10), eps=0.1)
    np.testing.assert_array_equal(together.x[0], alone.x)
    assert together.nfev[0] == alone.nfev


@pytest.mark.slow
def test_samples_that_do_not_repeat_are_certified_as_before():
    result = da.root(own_noise, np.zeros(10), eps=0.2)
    assert result.success
    assert result.certificate.rule == "min"
