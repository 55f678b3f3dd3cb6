"""Batch sizes per round."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualanchor as da
from dualanchor.core.errors import ArgumentError
from dualanchor.core.rowwise import Column
from dualanchor.core.schedule import Constant, Listed, as_schedule
from dualanchor.methods import make


def tapered(C, k, N):
    return max(1, math.ceil(C / math.sqrt((N - k) * (N - k - 1))))


@given(st.floats(0.01, 1e5), st.integers(2, 400))
def test_tapered_follows_its_formula(C, N):
    schedule = da.Tapered(C)
    sizes = [schedule.size(k, N) for k in range(N - 1)]
    assert sizes == [tapered(C, k, N) for k in range(N - 1)]
    assert all(isinstance(size, int) for size in sizes)
    np.testing.assert_array_equal(schedule.size(np.arange(N - 1), N), sizes)
    assert sizes == sorted(sizes), "small at first, largest at the end"


@given(st.floats(0.01, 1e5), st.integers(2, 2000))
def test_tapered_sums_to_what_theorem_b_says(C, N):
    """At most N - 1 + C H_N samples, H_N = sum of 1/sqrt(m(m-1)), which is about ln N."""
    m = np.arange(2, N + 1)
    H = float(np.sum(1 / np.sqrt(m * (m - 1.0))))
    total = int(np.sum(da.Tapered(C).size(np.arange(N - 1), N)))
    assert total <= N - 1 + C * H * (1 + 1e-12)
    assert math.log(N) + 0.04 >= H
    assert total >= max(N - 1, C * H * (1 - 1e-12))


def test_tapered_of_columns_is_tapered_of_each():
    C, N, ks = np.array([[3.0], [50.0]]), np.array([[10], [25]]), np.arange(9)
    both = da.Tapered(C).size(ks, N)
    assert both.shape == (2, 9)
    for row in range(2):
        assert both[row].tolist() == [tapered(float(C[row, 0]), int(k), int(N[row, 0])) for k in ks]
    assert da.Tapered(C).size(3, N).shape == (2, 1)
    assert da.Tapered(C).size(3, 10).shape == (2, 1)
    assert da.Tapered(3.0).size(3, N).shape == (2, 1)


@given(st.floats(0.01, 50), st.integers(0, 500))
def test_growing_follows_its_formula(c, k):
    size = da.Growing(c).size(k, None)
    assert isinstance(size, int)
    assert size == max(1, math.ceil(c * (k + 1)))
    assert da.Growing(c).size(np.array([k, k + 1]), None)[0] == size


def test_a_list_is_read_entry_by_entry():
    schedule = as_schedule([3, 1, 4], "Test", rounds=3)
    assert schedule == Listed((3, 1, 4))
    assert [schedule.size(k, None) for k in range(3)] == [3, 1, 4]
    np.testing.assert_array_equal(schedule.size(np.arange(3), None), [3, 1, 4])
    assert as_schedule((3, 1), "Test", rounds=2) == Listed((3, 1))


def test_a_number_stands_for_itself():
    for value in (5, np.int64(5), np.int32(5)):
        schedule = as_schedule(value, "Test")
        assert schedule.size(7, None) == 5
        assert isinstance(schedule.size(7, None), int)
    column = as_schedule(np.array([[2], [3]]).view(Column), "Test")
    assert isinstance(column, Constant)
    assert column.size(np.arange(4), None).tolist() == [[2] * 4, [3] * 4]


def test_a_size_beyond_64_bits_is_refused_as_too_large():
    """It was called no int; printing a plan whose half needs such a batch raised that error too."""
    with pytest.raises(ArgumentError, match="batch_size must be at most 4611686018427387904"):
        da.DualOHM(1.0, 9, 10**20)
    plan = da.plan(eps=1.0, M=1.0, D=1.0, sigma=4e23, batches="constant")
    assert "start" in repr(plan)


@pytest.mark.parametrize("horizon", [np.int64(20), np.int32(20)])
def test_numpy_integers_are_integers(horizon):
    """A horizon computed with NumPy gives the same run as a Python int."""
    problem = da.problems.affine(dimension=4)
    for batch_size in (1, da.Tapered(30.0), da.Growing(0.3), list(range(1, 20))):
        one = da.solve(problem, da.DualOHM(1.0, horizon, batch_size))
        other = da.solve(problem, da.DualOHM(1.0, 20, batch_size))
        np.testing.assert_array_equal(one.x, other.x)
        assert one.nfev == other.nfev
    da.solve(problem, da.HalpernPAGE(1.0, np.int64(5), np.int64(2), horizon))


@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        (da.DualOHM(1.0, 9, da.Tapered(12.0)), [tapered(12.0, k, 9) for k in range(8)]),
        (da.OHM(1.0, 9, da.Growing(0.7)), [math.ceil(0.7 * (k + 1)) for k in range(8)]),
        (da.OHM(1.0, None, da.Growing(0.7)), [math.ceil(0.7 * (k + 1)) for k in range(8)]),
        (da.SGDA(0.1, [1, 2, 3, 4, 5, 6, 7, 8]), [1, 2, 3, 4, 5, 6, 7, 8]),
        (da.SGDA(0.1, da.Growing(2.5)), [math.ceil(2.5 * (k + 1)) for k in range(8)]),
    ],
    ids=str,
)
def test_a_run_draws_the_scheduled_sizes(method, sizes):
    result = da.solve(da.problems.affine(dimension=4), method, stop=da.Steps(8), record="all")
    assert np.diff(result.history.draws).tolist() == sizes


def test_the_longest_horizon_for_a_budget():
    problem = da.problems.affine(dimension=4)
    for batch_size in (da.Tapered(40.0), da.Growing(0.5), [5, 1, 30, 2] + [9] * 50):

        def total(N, sizes=batch_size):
            return sum(sizes[k] if isinstance(sizes, list) else sizes.size(k, N) for k in range(N - 1))

        method = make("s-dual-ohm", problem, 100, {"batch_size": batch_size})
        assert total(method.horizon) <= 100 < total(method.horizon + 1)
        assert da.solve(problem, method, budget=100).status is da.Status.HORIZON
    assert make("s-dual-ohm", problem, 100, {"batch_size": 7}).horizon == 14
    assert make("s-dual-ohm", problem, 100, {}).horizon == 100


def test_an_array_of_sizes_is_a_list_or_is_refused():
    problem = da.problems.affine(dimension=4)
    expected = da.solve(problem, da.DualOHM(1.0, 4, [1, 2, 3]))
    try:
        result = da.solve(problem, da.DualOHM(1.0, 4, np.array([1, 2, 3])))
    except da.errors.DualAnchorError:
        return
    assert result.nfev == expected.nfev
    np.testing.assert_array_equal(result.x, expected.x)
