"""Every kind of oracle, with mean and covariance of one sample by enumeration or by hand, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from tests.statistics.evidence import assert_mean

import dualanchor as da

D, COMPONENTS = 3, 12
POINT = np.array([0.3, -1.2, 0.7])
_rng = np.random.default_rng(12)
_A = _rng.normal(size=(COMPONENTS, D, D))
_b = _rng.normal(size=(COMPONENTS, D))
_u, _v, _t = _rng.normal(size=(COMPONENTS, D)), _rng.normal(size=(COMPONENTS, D)), _rng.normal(size=COMPONENTS)


class Kind(NamedTuple):
    """An oracle, F(POINT), and the covariance of one sample there."""

    oracle: da.Oracle
    mean: np.ndarray
    covariance: np.ndarray


class GaussianTransform(da.Oracle):
    """Samples F(x) + noise(z) with Gaussian vectors z, of all rows at once: quick with thousands of them."""

    def __init__(self, F: Callable[[np.ndarray], np.ndarray], noise: Callable[[np.ndarray], np.ndarray]) -> None:
        self._F, self._noise = F, noise

    def draw(self, streams: da.Streams, size: int) -> da.Batch:
        return da.Batch(size, sum(self._noise(streams.normals()) for _ in range(size)) / size)

    def mean(self, x: np.ndarray, batch: da.Batch) -> np.ndarray:
        return self._F(x) + batch.data


def _of_components(oracle: da.Oracle, values: np.ndarray) -> Kind:
    away = values - values.mean(axis=0)
    return Kind(oracle, values.mean(axis=0), away.T @ away / COMPONENTS)


def _operator(x: np.ndarray) -> np.ndarray:
    return np.sin(x) + x


def _skewed(n: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.exponential(size=(n, D)) - 1).mean(axis=0) * np.array([1.0, 2.0, 0.5])


def _one_sample(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(x) + x * (1 + rng.standard_normal(D))


def _samples(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.sin(x) + x * (1 + rng.standard_normal((n, D)).mean(axis=0))


def _samples_of_rows(x: np.ndarray, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
    return np.stack([_samples(row, n, rng) for row, rng in zip(x, rngs, strict=True)])


_stretched = (_operator(POINT), np.diag(POINT**2))

KINDS: dict[str, Callable[[], Kind]] = {
    "Gaussian noise": lambda: Kind(
        da.AdditiveNoise(_operator, 1.5, vectorized=True), _operator(POINT), 1.5**2 / D * np.eye(D)
    ),
    "skewed noise": lambda: Kind(
        da.AdditiveNoise(_operator, noise=_skewed), _operator(POINT), np.diag([1.0, 4.0, 0.25])
    ),
    "components": lambda: _of_components(
        da.FiniteSum(lambda x, i: _A[i] @ np.tanh(x) - _b[i], n=COMPONENTS), _A @ np.tanh(POINT) - _b
    ),
    "components from data": lambda: _of_components(
        da.FiniteSum.from_data((_u, _t), lambda x, u, t: u * (u @ x - t)[:, None]), _u * (_u @ POINT - _t)[:, None]
    ),
    "rank one": lambda: _of_components(da.FiniteSum.rank_one(_u, _v, targets=_t), _u * (_v @ POINT - _t)[:, None]),
    "linear": lambda: _of_components(da.FiniteSum.linear(_A, _b), _A @ POINT - _b),
    "sampler": lambda: Kind(da.Sampler(_samples), *_stretched),
    "sampler of rows": lambda: Kind(da.Sampler(_samples_of_rows, vectorized=True), *_stretched),
    "sampler in shards": lambda: Kind(da.Sampler(_samples, shards=3), *_stretched),
    "sampler of single samples": lambda: Kind(da.Sampler.from_single(_one_sample), *_stretched),
}


def draws(oracle: da.Oracle, size: Any, rows: int, count: int, seed: int) -> np.ndarray:
    """`count` fresh batches in each of `rows` replications, evaluated at POINT: (count, rows, D)."""
    F = da.Session(oracle, da.Streams(seed, np.arange(rows), dimension=D))
    x = np.tile(POINT, (rows, 1))
    return np.stack([F(x, F.draw(size)) for _ in range(count)])


def unbiased(values: np.ndarray, kind: Kind, B: int) -> None:
    """n z' C^-1 z is chi-squared with D degrees of freedom, z the mean error of n batches and C their covariance."""
    z = values.reshape(-1, D).mean(axis=0) - kind.mean
    statistic = values[..., 0].size * z @ np.linalg.solve(kind.covariance / B, z)
    assert statistic <= stats.chi2.isf(1e-6, D), f"bias {z} is too large for chance: chi2 = {statistic:.1f}"


def variance_over_B(values: np.ndarray, kind: Kind, B: int) -> None:
    """The second moments of the error are the covariance of one sample over B: trace, then each coordinate."""
    errors = values.reshape(-1, D) - kind.mean
    assert_mean(np.sum(errors**2, axis=1), np.trace(kind.covariance) / B, "variance")
    for i in range(D):
        assert_mean(errors[:, i] ** 2, kind.covariance[i, i] / B, f"variance of coordinate {i}")


def independent(values: np.ndarray, kind: Kind, B: int) -> None:
    """Errors of batches one after another, and of replications side by side, are uncorrelated."""
    errors = values - kind.mean
    scale = np.trace(kind.covariance) / B
    assert_mean(np.sum(errors[1:] * errors[:-1], axis=2) / scale, 0.0, "correlation of successive batches")
    assert_mean(np.sum(errors[:, 1:] * errors[:, :-1], axis=2) / scale, 0.0, "correlation of replications")
