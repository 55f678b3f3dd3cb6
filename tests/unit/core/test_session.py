"""The Session: the only way to samples, and the only place that counts."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.session import Session


def session(rows=4, oracle=None):
    oracle = oracle or da.AdditiveNoise(lambda x: 2 * x, sigma=1.0, vectorized=True)
    return Session(oracle, da.Streams(3, np.arange(rows), dimension=2))


X = np.arange(8.0).reshape(4, 2)


def test_draws_and_evaluations_are_counted_apart():
    F = session()
    batch = F.draw(5)
    assert (F.draws, F.evals) == (5, 0)
    F(X, batch)
    F(X + 1, batch)
    assert (F.draws, F.evals) == (5, 10)
    F.draw(np.array([1, 2, 3, 4]))
    np.testing.assert_array_equal(F.draws, [6, 7, 8, 9])


def test_a_full_pass_is_free_of_draws():
    F = session(oracle=da.FiniteSum(lambda x, i: np.tile(x, (i.size, 1)), 7))
    np.testing.assert_allclose(F(X, F.full_batch()), X)
    assert (F.draws, F.evals) == (0, 7)
    with pytest.raises(da.errors.CapabilityError, match="finite sum"):
        session().full_batch()


def test_one_batch_at_two_points_has_the_same_samples():
    F = session()
    batch = F.draw(3)
    np.testing.assert_allclose(F(X, batch) - F(X + 1, batch), -2.0)


def test_a_view_of_some_rows_counts_for_those_rows():
    F = session()
    part = F.at(np.array([False, True, False, True]))
    batch = part.draw(2)
    part(X[[1, 3]], batch)
    np.testing.assert_array_equal(F.draws, [0, 2, 0, 2])
    np.testing.assert_array_equal(F.evals, [0, 2, 0, 2])
    everyone = F.at(np.ones(4, bool))
    assert everyone is F
    # rows 1 and 3 have read their first vector, 0 and 2 have not
    reference = da.Streams(3, np.arange(4), dimension=2)
    first, second = reference.normals().copy(), reference.normals().copy()
    expected = np.stack([first[0], second[1], first[2], second[3]])
    np.testing.assert_allclose(F(X, F.draw(1)) - 2 * X, expected / np.sqrt(2))


def test_rows_taken_out_go_on_by_themselves():
    F = session()
    F.at(np.array([True, False, False, False])).draw(4)
    part = F.take(np.array([True, True, False, False]))
    np.testing.assert_array_equal(part.draws, [4, 0])
    part.draw(1)
    np.testing.assert_array_equal(part.draws, [5, 1])
    np.testing.assert_array_equal(F.draws, [4, 0, 0, 0])


def test_going_back_brings_the_same_samples():
    F = session()
    F.draw(1)
    mark = F.mark()
    first = F(X, F.draw(3)).copy()
    F.reset(mark)
    assert (F.draws, F.evals) == (1, 0)
    np.testing.assert_array_equal(F(X, F.draw(3)), first)


COUNTED = da.FiniteSum(lambda x, i: x + i[:, None], 50)


def test_sizes_that_differ_from_row_to_row():
    """Rows of one size are drawn together, and every row reads as many indices as its size."""
    F = session(oracle=COUNTED)
    sizes = np.array([3, 1, 3, 60])
    value = F(X, F.draw(sizes))
    for row, size in enumerate(sizes):
        alone = Session(COUNTED, da.Streams(3, np.array([row]), dimension=2))
        np.testing.assert_allclose(value[row], alone(X[row : row + 1], alone.draw(int(size)))[0])
    np.testing.assert_array_equal(F.draws, sizes)
    np.testing.assert_array_equal(F.evals, sizes)
    again = F(X, F.draw(np.array([2, 2, 2, 2])))
    for row, size in enumerate(sizes):
        alone = Session(COUNTED, da.Streams(3, np.array([row]), dimension=2))
        alone.draw(int(size))
        np.testing.assert_allclose(again[row], alone(X[row : row + 1], alone.draw(2))[0])


class Bad(da.Oracle):
    """Returns whatever it was made with."""

    def __init__(self, answer):
        self.answer = answer

    def draw(self, streams, size):
        return da.Batch(size, None)

    def mean(self, x, batch):
        return self.answer(x)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        pytest.param(lambda x: x[:, :1], "shape of x", id="one column"),
        pytest.param(lambda x: x[0], "shape of x", id="one row"),
        pytest.param(lambda x: x.T, "shape of x", id="transposed"),
        pytest.param(lambda x: x.sum(), "shape of x", id="a number"),
        pytest.param(lambda x: x.tolist(), "shape of x", id="a list"),
        pytest.param(lambda x: None, "shape of x", id="nothing"),
        pytest.param(lambda x: x.astype(int), "floating-point", id="integers"),
        pytest.param(lambda x: x + 1j, "real", id="complex"),
        pytest.param(lambda x: x * np.nan, "NaN for a point of norm", id="nan"),
    ],
)
@pytest.mark.parametrize("sizes", [3, np.array([1, 2, 1, 3])], ids=["one size", "mixed sizes"])
def test_what_is_not_a_value_of_the_operator_is_refused(answer, match, sizes):
    F = session(oracle=Bad(answer))
    with pytest.raises(da.errors.OracleError, match=match):
        F(X, F.draw(sizes))


def test_the_row_of_a_bad_value_is_named():
    def answer(x):
        value = x.copy()
        value[x[:, 0] == 6.0] = np.nan
        return value

    for sizes in (1, np.array([1, 2, 3, 2])):
        F = session(oracle=Bad(answer))
        with pytest.raises(da.errors.OracleError) as caught:
            F(X, F.draw(sizes))
        assert caught.value.row == 3
    F = session(oracle=Bad(answer))
    part = F.at(np.array([False, True, False, True]))
    with pytest.raises(da.errors.OracleError) as caught:
        part(X[[1, 3]], part.draw(1))
    assert caught.value.row == 3


def test_the_row_of_a_failing_draw_is_named():
    """The noise of replication 3 fails; whatever rows are drawn together, the error says row 3."""
    numbers = [rng.random() for rng in da.Streams(3, np.arange(4), dimension=2).generators()]

    def noise(n, rng):
        if rng.random() == numbers[3]:
            raise ValueError("bad luck")
        return np.zeros(2)

    def failing():
        return session(oracle=da.AdditiveNoise(lambda x: x, noise=noise))

    for draw in (
        lambda F: F.draw(1),
        lambda F: F.draw(np.array([1, 2, 1, 2])),
        lambda F: F.at(np.array([False, True, False, True])).draw(1),
        lambda F: F.at(np.array([False, True, False, True])).draw(np.array([1, 2])),
    ):
        with pytest.raises(da.errors.OracleError, match="bad luck") as caught:
            draw(failing())
        assert caught.value.row == 3


def test_an_infinite_value_passes():
    F = session(oracle=Bad(lambda x: np.full_like(x, np.inf)))
    assert np.isinf(F(X, F.draw(1))).all()


def test_errors_of_the_library_pass_unchanged():
    def answer(x):
        raise da.errors.CapabilityError("mine", "it", "Use another")

    F = session(oracle=Bad(answer))
    with pytest.raises(da.errors.CapabilityError, match="mine"):
        F(X, F.draw(1))


def test_other_errors_are_explained_and_kept_as_the_cause():
    def answer(x):
        raise KeyError("mine")

    F = session(oracle=Bad(answer))
    with pytest.raises(da.errors.OracleError, match="KeyError: 'mine'") as caught:
        F(X, F.draw(1))
    assert isinstance(caught.value.__cause__, KeyError)
