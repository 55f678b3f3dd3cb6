"""What a run's own samples say about the residual on its way."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import State
from dualanchor.core.trail import LARGEST, Trail

A = np.array([[1.0, 2.0], [-2.0, 1.0]])


def sample(x, n, rng):
    return (A @ x).ravel() - [5.0, 0.0] + rng.normal(size=(n, 2)).mean(axis=0)


def filled(rows=1, sizes=(1, 2, 1, 3, 3), seed=0, at_iterate=True):
    """Means of standard normal noise around (0.6, 0.8), sampled at the iterate or elsewhere."""
    rng, trail = np.random.default_rng(seed), Trail.along(np.zeros((rows, 2)))
    x = np.zeros((rows, 2))
    trail.state = State(x=x if at_iterate else x.copy())
    for size in sizes:
        trail.add(x, [0.6, 0.8] + rng.normal(size=(rows, 2)) / np.sqrt(size), size)
    return trail


@pytest.mark.parametrize("at_iterate", [True, False])
def test_squares_are_those_of_residuals_and_of_noise(at_iterate):
    # sigma^2 = 2 and |F|^2 = 1. The mean over 20,000 rows has a standard error of at most 0.012; without the noise it
    # would be 0.2 (for the mean) or 1.1 too large. False failures: less than 1 in 10,000.
    squares, samples, rounds = filled(20_000, at_iterate=at_iterate).estimate()
    assert np.mean(squares) - 2 / samples == pytest.approx(1.0, abs=0.05)
    assert (samples, rounds) == ((pytest.approx(5 / (2 + 1 / 2 + 2 / 3)), 5) if at_iterate else (10, 1))


def test_methods_that_turn_do_not_look_better_than_they_are():
    trail, x = Trail.along(np.zeros((1, 2))), np.zeros((1, 2))
    trail.state = State(x=x)
    for value in ([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]):  # of mean 0
        trail.add(x, np.array([value]), 1)
    assert trail.estimate().squares.tolist() == [1.0]


def test_nothing_seen():
    squares, samples, rounds = filled(3, sizes=()).estimate()
    assert np.isnan(squares).all()
    assert squares.shape == (3,)
    assert samples == rounds == 0
    trail = filled(3)
    trail.clear()
    assert trail.estimate().rounds == 0


def test_packed_and_back():
    trail = filled(3)
    again = Trail.unpacked(trail.packed())
    assert again.counts == trail.counts
    np.testing.assert_array_equal(again.total, trail.total)
    np.testing.assert_array_equal(again.squares, trail.squares)
    assert Trail.along(np.zeros((1, LARGEST + 1))) is None


def test_a_budget_run_has_estimates_on_its_way():
    result = da.root(sample, np.zeros(2), budget=4000, seed=1)
    history = result.history
    assert len(history) > 20
    assert history.residual[0] == pytest.approx(5.0, rel=0.1)
    assert history.residual[-1] == result.certificate.residual
    assert (history.rounds >= 1).all()
    assert (np.diff(history.stage) >= 0).all()
    noise = np.sqrt(2 / (history.samples * history.rounds))
    assert (history.residual < 0.3 + 4 * noise)[4:-1].all()  # it has long arrived


def test_estimates_are_near_the_true_residuals():
    rows = 20  # the mean over rows; iterates of Dual-OHM turn and are far from the root until the end
    method = da.DualOHM(0.2, horizon=100, batch_size=16)
    known = da.AdditiveNoise(lambda x: x @ A.T - [5.0, 0.0], np.sqrt(2), vectorized=True)
    truth = da.solve(da.Problem(known, np.zeros(2)), method, reps=rows, seed=1, record="all").history
    found = da.root(sample, np.zeros(2), budget=3000, method=method, reps=rows, seed=1).history
    for k in np.unique(found.k)[2:-1]:
        before = np.unique(found.k)[np.flatnonzero(np.unique(found.k) == k) - 1]
        between = truth.residual[(truth.k >= before) & (truth.k < k)]
        seen = np.mean(found.residual[found.k == k] ** 2)
        assert seen == pytest.approx(np.mean(between**2), abs=0.15, rel=0.25)


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
    for name, column in result.history.columns().items():
        np.testing.assert_array_equal(getattr(loaded.history, name), column, err_msg=name)
