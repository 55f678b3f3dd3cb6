"""Checks of what problems declare, as functions of a problem and of the constants to be checked.

Each raises AssertionError if the constants do not hold, so that tests can show that smaller ones are rejected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.statistics.evidence import assert_mean, assert_mean_at_most

import dualanchor as da
from dualanchor.core.problem import Instance
from dualanchor.core.streams import Purpose

SEED = 17


def instances(problem: da.Problem, replications: Any) -> Instance:
    """Oracle, start and root (or start, if no root is known) for replications given by number, or for this many."""
    numbers = np.arange(replications) if isinstance(replications, int) else np.asarray(replications)
    instance = problem.instance(da.Streams(SEED, numbers, Purpose.INSTANCE, problem.dimension))
    return instance if instance.root is not None else instance._replace(root=instance.x0)


def operator_of(oracle: da.Oracle, x: np.ndarray) -> np.ndarray:
    """The true F, which every named problem knows."""
    value = oracle.operator(x)
    assert value is not None
    return value


def pairs(problem: da.Problem, rows: int) -> tuple[Instance, np.ndarray, np.ndarray]:
    """Two points for each row, around the root at distances from 1e-6 D to 100 D, where kinks may be."""
    instance, rng = instances(problem, rows), np.random.default_rng(SEED)
    scale = (problem.constants.D or 1.0) * 10 ** rng.uniform(-6, 2, size=(rows, 1))
    u, v = rng.normal(size=(2, rows, problem.dimension)) / np.sqrt(problem.dimension)
    x = instance.root + scale * u
    return instance, x, x + scale * rng.uniform(0.05, 1, size=(rows, 1)) * v


def operator_constants(problem: da.Problem, constants: da.Constants, rows: int = 60) -> None:
    """1/L-cocoercive, mu-strongly monotone and M-Lipschitz between random pairs, to 1e-8 of |F(x)-F(y)||x-y|."""
    (oracle, _, _), x, y = pairs(problem, rows)
    dx, dF = x - y, operator_of(oracle, x) - operator_of(oracle, y)
    inner, size = np.sum(dF * dx, axis=1), np.linalg.norm(dF, axis=1) * np.linalg.norm(dx, axis=1)
    slack = 1e-8 * size
    L, M = constants.L or np.inf, constants.M or np.inf
    assert (inner - np.sum(dF**2, axis=1) / L >= -slack).all(), "cocoercivity between two points"
    assert (inner - constants.mu * np.sum(dx**2, axis=1) >= -slack).all(), "strong monotonicity between two points"
    assert (np.linalg.norm(dF, axis=1) <= (M + 1e-8) * np.linalg.norm(dx, axis=1)).all(), "Lipschitz"


def jacobian_constants(problem: da.Problem, constants: da.Constants, points: int = 12) -> None:
    """The same for the worst directions: sym(J) >= J'J/L, sym(J) >= mu, |J| <= M for Jacobians at random points.

    J by central differences, exact for operators that are linear in pieces; where a difference crosses a kink it is a
    mean of Jacobians, for which the inequalities hold as well. Rounding: 1e-5, differences of steps down to 1e-9.
    """
    d, rng = problem.dimension, np.random.default_rng(SEED)
    L, M = constants.L or np.inf, constants.M or np.inf
    every, _, roots = instances(problem, points)
    for point in range(points):
        oracle, root = every.take(np.full(2 * d, point)), roots[point]  # all rows of one instance
        scale = (problem.constants.D or 1.0) * 10 ** rng.uniform(-5, 1)
        x = root + scale * rng.normal(size=d)
        step = 1e-4 * scale * np.eye(d)
        F = operator_of(oracle, x + np.concatenate([step, -step]))
        J = (F[:d] - F[d:]).T / (2e-4 * scale)
        symmetric = (J + J.T) / 2
        assert np.linalg.eigvalsh(symmetric - J.T @ J / L).min() >= -1e-5, "cocoercivity"
        assert np.linalg.eigvalsh(symmetric).min() >= constants.mu - 1e-5, "strong monotonicity"
        assert np.linalg.norm(J, 2) <= M + 1e-5, "Lipschitz"


def cocoercive_in_expectation(problem: da.Problem, constants: da.Constants, rows: int = 20) -> None:
    """Assumption 3.2: <F(x)-F(y), x-y> >= E|F^(x)-F^(y)|^2 / L, the same sample at both points.

    Exact for a finite sum, whose components are gone through; else the mean over 50 samples (for noise that does not
    depend on the point each of them is exact).
    """
    (oracle, _, _), x, y = pairs(problem, rows)
    streams = da.Streams(SEED, np.arange(rows), Purpose.NOISE, problem.dimension)
    if oracle.components is None:
        batches = [oracle.draw(streams, 1) for _ in range(50)]
    else:
        batches = [da.Batch(1, np.full((rows, 1), i)) for i in range(oracle.components)]
    differences = (oracle.mean(x, batch) - oracle.mean(y, batch) for batch in batches)
    squares = np.array([np.sum(difference**2, axis=1) for difference in differences])
    inner = np.sum((operator_of(oracle, x) - operator_of(oracle, y)) * (x - y), axis=1)
    # noise enters both values: its rounding is relative to sigma, not to the difference
    rounding = 1e-13 * (constants.sigma or 0.0) * np.linalg.norm(x - y, axis=1)
    excess = squares.mean(axis=0) / (constants.L or np.inf) - inner
    assert (excess <= 1e-6 * np.abs(inner) + rounding).all(), "cocoercivity in expectation"


def variance(problem: da.Problem, constants: da.Constants, rows: int = 20, count: int = 60) -> None:
    """The variance of one sample at the start, at the root, and in between is at most sigma^2 (one-sided)."""
    oracle, x0, root = instances(problem, rows)
    sigma = np.inf if constants.sigma is None else constants.sigma
    for part in (0.0, 0.5, 1.0):
        squares = _squared_errors(problem, oracle, root + part * (x0 - root), count)
        assert_mean_at_most(squares, sigma**2, f"variance at {part} of the way to the start")


def variance_is_attained(problem: da.Problem, constants: da.Constants, rows: int = 20, count: int = 60) -> None:
    """The variance of one sample is sigma^2 everywhere (two-sided)."""
    oracle, x0, _ = instances(problem, rows)
    assert constants.sigma is not None
    assert_mean(_squared_errors(problem, oracle, x0, count), constants.sigma**2, "variance at the start")


def _squared_errors(problem: da.Problem, oracle: da.Oracle, x: np.ndarray, count: int) -> np.ndarray:
    F = da.Session(oracle, da.Streams(SEED, np.arange(x.shape[0]), Purpose.NOISE, problem.dimension))
    true = operator_of(oracle, x)
    return np.array([np.sum((F(x, F.draw(1)) - true) ** 2, axis=1) for _ in range(count)])


def distance(problem: da.Problem, constants: da.Constants, rows: int) -> None:
    """The mean of |x_0 - root|^2 is D^2 (two-sided)."""
    _, x0, root = instances(problem, rows)
    assert constants.D is not None
    assert_mean(np.sum((x0 - root) ** 2, axis=1), constants.D**2, "squared distance")


def root_is_a_root(problem: da.Problem, rows: int = 20) -> None:
    """|F(root)| is rounding, 1e-13 of L times the sizes of root and start."""
    oracle, x0, root = instances(problem, rows)
    size = np.linalg.norm(root, axis=1) + np.linalg.norm(x0, axis=1)
    assert (np.linalg.norm(operator_of(oracle, root), axis=1) <= 1e-13 * (problem.constants.L or 1.0) * size).all()
