"""The operators of the paper's experiments, against the formulas of section 5 written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualanchor as da

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds, d=st.integers(1, 9))
def test_worst_case_operator_is_H_plus_identity_about_a_shift(seed: int, d: int) -> None:
    """H(x) = (x_d - 2/sqrt(d), -x_1, .., -x_{d-1}), F(x) = H(x - s) + (x - s), x_0 = 0."""
    problem = da.problems.worst_case_nonexpansive(dimension=d)
    oracle, x0, root = problem.instance(da.Streams(seed, np.arange(2)))
    x = np.random.default_rng(seed).normal(size=(2, d))
    assert root is not None
    for row in range(2):
        y = x[row] - (root[row] - 1 / np.sqrt(d))
        H = np.array([y[-1] - 2 / np.sqrt(d), *(-y[:-1])])
        np.testing.assert_allclose(oracle.operator(x)[row], H + y, rtol=0, atol=1e-13)
    assert not x0.any()
    assert not np.array_equal(root[0], root[1])


@given(seed=seeds, n=st.integers(1, 6), r=st.integers(1, 4), null=st.integers(0, 2))
def test_components_of_the_finite_sum_are_projections_onto_lines(seed: int, n: int, r: int, null: int) -> None:
    """F_i(x) = (q_i q_i' x_{1:r}, 0) with |q_i| = 1, and F is their mean."""
    d = r + null
    problem = da.problems.finite_sum_cocoercive(components=n, dimension=d, rank=r)
    oracle, x0, root = problem.instance(da.Streams(seed, np.arange(2)))
    row = oracle.take(np.zeros(d, dtype=int))  # the first instance, at d points
    matrices = [row.mean(np.eye(d), da.Batch(1, np.full((d, 1), i))) for i in range(n)]
    for A in matrices:
        np.testing.assert_allclose(A, A.T, atol=1e-13)
        np.testing.assert_allclose(A @ A, A, atol=1e-13)
        np.testing.assert_allclose(np.trace(A), 1.0, atol=1e-13)
        assert not A[r:].any()
    np.testing.assert_allclose(row.operator(np.eye(d)), np.mean(matrices, axis=0), atol=1e-13)
    assert root is not None
    assert not root[:, :r].any()
    assert np.array_equal(root[:, r:], x0[:, r:])


def saddle_function(z: np.ndarray, mu: float, delta: float, nu: float) -> float:
    x, y = np.split(z, 2)

    def huber(u: np.ndarray) -> float:
        return float(np.where(np.abs(u) <= nu, u**2 / 2, nu * np.abs(u) - nu**2 / 2).sum())

    return (1 - delta) * (huber(x) - huber(y)) + delta * x @ y + mu / 2 * (x @ x - y @ y)


@given(
    seed=seeds,
    half=st.integers(1, 4),
    mu=st.floats(0.01, 2),
    delta=st.just(0.0) | st.floats(1e-90, 1),
    nu=st.floats(0.1, 2),
)
def test_huber_operator_is_the_saddle_gradient(seed: int, half: int, mu: float, delta: float, nu: float) -> None:
    """F = (d Phi/dx, -d Phi/dy); Phi is quadratic in pieces, so central differences are exact up to 1e-6 at kinks."""
    problem = da.problems.huber_minimax(dimension=2 * half, mu=mu, delta=delta, nu=nu)
    oracle, x0, root = problem.instance(da.Streams(seed, np.arange(1)))
    z = nu * 3 * np.random.default_rng(seed).normal(size=2 * half)
    step = 1e-6 * np.eye(2 * half)
    slopes = np.array(
        [(saddle_function(z + h, mu, delta, nu) - saddle_function(z - h, mu, delta, nu)) / 2e-6 for h in step]
    )
    signs = np.repeat([1.0, -1.0], half)
    np.testing.assert_allclose(oracle.operator(z[None])[0], signs * slopes, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(x0), 1.0, rtol=1e-14)
    assert root is not None
    assert not root.any()


@pytest.mark.parametrize("u", [-3.0, -1.0, -0.2, 0.0, 0.2, 1.0, 3.0])
def test_huber_terms_keep_both_signs(u: float) -> None:
    """With delta = 0 the coordinates are apart: F = clip(u, -nu, nu) + mu u in each."""
    oracle = (
        da.problems.huber_minimax(dimension=2, mu=0.5, delta=0.0, nu=1.0).instance(da.Streams(0, np.arange(1))).oracle
    )
    expected = min(max(u, -1.0), 1.0) + 0.5 * u
    np.testing.assert_allclose(oracle.operator(np.array([[u, -u]])), [[expected, -expected]], rtol=1e-15)


def test_the_papers_parameters_are_the_defaults() -> None:
    problems = da.problems
    assert problems.worst_case_nonexpansive().options() == {"dimension": 2001, "sigma": 0.1}
    assert problems.worst_case_nonexpansive().step_size == 1.0
    assert problems.finite_sum_cocoercive().options() == {"components": 200, "dimension": 200, "rank": 199}
    assert problems.finite_sum_cocoercive().step_size == 1.0
    huber = problems.huber_minimax()
    assert huber.options() == {"dimension": 100, "sigma": 0.05, "mu": 0.1, "delta": 1e-2, "nu": 5e-5}
    np.testing.assert_allclose(huber.step_size, 0.1 / 1.1**2, rtol=1e-15)
