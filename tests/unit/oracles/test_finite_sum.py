"""Finite sums: four ways to write the same one."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.session import Session

N, D, ROWS = 7, 3, 4
RNG = np.random.default_rng(5)
U, V, T = RNG.normal(size=(N, D)), RNG.normal(size=(N, D)), RNG.normal(size=N)
X = RNG.normal(size=(ROWS, D))


def component(x, i):
    return U[i] * (V[i] @ x - T[i])[:, None]


WAYS = {
    "general": da.FiniteSum(component, N),
    "from_data": da.FiniteSum.from_data((U, V, T), lambda x, u, v, t: u * (v @ x - t)[:, None]),
    "rank_one": da.FiniteSum.rank_one(U, V, T),
    "linear": da.FiniteSum.linear(U[:, :, None] * V[:, None, :], U * T[:, None]),
    "rank_one, two instances": da.FiniteSum.rank_one(
        np.stack([U + 1, U]), np.stack([V, V]), np.stack([T, T]), instance=[1] * ROWS
    ),
    "linear, two instances": da.FiniteSum.linear(
        np.stack([U[:, :, None] * V[:, None, :]] * 2), np.stack([U * T[:, None]] * 2), instance=[1, 0, 1, 0]
    ),
}
every_way = pytest.mark.parametrize("oracle", WAYS.values(), ids=WAYS)


def streams():
    return da.Streams(2, np.arange(ROWS), dimension=D)


@every_way
@pytest.mark.parametrize("size", [1, 2, N, N + 1, 40])
def test_a_batch_is_the_mean_of_its_components(oracle, size):
    batch = oracle.draw(streams(), size)
    assert batch.size == size
    value = oracle.mean(X, batch)
    reference = WAYS["general"]
    np.testing.assert_allclose(value, reference.mean(X, reference.draw(streams(), size)), rtol=1e-12, atol=1e-13)
    assert value.shape == X.shape


@every_way
def test_the_operator_is_the_mean_of_all_components(oracle):
    expected = np.stack([component(x, np.arange(N)).mean(axis=0) for x in X])
    np.testing.assert_allclose(oracle.operator(X), expected, rtol=1e-12)
    full = oracle.full_batch()
    assert full.size == N
    np.testing.assert_allclose(oracle.mean(X, full), expected, rtol=1e-12)
    assert oracle.components == N


@every_way
def test_a_run_is_the_same_however_the_sum_is_written(oracle):
    results = []
    for one in (oracle, WAYS["general"]):
        problem = da.Problem(one, np.zeros(D), constants=da.Constants(L=4.0))
        results.append(da.solve(problem, da.HalpernVRFinite(0.01, N), budget=150, reps=ROWS))
        results.append(da.solve(problem, da.SGDA(0.01, [1, 9] * 20), budget=150, reps=ROWS))
    for mine, theirs in ((results[0], results[2]), (results[1], results[3])):
        np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-10)
        np.testing.assert_array_equal(mine.nfev, theirs.nfev)


def test_indices_are_read_one_after_another():
    """A batch of 10 reads 10k .. 10k + 9, so the samples of a row do not depend on how they are cut into batches."""
    oracle = da.FiniteSum(component, 50)
    whole, pieces = streams(), streams()
    together = oracle.draw(whole, 12).data
    apart = [oracle.draw(pieces, size).data for size in (5, 1, 6)]
    np.testing.assert_array_equal(np.concatenate(apart, axis=1), together)
    assert whole.position == pieces.position == 12


def test_only_a_batch_larger_than_n_is_drawn_as_counts():
    """Up to n a batch is n indices and n positions of the stream; beyond, counts and one position."""
    oracle, source = WAYS["general"], streams()
    assert oracle.draw(source, N).data.shape == (ROWS, N)
    assert source.position == N
    oracle.draw(source, N + 1)
    assert source.position == N + 1


def test_counts_of_a_large_batch_sum_to_its_size():
    oracle = WAYS["general"]
    batch = oracle.draw(streams(), 1000)
    counts = batch.data.counts
    assert counts.shape == (ROWS, N)
    np.testing.assert_array_equal(counts.sum(axis=1), 1000)
    assert (counts > 50).all()  # mean 143, standard deviation 11: below 50 is beyond 8 standard deviations
    assert not np.array_equal(counts[0], counts[1])


def test_a_batch_can_be_evaluated_at_another_point():
    for oracle in WAYS.values():
        for size in (3, 30):
            batch = oracle.draw(streams(), size)
            first = oracle.mean(X, batch)
            oracle.mean(2 * X, batch)
            np.testing.assert_array_equal(oracle.mean(X, batch), first)


def test_rows_can_be_taken():
    for name, oracle in WAYS.items():
        some = np.array([3, 1])
        part = oracle.take(some)
        full = oracle.operator(X)[some]
        np.testing.assert_allclose(part.operator(X[some]), full, rtol=1e-12, err_msg=name)
        masked = oracle.take(np.array([False, True, False, True]))
        np.testing.assert_allclose(masked.operator(X[[1, 3]]), oracle.operator(X)[[1, 3]], rtol=1e-12)


def test_one_instance_per_replication():
    tables = RNG.normal(size=(3, N, D))
    oracle = da.FiniteSum.rank_one(tables)
    x = RNG.normal(size=(3, D))
    value = oracle.operator(x)
    for row in range(3):
        np.testing.assert_allclose(value[row], da.FiniteSum.rank_one(tables[row]).operator(x[row : row + 1])[0])
    problem = da.Problem(oracle, np.ones(D), constants=da.Constants(L=9.0))
    together = da.solve(problem, [da.SGDA(0.05), da.SGDA(0.01, 20)], budget=60, reps=3)
    for row in range(3):
        single = da.Problem(da.FiniteSum.rank_one(tables[row]), np.ones(D), constants=da.Constants(L=9.0))
        alone = da.solve(single, [da.SGDA(0.05), da.SGDA(0.01, 20)], budget=60, reps=row + 1)
        np.testing.assert_allclose(together.x[:, row], alone.x[:, row], rtol=1e-12)


def test_whole_numbers_become_floats():
    oracle = da.FiniteSum.rank_one([[1, 0], [0, 2]], targets=[1, 1])
    np.testing.assert_allclose(oracle.operator(np.zeros((1, 2))), [[-0.5, -1.0]])
    oracle = da.FiniteSum.linear([[[1, 0], [0, 1]]])
    np.testing.assert_allclose(oracle.operator(np.ones((1, 2))), [[1.0, 1.0]])


def test_single_precision_stays():
    oracle = da.FiniteSum.rank_one(U.astype(np.float32))
    x = X.astype(np.float32)
    assert oracle.mean(x, oracle.draw(streams(), 3)).dtype == np.float32
    assert oracle.operator(x).dtype == np.float32
    assert WAYS["general"].operator(x).dtype == np.float32


def test_large_sums_are_passed_in_blocks():
    asked = []

    def ask(x, i):
        asked.append(i.size)
        return np.tile(x, (i.size, 1)) * (i[:, None] + 1.0)

    oracle = da.FiniteSum(ask, 10_000)
    np.testing.assert_allclose(oracle.operator(np.ones((1, 2))), 5000.5)
    assert sum(asked) == 10_000
    assert max(asked) <= 4096
    assert oracle.operator_price == 10_000


def test_a_wrong_shape_of_components_says_what_is_right():
    oracle = da.FiniteSum(lambda x, i: x, N)
    F = Session(oracle, streams())
    with pytest.raises(da.errors.OracleError, match=r"must return shape \(2, 3\), one row per index") as caught:
        F(X, F.draw(2))
    assert caught.value.row == 0
    problem = da.Problem(oracle, np.zeros(D), constants=da.Constants(L=1.0))
    with pytest.raises(da.errors.OracleError, match="at iteration 0, row 0"):
        da.solve(problem, "sgda", budget=9, record=[])


@pytest.mark.parametrize("seed", range(3))
def test_indices_are_uniform(seed):
    """Every index of 0 .. 8 turns up about equally: counts of 9,000 are within 5 standard deviations of 1,000."""
    indices = da.Streams(seed, np.arange(1), dimension=1).integers(9, 9000)
    counts = np.bincount(indices[0], minlength=9)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(9000 * (1 / 9) * (8 / 9))
