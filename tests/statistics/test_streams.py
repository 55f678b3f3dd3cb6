"""Streams of different seeds, purposes, replications and kinds have nothing to do with each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats
from tests.statistics.evidence import assert_mean, largest_correlation

from dualanchor.core.streams import Purpose, Streams

LENGTH = 5000
SEEDS, REPLICATIONS = (0, 1), np.arange(4)


def _generated(streams: Streams) -> np.ndarray:
    return np.stack([[rng.random() for rng in streams.generators()] for _ in range(LENGTH // 10)], axis=1)


READ = {
    "normals": lambda streams: np.stack([streams.normals()[:, 0] for _ in range(LENGTH)], axis=1),
    "integers": lambda streams: streams.integers(1000, LENGTH),
    "uniforms": lambda streams: streams.uniforms(0, LENGTH),
}
MOMENTS = {
    "normals": (0.0, 1.0),
    "integers": (999 / 2, (1000**2 - 1) / 12),
    "uniforms": (0.5, 1 / 12),
}


def _series(seed: int, purpose: Purpose) -> Iterator[np.ndarray]:
    for read in READ.values():
        yield read(Streams(seed, REPLICATIONS, purpose))


def test_streams_are_uncorrelated() -> None:
    """2 seeds, 8 purposes, 4 replications, 3 kinds: 192 series of 5000, all pairs at lags 0 to 3, both ways.

    129 000 correlations against 7 standard errors. False failures: 4e-7 (normal tail). A correlation of 0.13 between
    any two is found with 99 %; streams that are equal, negated or shifted by a few positions have correlation 1.
    """
    series = np.concatenate([x for seed in SEEDS for purpose in Purpose for x in _series(seed, purpose)])
    assert series.shape == (2 * len(Purpose) * 4 * 3, LENGTH)
    assert largest_correlation(series, lags=3) < 7


def test_uniforms_are_uncorrelated_with_pairs_of_indices() -> None:
    """From the same bits two indices would be made for each uniform: 12 series, lags 0 to 3, 498 correlations.

    6.3 standard errors. False failures: 2e-7. A correlation of 0.13 is found with 99 %.
    """
    uniforms = Streams(0, REPLICATIONS).uniforms(0, LENGTH)
    indices = Streams(0, REPLICATIONS).integers(1000, 2 * LENGTH)
    assert largest_correlation(np.concatenate([uniforms, indices[:, ::2], indices[:, 1::2]]), lags=3) < 6.3


@pytest.mark.slow
def test_generators_are_uncorrelated() -> None:
    """First numbers of 500 successive generators: 8 purposes, 4 replications, lags 0 to 3, 3500 correlations.

    6.5 standard errors. False failures: 2e-7. A correlation of 0.4 is found with 99 %.
    """
    series = np.concatenate([_generated(Streams(0, REPLICATIONS, purpose)) for purpose in Purpose])
    assert largest_correlation(series, lags=3) < 6.5


def test_shards_and_positions_of_a_handle_are_uncorrelated() -> None:
    """Generators of 6 positions with 4 shards each, 3000 numbers: 276 pairs, 6.3 standard errors.

    False failures: 8e-8. A correlation of 0.16 is found with 99 %.
    """
    (source,) = Streams(0, REPLICATIONS[:1]).sources
    series = [source.generator(position, shard).random(3000) for position in range(6) for shard in range(4)]
    assert largest_correlation(np.array(series), lags=0) < 6.3


def test_coordinates_of_a_normal_vector_are_uncorrelated() -> None:
    """40 coordinates of 3000 vectors over block boundaries, lags 0 and 1: 2380 correlations, 6.5 standard errors.

    False failures: 2e-7. A correlation of 0.16 is found with 99 %.
    """
    streams = Streams(3, REPLICATIONS[:1], dimension=40)
    vectors = np.stack([streams.normals()[0] for _ in range(3000)], axis=1)
    assert largest_correlation(vectors, lags=1) < 6.5


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("purpose", Purpose)
def test_numbers_have_their_law(kind: str, purpose: Purpose) -> None:
    """Mean and variance of 20 000 numbers. False failures: 2e-6 for each of two, 8.4e-5 in all.

    A shift of 0.05 standard deviations, or 7 % in the variance, is found with 99 %.
    """
    numbers = READ[kind](Streams(5, REPLICATIONS, purpose)).astype(float)
    mean, variance = MOMENTS[kind]
    assert_mean(numbers, mean, f"mean of {kind}")
    assert_mean((numbers - mean) ** 2, variance, f"variance of {kind}")


def test_indices_are_uniform() -> None:
    """Chi-squared test of 20 000 indices below 7. False failures: 1e-6. A frequency off by 0.02 is found with 99 %."""
    counts = np.bincount(Streams(5, REPLICATIONS).integers(7, LENGTH).ravel(), minlength=7)
    assert counts.size == 7
    assert stats.chisquare(counts).pvalue > 1e-6
