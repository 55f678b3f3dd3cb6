"""Wrong oracles and streams, each rejected by a named check of this suite that the right one passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.statistics.evidence import largest_correlation
from tests.statistics.kinds import COMPONENTS, KINDS, Kind, draws, independent, unbiased, variance_over_B

import dualanchor as da
from dualanchor import Batch, Streams
from dualanchor.core.streams import Purpose

pytestmark = pytest.mark.slow


class Wrong(da.Oracle):
    """An oracle with another `draw`."""

    def __init__(self, right: da.Oracle, draw: Callable[[da.Oracle, Streams, int], Batch]) -> None:
        self._right, self._draw = right, draw

    def draw(self, streams: Streams, size: int) -> Batch:
        return self._draw(self._right, streams, size)

    def mean(self, x: np.ndarray, batch: Batch) -> np.ndarray:
        return self._right.mean(x, batch)


def not_averaged(right: da.Oracle, streams: Streams, size: int) -> Batch:
    return Batch(size, right.draw(streams, 1).data)


class SigmaPerCoordinate(Wrong):
    """Noise of variance sigma^2 in each coordinate, not in all of them together."""

    def __init__(self, right: da.Oracle) -> None:
        super().__init__(right, lambda right, streams, size: right.draw(streams, size))

    def mean(self, x: np.ndarray, batch: Batch) -> np.ndarray:
        exact = self._right.operator(x)
        assert exact is not None
        return exact + np.sqrt(x.shape[1]) * (self._right.mean(x, batch) - exact)


def last_component_never_drawn(right: da.Oracle, streams: Streams, size: int) -> Batch:
    return Batch(size, streams.integers(COMPONENTS - 1, size))


def without_replacement(right: da.Oracle, streams: Streams, size: int) -> Batch:
    return Batch(size, np.stack([rng.permutation(COMPONENTS)[:size] for rng in streams.generators()]))


def counts_over_the_number_of_components(right: da.Oracle, streams: Streams, size: int) -> Batch:
    return Batch(COMPONENTS, right.draw(streams, size).data)


def the_same_batch_again(right: da.Oracle, streams: Streams, size: int) -> Batch:
    streams.position = 0
    return right.draw(streams, size)


def one_batch_for_all_rows(right: da.Oracle, streams: Streams, size: int) -> Batch:
    one = streams.take(np.zeros(streams.rows, int))
    batch = right.draw(one, size)
    streams.position = one.position
    return batch


@pytest.mark.parametrize(
    ("name", "wrong", "B", "check"),
    [
        ("Gaussian noise", not_averaged, 5, variance_over_B),
        ("skewed noise", not_averaged, 5, variance_over_B),
        ("Gaussian noise", SigmaPerCoordinate, 1, variance_over_B),
        ("rank one", last_component_never_drawn, 5, unbiased),
        ("rank one", without_replacement, 5, variance_over_B),
        ("linear", counts_over_the_number_of_components, 25, unbiased),
        ("Gaussian noise", the_same_batch_again, 5, independent),
        ("components", the_same_batch_again, 5, independent),
        ("Gaussian noise", one_batch_for_all_rows, 1, independent),
    ],
)
def test_wrong_oracle_is_rejected_and_the_right_one_is_not(
    name: str, wrong: Any, B: int, check: Callable[[np.ndarray, Kind, int], None]
) -> None:
    kind = KINDS[name]()
    check(draws(kind.oracle, B, 40, 100, seed=36), kind, B)
    oracle = wrong(kind.oracle) if isinstance(wrong, type) else Wrong(kind.oracle, wrong)
    with pytest.raises(AssertionError):
        check(draws(oracle, B, 40, 100, seed=36), kind, B)


@pytest.mark.parametrize("seeds", ["equal", "next seed is next replication"])
def test_streams_that_share_numbers_are_rejected(seeds: str) -> None:
    """What `largest_correlation` sees of a stream for two purposes, or of a seed that is added to the replication."""
    one = Streams(0, np.arange(3)).uniforms(0, 5000)
    two = Streams(0, np.arange(3), Purpose.COIN).uniforms(0, 5000)
    assert largest_correlation(np.concatenate([one, two]), lags=3) < 7
    shared = one if seeds == "equal" else np.concatenate([one[1:], two[:1]])
    assert largest_correlation(np.concatenate([one, shared]), lags=3) > 7


def test_a_stream_that_lags_behind_is_rejected() -> None:
    one = Streams(0, np.arange(1)).uniforms(0, 5000 + 2)
    assert largest_correlation(np.concatenate([one[:, 2:], one[:, :-2]]), lags=3) > 7
