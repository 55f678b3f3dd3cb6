"""The debiased squared residual: exact without noise, unbiased with it, and counted."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.estimators.residual import GROUPS, debiased_squared_residual


def session(oracle, rows, d, seed=0):
    return Session(oracle, Streams(seed, np.arange(rows), Purpose.CERTIFICATE, d))


def test_without_noise_it_is_exact():
    x = np.array([[1.0, 2.0], [0.0, -3.0]])
    F = session(da.AdditiveNoise(lambda x: 2 * x), 2, 2)
    np.testing.assert_allclose(debiased_squared_residual(F, x, 64), [20.0, 36.0], rtol=1e-14)


def test_samples_are_counted():
    F = session(da.AdditiveNoise(lambda x: x, 1.0), 1, 3)
    debiased_squared_residual(F, np.ones((1, 3)), 640)
    assert (F.draws, F.evals) == (640, 640)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.0, 0.2, 3.0])
def test_it_is_unbiased(level):
    """Mean over 4000 rows within 4.5 standard errors: false failure 7e-6.

    A bias of the size of the correction, sigma^2/n = 1/64, would be 20 or more standard errors at levels 0 and 0.2.
    """
    d, rows, samples = 20, 4000, GROUPS * 2
    x = np.zeros((rows, d))
    x[:, 0] = level
    F = session(da.AdditiveNoise(lambda x: x, 1.0, vectorized=True), rows, d, seed=5)
    estimates = debiased_squared_residual(F, x, samples)
    error = estimates.std(ddof=1) / np.sqrt(rows)
    assert abs(estimates.mean() - level**2) < 4.5 * error
    if level < 1:
        assert error < 1 / samples / 15
