"""A user's own sampling function."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.session import Session

X = np.arange(12.0).reshape(4, 3)


def sample(x, n, rng):
    return 2 * x + rng.normal(size=(n, x.size)).mean(axis=0)


def vector(x, n, rngs):
    return np.stack([sample(row, n, rng) for row, rng in zip(x, rngs, strict=True)])


def problem(function, x0=(1.0, 1.0, 1.0), **options):
    return da.Problem(da.Sampler(function, **options), list(x0), constants=da.Constants(L=2.0))


def streams(rows=4):
    return da.Streams(3, np.arange(rows), dimension=3)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("vectorized", [False, True])
def test_a_batch_has_the_same_samples_at_another_point(shards, vectorized):
    oracle = da.Sampler(vector if vectorized else sample, shards=shards, vectorized=vectorized)
    source = streams()
    batch, later = oracle.draw(source, 5), oracle.draw(source, 5)
    first = oracle.mean(X, batch)
    oracle.mean(X, later)
    moved = oracle.mean(X + 1, batch)
    np.testing.assert_allclose(moved - first, 2.0, rtol=1e-12)
    np.testing.assert_array_equal(oracle.mean(X, batch), first)
    assert not np.array_equal(oracle.mean(X, later), first)


def test_all_rows_at_once_equals_row_by_row():
    methods = [da.HalpernPAGE(0.3, 5, 2), da.HalpernPAGE(0.3, 4, 1)]
    one = da.solve(problem(sample), methods, budget=100, reps=3)
    other = da.solve(problem(vector, vectorized=True), methods, budget=100, reps=3)
    np.testing.assert_array_equal(one.x, other.x)


def test_a_function_of_one_sample_is_called_for_each():
    calls = []

    def single(x, rng):
        calls.append(1)
        return x + rng.normal(size=x.size)

    oracle = da.Sampler.from_single(single)
    value = oracle.mean(X[:1], oracle.draw(streams(1), 6))
    assert len(calls) == 6
    rng = streams(1).sources[0].generator(0)
    np.testing.assert_allclose(value[0], X[0] + rng.normal(size=(6, 3)).mean(axis=0), rtol=1e-12)
    result = da.solve(problem(sample), "sgda", budget=4)
    assert result.nfev == 4
    listed = da.Sampler.from_single(lambda x, rng: [1, 2, 3], shards=2)
    np.testing.assert_allclose(listed.mean(X, listed.draw(streams(), 5)), [[1, 2, 3]] * 4)


def rows(x, n, rng):
    return 2 * x + rng.normal(size=(n, *x.shape))


@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("n", [1, 5])
def test_samples_may_be_returned_as_rows(n, shards):
    """n samples of shape (n, d) count as their mean, whatever the batch is cut into."""
    one, other = (da.Sampler(function, shards=shards) for function in (rows, sample))
    values = [oracle.mean(X, oracle.draw(streams(), n)) for oracle in (one, other)]
    np.testing.assert_allclose(*values, rtol=1e-12)


def test_rows_of_samples_of_any_shape():
    """With d = n the shape of x comes first: a mean is a mean, not n samples of numbers."""
    oracle = da.Sampler(rows, shape=(3, 1))
    value = oracle.mean(X, oracle.draw(streams(), 3))
    rng = streams().sources[2].generator(0)
    np.testing.assert_allclose(value[2], 2 * X[2] + rng.normal(size=(3, 3)).mean(axis=0), rtol=1e-12)
    plain = da.Sampler(lambda x, n, rng: 2 * x)
    np.testing.assert_array_equal(plain.mean(X, plain.draw(streams(), 3)), 2 * X)


def test_each_is_a_sampler_of_single_samples():
    def single(x, rng):
        return x - rng.exponential(size=x.shape)

    mean = da.each(single)(X[0], 4, np.random.default_rng(1))
    expected = X[0] - np.random.default_rng(1).exponential(size=(4, 3)).mean(axis=0)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    by_hand, wrapped = (da.solve(problem(f), da.SGDA(0.1, 3), budget=30).x for f in (rows, da.each(each_row)))
    np.testing.assert_allclose(by_hand, wrapped, rtol=1e-10)
    with pytest.raises(TypeError, match=r"each: sample must accept \(x, rng\)"):
        da.each(sample)


def each_row(x, rng):
    return 2 * x + rng.normal(size=x.shape)


def test_shards_have_generators_of_their_own_and_are_weighted_by_size():
    seen = []

    def first(x, n, rng):
        seen.append((n, rng.random()))
        return np.full(x.size, float(n))

    oracle = da.Sampler(first, shards=3)
    value = oracle.mean(X[:1], oracle.draw(streams(1), 8))
    assert [n for n, _ in seen] == [3, 3, 2]
    assert len({number for _, number in seen}) == 3
    np.testing.assert_allclose(value, (9 + 9 + 4) / 8)
    seen.clear()
    oracle.mean(X[:1], oracle.draw(streams(1), 2))
    assert [n for n, _ in seen] == [1, 1]


def test_results_depend_on_shards_and_on_nothing_else():
    runs = {shards: da.solve(problem(sample, shards=shards), da.SGDA(0.1, 4), budget=80).x for shards in (1, 2, 4)}
    assert len({x.tobytes() for x in runs.values()}) == 3
    np.testing.assert_array_equal(runs[2], da.solve(problem(sample, shards=2), da.SGDA(0.1, 4), budget=80).x)


class Simulator:
    """Randomness of its own, which no generator handed over can repeat."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.calls = 0

    def __call__(self, x, n, rng):
        self.calls += 1
        return 2 * x + self.rng.normal(size=x.size) / np.sqrt(n)


def test_a_simulator_with_randomness_of_its_own_is_legal():
    for method in (da.DualOHM(0.5, 50), da.OHM(0.5, 50), da.SGDA(0.1), da.SEG(0.1), da.RAIN(0.1)):
        for declared in (None, False):
            simulator = Simulator()
            result = da.solve(problem(simulator, replayable=declared), method, budget=60, reps=2, record=0)
            assert np.isfinite(result.x).all()
            assert simulator.calls == result.nfev.sum()


@pytest.mark.parametrize("method", [da.HalpernPAGE(0.5), da.DualOHM(0.5, 9, estimator=da.PAGE(5, 1))], ids=str)
def test_it_is_found_out_and_refused_where_one_batch_is_needed_at_two_points(method):
    for declared in (None, False):
        with pytest.raises(da.errors.CapabilityError, match="two points"):
            da.solve(problem(Simulator(), replayable=declared), method, budget=60)
    for declared in (None, True):
        assert da.solve(problem(sample, replayable=declared), method, budget=60).success


def test_finding_out_is_not_charged_and_changes_no_sample():
    declared = da.solve(problem(sample, replayable=True), da.HalpernPAGE(0.5), budget=60, reps=2)
    found = da.solve(problem(sample), da.HalpernPAGE(0.5), budget=60, reps=2)
    np.testing.assert_array_equal(declared.x, found.x)
    np.testing.assert_array_equal(declared.nfev, found.nfev)


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_function_that_fails_when_it_is_tried_out_is_explained(vectorized):
    def fail(x, n, rng):
        raise ZeroDivisionError("a defect of the sampler")

    with pytest.raises(da.errors.OracleError, match="a defect of the sampler"):
        da.solve(problem(fail, vectorized=vectorized), da.HalpernPAGE(0.5), budget=60)


def test_the_point_handed_over_can_be_changed_without_harm():
    def careless(x, n, rng):
        x *= 2
        return x

    def careful(x, n, rng):
        return 2 * x

    for method in (da.SGDA(0.1), da.HalpernPAGE(0.1, 3, 1), da.RAIN(0.1)):
        one, other = (da.solve(problem(f), method, budget=40).x for f in (careless, careful))
        np.testing.assert_array_equal(one, other)


def test_whole_numbers_from_the_function_are_numbers():
    result = da.solve(problem(lambda x, n, rng: np.sign(x).astype(int)), da.SGDA(0.3), budget=2)
    np.testing.assert_allclose(result.x, 0.4)
    result = da.solve(problem(lambda x, n, rng: [1, 0, 0]), da.SGDA(0.5), budget=2)
    np.testing.assert_allclose(result.x, [0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x, n, rng: x[:2], r"shape \(2,\) for x of shape \(3,\)"),
        (lambda x, n, rng: rng.normal(size=(n + 1, 3)), r"shape \(5, 3\) for x of shape \(3,\) and n = 4"),
        (lambda x, n, rng: 1.0, r"shape \(\)"),
        (lambda x, n, rng: None, "Sampler: sample must return .* Got None"),
        (lambda x, n, rng: x * 1j, "dtype complex128"),
        (lambda x, n, rng: ["a", "b", "c"], "dtype"),
        (lambda x, n, rng: x * np.nan, "NaN"),
        (lambda x, n, rng: 1 / 0, "ZeroDivisionError"),
    ],
    ids=["short", "too many rows", "number", "nothing", "complex", "text", "nan", "raises"],
)
def test_what_is_not_a_mean_of_samples_is_explained(function, match):
    with pytest.raises(da.errors.OracleError, match=match) as caught:
        da.solve(problem(function), da.SGDA(0.1, 4), budget=40)
    assert "iteration 0, row 0" in str(caught.value)
    assert caught.value.result.nit == 0


def test_rows_with_different_sizes_draw_their_own():
    oracle = da.Sampler(sample)
    F = Session(oracle, streams())
    sizes = np.array([2, 5, 2, 1])
    value = F(X, F.draw(sizes))
    for row, size in enumerate(sizes):
        rng = streams().sources[row].generator(0)
        np.testing.assert_allclose(value[row], sample(X[row], int(size), rng), rtol=1e-12)
