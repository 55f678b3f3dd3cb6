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
def test_rows_with_different_numbers_of_certificates_are_certified_once_each():
    """With this seed, the first row has had one certificate fewer than another one at the end of the same stage."""

    def sample(x, n, rng):
        return np.array([1.0, 0.5, 0.2]) * (x - 1) + rng.normal(size=3) / np.sqrt(n)

    given = {"eps": 0.3, "method": "sgda", "L": 1.0, "max_samples": 40_000, "seed": 12}
    together, alone = (da.root(sample, np.zeros(3), reps=reps, **given) for reps in (6, 1))
    np.testing.assert_array_equal(together.x[0], alone.x)
    assert together.nfev[0] == alone.nfev


@pytest.mark.slow
def test_samples_that_do_not_repeat_are_certified_as_before():
    result = da.root(own_noise, np.zeros(10), eps=0.2)
    assert result.success
    assert result.certificate.rule == "min"


@pytest.mark.slow
def test_noise_that_was_seen_is_not_forgotten_at_once():
    """Jumps in one sample of fifty; fails correct code with a probability of 1e-3."""

    def jumps(x, n, rng):
        return x - 1 + 7 * (rng.binomial(n, 0.02, size=1) / n - 0.02) + 0.1 * rng.normal(size=1) / np.sqrt(n)

    results = [da.root(jumps, [0.0], eps=0.1, seed=seed) for seed in range(30)]
    wrong = sum(bool(result.success) and abs(result.x[0] - 1) > 0.1 for result in results)
    assert wrong <= binom.ppf(1 - 1e-3, 30, 0.05)


def test_pairs_that_differ_by_jumps_are_not_relied_on():
    def simulate(x, rng):
        return 20 - rng.poisson(40 * np.exp(-x))

    result = da.root(da.each(simulate), 0.2, eps=0.5, seed=1)
    assert result.success
    assert result.nfev < 30_000


@pytest.mark.slow
@pytest.mark.parametrize("limit", [500, 747, 1630, 2500])
def test_max_samples_is_not_exceeded(limit):
    def growing(x, n, rng):
        return (x - 1) * (1 + rng.normal(size=1) / np.sqrt(n)) + rng.normal(size=1) / np.sqrt(n)

    assert all(da.root(growing, [0.0], eps=0.1, max_samples=limit, seed=seed).nfev <= limit for seed in range(5))


def test_a_plan_is_not_cut_short_by_what_was_tried_before_it():
    def sample(x, n, rng):
        return np.array([1.0, 0.5, 0.2]) * (x - 1) + rng.normal(size=3) / np.sqrt(n)

    given = {"eps": 0.1, "L": 1.0, "sigma": 1.8, "D": 2.0, "batch": 64}
    results = [da.root(sample, np.zeros(3), seed=seed, **given) for seed in range(8)]
    assert all(result.success for result in results)
    assert all(result.nfev <= 1.15 * result.plan.samples for result in results)


def test_an_infinite_sample_near_a_root_is_an_error_of_the_sampler():
    """The eigenvalues of infinite moments were asked for: a LinAlgError."""

    def overflows(x, n, rng):
        samples = x - 1 + rng.normal(size=(n, 3))
        samples[rng.random(n) < 5e-4] = np.inf
        return samples

    with pytest.raises(da.errors.OracleError, match="near a root must be finite") as caught:
        da.root(overflows, np.zeros(3), eps=0.1, seed=0)
    assert not caught.value.result.success
