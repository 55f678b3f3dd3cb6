"""Right-hand sides: their edges, their relations to one another, and what each of them says of itself."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from dualanchor import Tapered
from dualanchor.theory import bounds, monotone, weights


def test_every_bound_says_what_it_states():
    public = [
        name
        for module in (bounds, monotone)
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__ and hasattr(function, "statement")
    ]
    assert set(public) == set(bounds.STATEMENTS)
    for statement in bounds.STATEMENTS.values():
        assert statement.source in (bounds.PAPER, bounds.OURS)
        assert statement.assumptions
    names = {statement.name for statement in bounds.STATEMENTS.values()}
    for wanted in ("Proposition 3.3", "Theorem 4.1", "Theorem 4.5", "Lemma 4.3", "Lemma 4.4", "Lemma 4.6", "Lemma 4.7"):
        assert wanted in names
    assert {"Lemma A.2", "Theorem A", "Theorem B", "Theorem C", "Restarts", "Model bias"} <= names
    assert {"Lemma 1", "Lemma 2", "Theorem M", "Lemma E", "Theorem R", "Theorem N", "Averaged extragradient"} <= names


def test_without_noise_all_are_the_deterministic_rate():
    N, a, D = 17, 0.3, 2.5
    rate = bounds.proposition_3_3(N, a, D)
    assert rate == pytest.approx(4 * D**2 / (a * N) ** 2)
    sizes = np.ones(N - 1)
    assert bounds.theorem_4_1(N, a, D, 0.0, 1) == rate
    assert bounds.theorem_a_constant(N, a, D, 0.0, 1) == pytest.approx(rate)
    for affine in (False, True):
        assert bounds.theorem_a(a, D, 0.0, sizes, affine=affine) == pytest.approx(rate)
    assert bounds.model_bias(a, D, 0.0, sizes, 0.0) == pytest.approx(rate)
    assert bounds.any_bias(a, 1.0, D, 0.0, sizes, 0.0) == pytest.approx(rate)
    assert bounds.s_ohm(a, 1.0, D, 0.0, sizes) == pytest.approx(rate)
    assert bounds.composite(a, D, 0.0, sizes) == pytest.approx(rate)
    assert bounds.drift(N, 5, a, D, 0.0, 1) == D**2


def test_theorem_a_is_below_theorem_4_1_and_its_forms_agree():
    rng = np.random.default_rng(0)
    for _ in range(200):
        N, B = int(rng.integers(2, 60)), int(rng.integers(1, 50))
        a, D, sigma = 10 ** rng.uniform(-2, 2, 3)
        sharp = bounds.theorem_a_constant(N, a, D, sigma, B)
        assert sharp <= bounds.theorem_4_1(N, a, D, sigma, B) * (1 + 1e-12)
        assert sharp == pytest.approx(bounds.theorem_a(a, D, sigma, np.full(N - 1, B)))
        assert bounds.theorem_a(a, D, sigma, np.full(N - 1, B), affine=True) <= sharp * (1 + 1e-12)
        A, W = D / (a * N), bounds.noise_term(np.full(N - 1, B), sigma)
        s = bounds.solved(A, W)
        assert s == pytest.approx(2 * A * np.sqrt(s) + W)


def test_smaller_steps_have_smaller_noise_terms():
    sizes = np.full(30, 4)
    terms = [bounds.noise_term(sizes, 1.0, tau) for tau in (2.0, 1.0, 0.4, 0.1)]
    assert terms == sorted(terms, reverse=True)
    assert terms[0] == pytest.approx(2 * (1 - 1 / 31) / 4)
    np.testing.assert_allclose(2 * weights.weight_sum(10**6, 1.0), 1.444, atol=1e-3)
    np.testing.assert_allclose(2 * weights.weight_sum(10**6, 0.1), 0.299, atol=1e-3)


def test_theorem_b_covers_what_tapered_batches_cost():
    eps, a, D, sigma, N = 0.05, 2.0, 1.0, 1.0, 60
    room = eps * (eps - 2 * D / (a * N))
    sizes = Tapered(2 * sigma**2 * weights.root_sum(N) / room).size(np.arange(N - 1), N)
    assert bounds.theorem_a(a, D, sigma, sizes) <= eps**2
    assert sizes.sum() <= bounds.theorem_b_samples(eps, N, a, D, sigma)
    assert bounds.theorem_b_samples(eps, 20, a, D, sigma) == np.inf  # N must exceed 2D/(a eps) = 20


def test_without_strong_monotonicity_what_needs_it_is_infinite():
    assert bounds.theorem_4_5(10, 3, 1.0, 0.0, 1.0, 1.0, 1) == np.inf
    assert bounds.lemma_4_6(1.0, 1.0, 0.0, 1.0, 1) == np.inf
    assert bounds.restart(1.0, 10, 1.0, 0.0, 0.0) == np.inf
    N, k = 20, 7
    assert bounds.theorem_c_distance(k, 1.0, 1.0, 0.0, 2.0, 3.0, 4, N) == pytest.approx(
        bounds.drift(N, k, 1.0, 2.0, 3.0, 4)
    )
    assert bounds.drift(N, N - 1, 1.0, 2.0, 3.0, 4) == pytest.approx(
        bounds.drift_at_end(1.0, 2.0, 3.0, np.full(N - 1, 4))
    )


def test_theorem_c_is_below_its_simpler_form_and_theorem_4_5():
    L, mu, D, sigma, B, N = 1.0, 0.1, 2.0, 0.5, 3, 400
    for k in (0, 1, 10, 100, 399):
        value = bounds.theorem_c(k, 1 / L, L, mu, D, sigma, B, N)
        kappa, rho = L / mu, 1 - mu / L
        simple = L**2 * D**2 * (rho**k + kappa / N) + kappa * sigma**2 / B
        assert value <= simple * (1 + 1e-12)
        endless = bounds.theorem_c(k, 1 / L, L, mu, D, sigma, B)
        assert endless <= bounds.theorem_4_5(N, k, L, mu, D, sigma, B)


def test_lemma_a2_and_its_sharper_form_at_the_end():
    N, a, sigma, B = 12, 0.5, 2.0, 3
    s = np.arange(N - 1)
    np.testing.assert_allclose(bounds.lemma_a2(N, s, N - 1, a, sigma, B), a**2 * sigma**2 / B)
    np.testing.assert_allclose(bounds.leave_one_out_sharp(N, s, N - 1, a, sigma, B), a**2 * sigma**2 / (2 * B))


def test_multiplicative_noise_needs_batches_of_the_order_of_the_horizon():
    assert bounds.multiplicative_noise(100, 2.0, 1.0, 1.0, 1.0, 99) == np.inf
    assert np.isfinite(bounds.multiplicative_noise(100, 2.0, 1.0, 1.0, 1.0, 100))
    assert bounds.multiplicative_noise(2, 1.0, 1.0, 1.0, 0.0, 10**9) == pytest.approx(1.0)


def test_cocoercivity_of_a_batch_goes_from_one_constant_to_the_other():
    np.testing.assert_allclose(bounds.batch_cocoercivity(np.array([1, 2, 1e12]), 1.0, 0.02), [1.0, 0.51, 0.02])


def test_bounds_take_arrays():
    N = np.array([2, 10, 100])
    assert bounds.theorem_4_1(N, 1.0, 1.0, 1.0, N).shape == (3,)
    assert bounds.theorem_a_constant(N, 1.0, 1.0, 1.0, N).shape == (3,)
    assert bounds.theorem_4_5(N, 1, 1.0, np.array([0.0, 0.1, 0.5]), 1.0, 1.0, 1).shape == (3,)
    assert bounds.theorem_a(1.0, 1.0, 1.0, np.ones((4, 5))).shape == (4,)
