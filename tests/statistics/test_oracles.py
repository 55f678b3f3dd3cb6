"""Assumption 3.1 for every kind of oracle: batches are unbiased and their variance is that of one sample over B."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.statistics.evidence import assert_mean
from tests.statistics.kinds import COMPONENTS, KINDS, POINT, D, draws, independent, unbiased, variance_over_B

import dualanchor as da

pytestmark = pytest.mark.slow

SIZES = [1, 5, 2 * COMPONENTS + 1]  # the last is more than a finite sum has components: drawn as multinomial counts
ROWS, COUNT = 40, 100
kinds = pytest.mark.parametrize("name", KINDS)
sizes = pytest.mark.parametrize("B", SIZES)


@cache
def batches(name: str, B: int) -> np.ndarray:
    """The values of 4000 batches, (COUNT, ROWS, D); the three tests below look at the same ones."""
    return draws(KINDS[name]().oracle, B, ROWS, COUNT, seed=31)


@kinds
@sizes
def test_batches_are_unbiased(name: str, B: int) -> None:
    """4000 batches. False failures: 1e-6 each, 3e-5 for the thirty.

    A bias of 0.12 standard deviations of a batch in any direction is found with 99 %.
    """
    unbiased(batches(name, B), KINDS[name](), B)


@kinds
@sizes
def test_batches_have_the_variance_of_one_sample_over_B(name: str, B: int) -> None:
    """4000 batches. False failures: 2e-6 for each of four moments (normal tail), 2.4e-4 in all.

    The standard error is at most 2.1 % of the variance (3.5 % for one sample of the skewed noise), so 15 % more or less
    is found with 99 %: B + 1 in place of B up to B = 5, sampling without replacement, sigma^2 per coordinate, a mean
    over n in place of B. For a single coordinate it is 2.5 to 4.5 %, and 18 to 32 % are found.
    """
    variance_over_B(batches(name, B), KINDS[name](), B)


@kinds
@sizes
def test_batches_are_independent(name: str, B: int) -> None:
    """About 3900 pairs each. False failures: 2e-6 for each of two, 1.2e-4 in all. A correlation of 0.1 is found."""
    independent(batches(name, B), KINDS[name](), B)


@kinds
def test_the_operator_is_the_mean(name: str) -> None:
    """Where an oracle knows F, that is the mean of its samples (to rounding, against the enumeration)."""
    kind = KINDS[name]()
    value = kind.oracle.operator(POINT[None])
    if value is not None:
        np.testing.assert_allclose(value[0], kind.mean, rtol=1e-12)


@kinds
def test_mixed_batch_sizes_have_each_their_own_variance(name: str) -> None:
    """Rows of one run with B = 1, 4 and 25. False failures: 2e-6 each, 6e-5 in all; 25 % in a variance is found."""
    kind = KINDS[name]()
    sizes = np.repeat([1, 4, 25], 15)
    errors = draws(kind.oracle, sizes, sizes.size, 60, seed=34) - kind.mean
    squares = np.sum(errors**2, axis=2)
    for B in np.unique(sizes):
        assert_mean(squares[:, sizes == B], np.trace(kind.covariance) / B, f"variance of the rows with B = {B}")


@kinds
def test_one_batch_at_two_points_is_one_set_of_samples(name: str) -> None:
    """The same batch gives the same value again, also after others were drawn and evaluated."""
    kind = KINDS[name]()
    F = da.Session(kind.oracle, da.Streams(35, np.arange(4), dimension=D))
    x, y = np.tile(POINT, (4, 1)), np.tile(POINT + 1, (4, 1))
    for B in SIZES:
        batch = F.draw(B)
        first = F(x, batch), F(y, batch)
        F(y, F.draw(B))
        assert np.array_equal(first[0], F(x, batch))
        assert np.array_equal(first[1], F(y, batch))
