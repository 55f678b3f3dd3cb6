"""Any shape goes in and comes out again, at all four doors, alone and in replications."""

import numpy as np
import pytest
from tests.unit.front.samplers import Counted, saddle_pair

import dualanchor as da

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

STARTS = {
    "scalar": 0.0,
    "int": 0,
    "vector": np.zeros(3),
    "list of ints": [0, 0],
    "matrix": np.zeros((2, 3)),
    "column": np.zeros((3, 1)),
    "cube": np.zeros((2, 1, 2)),
    "float32": np.zeros((2, 2), np.float32),
}
ROUTES = {"budget": {"budget": 200, "L": 1.0}, "eps": {"eps": 0.3}, "planned": {"eps": 0.3, "sigma": 0.3, "D": 3.0}}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("route", ROUTES)
def test_root(start, route):
    x0, seen = STARTS[start], []

    def sample(x, n, rng):
        seen.append((np.shape(x), np.asarray(x).dtype))
        return x - 1 + 0.1 * rng.normal(size=np.shape(x)) / np.sqrt(n)

    keywords = {"L": 1.0, **ROUTES[route]}
    result = da.root(sample, x0, **keywords)
    expected = np.asarray(x0)
    kind = np.float32 if start == "float32" else np.float64
    assert set(seen) == {(expected.shape, np.dtype(kind))}
    assert np.shape(result.x) == expected.shape
    assert result.x.dtype == kind
    assert np.all(np.abs(result.x - 1) < 0.4)
    several = da.root(sample, x0, reps=2, **keywords)
    assert several.x.shape == (2, *expected.shape)
    np.testing.assert_allclose(several.x[0], result.x, rtol=1e-5 if start == "float32" else 1e-12)


@pytest.mark.parametrize("start", STARTS)
def test_fixed_point(start):
    x0 = STARTS[start]
    result = da.fixed_point(Counted(lambda x: 1 + (x - 1) / 2), x0, budget=400)
    assert np.shape(result.x) == np.shape(x0)
    assert np.all(np.abs(result.x - 1) < 0.4)


@pytest.mark.parametrize("start", [s for s in STARTS if s != "int"])
@pytest.mark.parametrize("reps", [1, 2])
def test_inclusion(start, reps):
    x0 = STARTS[start]
    lead = () if reps == 1 else (reps,)
    result = da.inclusion(Counted(lambda x: x - 2), lambda z, step: np.clip(z, 0, 1), x0, budget=400, L=1.0, reps=reps)
    assert np.shape(result.x) == lead + np.shape(x0)
    np.testing.assert_allclose(result.x, 1)
    seen = []
    da.inclusion(
        Counted(), lambda z, step: np.clip(z, 0, 1), x0, budget=400, L=1.0, reps=reps, callback=lambda x: seen.append(x)
    )
    assert {np.shape(x) for x in seen} == {lead + np.shape(x0)}
    assert all(np.all((x >= 0) & (x <= 1)) for x in seen)


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 2), ()), ((), ()), ((1, 2), (2, 1))])
@pytest.mark.parametrize("reps", [1, 3])
def test_saddle(shapes, reps):
    sample_u, sample_v, _ = saddle_pair()
    x0 = tuple(np.zeros(shape) for shape in shapes)
    result = da.saddle(sample_u, sample_v, x0, budget=1000, L=4.0, reps=reps)
    lead = () if reps == 1 else (reps,)
    assert isinstance(result.x, tuple)
    assert [np.shape(block) for block in result.x] == [lead + shape for shape in shapes]
    seen = []
    da.saddle(sample_u, sample_v, x0, budget=200, L=4.0, reps=reps, callback=lambda x: seen.append(x))
    assert [np.shape(block) for block in seen[0]] == [lead + shape for shape in shapes]


def test_a_saddle_point_is_found():
    sample_u, sample_v, _ = saddle_pair(0.0)
    u, v = da.saddle(sample_u, sample_v, (0.0, 0.0), budget=400, L=2.0).x
    assert abs(u - 16 / 17) < 1e-3  # u - 1 + v/4 = 0 and u/4 - v = 0
    assert abs(v - 4 / 17) < 1e-3


def test_a_result_can_be_a_start():
    first = da.root(Counted(), np.zeros((2, 2)), budget=200, L=1.0)
    assert da.root(Counted(), first, budget=200, L=1.0).x.shape == (2, 2)
    sample_u, sample_v, _ = saddle_pair()
    pair = da.saddle(sample_u, sample_v, (np.zeros(2), 0.0), budget=200, L=4.0)
    assert np.shape(da.saddle(sample_u, sample_v, pair, budget=200, L=4.0).x[0]) == (2,)


def test_the_start_is_left_alone_and_arguments_are_passed_on():
    x0 = np.zeros(2)
    result = da.root(lambda x, n, rng, shift, scale: scale * (x - shift), x0, args=(3.0, 2.0), budget=200, L=2.0)
    np.testing.assert_allclose(result.x, 3.0, rtol=1e-3)
    assert not x0.any()


@pytest.mark.parametrize("door", ["root", "fixed_point"])
def test_an_oracle_can_be_given_as_it_is(door):
    oracle = da.AdditiveNoise(lambda x: x - 1 if door == "root" else 1 + 0 * x, 0.1)
    result = getattr(da, door)(oracle, np.zeros(3), budget=400, L=1.0)
    assert result.residual_kind == "true"
    assert result.residual == pytest.approx(np.linalg.norm(result.x - 1))


@pytest.mark.parametrize("start", ["scalar", "matrix"])
def test_what_follows_a_run_takes_its_result(start):
    x0, seen = STARTS[start], set()

    def sample(x, n, rng):
        seen.add(np.shape(x))
        return 2 * (x - 1) + rng.normal(size=np.shape(x)) / np.sqrt(n)

    result = da.root(sample, x0, budget=500)
    certificate = da.certify(sample, result, samples=512)
    inference = result.infer(sample, samples=512)
    calibration = da.calibrate(sample, result, 500)
    assert seen == {np.shape(x0)}
    assert certificate.upper < 1
    assert np.all(np.abs(inference.estimate - 1) < 5 * inference.std_errors)
    assert calibration.dimension == np.size(x0)


def test_a_number_is_a_point():
    def sample(x, n, rng):
        assert np.shape(x) == ()
        return x - 1 + rng.normal(size=n)

    assert da.certify(sample, 1.0, samples=512).upper < 0.2
    assert abs(da.calibrate(sample, 0.0, 500).residual - 1) < 0.3


def test_a_gradient_may_be_n_samples_as_at_the_other_doors():
    def samples(sign):
        return lambda u, v, n, rng: (u + sign * v) + rng.normal(size=(n, 2))

    def mean(sign):
        return lambda u, v, n, rng: samples(sign)(u, v, n, rng).mean(axis=0)

    start, options = (np.ones(2), np.ones(2)), {"budget": 400, "L": 4.0, "batch": 3}
    many = da.saddle(samples(1), samples(-1), start, **options)
    one = da.saddle(mean(1), mean(-1), start, **options)
    np.testing.assert_array_equal(np.concatenate(many.x), np.concatenate(one.x))


@pytest.mark.parametrize("keywords", [{"M": 1.0}, {"L": 1.0}, {"M": 1.0, "sigma": 0.3, "D": 3.0}])
@pytest.mark.parametrize("bounds", [None, (0.0, 2.0)])
def test_a_constant_from_numpy_does_not_raise_the_precision(keywords, bounds):
    """With a prox, a NumPy scalar M gave an x in double precision."""
    from_numpy = {name: np.float64(value) for name, value in keywords.items()}
    x0 = np.zeros(2, np.float32)
    plain, other = (da.root(Counted(), x0, budget=600, bounds=bounds, **given).x for given in (keywords, from_numpy))
    assert other.dtype == np.float32
    np.testing.assert_array_equal(other, plain)
