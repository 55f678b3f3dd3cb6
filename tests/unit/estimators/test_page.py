"""PAGE as an estimator, and what sizes it takes."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import State
from dualanchor.core.session import Session


def test_probabilities_follow_the_paper():
    page = da.PAGE()
    np.testing.assert_allclose(page.probability(np.arange(5)), [1, 2 / 3, 0.5, 2 / 5, 1 / 3])
    assert da.Minibatch(3).probability(0) is None


def test_additive_noise_cancels_in_a_difference():
    """After the first fresh batch, differences alone carry the estimate exactly along the path."""
    oracle = da.AdditiveNoise(lambda x: 3 * x, 1.0, vectorized=True)
    F = Session(oracle, da.Streams(0, np.arange(2), dimension=2))
    page, s = da.PAGE(4, 1), State(x=np.ones((2, 2)))
    page.init(s)
    heads, tails = np.ones(2, bool), np.zeros(2, bool)
    first = page.estimate(0, s, F, None, heads).copy()
    noise = first - 3.0
    for k in range(1, 6):
        s.x += 0.5
        np.testing.assert_allclose(page.estimate(k, s, F, None, tails), 3 * s.x + noise, rtol=1e-12)
    np.testing.assert_array_equal(F.draws, 4 + 5)
    np.testing.assert_array_equal(F.evals, 4 + 10)


def test_rows_with_heads_and_rows_with_tails():
    oracle = da.AdditiveNoise(lambda x: 3 * x, 1.0, vectorized=True)
    F = Session(oracle, da.Streams(0, np.arange(3), dimension=2))
    page, s = da.PAGE(np.array([[4], [5], [6]]), np.array([[1], [2], [3]])), State(x=np.ones((3, 2)))
    page.init(s)
    page.estimate(0, s, F, None, np.ones(3, bool))
    np.testing.assert_array_equal(F.draws, [4, 5, 6])
    coin = np.array([True, False, False])
    cost = page.cost(1, None, coin[:, None])
    page.estimate(1, s, F, None, coin)
    np.testing.assert_array_equal(F.draws, [8, 7, 9])
    np.testing.assert_array_equal(F.evals, [8, 9, 12])
    np.testing.assert_array_equal(np.ravel(cost.evals), [4, 4, 6])
    np.testing.assert_array_equal(np.ravel(cost.draws), [4, 2, 3])


def test_coins_stay_with_their_rows_when_others_retire():
    """One configuration ends early; the coins of the other are those it would have tossed alone."""
    problem = da.problems.affine(dimension=4)
    methods = [da.HalpernPAGE(0.5, 5, 2, horizon=6), da.HalpernPAGE(0.5, 5, 2, horizon=60)]
    together = da.solve(problem, methods, reps=3, record="all")
    alone = da.solve(problem, methods[1], reps=3, record="all")
    for replication in range(3):
        np.testing.assert_array_equal(together.history.of(3 + replication).evals, alone.history.of(replication).evals)


def test_the_full_pass_estimator_has_the_probabilities_of_its_source():
    problem = da.problems.finite_sum_cocoercive(components=16, dimension=6, rank=5)
    method = da.HalpernVRFinite(0.1, 16)
    p = method.probability(np.arange(12))
    expected = [1, 1, *(4 / (k + 4) for k in range(2, 6)), *([4 / 9] * 6)]
    np.testing.assert_allclose(p, expected)
    assert method.needs == {"replay", "full-pass"}
    history = da.solve(problem, method, stop=da.Steps(30), record="all").history
    steps = set(zip(np.diff(history.draws).tolist(), np.diff(history.evals).tolist(), strict=True))
    assert steps == {(0, 16), (4, 8)}


@pytest.mark.parametrize("name", ["big_batch", "small_batch"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError), ("2", TypeError)])
def test_sizes_must_be_whole_and_positive(name, value, error):
    with pytest.raises(error, match=f"{name} must be"):
        da.PAGE(**{name: value})
    with pytest.raises(error, match=f"{name} must be"):
        da.HalpernPAGE(1.0, **{name: value})
