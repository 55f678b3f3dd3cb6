"""Hyper-parameters of many configurations as columns, and their rows."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.rowwise import Column


def test_what_agrees_stays_and_what_differs_becomes_a_column():
    stacked = da.DualOHM.stack([da.DualOHM(0.5, 10, 2), da.DualOHM(1.0, 10, 3)])
    assert stacked.horizon == 10
    np.testing.assert_array_equal(stacked.step_size, [[0.5], [1.0]])
    np.testing.assert_array_equal(stacked.batch_size, [[2], [3]])
    assert stacked.step_size.dtype == np.float64
    assert stacked.batch_size.dtype == np.int64


def test_one_configuration_stays_itself():
    method = da.SGDA(0.1)
    assert da.SGDA.stack([method]) is method


def test_whole_and_broken_numbers_together_are_broken_numbers():
    stacked = da.SGDA.stack([da.SGDA(1), da.SGDA(0.5)])
    assert stacked.step_size.dtype == np.float64


def test_schedules_and_estimators_are_stacked_inside():
    tapered = da.DualOHM.stack([da.DualOHM(1.0, 9, da.Tapered(c)) for c in (1.0, 2.0)])
    np.testing.assert_array_equal(tapered.batch_size.C, [[1.0], [2.0]])
    page = da.OHM.stack([da.OHM(1.0, estimator=da.PAGE(b, 1)) for b in (3, 4)])
    np.testing.assert_array_equal(page.estimator.big_batch, [[3], [4]])
    assert page.estimator.small_batch == 1


def test_taking_rows_restricts_every_column():
    stacked = da.DualOHM.stack([da.DualOHM(s, 9, da.Tapered(c)) for s, c in ((0.1, 1.0), (0.2, 2.0), (0.3, 3.0))])
    some = stacked.take(np.array([2, 0, 0]))
    np.testing.assert_array_equal(some.step_size, [[0.3], [0.1], [0.1]])
    np.testing.assert_array_equal(some.batch_size.C, [[3.0], [1.0], [1.0]])
    assert some.horizon == 9
    masked = stacked.take(np.array([False, True, False]))
    np.testing.assert_array_equal(masked.step_size, [[0.2]])
    assert stacked.take(np.zeros(3, bool)).step_size.shape == (0, 1)
    np.testing.assert_array_equal(stacked.step_size, [[0.1], [0.2], [0.3]])


def test_what_was_derived_before_is_derived_anew_for_the_rows():
    stacked = da.DualOHM.stack([da.DualOHM(1.0, 5, 2), da.DualOHM(1.0, 50, 3)])
    assert stacked.steps == 4
    assert stacked.estimator_in_use.schedule.size(0, None).tolist() == [[2], [3]]
    longer = stacked.take(np.array([1]))
    assert longer.steps == 49
    assert longer.estimator_in_use.schedule.size(0, None).tolist() == [[3]]


@pytest.mark.parametrize(
    ("methods", "named"),
    [
        ([da.SGDA(0.1), da.SEG(0.1)], "SEG, SGDA"),
        ([da.SGDA(0.1, 1), da.SGDA(0.1, da.Growing(1.0))], "batch_size"),
        ([da.SGDA(0.1, [1, 2]), da.SGDA(0.1, [1, 3])], "batch_size"),
        ([da.OHM(0.1), da.OHM(0.1, 10)], "horizon"),
        ([da.OHM(0.1), da.OHM(0.1, estimator=da.PAGE())], "estimator"),
        ([da.OHM(0.1, 9, da.Tapered(1.0)), da.OHM(0.1, 9, da.Growing(1.0))], "Growing, Tapered"),
    ],
)
def test_what_cannot_be_stacked_is_refused(methods, named):
    with pytest.raises(da.errors.ArgumentTypeError, match=named):
        da.solve(da.problems.affine(dimension=4), methods, budget=20)


def test_a_record_is_not_changed_by_its_changes():
    method = da.DualOHM(0.5, 10)
    assert method.with_changes(horizon=20).horizon == 20
    assert method.horizon == 10
    with pytest.raises(AttributeError):
        method.horizon = 5


OLD_POWERS = np.__version__ < "2"  # powers of arrays may differ from those of numbers in the last bit


def column(*values):
    return np.array(values)[:, None].view(Column)


def test_a_column_gives_way_like_a_number():
    """Row by row the same bits as a Python number, in either precision and in place."""
    numbers = (0.1, 1 / 3, 7.0)
    for dtype in (np.float32, np.float64):
        x = np.linspace(-1, 1, 12).astype(dtype).reshape(3, 4)
        for apply in (
            lambda a, x: a * x,
            lambda a, x: x / a,
            lambda a, x: x - a,
            lambda a, x: (1 - a) * x + a / (a + 2) * x,
            *([] if OLD_POWERS else [lambda a, x: (1 + a) ** -2.0 * x]),
        ):
            together = apply(column(*numbers), x)
            assert together.dtype == dtype
            assert type(together) is np.ndarray
            for row, number in enumerate(numbers):
                np.testing.assert_array_equal(together[row], apply(number, x[row : row + 1])[0])
        y = x.copy()
        y *= column(*numbers)
        np.testing.assert_array_equal(y, column(*numbers) * x)
        assert type(y) is np.ndarray


def test_a_column_of_counts_stays_exact():
    N = column(5, 2**60)
    assert (N - 1).tolist() == [[4], [2**60 - 1]]
    np.testing.assert_array_equal((N - 1) / N, [[0.8], [1.0]])
    assert isinstance(N - 1, Column)
    assert (N * np.arange(3)).tolist() == [[0, 5, 10], [0, 2**60, 2**61]]
    assert N.max() == 2**60
    assert isinstance(N[np.array([1])], Column)
