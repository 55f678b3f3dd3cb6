"""Samples that all agree, from a sampler that draws random numbers: noise may be there that none of them shows."""

import numpy as np
import pytest
from scipy.stats import binom
from tests.unit.front.samplers import codes

import dualanchor as da
from dualanchor.core.claim import ClaimKind
from dualanchor.front.evidence import largest_sample


def rare_reward(x, n, rng):
    """The root is 1, but only one sample in a million shows it: all the others are x."""
    return x - 1e6 * np.mean(rng.random(n) < 1e-6)


def without_noise(x, n, rng):
    return x - 1 + 0.0 * rng.normal(size=x.shape)


def test_a_start_that_only_looks_like_a_root_is_no_success():
    result = da.root(rare_reward, np.zeros(2), eps=0.1, max_samples=3000)
    assert not result.success
    assert result.claim.kind is ClaimKind.NOT_REACHED
    assert result.claim.bound is None
    assert "noise-not-seen" in codes(result, "warning")


@pytest.mark.parametrize("options", [{"eps": 0.05}, {"budget": 2000}])
def test_without_noise_sigma_0_says_so(options):
    result = da.root(without_noise, np.zeros(2), L=1.0, sigma=0.0, **options)
    assert result.success
    assert result.certificate.upper < 0.05
    assert "noise-not-seen" not in codes(result)


@pytest.mark.parametrize("options", [{"eps": 0.05}, {"budget": 2000}])
def test_without_sigma_samples_seen_elsewhere_say_how_large_a_missed_one_may_be(options):
    """At x0 samples are as large as 1.4, so 3 of n that were missed (95 %) would move the mean by 4.2/n at most."""
    result = da.root(without_noise, np.zeros(2), L=1.0, **options)
    assert result.success
    certificate = result.certificate
    assert 4.2 / certificate.samples < certificate.upper < 0.05
    assert "eps" in options or "noise-not-seen" in codes(result, "note")


def test_no_more_samples_are_asked_to_agree_than_it_takes():
    result = da.root(without_noise, np.zeros(2), eps=0.01)
    assert result.success
    assert result.nfev < 3000


@pytest.mark.parametrize("options", [{"eps": 0.05}, {"budget": 2000}])
def test_a_sampler_that_leaves_its_generator_alone_is_certified(options):
    result = da.root(lambda x, n, rng: x - 1, np.zeros(2), L=1.0, **options)
    assert result.success
    assert result.certificate.upper < 0.05


def jumps(p, gauss=0.0, root=1.0):
    """Noise of standard deviation 1 that is nothing but a jump in a part p of the samples, beside `gauss`."""

    def sample(x, n, rng):
        noise = (rng.binomial(n, p, size=1) / n - p) / np.sqrt(p * (1 - p))
        return x - root + noise + gauss * rng.normal(size=1) / np.sqrt(n)

    return sample


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("p", [0.005, 0.02, 0.1])
@pytest.mark.parametrize("gauss", [0.0, 0.1])
def test_an_accuracy_is_kept_with_noise_in_few_samples(p, gauss):
    """At most one success in twenty is false; fails correct code with a probability of 1e-3."""
    results = [da.root(jumps(p, gauss), [0.0], eps=0.1, seed=seed) for seed in range(40)]
    reached = [result for result in results if result.success]
    wrong = sum(abs(result.x[0] - 1) > 0.1 for result in reached)
    assert wrong <= binom.ppf(1 - 1e-3, len(reached), 0.05)


@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
def test_no_accuracy_is_claimed_from_fewer_samples_than_show_rare_noise():
    """Of 600 samples one shows a jump in 1 of 200, but in 1 of 20 cases."""
    for seed in range(5):
        result = da.root(jumps(0.005, gauss=0.01), [0.0], eps=0.5, L=1.0, seed=seed)
        assert result.certificate.samples >= 600


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
@pytest.mark.parametrize("gauss", [0.0, 0.1])
def test_a_small_budget_that_missed_rare_noise_is_no_success(gauss):
    """Without a jump the root seems to be at 0.12, where the residual is larger than at x0.

    Beside other noise, nothing tells of jumps in the quarter of the runs that saw none; 16 of 30 have a probability
    below 1e-3 then.
    """
    sample = jumps(0.005, gauss, root=0.05)
    results = [da.root(sample, [0.0], budget=300, seed=seed) for seed in range(30)]
    wrong = sum(bool(result.success) and abs(result.x[0] - 0.05) > 0.05 for result in results)
    assert wrong <= (15 if gauss else 0)


@pytest.mark.parametrize("size", [1, 32])
def test_noise_without_rare_samples_does_not_hide_a_fall(size):
    def sample(x, n, rng):
        return 2 * x - 1 + rng.normal(size=(n, 4))

    result = da.root(sample, np.ones(4), budget=3000, batch=size)
    assert result.success
    assert not largest_sample(result, None).any()  # none stands out


SLOPES, AIM = np.linspace(0.05, 1.0, 6), np.random.default_rng(0).normal(size=6)


def test_without_noise_large_samples_on_the_way_hide_nothing():
    result = da.root(lambda x, n, rng: SLOPES * x - AIM, np.zeros(6), budget=500)
    assert result.success
    assert result.certificate.upper < 1e-3 < np.linalg.norm(AIM)


@pytest.mark.slow
def test_samples_that_agree_certify_eps_with_a_number_that_grows_like_its_inverse():
    def sample(x, n, rng):
        return SLOPES * x - AIM + 0 * rng.normal(size=6)  # draws, and so might have noise

    wide, narrow = (da.root(sample, np.zeros(6), eps=eps) for eps in (0.003, 0.0003))
    assert wide.success
    assert narrow.success
    assert narrow.nfev < 20 * wide.nfev  # 100 times if bounds fell like those of noisy samples
