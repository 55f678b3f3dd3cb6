"""What a run's own samples say about the residual on its way."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.trail import LARGEST, Trail

A = np.array([[1.0, 2.0], [-2.0, 1.0]])


def sample(x, n, rng):
    return (A @ x).ravel() - [5.0, 0.0] + rng.normal(size=(n, 2)).mean(axis=0)


def test_estimates_have_no_bias_from_noise():
    # The mean of 2,000 products has a standard error of 0.016: false failures 1 in 10,000. |mean|^2 is 0.2 too large.
    rng, truth = np.random.default_rng(1), np.array([0.6, 0.8])
    products = []
    for _ in range(2000):
        trail = Trail.along(np.zeros((1, 2)))
        for size in (1, 2, 1, 3, 3):
            trail.add(truth + rng.normal(size=(1, 2)) / np.sqrt(size), size)
        (first, second), (m, n) = trail.halves, trail.counts
        assert m + n == 10
        products.append(float((first / m * second / n).sum()))
    assert np.mean(products) == pytest.approx(1.0, abs=0.06)


def test_without_two_halves_there_is_no_estimate():
    trail = Trail.along(np.zeros((3, 2)))
    trail.add(np.ones((3, 2)), 4)
    residual, samples = trail.estimate()
    assert np.isnan(residual).all()
    assert residual.shape == (3,)
    assert samples == 0
    trail.add(np.ones((3, 2)), 4)
    residual, samples = trail.estimate()
    np.testing.assert_allclose(residual, np.sqrt(2))
    assert samples == 8
    trail.clear()
    assert trail.counts == [0, 0]


def test_packed_and_back():
    trail = Trail.along(np.zeros((3, 2)))
    for value in np.random.default_rng(0).normal(size=(5, 3, 2)):
        trail.add(value, 2)
    again = Trail.unpacked(trail.packed())
    assert again.counts == trail.counts
    np.testing.assert_array_equal(again.halves, trail.halves)
    assert Trail.along(np.zeros((1, LARGEST + 1))) is None


def test_a_budget_run_has_estimates_on_its_way():
    result = da.root(sample, np.zeros(2), budget=4000, seed=1)
    history = result.history
    assert len(history) > 20
    assert history.residual[0] == pytest.approx(5.0, rel=0.1)
    assert history.residual[-1] == result.certificate.residual
    assert history.samples[1:-1].sum() > 3000
    assert (np.diff(history.stage) >= 0).all()
    reach = 3 * result.certificate.sigma / np.sqrt(history.samples[4:-1])
    assert (history.residual[4:-1] < 0.2 + reach).all()  # it has long arrived


def test_they_change_nothing_else():
    problem = da.Problem(da.Sampler(sample), np.zeros(2))
    method = da.DualOHM(0.2, horizon=200)
    plain, traced = (da.solve(problem, method, seed=3, record=record) for record in (None, "samples"))
    np.testing.assert_array_equal(plain.x, traced.x)
    assert plain.nfev == traced.nfev
    assert not plain.history.residual.size
    assert traced.residual is None
    assert np.isfinite(traced.history.residual[1:]).all()


def test_resumed_runs_have_the_same_way(tmp_path):
    def run(budget, path):
        return da.root(sample, np.zeros(2), budget=budget, seed=5, method=da.DualOHM(0.2, horizon=400), checkpoint=path)

    whole = run(2000, tmp_path / "whole.npz")
    stops = iter(range(150))

    def stop(x):
        return next(stops, None) is None

    da.root(
        sample, np.zeros(2), budget=2000, seed=5, method=da.DualOHM(0.2, horizon=400),
        checkpoint=tmp_path / "part.npz", callback=stop,
    )  # fmt: skip
    again = run(2000, tmp_path / "part.npz")
    np.testing.assert_array_equal(again.x, whole.x)
    for name, column in whole.history.columns().items():
        np.testing.assert_array_equal(column, getattr(again.history, name), err_msg=name)


def test_saved_results_keep_it(tmp_path):
    result = da.root(sample, np.zeros(2), budget=1000, seed=1, reps=2)
    loaded = da.Result.load(result.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(loaded.history.samples, result.history.samples)
    np.testing.assert_array_equal(loaded.history.stage, result.history.stage)
