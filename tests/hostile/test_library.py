"""Extreme numbers, failing proxes and unusual arrays: an error in three parts or an honest result."""

import itertools
import warnings
from contextlib import suppress

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentError, AssumptionWarning, DualAnchorError, OracleError


def sample(x, n, rng):
    return x + 0.1 * rng.normal(size=np.shape(x)) / n**0.5


EXTREME = [
    {"eps": 1e-300},
    {"eps": 1e-90},
    {"eps": 1e300},
    {"eps": 0.1, "confidence": 1 - 1e-16},
    {"eps": 0.1, "confidence": 1 - 1e-9},
    {"eps": 0.1, "confidence": 1e-300},
    {"eps": 0.1, "sigma": 1e-300},
    {"eps": 0.1, "sigma": 1e-99},
    {"eps": 0.1, "sigma": 1e99, "D": 1.0},
    {"eps": 1e-99, "sigma": 1.0, "D": 1.0},
    {"eps": 0.1, "sigma": 1.0, "D": 1e99},
    {"eps": 0.1, "mu": 1e-99},
    {"eps": 0.1, "M": 1e99, "mu": 1e-99, "L": None},
    {"eps": 0.1, "L": 1e99},
    {"eps": 0.1, "L": 1e-99},
    {"budget": 500, "L": 1e99},
    {"budget": 500, "L": 1e-99},
    {"budget": 500, "M": 1e99, "L": None},
    {"budget": 10**30},
    {"budget": 500, "reps": 10**12},
]


@pytest.mark.parametrize("given", EXTREME, ids=str)
def test_extreme_numbers(given, no_hang):
    limit = {"max_samples": 5000} if "eps" in given else {}
    with no_hang(), warnings.catch_warnings(), suppress(DualAnchorError):
        warnings.simplefilter("ignore", AssumptionWarning)
        result = da.root(sample, np.ones(2), **{"L": 1.0, **limit, **given})
        repr(result)
        assert not result.success or np.linalg.norm(result.x) <= min(given.get("eps", 2.0), 2.0)


@pytest.mark.parametrize("name", ["eps", "sigma", "L", "D", "mu", "M"])
@pytest.mark.parametrize("value", [1e-300, 1e300, 1e154, 1e-154])
def test_numbers_whose_squares_overflow_are_refused(name, value):
    given = {"eps": 0.1, "L": 1.0, "sigma": 1.0, "D": 1.0, name: value}
    with pytest.raises(ArgumentError, match=f"{name} must be of a size from"):
        da.plan(**given)


BAD = {
    "raises": lambda z: 1 / 0,
    "shape": lambda z: np.ones(7),
    "none": lambda z: None,
    "text": lambda z: "x",
    "ragged": lambda z: [[1], [2, 3]],
    "complex": lambda z: z * 1j,
    "masked": lambda z: np.ma.array(z, mask=True),
}


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
@pytest.mark.parametrize("after", [0, 3, 60, 300])
@pytest.mark.parametrize("bad", BAD)
def test_a_prox_that_fails_at_the_start_or_later(bad, after, shape):
    calls = itertools.count()

    def prox(z, step):
        return np.clip(z, 0, 1) if next(calls) < after else BAD[bad](z)

    with pytest.raises((ArgumentError, OracleError)):
        da.root(sample, np.ones(shape), prox=prox, L=1.0, budget=2000)
    assert next(calls) > after


@pytest.mark.parametrize("bad", BAD)
def test_check_prox_says_what_is_wrong(bad):
    with pytest.raises((ArgumentError, OracleError)):
        da.prox.check_prox(lambda z, step: BAD[bad](z), np.ones(2))


MASKED = np.ma.array([1.0, 2.0], mask=[False, True])
PROBLEM = da.problems.affine(dimension=2, sigma=0.1)


@pytest.mark.parametrize(
    "use",
    [
        lambda: da.root(sample, MASKED, budget=100, L=1.0),
        lambda: da.root(sample, [MASKED, MASKED], budget=100, L=1.0),
        lambda: da.solve(PROBLEM, da.SGDA(0.1), budget=50, x0=MASKED),
        lambda: da.certify(sample, MASKED, samples=64),
        lambda: da.calibrate(sample, MASKED, samples=200),
        lambda: da.Problem(da.Sampler(sample), MASKED),
        lambda: da.root(lambda x, n, rng: np.ma.array(x, mask=[0, 1]), np.ones(2), budget=100, L=1.0),
    ],
)
def test_masked_entries_are_no_numbers(use):
    with pytest.raises((ArgumentError, OracleError), match=r"no masked entries\. Got 1 of 2"):
        use()


def test_a_masked_array_without_masked_entries_is_an_array():
    result = da.root(sample, np.ma.array([1.0, 2.0]), budget=100, L=1.0)
    assert np.array_equal(result.x, da.root(sample, np.array([1.0, 2.0]), budget=100, L=1.0).x)


def test_longer_floats_become_doubles():
    result = da.root(sample, np.ones(2, np.longdouble), budget=100, L=1.0)
    assert result.x.dtype == np.float64
    assert np.array_equal(result.x, da.root(sample, np.ones(2), budget=100, L=1.0).x)
    with pytest.raises(ArgumentError, match="finite"):
        da.root(sample, np.array([np.longdouble(10) ** 400]), budget=100, L=1.0)
