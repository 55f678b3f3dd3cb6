"""Finite sums over data: batches of blocks, and batches in kernels."""

import tracemalloc

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.session import Session

N, D, ROWS, BLOCK = 50, 3, 4, 8
RNG = np.random.default_rng(6)
U, T = RNG.normal(size=(N, D)), RNG.normal(size=N)
X = RNG.normal(size=(ROWS, D))


def component(x, u, t):
    return u * (u @ x - t)[:, None]


def in_blocks(**options):
    return da.FiniteSum.from_data((U, T), component, **{"sampling": "blocks", "block": BLOCK, **options})


def streams(rows=ROWS):
    return da.Streams(2, np.arange(rows), dimension=D)


def test_a_batch_is_whole_blocks_from_uniform_starts_the_last_one_cut():
    """23 = 8 + 8 + 7 rows; the starts are the next 3 numbers of the stream, and row 0 follows row 49."""
    oracle = in_blocks(shuffle=None)
    for size in (1, 7, 8, 9, 23, 24, N):
        source, again = streams(), streams()
        batch = oracle.draw(source, size)
        starts = again.integers(N, -(-size // BLOCK))
        assert source.position == again.position
        for row in range(ROWS):
            rows = ((starts[row][:, None] + np.arange(BLOCK)) % N).ravel()[:size]
            expected = component(X[row], U[rows], T[rows]).mean(axis=0)
            np.testing.assert_allclose(oracle.mean(X, batch)[row], expected, rtol=1e-12, atol=1e-14)
        assert batch.size == size


def test_some_of_these_blocks_went_round_the_end():
    """The test above would not see a wrong end otherwise."""
    assert (streams().integers(N, 7) > N - BLOCK).any()


def test_a_batch_larger_than_n_is_counts_of_blocks():
    """150 = 18 blocks of 8 and 6 rows more; counts of starts, summed along the rows."""
    oracle, size = in_blocks(shuffle=None), 150
    batch = oracle.draw(streams(), size)
    for row, rng in enumerate(streams().generators()):
        starts = rng.multinomial(18, np.full(N, 1 / N))
        counts = np.zeros(N)
        for start, times in enumerate(starts):
            counts[(start + np.arange(BLOCK)) % N] += times
        counts[(rng.integers(N) + np.arange(6)) % N] += 1
        assert counts.sum() == size
        expected = counts @ component(X[row], U, T) / size
        np.testing.assert_allclose(oracle.mean(X, batch)[row], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("block", [1, N])
def test_the_smallest_and_the_largest_block(block):
    oracle = in_blocks(block=block, shuffle=None)
    if block == 1:
        single = da.FiniteSum.from_data((U, T), component)
        for size in (1, 9, N, 3 * N):
            mine, other = oracle.mean(X, oracle.draw(streams(), size)), single.mean(X, single.draw(streams(), size))
            np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)
    else:
        for size in (N, 3 * N):
            np.testing.assert_allclose(oracle.mean(X, oracle.draw(streams(), size)), oracle.operator(X), rtol=1e-12)


def test_draws_and_evaluations_are_charged_by_row():
    F = Session(in_blocks(), streams())
    batch = F.draw(11)
    F(X, batch)
    F(X, batch)
    assert (F.draws, F.evals) == (11, 22)
    F(X, F.full_batch())
    assert (F.draws, F.evals) == (11, 22 + N)
    F(X, F.draw(2 * N))
    assert (F.draws, F.evals) == (11 + 2 * N, 22 + 3 * N)


def test_a_full_pass_is_the_mean_over_all_rows():
    expected = np.stack([component(x, U, T).mean(axis=0) for x in X])
    for oracle in (in_blocks(), in_blocks(shuffle=None), in_blocks(shuffle=7)):
        np.testing.assert_allclose(oracle.mean(X, oracle.full_batch()), expected, rtol=1e-12)
        np.testing.assert_allclose(oracle.operator(X), expected, rtol=1e-12)
        assert oracle.components == oracle.operator_price == N


@pytest.mark.parametrize("size", [5, 20, 3 * N])
def test_a_batch_can_be_evaluated_again(size):
    oracle = in_blocks()
    batch = oracle.draw(streams(), size)
    first = oracle.mean(X, batch)
    oracle.mean(2 * X, batch)
    np.testing.assert_array_equal(oracle.mean(X, batch), first)


def test_the_shuffle_follows_its_seed_and_leaves_the_data():
    before = U.copy()
    values = [oracle.mean(X, oracle.draw(streams(), 8)) for oracle in (in_blocks(), in_blocks(shuffle=0))]
    np.testing.assert_array_equal(*values)
    other = in_blocks(shuffle=1)
    assert not np.allclose(values[0], other.mean(X, other.draw(streams(), 8)))
    np.testing.assert_array_equal(U, before)


def test_rows_of_a_run_do_not_depend_on_their_neighbours():
    problem = da.Problem(in_blocks(), np.zeros(D), constants=da.Constants(L=9.0))
    methods = [da.SGDA(0.01, 3), da.SGDA(0.02, 20), da.SGDA(0.03, 70)]  # rows with batches of three sizes
    together = da.solve(problem, methods, budget=300, reps=3)
    for at, method in enumerate(methods):
        for row in range(3):
            alone = da.solve(problem, method, budget=300, reps=[row])
            np.testing.assert_array_equal(together.x[at, row], alone.x[0])


def test_methods_with_full_passes_and_differences_run_on_blocks():
    oracle, x0 = in_blocks(), np.full(D, 5.0)
    problem = da.Problem(oracle, x0, constants=da.Constants(L=9.0))
    for method in (da.HalpernVRFinite(0.025, N), da.HalpernPAGE(0.1, horizon=100)):
        assert da.solve(problem, method, budget=5000).residual < 0.5 * np.linalg.norm(oracle.operator(x0[None]))


def test_a_checkpoint_of_other_blocks_is_refused(tmp_path):
    def run(oracle):
        return da.solve(da.Problem(oracle, np.ones(D)), da.SGDA(0.01), budget=20, checkpoint=tmp_path / "run")

    run(in_blocks())
    run(in_blocks())
    for other in (in_blocks(block=9), in_blocks(shuffle=1), da.FiniteSum.from_data((U, T), component)):
        with pytest.raises(da.errors.CheckpointError, match="oracle"):
            run(other)


@pytest.mark.parametrize(
    ("options", "rule", "received"),
    [
        ({"sampling": "strata"}, "sampling must be one of 'rows', 'blocks'", "'strata'"),
        ({"sampling": "rows"}, "block goes with sampling='blocks'", "block=8"),
        ({"block": 0}, "block must be from 1 to 50", "0"),
        ({"block": N + 1}, "block must be from 1 to 50", "51"),
        ({"block": 2.5}, "block must be an integer", "2.5"),
        ({"block": True}, "block must be an integer", "True"),
        ({"block": None}, "block must be from 1 to 50", "256"),
        ({"shuffle": -1}, "shuffle must be at least 0", "-1"),
        ({"shuffle": "yes"}, "shuffle must be an integer", "'yes'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, rule, received):
    with pytest.raises((da.errors.ArgumentError, da.errors.ArgumentTypeError)) as caught:
        in_blocks(**options)
    assert rule in str(caught.value)
    assert f"Got {received}" in str(caught.value)


# Tiles.

LARGE = 3000
A = RNG.normal(size=(LARGE, D))
B = RNG.normal(size=LARGE)
WAYS = {
    "components": lambda: da.FiniteSum(lambda x, i: component(x, A[i], B[i]), LARGE),
    "rows": lambda: da.FiniteSum.from_data((A, B), component),
    "columns first": lambda: da.FiniteSum.from_data((np.asfortranarray(A), B[::-1][::-1]), component),
    "blocks": lambda: da.FiniteSum.from_data((A, B), component, sampling="blocks", block=100),
    "rank one": lambda: da.FiniteSum.rank_one(A, targets=B),
    "rank one, two tables": lambda: da.FiniteSum.rank_one(A, A[::-1], B),
    "rank one, instances": lambda: da.FiniteSum.rank_one(np.stack([A, A[::-1]]), instance=[0, 1, 1, 0]),
    "linear": lambda: da.FiniteSum.linear(A[:, :, None] * A[:, None, :], A * B[:, None]),
    "linear, no offsets": lambda: da.FiniteSum.linear(A[:, :, None] * A[:, None, :]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tiles_change_nothing_but_rounding(way, dtype, monkeypatch):
    """Tiles of 4096 rows (one for all) against tiles of at most 70; x in single precision has products by tile, too."""
    oracle, x = WAYS[way](), X.astype(dtype)
    batches = [oracle.draw(streams(), size) for size in (1, 71, 2999, 2 * LARGE)] + [oracle.full_batch()]
    expected = [oracle.mean(x, batch) for batch in batches] + [oracle.operator(x)]
    monkeypatch.setattr("dualanchor.oracles.kernels._BYTES", 70 * 8 * D)
    found = [oracle.mean(x, batch) for batch in batches] + [oracle.operator(x)]
    rounding = {"rtol": 1e-11, "atol": 1e-13} if dtype is np.float64 else {"rtol": 1e-5, "atol": 1e-6}
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **rounding)


@pytest.mark.parametrize("sampling", ["rows", "blocks"])
def test_a_component_may_write_into_the_rows_it_is_given(sampling, monkeypatch):
    monkeypatch.setattr("dualanchor.oracles.kernels._BYTES", 70 * 8 * D)
    data = A.copy()

    def away(x, rows):
        rows -= x
        return rows

    oracle = da.FiniteSum.from_data(data, away, sampling=sampling, shuffle=None)
    for batch in (oracle.draw(streams(), 10), oracle.draw(streams(), 999), oracle.full_batch()):
        oracle.mean(X, batch)
    np.testing.assert_allclose(oracle.operator(X), A.mean(axis=0) - X, rtol=1e-12)
    np.testing.assert_array_equal(data, A)


WIDE = RNG.normal(size=(20_000, 60)).astype(np.float32)
TABLES = {
    "rows": lambda: da.FiniteSum.from_data(WIDE, lambda x, a: a - x),
    "part of a table": lambda: da.FiniteSum.from_data(WIDE[:, :50], lambda x, a: a - x[:50].mean() + np.zeros(50)),
    "columns first": lambda: da.FiniteSum.from_data(np.asfortranarray(WIDE), lambda x, a: a - x),
    "blocks": lambda: da.FiniteSum.from_data(WIDE, lambda x, a: a - x, sampling="blocks"),
    "components": lambda: da.FiniteSum(lambda x, i: WIDE[i] - x, len(WIDE)),
    "rank one": lambda: da.FiniteSum.rank_one(WIDE),
    "linear": lambda: da.FiniteSum.linear(WIDE[:16_000].reshape(-1, 20, 20)),
}


@pytest.mark.parametrize("way", TABLES)
def test_a_large_batch_needs_the_memory_of_a_few_tiles(way, monkeypatch):
    """The table has 4.8 MB, the values in double precision 9.6 MB; tiles of 64 kB each, and some bytes per index."""
    monkeypatch.setattr("dualanchor.oracles.kernels._BYTES", 1 << 16)
    oracle = TABLES[way]()
    n = oracle.components
    x = np.zeros((1, {"part of a table": 50, "linear": 20}.get(way, 60)))
    batches = [oracle.draw(streams(1), n), oracle.draw(streams(1), n + 1), oracle.full_batch()]
    oracle.mean(x, batches[0])
    for batch in batches:
        tracemalloc.start()
        oracle.mean(x, batch)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * (1 << 16) + 4 * 8 * n, f"{peak:,} bytes"


# Precision.


@pytest.mark.parametrize("d", [1, 40])
@pytest.mark.parametrize("sampling", ["rows", "blocks"])
@pytest.mark.parametrize("size", [100, 4096, 30_000])
def test_values_in_single_precision_are_added_in_groups(d, sampling, size):
    """All values 0.1 in single precision: the worst case, every rounding has the same sign.

    At most 64 are added in single precision: an error below 64 * 2**-24 = 4e-6 by the standard bound. Added one after
    another in single precision, 30,000 of them would be off by more than 1e-4.
    """
    tenth = np.float32(0.1)
    oracle = da.FiniteSum.from_data(np.full((30_000, d), tenth), lambda x, a: a, sampling=sampling)
    value = oracle.mean(np.zeros((1, d)), oracle.draw(streams(1), size))
    assert np.abs(value / float(tenth) - 1).max() <= 64 * 2.0**-24
    assert abs(np.cumsum(np.full(30_000, tenth))[-1] / (30_000 * float(tenth)) - 1) > 1e-4


@pytest.mark.parametrize("sampling", ["rows", "blocks"])
def test_data_in_single_precision_do_not_round_a_point_in_double_precision(sampling):
    """Least squares with x in double precision: products and sums are double, 1e-12 against extended precision."""
    t = WIDE[:, 0] * 3
    oracle = da.FiniteSum.from_data(
        (WIDE, t), component, sampling=sampling, **({"shuffle": None} if sampling == "blocks" else {})
    )
    x = np.random.default_rng(3).normal(size=60)
    size, source = 10_000, streams(1)
    batch, drawn = oracle.draw(source, size), streams(1).integers(len(WIDE), size)[0]
    rows = drawn if sampling == "rows" else ((drawn[:40, None] + np.arange(256)) % len(WIDE)).ravel()[:size]
    a = WIDE[rows].astype(np.longdouble)
    expected = (a * (a @ x - t[rows])[:, None]).mean(axis=0)
    scale = np.abs(a * (a @ x - t[rows])[:, None]).mean(axis=0)
    assert (np.abs(oracle.mean(x[None], batch)[0] - expected) <= 1e-12 * scale).all()
    assert (np.abs(oracle.mean(x[None].astype(np.float32), batch)[0] - expected) <= 1e-5 * scale).all()


def test_whole_and_half_precision_values_are_added_as_floats():
    """100 values of 30,000 add up to more than half precision or 16 bits hold."""
    for dtype in (np.float16, np.int16):
        oracle = da.FiniteSum.from_data(np.full((100, 2), 30_000, dtype), lambda x, a: a)
        np.testing.assert_allclose(oracle.mean(np.zeros((1, 2)), oracle.draw(streams(1), 90)), 30_000, rtol=1e-6)
