"""Samples that all agree, from a sampler that draws random numbers: noise may be there that none of them shows."""

import numpy as np
import pytest
from tests.unit.front.samplers import codes

import dualanchor as da
from dualanchor.core.claim import ClaimKind


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


@pytest.mark.parametrize("options", [{"eps": 0.05}, {"budget": 2000}])
def test_a_sampler_that_leaves_its_generator_alone_is_certified(options):
    result = da.root(lambda x, n, rng: x - 1, np.zeros(2), L=1.0, **options)
    assert result.success
    assert result.certificate.upper < 0.05
