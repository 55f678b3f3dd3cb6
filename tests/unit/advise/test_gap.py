"""The gap of a variational inequality: what is bounded, and what is turned down."""

import json

import numpy as np
import pytest

import dualanchor as da
from dualanchor import prox

A = np.random.default_rng(0).uniform(-1, 1, (4, 3))
GAME = prox.product([(4, prox.simplex()), (3, prox.simplex())])


def operator(x):
    return np.concatenate([A @ x[4:], -A.T @ x[:4]])


def oracle(sigma):
    return da.AdditiveNoise(operator, sigma)


def strategies(seed=1):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(3))])


def test_without_noise_it_is_the_exploitability():
    x = strategies()
    found = da.certify_gap(oracle(0.0), x, GAME, samples=64)
    truth = da.exploitability(A, x[:4], x[4:])
    assert truth == max(x[:4] @ A) - min(A @ x[4:])
    assert found.gap == pytest.approx(truth, rel=1e-12)
    assert found.upper == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize(
    "one", [GAME, prox.box(-1, 1), prox.ball(3.0), prox.product([(4, prox.ball(2.0)), (3, prox.box(0, 1))])], ids=str
)
def test_the_bound_is_above_the_truth_and_comes_down_to_it(one):
    x = strategies()
    truth = operator(x) @ x + one.support(-operator(x))
    uppers = [da.certify_gap(oracle(0.3), x, one, samples=samples, seed=3).upper for samples in (256, 16_384)]
    assert truth < uppers[1] < truth + 0.05
    assert uppers[1] < uppers[0]


def test_several_points_and_a_result():
    points = np.stack([strategies(seed) for seed in range(3)])
    found = da.certify_gap(oracle(0.1), points, GAME, samples=300, confidence=0.9)
    assert found.upper.shape == found.gap.shape == (3,)
    assert (found.samples, found.groups, found.confidence) == (300, 150, 0.9)
    np.testing.assert_array_equal(found.holds_for(found.upper[0]), found.upper <= found.upper[0])
    assert json.loads(json.dumps(found.to_dict()))["samples"] == 300
    alone = da.certify_gap(oracle(0.1), points[0], GAME, samples=300, confidence=0.9)
    assert alone.upper == found.upper[0]
    assert alone.holds_for(alone.upper) is True
    assert repr(alone).startswith("GapCertificate: gap <= ")


def test_infinite_samples_give_an_infinite_bound():
    found = da.certify_gap(da.AdditiveNoise(lambda x: x * np.inf, 0.0), np.ones(2), prox.box(0, 1), samples=64)
    assert found.upper == np.inf


BAD = {
    "set": (lambda: da.certify_gap(oracle(0.1), strategies(), prox.nonnegative(), samples=64), "needs a bounded set"),
    "function": (lambda: da.certify_gap(oracle(0.1), strategies(), np.minimum, samples=64), "prox must be a set of"),
    "outside": (lambda: da.certify_gap(oracle(0.1), 2 * strategies(), GAME, samples=64), "x must be in the set"),
    "samples": (lambda: da.certify_gap(oracle(0.1), strategies(), GAME, samples=3), "samples must be at least 16"),
    "level": (
        lambda: da.certify_gap(oracle(0.1), strategies(), GAME, samples=64, confidence=1.0),
        "certify_gap: confidence must be",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_messages(name):
    call, text = BAD[name]
    with pytest.raises(da.errors.DualAnchorError, match=text), np.errstate(all="ignore"):
        call()
