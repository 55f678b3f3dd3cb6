"""Theorem 4.5 and Lemma 4.6: S-Dual-OHM under strong monotonicity, at every k, with Assumption 3.1 only.

E|F(x_k)|^2 <= 8L^2D^2/N^2 + 64L^4/mu^2 exp(-k mu/L) D^2 + 4L sigma^2/(mu B) for alpha = 1/L, and
E|x_k - y_k|^2 <= alpha^2 sigma^2/(B(1 - g^2)), y the noiseless run and g^2 = 1 - alpha mu (2 - alpha L).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.lemmas.trajectory import follow
from tests.statistics.evidence import assert_mean_at_most, mean_of

import dualanchor as da
from dualanchor.core.streams import Purpose


@pytest.mark.slow
@pytest.mark.parametrize("B", [1, 10])
@pytest.mark.parametrize(
    ("name", "options", "N"),
    [
        ("huber-minimax", {}, 3000),
        ("huber-minimax", {"sigma": 1.5}, 3000),
        ("huber-minimax", {"dimension": 8, "mu": 1.0, "delta": 0.5, "nu": 0.1, "sigma": 1.0}, 100),
        ("affine", {"mu": 0.5, "sigma": 1.0}, 100),
        ("affine", {"mu": 1.0, "sigma": 1.0}, 100),
    ],
    ids=lambda value: str(value),
)
def test_residual_at_every_k(name: str, options: dict[str, Any], N: int, B: int) -> None:
    """40 replications, some forty values of k. False failures: at equality 1.4e-5 for each k (Student), here far fewer.

    The bound is generous: the largest ratio of mean and bound is 1e-4 on the paper's problem, 0.02 on the same with
    mu = 1, 0.09 on affine with mu = L/2 and 0.26 with mu = L. There a noise variance four times too large is found, at
    any B; the test of the proof's first step below is sharper.
    """
    problem = da.problems.make(name, options)
    L, mu, sigma, D = (getattr(problem.constants, constant) for constant in ("L", "mu", "sigma", "D"))
    method = da.DualOHM(step_size=1 / L, horizon=N, batch_size=B)
    history = da.solve(problem, method, reps=40, seed=45, record=40).history
    assert {0, N - 1} <= set(history.k)
    for k in np.unique(history.k):
        bound = 8 * L**2 * D**2 / N**2 + 64 * L**4 / mu**2 * np.exp(-k * mu / L) * D**2 + 4 * L * sigma**2 / (mu * B)
        assert_mean_at_most(history.residual[history.k == k] ** 2, bound, f"{name}, k = {k}")


def deviations(operator: Any, alpha: float, N: int, noise: np.ndarray) -> np.ndarray:
    """|x_k - y_k|^2 for the first rounds, those for which there is noise: (rounds + 1, rows)."""
    x0, method = np.full(noise.shape[1:], 0.3), da.DualOHM(step_size=alpha, horizon=N)
    noisy = follow(method, lambda k, x: operator(x) + noise[k], x0, steps=len(noise))
    exact = follow(method, lambda k, x: operator(x), x0, steps=len(noise))
    return np.sum((noisy.x - exact.x) ** 2, axis=2)


def test_deviation_on_the_paper_problem() -> None:
    """400 runs of 200 rounds. False failures: at equality 1e-6 for each of 200 k, here far fewer.

    The largest mean is at 0.1 of the bound: near the root the operator is more strongly monotone than mu says.
    """
    problem = da.problems.huber_minimax(dimension=8, nu=0.1, sigma=1.0)
    L, mu = problem.constants.L, problem.constants.mu
    assert L is not None
    alpha, N = 1 / L, 200
    oracle = problem.instance(da.Streams(0, np.arange(400), Purpose.INSTANCE)).oracle
    noise = np.random.default_rng(46).normal(size=(N - 1, 400, 8)) / np.sqrt(8)
    bound = alpha**2 / (alpha * mu * (2 - alpha * L))
    for k, values in enumerate(deviations(oracle.operator, alpha, N, noise)):
        assert_mean_at_most(values, bound, f"Lemma 4.6 at k = {k}")


def test_deviation_where_it_is_nearly_attained() -> None:
    """F(x) = x, alpha = 1/2: far from the horizon the bound is attained up to the momentum, less than one percent.

    4000 runs in R^4. False failures: 1e-6 for each of 12 k. The standard error is 1.2 % of the bound, so a deviation of
    1.09 times the bound is found with 99 %.
    """
    alpha, N = 0.5, 400
    noise = np.random.default_rng(47).normal(size=(12, 4000, 4)) / 2
    values = deviations(lambda x: x, alpha, N, noise)
    bound = alpha**2 / (1 - (1 - alpha) ** 2)
    for k, squares in enumerate(values):
        assert_mean_at_most(squares, bound, f"Lemma 4.6 at k = {k}")
    assert mean_of(values[-1]).value > 0.9 * bound


@pytest.mark.parametrize("k", [0, 1, 3, 12])
def test_distance_to_the_last_noiseless_iterate(k: int) -> None:
    """The theorem's first claim: E|x_k - y_{N-1}|^2 <= 2 ((1+g)/(1-g))^2 g^2k D^2 + 2 alpha^2 sigma^2/(B (1-g^2)).

    The same F(x) = x with g = alpha = 1/2, and x_0 at distance 0.6. 4000 runs. False failures: at equality 1e-6 each.
    At k = 12 the mean is at half of the bound, with a standard error of 0.6 %: 2.1 times the noise variance is found.
    """
    alpha = g = 0.5
    N, x0 = 400, np.full((4000, 4), 0.3)
    noise = np.random.default_rng(48).normal(size=(12, 4000, 4)) / 2
    method = da.DualOHM(step_size=alpha, horizon=N)
    x = follow(method, lambda k, x: x + noise[k], x0, steps=12).x
    last = follow(method, lambda k, x: x, x0[:1]).x[-1]
    bound = 2 * ((1 + g) / (1 - g)) ** 2 * g ** (2 * k) * 0.6**2 + 2 * alpha**2 / (1 - g**2)
    assert_mean_at_most(np.sum((x[k] - last) ** 2, axis=1), bound, f"distance at k = {k}")
