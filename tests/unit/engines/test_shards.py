"""Shards: cut, owned and added in a way that no number of workers changes."""

import sys
import weakref

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.oracle import Batch
from dualanchor.core.session import Session
from dualanchor.engines import attach, engine_of
from dualanchor.engines.base import EngineOracle
from dualanchor.engines.protocol import assign
from dualanchor.oracles.composite import Composite
from dualanchor.oracles.shards import combined, tree_spans, tree_sum

RNG = np.random.default_rng(0)
A, T = RNG.normal(size=(50, 3)), RNG.normal(size=50)


def sample(x, n, rng):
    return 2 * x + rng.normal(size=(n, x.size)).mean(axis=0)


def line(x, a, t):
    return a * (a @ x - t)[:, None]


def streams(rows=2, **given):
    return da.Streams(3, np.arange(rows), dimension=3, **given)


@pytest.fixture
def engine():
    with da.engines.Local(workers=2, kind="threads") as made:
        yield made


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 8, 32, 33])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 40])
def test_spans_of_workers_add_up_to_the_last_bit(shards, workers):
    parts = np.random.default_rng(shards).normal(size=(shards, 5)) * 10.0 ** np.arange(5)
    whole = tree_sum(lambda shard: parts[shard].copy(), (0, shards))
    given = assign(shards, workers)
    covered = [shard for mine in given for span in mine for shard in range(*span)]
    assert covered == list(range(shards))
    sums = {span: tree_sum(lambda shard: parts[shard].copy(), span) for mine in given for span in mine}
    np.testing.assert_array_equal(combined(sums, shards), whole)
    np.testing.assert_allclose(whole, parts.sum(axis=0), rtol=1e-12, atol=1e-9)


def test_a_power_of_two_workers_hand_over_one_sum_each():
    assert [len(mine) for mine in assign(32, 4)] == [1, 1, 1, 1]
    assert tree_spans(10, 21, 32) == [(10, 12), (12, 16), (16, 20), (20, 21)]


def test_sums_are_let_go_at_once():
    parts = {(0, 1): np.ones(3), (1, 2): np.ones(3)}
    watch = weakref.ref(parts[0, 1])
    combined(parts, 2)
    del parts
    assert watch() is None  # no cycle keeps what may be many large arrays


def test_the_total_is_a_new_array():
    parts = {(0, 1): np.ones(3)}
    combined(parts, 1)[:] = 7
    np.testing.assert_array_equal(parts[0, 1], np.ones(3))


@pytest.mark.parametrize("size", [1, 20, 50, 51, 400])
def test_blocks_of_data_are_the_finite_sum(size):
    finite = da.FiniteSum.from_data((A, T), line)
    blocks = da.engines.ShardedData(line, lambda first, end: (A[first:end], T[first:end]), n=50, shards=7)
    x = np.arange(6.0).reshape(2, 3)
    plain = finite.mean(x, finite.draw(streams(), size))
    np.testing.assert_allclose(blocks.mean(x, blocks.draw(streams(), size)), plain, rtol=1e-12)
    np.testing.assert_allclose(blocks.operator(x), finite.operator(x), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 20, 400])
def test_a_finite_sum_on_an_engine_draws_the_same_components(engine, size):
    u = RNG.normal(size=(2, 50, 3))
    blocks = da.FiniteSum.from_data((A, T), line, sampling="blocks", block=8)
    for finite in (da.FiniteSum.from_data((A, T), line), blocks, da.FiniteSum.rank_one(u)):
        attached = engine.attach(finite)
        assert isinstance(attached, EngineOracle)
        assert attached.knows_operator
        x = np.arange(6.0).reshape(2, 3)
        plain = finite.mean(x, finite.draw(streams(), size))
        np.testing.assert_allclose(attached.mean(x, attached.draw(streams(), size)), plain, rtol=1e-12)
        np.testing.assert_allclose(attached.operator(x), finite.operator(x), rtol=1e-12)
        one = attached.take(np.array([False, True]))
        np.testing.assert_allclose(one.operator(x[1:]), finite.operator(x)[1:], rtol=1e-12)
        again = one.take(np.array([0]))
        np.testing.assert_allclose(again.operator(x[1:]), finite.operator(x)[1:], rtol=1e-12)


def test_everyone_loads_only_his_blocks(engine):
    loaded = []

    def load(first, end):
        loaded.append((first, end))
        return A[first:end], T[first:end]

    oracle = engine.attach(da.engines.ShardedData(line, load, n=50, shards=5))
    for _ in range(3):
        oracle.operator(np.ones((1, 3)))
    assert sorted(loaded) == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]


def test_data_of_another_length_is_turned_down():
    oracle = da.engines.ShardedData(line, lambda first, end: (A, T), n=50, shards=5)
    with pytest.raises(da.errors.OracleError, match="must return 10 rows, not"):
        oracle.operator(np.ones((1, 3)))


def test_a_sampler_has_thirty_two_shards_on_an_engine_and_its_own_number_otherwise(engine):
    x = np.ones((2, 3))
    for oracle, shards in ((da.Sampler(sample), 32), (da.Sampler(sample, shards=5), 5)):
        attached = engine.attach(oracle)
        assert attached.describe()["shards"] == shards
        alone = da.Sampler(sample, shards=shards)
        expected = alone.mean(x, alone.draw(streams(), 100))
        np.testing.assert_array_equal(attached.mean(x, attached.draw(streams(), 100)), expected)
    assert da.Sampler(sample).describe()["shards"] == 1


def test_an_oracle_built_on_another_keeps_its_form(engine):
    composite = Composite(da.Sampler(sample, shards=4), da.prox.box(0, 1), 0.5)
    attached = engine.attach(composite)
    assert isinstance(attached, Composite)
    assert engine_of(attached) is engine
    assert engine_of(composite) is None
    z = np.full((2, 3), 0.3)
    expected = composite.mean(z, composite.draw(streams(), 9))
    np.testing.assert_array_equal(attached.mean(z, attached.draw(streams(), 9)), expected)


class Halves(da.engines.Shardable):
    """Somebody's own oracle: F(x) = x, each of two shards adds a half."""

    def draw(self, streams, size):
        return Batch(size, None)

    def cut(self, batch):
        return 2

    def partial(self, x, batch, shard, out=None):
        return 0.5 * x


class Doubled(da.Oracle):
    """Somebody's own oracle that is built on another."""

    def __init__(self, inner):
        self.inner = inner

    def draw(self, streams, size):
        return self.inner.draw(streams, size)

    def mean(self, x, batch):
        return 2 * self.inner.mean(x, batch)


def test_oracles_of_a_user_declare_what_an_engine_can_compute(engine):
    oracle = Doubled(Doubled(Halves()))
    attached = engine.attach(oracle)
    assert engine_of(attached) is engine
    assert engine_of(oracle) is None
    x = np.ones((2, 3))
    np.testing.assert_array_equal(attached.mean(x, attached.draw(streams(), 8)), 4 * x)


def test_additive_noise_needs_no_engine():
    problem = da.problems.affine(dimension=4)
    with pytest.raises(da.errors.CapabilityError, match="one evaluation of F"):
        da.solve(problem, budget=50, engine="local")


def test_points_of_other_libraries_are_turned_down(engine):
    torch = pytest.importorskip("torch")
    problem = da.Problem(da.Sampler(lambda x, n, rng: 2 * x), torch.ones(3), constants=da.Constants(L=2.0))
    with pytest.raises(da.errors.CapabilityError, match=r"NumPy arrays.*Tensor"):
        da.solve(problem, da.SGDA(0.1, 4), stop=da.Steps(2), engine=engine)


def test_values_come_in_the_precision_of_the_point(engine):
    x = np.ones((2, 3), np.float32)
    for dtype in (np.float64, np.float32, np.int64):
        oracle = engine.attach(da.Sampler(lambda x, n, rngs, to=dtype: (3 * x).astype(to), vectorized=True))
        value = oracle.mean(x, oracle.draw(streams(dtype=np.float32), 64))
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, 3 * x)


def test_complex_values_are_turned_down(engine):
    oracle = engine.attach(da.Sampler(lambda x, n, rngs: x + 1j, vectorized=True))
    with pytest.raises(da.errors.OracleError, match=r"real floating-point numbers. Got dtype complex128 on worker 0"):
        oracle.mean(np.ones((2, 3)), oracle.draw(streams(), 64))


def test_replay_is_found_out_and_a_declaration_is_kept(engine):
    own = np.random.default_rng(0)
    for oracle, expected in (
        (da.Sampler(sample), True),
        (da.Sampler(lambda x, n, rng: own.normal(size=3)), False),
        (da.Sampler(sample, replayable=False), False),
    ):
        assert engine.attach(oracle).is_replayable(np.ones((1, 3)), streams(1)) is expected


def test_rows_with_batches_of_their_own_are_computed_apart(engine):
    methods = [da.SGDA(0.1, 3), da.SGDA(0.1, 40)]
    problem = da.Problem(da.Sampler(sample, shards=8), np.ones(3), constants=da.Constants(L=2.0))
    one = da.solve(problem, methods, stop=da.Steps(5), reps=2)
    other = da.solve(problem, methods, stop=da.Steps(5), reps=2, engine=engine)
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.nfev, other.nfev)


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_an_engine_drops_oracles_that_are_no_longer_used(kind):
    class Data:
        def __call__(self, x, n, rng):
            return x

    def computed(data):
        F = Session(engine.attach(da.Sampler(data)), streams(1))
        F(np.ones((1, 3)), F.draw(64))

    with da.engines.Local(workers=2, kind=kind) as engine:
        data = Data()
        watch = weakref.ref(data)
        computed(data)
        assert kind == "threads" or len(engine._pool._pickles) == 1
        del data
        computed(sample)
        assert watch() is None
        assert kind == "threads" or len(engine._pool._pickles) == 1


def test_another_engine_takes_over(engine):
    with da.engines.Local(workers=1, kind="threads") as other:
        oracle = attach(engine.attach(da.Sampler(sample)), other)
        assert isinstance(oracle, EngineOracle)
        assert engine_of(oracle) is other


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: da.engines.Local(workers=0), "Local: workers"),
        (lambda: da.engines.Local(workers=True), "Local: workers"),
        (lambda: da.engines.Local(kind="fibres"), "'threads', 'processes'"),
        (lambda: da.engines.Local(timeout=0), "Local: timeout"),
        (lambda: da.engines.ShardedData(line, lambda i, j: A, n=0), "ShardedData: n"),
        (lambda: da.solve(da.problems.affine(), budget=9, engine="lokal"), "local"),
        (lambda: da.solve(da.problems.affine(), budget=9, engine=3), "engine must be"),
    ],
)
def test_bad_input_is_explained(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


@pytest.mark.parametrize("name", ["mpi", "ray"])
def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, {"mpi": "mpi4py", "ray": "ray"}[name], None)
    with pytest.raises(da.errors.MissingExtraError, match=rf"pip install 'dualanchor\[{name}\]'"):
        da.solve(da.problems.affine(), budget=9, engine=name)
