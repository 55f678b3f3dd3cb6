"""A deterministic operator plus noise."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.session import Session

A = np.array([[1.0, 2.0], [-2.0, 1.0]])
X = np.arange(6.0).reshape(3, 2)


def streams():
    return da.Streams(1, np.arange(3), dimension=2)


def test_row_by_row_equals_all_at_once():
    one = da.AdditiveNoise(lambda x: A @ x, 0.5)
    other = da.AdditiveNoise(lambda x: x @ A.T, 0.5, vectorized=True)
    np.testing.assert_allclose(one.mean(X, one.draw(streams(), 3)), other.mean(X, other.draw(streams(), 3)), rtol=1e-14)
    np.testing.assert_allclose(one.operator(X), X @ A.T, rtol=1e-14)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_batch_is_one_vector_scaled(size):
    oracle = da.AdditiveNoise(lambda x: 0 * x, 3.0, vectorized=True)
    source = streams()
    batch = oracle.draw(source, size)
    np.testing.assert_allclose(oracle.mean(X, batch), streams().normals() * 3.0 / np.sqrt(2 * size), rtol=1e-14)
    assert source.position == 1
    assert batch.size == size


def test_no_noise_draws_nothing_and_never_hands_back_its_argument():
    oracle = da.AdditiveNoise(lambda x: x, 0.0, vectorized=True)
    source = streams()
    batch = oracle.draw(source, 4)
    assert batch.data is None
    value = oracle.mean(X, batch)
    assert not np.shares_memory(value, X)


def test_noise_of_ones_own():
    asked = []

    def noise(n, rng):
        asked.append(n)
        return rng.uniform(-1, 1, size=(n, 2)).mean(axis=0)

    oracle = da.AdditiveNoise(lambda x: x, noise=noise)
    F = Session(oracle, streams())
    batch = F.draw(5)
    assert asked == [5, 5, 5]
    np.testing.assert_allclose(F(X, batch) - F(X + 1, batch), -1.0)
    mixed = F(X, F.draw(np.array([2, 3, 2])))
    assert sorted(asked[3:]) == [2, 2, 3]
    source = streams()
    source.position = 1
    for row, n in enumerate((2, 3, 2)):
        rng = source.take(np.array([row])).generators()[0]
        np.testing.assert_allclose(mixed[row], X[row] + rng.uniform(-1, 1, size=(n, 2)).mean(axis=0))


def test_an_operator_with_rows_of_its_own_is_restricted():
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def __call__(self, x):
            return self.scale[:, None] * x

        def take(self, rows):
            return Scaled(self.scale[rows])

    oracle = da.AdditiveNoise(Scaled(np.array([1.0, 2.0, 3.0])), vectorized=True)
    some = oracle.take(np.array([2, 0]))
    np.testing.assert_allclose(some.operator(X[[2, 0]]), [[12.0, 15.0], [0.0, 1.0]])
    problem = da.Problem(oracle, np.ones(2), constants=da.Constants(L=3.0))
    together = da.solve(problem, [da.SGDA(0.1), da.SGDA(1e9), da.SGDA(0.2)], budget=60, reps=3, check=False)
    for row, scale in enumerate((1.0, 2.0, 3.0)):
        np.testing.assert_allclose(together.x[0, row], (1 - 0.1 * scale) ** 60, rtol=1e-12)
        np.testing.assert_allclose(together.x[2, row], (1 - 0.2 * scale) ** 60, rtol=1e-12)


def double_in_place(x, *_):
    x *= 2
    return x


CARELESS = {
    "operator": da.AdditiveNoise(double_in_place, 0.1),
    "operator of all rows": da.AdditiveNoise(double_in_place, 0.1, vectorized=True),
    "component": da.FiniteSum(lambda x, i: np.tile(double_in_place(x), (i.size, 1)), 5),
}


@pytest.mark.parametrize("oracle", CARELESS.values(), ids=CARELESS)
def test_a_function_that_changes_its_argument_does_no_silent_harm(oracle):
    """It gets a copy, or is not allowed to; the iterate is not its to change."""
    careful = da.AdditiveNoise(lambda x: 2 * x, 0.1 if isinstance(oracle, da.AdditiveNoise) else 0.0)
    expected = da.solve(da.Problem(careful, np.ones(2)), da.SGDA(0.1), budget=20, record=3).x
    try:
        result = da.solve(da.Problem(oracle, np.ones(2)), da.SGDA(0.1), budget=20, record=3)
    except da.errors.OracleError:
        return
    np.testing.assert_allclose(result.x, expected, rtol=1e-12)


def test_single_precision_noise_is_single():
    oracle = da.AdditiveNoise(lambda x: x, 1.0, vectorized=True)
    source = da.Streams(1, np.arange(3), dimension=2, dtype=np.float32)
    for size in (3, np.array([1, 2, 3])):
        value = oracle.mean(X.astype(np.float32), oracle.draw(source, size))
        assert value.dtype == np.float32


def test_an_oracle_may_scale_what_it_draws_in_place():
    """The sequence of a stream survives, so a run that goes back to an earlier step finds the same numbers."""

    class InPlace(da.Oracle):
        mixed_sizes = True

        def draw(self, streams, size):
            xi = np.asarray(streams.normals())
            if not xi.flags.writeable:
                xi = xi.copy()
            xi *= 1e-3
            return da.Batch(size, xi)

        def mean(self, x, batch):
            return x * np.abs(x) + batch.data

    start = np.array([[1.0, 1.0], [21.0, 0.0]])  # the second row diverges, and the run goes back to find out where
    options = {"stop": da.Steps(60), "reps": 2, "x0": start, "record": 0}
    watched = da.solve(da.Problem(InPlace(), np.ones(2)), da.SGDA(0.1), callback=lambda x: None, **options)
    quiet = da.solve(da.Problem(InPlace(), np.ones(2)), da.SGDA(0.1), **options)
    assert quiet.status[1] is da.Status.DIVERGED
    np.testing.assert_array_equal(watched.x, quiet.x)
