"""Choosing among points by certificates."""

import numpy as np
import pytest

import dualanchor as da

pytestmark = pytest.mark.slow


def sample(x, n, rng):
    return x - 1 + rng.normal(size=(n, 3)).mean(axis=0)


def test_the_best_point_is_chosen_and_the_claim_is_about_it():
    points = [np.zeros(3), np.full(3, 0.99), np.full(3, 1.5)]
    number, certificate = da.best_of(sample, points, samples=6000)
    assert number == 1
    assert certificate.upper >= np.linalg.norm(points[1] - 1)
    assert certificate.confidence == 0.95
    assert certificate.samples <= 2000
    alone = da.certify(sample, points[1], samples=2000, seed=1)
    assert certificate.upper > alone.upper  # the price of having chosen by looking


@pytest.mark.no_cover
def test_choosing_by_looking_keeps_the_confidence():
    """Five equally bad points: the smallest of plain 95 % bounds would be wrong far too often (false failure 1e-6)."""
    points = [np.ones(3) + 0.2 * np.eye(3)[i % 3] for i in range(5)]
    wrong = sum(da.best_of(sample, points, samples=5 * 64, seed=100 * i)[1].upper < 0.2 for i in range(200))
    assert wrong <= 28  # binomial with p = 0.05: more than 28 of 200 has probability below 1e-6


def test_results_can_be_candidates_and_bad_input_is_named():
    problem = da.problems.affine(dimension=4, sigma=0.3)
    results = [da.solve(problem, name, budget=600) for name in ("s-dual-ohm", "averaged")]
    number, certificate = da.best_of(problem, results, samples=4000)
    assert results[number].residual <= certificate.upper
    with pytest.raises(da.errors.ArgumentError, match="there must be a candidate"):
        da.best_of(sample, [], samples=100)
    with pytest.raises(da.errors.ArgumentError, match=r"best_of: samples must be at least 160. Got 100\."):
        da.best_of(sample, [np.zeros(3)] * 10, samples=100)


def test_candidates_of_any_shape_are_single_points():
    def of_square(x, n, rng):
        assert x.shape == (2, 2)
        return x - 1 + rng.normal(size=(n, 2, 2))

    near, far = np.full((2, 2), 1.1), np.zeros((2, 2))
    assert da.best_of(of_square, [far, near], samples=2000)[0] == 1
    result = da.root(of_square, far, budget=2000)
    assert da.best_of(of_square, [far, result], samples=2000)[0] == 1
    assert da.best_of(da.Sampler(of_square, shape=(2, 2)), [far.ravel(), result], samples=2000)[0] == 1
    with pytest.raises(da.errors.ArgumentError, match="each candidate must be one point"):
        da.best_of(da.Sampler(sample), [np.zeros((2, 3))], samples=100)
