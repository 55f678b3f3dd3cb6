"""Finite sums at the front doors: SVRG where several passes can be paid for, exact residuals and certificates."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.engines import Local

N = 300
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(N, 6)) @ np.diag([3.0, 1.0, 1.0, 0.3, 0.3, 0.1])
LABELS = np.where(RNG.uniform(size=N) < 1 / (1 + np.exp(-ROWS.sum(axis=1))), 1.0, -1.0)
GAME = RNG.normal(size=(N, 3, 3)) + 2 * np.eye(3)
SHIFT = RNG.normal(size=(N, 6))


def logistic(x, a, y):
    return a * (-y / (1 + np.exp(y * (a @ x))))[:, None] + 0.01 * x


def game(x, i):
    u, v = x[:3], x[3:]
    return np.hstack([GAME[i] @ v, -np.einsum("nij,i->nj", GAME[i], u)]) + SHIFT[i]


class Counted(da.FiniteSum):
    """A finite sum that counts how many of its components have been evaluated at points of a run or a certificate."""

    evaluated = 0

    def mean(self, x, batch):
        self.evaluated += int(np.sum(batch.size)) * len(x)
        return super().mean(x, batch)


def oracle():
    return Counted.from_data((ROWS, LABELS), logistic)


def residual(x):
    return np.linalg.norm(logistic(x, ROWS, LABELS).mean(axis=0))


def codes(result):
    return {one.code for one in result.findings}


@pytest.mark.parametrize("known", [{}, {"L": 30.0}, {"M": 30.0}, {"L": 30.0, "sigma": 3.0, "guarantee": False}])
def test_eps_is_reached_and_exactly_certified(known):
    counted = oracle()
    result = da.root(counted, np.zeros(6), eps=1e-3, **known)
    assert result.success
    assert result.status is da.Status.TARGET
    assert result.method["id"] == "svrg"
    assert residual(result.x) <= 1e-3
    assert result.residual_kind == "true"
    assert result.certificate.is_exact
    assert result.certificate.upper == pytest.approx(residual(result.x), rel=1e-9)
    assert (result.claim.kind, result.claim.bound, result.claim.confidence) == (da.ClaimKind.CERTIFICATE, 1e-3, 1.0)
    assert "with confidence 1, by certificate" in str(result)
    assert result.nfev == counted.evaluated < 100 * N
    assert "route-passes" in codes(result)


def test_an_eps_that_cannot_be_reached_is_said():
    result = da.root(oracle(), np.zeros(6), eps=1e-12, max_samples=10 * N)
    assert not result.success
    assert result.status is da.Status.MAX_SAMPLES
    assert result.claim.kind is da.ClaimKind.NOT_REACHED
    assert result.claim.bound == pytest.approx(residual(result.x), rel=1e-9)
    assert result.nfev <= 10 * N


@pytest.mark.slow
def test_an_eps_below_rounding_ends_without_success():
    result = da.root(da.FiniteSum.rank_one(ROWS, targets=LABELS), np.zeros(6), eps=1e-30, max_samples=3000 * N)
    assert not result.success
    assert result.nfev < 3000 * N


def test_an_x0_that_reaches_eps_takes_one_pass():
    root = da.root(oracle(), np.zeros(6), eps=1e-6).x
    result = da.root(oracle(), root, eps=1e-3, check=False)
    assert (result.success, result.nfev, result.draws) == (True, N, 0)
    np.testing.assert_array_equal(result.x, root)


@pytest.mark.parametrize("passes", [5, 7, 20, 100])
def test_a_budget_of_several_passes(passes):
    counted = oracle()
    result = da.root(counted, np.zeros(6), budget=passes * N)
    assert result.success
    assert result.method["id"] == "svrg"
    assert residual(result.x) < residual(np.zeros(6))
    assert result.certificate.residual == pytest.approx(residual(result.x), rel=1e-9)
    assert result.nfev == counted.evaluated <= passes * N
    assert passes < 100 or result.residual < 1e-6
    assert not {"no-L", "residual-did-not-fall"} & codes(result)


def test_games_too():
    result = da.root(da.FiniteSum(game, N), np.zeros(6), budget=100 * N)
    assert result.success
    assert result.residual < 1e-4
    assert da.Severity.VIOLATION not in {one.severity for one in result.findings}


def test_a_start_that_is_a_root_already():
    result = da.root(da.FiniteSum.rank_one(ROWS), np.zeros(6), budget=10 * N)
    assert result.success
    assert result.certificate.upper == 0
    np.testing.assert_array_equal(result.x, np.zeros(6))


def test_nothing_better_found_is_no_success():
    """F has no root: its residual cannot fall."""
    result = da.root(da.FiniteSum(lambda x, i: np.ones((i.size, 2)), N), np.zeros(2), budget=10 * N)
    assert not result.success
    assert result.certificate.upper == pytest.approx(np.sqrt(2))
    assert "residual-did-not-fall" in codes(result)


def test_a_decreasing_sum_is_refused():
    with pytest.warns(da.errors.AssumptionWarning, match="decreasing"):
        result = da.root(da.FiniteSum(lambda x, i: -np.tile(x, (i.size, 1)), N), np.ones(2), budget=20 * N)
    assert result.status is da.Status.REFUSED


@pytest.mark.slow
def test_replications_and_resuming(tmp_path):
    result = da.root(oracle(), np.zeros(6), budget=30 * N, reps=3)
    assert result.success.all()
    np.testing.assert_allclose(result.certificate.upper, [residual(x) for x in result.x], rtol=1e-9)
    calls = []

    def interrupt(x):
        calls.append(1)
        if len(calls) == 40:
            raise InterruptedError

    path = da.Checkpoint(tmp_path / "run", seconds=0)
    with pytest.raises(InterruptedError):
        da.root(oracle(), np.zeros(6), budget=30 * N, reps=3, callback=interrupt, checkpoint=path)
    resumed = da.root(oracle(), np.zeros(6), budget=30 * N, reps=3, checkpoint=path)
    np.testing.assert_array_equal(resumed.x, result.x)
    np.testing.assert_array_equal(resumed.nfev, result.nfev)
    np.testing.assert_array_equal(resumed.certificate.upper, result.certificate.upper)


def test_less_than_five_passes_are_sampled():
    result = da.root(oracle(), np.zeros(6), budget=4 * N)
    assert result.method["id"] == "auto"


def test_other_methods_are_certified_exactly_where_a_pass_is_not_dearer():
    counted = oracle()
    result = da.root(counted, np.zeros(6), budget=40 * N, L=30.0, method="sgda")
    assert result.certificate.is_exact
    assert result.certificate.upper == pytest.approx(residual(result.x), rel=1e-9)
    assert result.nfev == counted.evaluated <= 40 * N
    run = result.draws - result.calibration.draws
    assert result.nfev - result.calibration.evals == run + 2 * N  # a pass at x0 and one at x
    sampled = da.root(oracle(), np.zeros(6), budget=8 * N, L=30.0, method="sgda")  # a tenth is less than a pass
    assert not sampled.certificate.is_exact


def test_stages_of_a_method_are_certified_exactly():
    counted = oracle()
    result = da.root(counted, np.zeros(6), eps=0.02, L=30.0, method="averaged", max_samples=1000 * N)
    assert result.success
    assert result.certificate.is_exact
    assert result.certificate.upper == pytest.approx(residual(result.x), rel=1e-9)
    assert result.claim.confidence == 1.0
    assert result.nfev == counted.evaluated


def test_plans_are_certified_exactly():
    known = {"eps": 0.3, "L": 30.0, "sigma": 3.0, "D": 4.0}
    result = da.root(oracle(), np.zeros(6), **known, guarantee=True)
    assert result.claim.by_theorem
    assert result.certificate.is_exact
    shorter = da.root(oracle(), np.zeros(6), **known)
    assert shorter.method["id"] == "svrg"
    assert shorter.nfev < result.nfev


def test_with_a_prox():
    counted = oracle()
    result = da.inclusion(counted, da.prox.box(-1, 1), np.zeros(6), budget=100 * N, L=30.0)
    assert result.success
    assert result.method["id"] == "svrg"
    assert result.certificate.is_exact
    assert result.residual < 1e-4
    assert np.abs(result.x).max() == 1
    assert result.nfev == counted.evaluated <= 100 * N


@pytest.mark.slow
def test_on_an_engine():
    plain = da.FiniteSum.from_data((ROWS, LABELS), logistic)
    results = [da.root(plain, np.zeros(6), eps=1e-3, engine=Local(k, kind="threads")) for k in (1, 2)]
    assert all(one.success and one.method["id"] == "svrg" for one in results)
    np.testing.assert_array_equal(results[0].x, results[1].x)


def test_fixed_points():
    result = da.fixed_point(da.FiniteSum(lambda x, i: np.cos(x + i[:, None] / N), N), np.zeros(2), eps=1e-6)
    assert result.success
    np.testing.assert_allclose(result.x, np.cos(result.x[0] + np.arange(N) / N).mean(), atol=1e-5)


@pytest.mark.parametrize("name", ["svrg", "auto"])
def test_by_name_and_without_a_certificate(name):
    result = da.root(oracle(), np.zeros(6), budget=30 * N, method=name, certificate=False)
    assert result.method["id"] == "svrg"
    assert result.certificate is None
    assert result.success


@pytest.mark.parametrize(
    "keywords", [{"budget": 300}, {"budget": 500, "check": False}, {"budget": 20_000}, {"eps": 0.1}]
)
def test_a_missing_number_in_the_data_is_an_error_of_the_data(keywords):
    """A run that happened not to draw the row ended in an IndexError, for the residual over all rows was NaN."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 3))
    rows[5, 1] = np.nan
    oracle = da.FiniteSum.from_data(rows, lambda x, a: x - a)
    for seed in range(3):
        with pytest.raises(da.errors.OracleError, match="must return numbers at every finite point"):
            da.root(oracle, np.zeros(3), seed=seed, **keywords)
