"""Constraints and penalties without L: games, bounds, gaps, and what is turned down."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import Bounds
from tests.unit.front.samplers import Counted

import dualanchor as da
from dualanchor import prox

A = np.random.default_rng(3).uniform(-1, 1, (6, 4))
START = (np.full(6, 1 / 6), np.full(4, 1 / 4))
SIMPLICES = {"prox_u": prox.simplex(), "prox_v": prox.simplex()}


def losses(u, v, n, rng):
    return A @ v + 0.3 * rng.normal(size=6) / np.sqrt(n)


def gains(u, v, n, rng):
    return u @ A + 0.3 * rng.normal(size=4) / np.sqrt(n)


def game(**options):
    return da.saddle(losses, gains, START, **{**SIMPLICES, "budget": 8000, **options})


@pytest.mark.no_cover
def test_a_game_is_solved_and_its_gap_bounded():
    result = game()
    truth = da.exploitability(A, *result.x)
    assert result.success
    assert truth < 0.05
    assert truth <= result.gap < truth + 0.1
    assert result.method["id"] == "mirror-prox"
    assert result.claim is None
    assert result.nfev <= 8000
    codes = [one.code for one in result.findings]
    assert codes.count("gap") == codes.count("mirror-prox") == codes.count("gap-samples") == 1
    assert "not-cocoercive" not in codes
    assert "gap: sup of <F(x), x - y> over y in the set <= " in repr(result)
    for x, one in zip(result.x, SIMPLICES.values(), strict=True):
        assert one.contains(x)


@pytest.mark.slow
def test_replications_have_gaps_of_their_own(tmp_path):
    result = game(reps=3, budget=3000)
    assert result.gap.shape == (3,)
    path = result.save(tmp_path / "game.npz")
    np.testing.assert_array_equal(da.Result.load(path).gap, result.gap)
    assert game(budget=3000, certificate=False).gap is None


def test_an_accuracy_is_certified():
    result = game(budget=None, eps=0.2)
    assert result.success
    assert result.certificate.upper <= 0.2
    assert result.certificate.composite
    assert result.claim.kind is da.ClaimKind.CERTIFICATE
    assert result.gap is not None


@pytest.mark.slow
def test_a_killed_call_goes_on_where_it_was(tmp_path):
    calls = []

    def interrupt(x):
        calls.append(1)
        if len(calls) == 200:
            raise InterruptedError

    whole, saved = game(budget=3000), da.Checkpoint(tmp_path / "run", seconds=0)
    with pytest.raises(InterruptedError):
        game(budget=3000, callback=interrupt, checkpoint=saved)
    resumed = game(budget=3000, checkpoint=tmp_path / "run")
    again = game(budget=3000, checkpoint=tmp_path / "run")
    for one in (resumed, again):
        assert (one.gap, one.nfev) == (whole.gap, whole.nfev)
        np.testing.assert_array_equal(one.x[0], whole.x[0])


TARGET = np.array([2.0, -1.0, 0.3])
CONSTRAINTS = {  # with the solution for F(x) = x - TARGET
    "box": (prox.box(0, 0.5), [0.5, 0, 0.3]),
    "ball": (prox.ball(1.0), TARGET / np.linalg.norm(TARGET)),
    "nonnegative": (prox.nonnegative(), [2.0, 0, 0.3]),
    "penalty": (prox.l1(0.5), [1.5, -0.5, 0]),
    "function": (lambda z, step: np.clip(z, 0, 0.5), [0.5, 0, 0.3]),
    "penalty by a function": (lambda z, step: z / (1 + step), TARGET / 2),
    "prox from a function": (prox.from_function(lambda z, step: z / (1 + step)), TARGET / 2),
    "nothing": (prox.none(), TARGET),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_prox_works_without_L(name):
    one, solution = CONSTRAINTS[name]
    result = da.inclusion(Counted(lambda x: x - TARGET, sigma=0.5), one, np.zeros(3), budget=8000)
    assert result.success
    assert np.linalg.norm(result.x - solution) < 0.1
    assert (result.gap is not None) == (name in ("box", "ball"))


@pytest.mark.slow
@pytest.mark.parametrize("units", [1e-3, 1e3])
def test_units_do_not_matter(units):
    sampler = Counted(lambda x: 50 * (x / units - 0.3), sigma=10.0)
    result = da.inclusion(sampler, prox.nonnegative(), np.zeros(3), budget=8000)
    assert result.success
    np.testing.assert_allclose(result.x / units, 0.3, atol=0.1)


@pytest.mark.slow
def test_bounds_are_a_box():
    def sample(x, n, rng):
        return x - np.array([[2.0, -1.0]]) + 0.1 * rng.normal(size=x.shape) / np.sqrt(n)

    for bounds in ((0, 1), [(0, 1), (0, None)], Bounds(0, 1), Bounds([0, 0], [1, np.inf])):
        for keywords in ({}, {"L": 1.0}):
            result = da.root(sample, np.full((1, 2), 0.5), bounds=bounds, budget=4000, **keywords)
            np.testing.assert_allclose(result.x, [[1.0, 0.0]], atol=0.05)
    result = da.saddle(
        lambda u, v, n, rng: u - 2 + 0.1 * rng.normal() / np.sqrt(n),
        lambda u, v, n, rng: -v + 0.1 * rng.normal(size=2) / np.sqrt(n),
        (0.5, np.ones(2)),
        bounds=((None, 1), None),
        budget=4000,
    )
    np.testing.assert_allclose(result.x[0], 1.0, atol=0.05)
    np.testing.assert_allclose(result.x[1], 0.0, atol=0.1)


@pytest.mark.slow
def test_one_player_may_be_free_and_blocks_of_any_shape():
    result = da.saddle(
        lambda u, v, n, rng: u - 1 + 0.1 * rng.normal(size=(2, 3)) / np.sqrt(n),
        lambda u, v, n, rng: 2 - v + 0.1 * rng.normal(size=2) / np.sqrt(n),
        (np.zeros((2, 3)), np.zeros(2)),
        prox_u=lambda z, step: np.minimum(z, 0.5),
        budget=6000,
    )
    np.testing.assert_allclose(result.x[0], 0.5, atol=0.05)
    np.testing.assert_allclose(result.x[1], 2.0, atol=0.1)


def test_a_wrong_sign_is_named_and_no_success():
    """Both players of matching pennies minimise the same thing: a coordination game, which is not monotone."""
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    with pytest.warns(da.errors.AssumptionWarning, match="not monotone|decreasing"):
        result = da.saddle(
            lambda u, v, n, rng: pennies @ v + 0.1 * rng.normal(size=2) / np.sqrt(n),
            lambda u, v, n, rng: -pennies @ u + 0.1 * rng.normal(size=2) / np.sqrt(n),
            ([0.6, 0.4], [0.3, 0.7]),
            **SIMPLICES,
            budget=4000,
        )
    assert not result.success
    assert result.claim is None or result.claim.kind is da.ClaimKind.NONE


def test_mirror_prox_may_be_asked_for():
    for method in ("mirror-prox", da.MirrorProx(), da.MirrorProx(step_size=0.3)):
        result = da.inclusion(Counted(lambda x: x - 2), prox.box(0, 1), np.zeros(3), budget=3000, L=1.0, method=method)
        assert result.method["id"] == "mirror-prox"
        np.testing.assert_allclose(result.x, 1.0, atol=0.05)


def test_where_M_is_not_seen_the_slope_at_the_start_sets_the_step_of_the_prox(monkeypatch):
    """Else that step, by the diameter of the set, moves x far away from the mean of the half-steps."""
    seen = da.calibrate

    def blind(*arguments, **options):
        return replace(seen(*arguments, **options), local_M=None)

    monkeypatch.setattr("dualanchor.front.evidence.calibrate", blind)
    step = game(budget=3000).method["parameters"]["composite_step"]
    assert 1 < 1 / (4 * step) / np.linalg.norm(A, 2) * 4 < 16


def test_a_prox_that_fails_on_the_way_is_named():
    calls = []

    def fails(z, step):
        calls.append(1)
        if len(calls) >= 500:
            raise ArithmeticError("no root in the line search")
        return np.clip(z, 0, 1)

    with pytest.raises(da.errors.OracleError, match=r"The prox must not raise\. Got ArithmeticError: no root"):
        da.inclusion(Counted(lambda x: x - 2), fails, np.zeros(3), budget=3000)


@pytest.mark.slow
def test_arrays_of_torch():
    torch = pytest.importorskip("torch")

    def sample(x, n, rng):
        return x - torch.tensor([2.0, -1.0]) + torch.as_tensor(0.1 * rng.normal(size=2), dtype=x.dtype) / n**0.5

    for constraint in ({"prox": lambda z, step: torch.clamp(z, 0, 1)}, {"bounds": (0, 1)}):
        result = da.root(sample, torch.zeros(2), budget=1000, reps=2, **constraint)
        assert isinstance(result.x, torch.Tensor)
        np.testing.assert_allclose(result.x.numpy(), [[1.0, 0.0]] * 2, atol=0.05)
    result = da.saddle(
        lambda u, v, n, rng: sample(u, n, rng),
        lambda u, v, n, rng: -sample(v, n, rng),
        (torch.zeros(2), torch.zeros(2)),
        prox_v=lambda z, step: torch.clamp(z, 0, 1),
        budget=4000,
    )
    np.testing.assert_allclose(result.x[0].numpy(), [2.0, -1.0], atol=0.1)
    np.testing.assert_allclose(result.x[1].numpy(), [1.0, 0.0], atol=0.05)


BAD = {
    "method": ({"method": "s-dual-ohm"}, "saddle: s-dual-ohm with a prox needs L"),
    "own method": ({"method": da.SEG(0.1)}, "saddle: SEG with a prox needs L"),
    "two proxes": ({"method": da.MirrorProx(prox=prox.box(0, 1))}, "the prox is that of the front door"),
    "few": ({"budget": 100}, "without L a budget of at least 128"),
    "few for eps": ({"budget": None, "eps": 0.1, "max_samples": 150}, "without L max_samples of at least 160"),
    "guarantee": ({"guarantee": True}, "a guarantee needs L"),
    "bounds": ({"bounds": ((0, 1), None)}, "bounds are a prox themselves"),
    "bad bounds": ({"prox_u": None, "prox_v": None, "bounds": (0, 1, 2)}, "bounds must have one entry per player"),
    "one pair": (
        {"prox_u": None, "prox_v": None, "bounds": (-1.0, 1.0)},
        r"one entry per player, .* Got \(-1\.0, 1\.0\)\. Use \(\(lo, hi\), \(lo, hi\)\) or \(\(lo, hi\), None\)",
    ),
    "half a pair": ({"prox_u": None, "prox_v": None, "bounds": (None, 1.0)}, "one entry per player"),
    "lengths": ({"prox_u": None, "prox_v": None, "bounds": ([(0, 1)] * 5, None)}, r"a pair, 6 pairs \(lower, upper\)"),
    "words": ({"prox_u": None, "prox_v": None, "bounds": (("a", "b"), None)}, "bounds must be real numbers"),
    "not a function": ({"prox_v": 3}, "saddle: prox_v must be a function"),
    "no prox": ({"prox_v": lambda z, step: 2 * z}, "not firmly nonexpansive"),
}


@pytest.mark.parametrize("name", BAD)
def test_messages(name):
    keywords, text = BAD[name]
    with pytest.raises(da.errors.DualAnchorError, match=text):
        game(**keywords)
