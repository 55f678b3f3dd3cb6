"""Lemma 4.4: E<e_{j-1}, T x_{N-1}> <= alpha sigma^2/B for every round j: no error reaches the end with more weight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.lemmas.trajectory import Nonexpansive, follow
from tests.statistics.evidence import assert_mean_at_most, mean_of

import dualanchor as da

ALPHA, ROWS, SIZE = 0.7, 4000, 3


def cross_terms(T: Callable[[np.ndarray], np.ndarray], N: int) -> np.ndarray:
    """<e_k, T x_{N-1}>, (N - 1, ROWS), for Gaussian noise with sigma^2 = 1."""
    noise = np.random.default_rng(44).normal(size=(N - 1, ROWS, SIZE)) / np.sqrt(SIZE)
    path = follow(
        da.DualOHM(step_size=ALPHA, horizon=N), lambda k, x: (x - T(x)) / ALPHA + noise[k], np.full((ROWS, SIZE), 0.5)
    )
    return np.sum(noise * T(path.x[-1]), axis=2)


MAPS = {
    "flip": lambda x: -x,
    "fold": np.abs,
    "reflections": Nonexpansive(seed=8, d=SIZE, N=1, alpha=ALPHA, pieces=("ball reflection", "box reflection")).T,
    "turn": Nonexpansive(seed=9, d=SIZE, N=1, alpha=ALPHA, pieces=("turn",)).T,
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("N", [2, 5, 40])
def test_cross_terms_are_bounded(name: str, N: int) -> None:
    """4000 runs. False failures: at equality 1e-6 for each round; the largest means are at half of the bound.

    The standard error is 1 to 4 % of the bound, so a term of 1.3 times the bound is found with 99 %.
    """
    for k, values in enumerate(cross_terms(MAPS[name], N)):
        assert_mean_at_most(values, ALPHA, f"cross term of round {k}")


def test_half_of_the_bound_is_attained() -> None:
    """T = -I, N = 2: x_1 holds half of the error, so the cross term is alpha/2, here within 4.75 standard errors."""
    mean, error = mean_of(cross_terms(MAPS["flip"], 2)[0])
    assert abs(mean - ALPHA / 2) <= 4.75 * error
    assert error < 0.02 * ALPHA
