"""What may be spent is never exceeded, and all that is spent is charged."""

import numpy as np
import pytest
from tests.unit.front.samplers import Counted, codes, saddle_pair

import dualanchor as da
from dualanchor.core.errors import ArgumentError
from dualanchor.front.request import calibration_share, certificate_share

pytestmark = pytest.mark.slow

BUDGETS = [1, 2, 10, 63, 64, 100, 127, 128, 1279, 1280]
KINDS = {
    "L": {"L": 1.0},
    "nothing": {},
    "M": {"M": 1.0},
    "M and mu": {"M": 1.0, "mu": 1.0},
    "guarantee": {"L": 1.0, "sigma": 0.3, "D": 2.0, "guarantee": True},
    "guarantee with mu": {"L": 1.0, "mu": 0.5, "sigma": 0.3, "D": 2.0, "guarantee": True},
    "estimated": {"L": 1.0, "guarantee": True},
    "without certificate": {"L": 1.0, "certificate": False},
    "without calibration": {"L": 1.0, "check": False},
    "page": {"L": 1.0, "method": "halpern-page"},
    "sgda": {"L": 1.0, "method": "sgda"},
    "method": {"method": da.SGDA(0.5)},
    "more confidence": {"L": 1.0, "confidence": 0.999},
}
# What cannot be done with so little, and says so.
TOO_SMALL = {"nothing": 128, "M": 2, "page": 66, "estimated": 1280}


@pytest.mark.parametrize("kind", KINDS)
def test_no_budget_is_exceeded_and_every_sample_is_counted(kind):
    for budget in BUDGETS:
        sample = Counted()
        if budget < TOO_SMALL.get(kind, 0):
            try:
                result = da.root(sample, np.zeros(2), budget=budget, **KINDS[kind])
            except ArgumentError:
                assert sample.samples <= budget
                continue
        else:
            result = da.root(sample, np.zeros(2), budget=budget, **KINDS[kind])
        assert sample.samples == result.nfev <= budget, budget
        assert result.draws <= result.nfev
        assert result.nfev > 0.6 * budget - 2 or result.plan is not None, budget


@pytest.mark.parametrize("budget", BUDGETS)
def test_inclusion_and_saddle(budget):
    sample = Counted()
    if budget == 1:
        with pytest.raises(ArgumentError, match="inclusion: two samples are needed"):
            da.inclusion(sample, da.prox.box(0, 1), np.zeros(2), budget=1, L=1.0)
        assert sample.samples == 0
    else:
        result = da.inclusion(sample, da.prox.box(0, 1), np.zeros(2), budget=budget, L=1.0)
        assert sample.samples == result.nfev <= budget
    sample_u, sample_v, counted = saddle_pair()
    result = da.saddle(sample_u, sample_v, (np.zeros(2), 0.0), budget=budget, L=4.0)
    assert counted.samples == result.nfev <= budget


@pytest.mark.no_cover
@pytest.mark.parametrize("most", [160, 161, 320, 1500])
@pytest.mark.parametrize("given", [{}, {"L": 1.0}, {"L": 1.0, "sigma": 1.5, "D": 100.0}, {"M": 1.0}])
def test_max_samples_is_never_exceeded(most, given):
    sample = Counted(sigma=1.0)
    result = da.root(sample, np.zeros(2), eps=1e-3, max_samples=most, **given)
    assert sample.samples == result.nfev <= most
    assert not result.success
    assert result.claim.kind is da.ClaimKind.NOT_REACHED
    sample = Counted(sigma=1.0)
    result = da.inclusion(sample, da.prox.box(0, 1), np.zeros(2), eps=1e-9, max_samples=most, L=1.0)
    assert sample.samples == result.nfev <= most


def test_too_few_for_a_certificate():
    sample = Counted()
    with pytest.raises(
        ArgumentError, match=r"max_samples must be at least 160, the price of a first certificate. Got 100"
    ):
        da.root(sample, np.zeros(2), eps=0.1, max_samples=100)
    assert sample.samples == 0


@pytest.mark.parametrize(
    "keywords",
    [
        {"eps": 0.2, "sigma": 0.3, "D": 2.0},
        {"eps": 0.05, "sigma": 0.3, "D": 2.0},
        {"eps": 0.1, "sigma": 0.3, "D": 2.0, "confidence": 0.5},
        {"eps": 0.1, "sigma": 0.3, "D": 2.0, "confidence": 0.999},
        {"eps": 0.1},
        {"eps": 0.1, "method": "sgda-decreasing", "mu": 1.0},
        {"eps": 0.3, "method": "halpern-page"},
    ],
)
def test_with_an_accuracy_all_samples_are_charged(keywords):
    sample = Counted()
    result = da.root(sample, np.zeros(2), L=1.0, **keywords)
    assert sample.samples == result.nfev
    assert result.success


def test_replications_are_charged_each():
    """Calibration is done once and charged to each."""
    sample = Counted()
    result = da.root(sample, np.zeros(2), budget=2000, L=1.0, reps=3)
    assert result.nfev.sum() == sample.samples + 2 * result.calibration.evals
    sample = Counted()
    result = da.root(sample, np.zeros(2), eps=0.2, L=1.0, reps=5)
    assert result.nfev.sum() == sample.samples + 4 * result.calibration.evals


def test_shares():
    assert [certificate_share(n) for n in (1, 63, 64, 100, 1024, 10_000)] == [0, 0, 32, 32, 256, 1000]
    assert [calibration_share(n) for n in (1, 1279, 1280, 10_000, 10**9)] == [0, 0, 64, 500, 2000]


def test_a_budget_too_small_for_a_certificate_is_told_why_there_is_none():
    result = da.root(Counted(), np.zeros(2), budget=63, L=1.0)
    assert result.certificate is None
    assert "no certificate: that takes a budget of 64 samples or more [no-certificate]" in repr(result)
    assert not result.success
    alone = da.root(Counted(), np.zeros(2), budget=63, L=1.0, certificate=False)
    assert alone.success
    assert codes(alone, "note", "warning") == ["not-checked"]
    assert da.root(Counted(), np.zeros(2), budget=64, L=1.0).certificate is not None


@pytest.mark.parametrize("known", [{}, {"L": 1.0}, {"M": 1.0}, {"L": 1.0, "sigma": 0.3, "D": 2.0, "guarantee": True}])
def test_rounds_have_as_many_samples_as_asked_for(known):
    sizes = []

    def sample(x, n, rng):
        sizes.append(n)
        return x - 1 + 0.2 * rng.normal(size=2) / np.sqrt(n)

    result = da.root(sample, np.zeros(2), budget=8000, batch=40, check="L" not in known, **known)
    assert result.success
    assert result.nfev <= 8000
    assert result.nit <= 8000 / 40
    with pytest.raises(ArgumentError, match="root: batch must be"):
        da.root(sample, np.zeros(2), budget=8000, batch=0)


def test_without_a_step_seen_units_of_F_do_not_matter():
    rng = np.random.default_rng(0)
    A, root = rng.normal(size=(300, 40)), rng.normal(size=40)

    def ratio(c):
        def sample(x, n, rng):
            i = rng.integers(300, size=n)
            return c * (A[i].T @ (A[i] @ (x - root))) / n

        result = da.root(sample, np.zeros(40), budget=1000, seed=2)
        return np.linalg.norm(A.T @ (A @ (result.x - root))) / np.linalg.norm(A.T @ (A @ root)), result

    ratios = []
    for c in (2.0**-10, 1.0, 2.0**10):
        value, result = ratio(c)
        assert result.calibration.largest_step is None
        ratios.append(value)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6)
    assert ratios[2] == pytest.approx(ratios[1], rel=1e-6)
