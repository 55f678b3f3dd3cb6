"""Tests of means and of correlations, with error rates.

A threshold of z standard errors fails correct code at the rate of the normal tail: 2e-6 for 4.75 two-sided, 1e-6
one-sided. A defect of (z + 2.33) standard errors is found with a probability of 99 %.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Z = 4.75


class Mean(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float


def mean_of(values: Any) -> Mean:
    """Mean and standard error of independent values."""
    values = np.asarray(values, dtype=float).ravel()
    return Mean(float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)))


def assert_mean(values: Any, expected: float, what: str, z: float = Z) -> None:
    """Fail if the mean is more than z standard errors (and rounding) away from what is expected."""
    mean, error = mean_of(values)
    allowed = z * error + 1e-12 * abs(expected)
    assert abs(mean - expected) <= allowed, (
        f"{what}: {mean:.6g}, expected {expected:.6g}, {(mean - expected) / max(error, 1e-300):+.1f} s.e."
    )


def assert_mean_at_most(values: Any, bound: float, what: str, z: float = Z) -> None:
    """Fail if the mean is more than z standard errors (and rounding) above the bound."""
    mean, error = mean_of(values)
    assert mean - z * error <= bound + 1e-12 * abs(bound), f"{what}: {mean:.6g} +- {error:.2g} above {bound:.6g}"


def largest_correlation(series: np.ndarray, lags: int) -> float:
    """The largest |correlation| between any two series, shifted by up to `lags`, times the root of their length."""
    x = series - series.mean(axis=1, keepdims=True)
    x /= x.std(axis=1, keepdims=True)
    largest = 0.0
    for lag in range(lags + 1):
        length = x.shape[1] - lag
        r = x[:, lag:] @ x[:, :length].T / np.sqrt(length)
        if lag == 0:
            np.fill_diagonal(r, 0.0)
        largest = max(largest, float(np.abs(r).max()))
    return largest
