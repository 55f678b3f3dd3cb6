"""SVRG: steps found without constants, exact residuals, never worse than the start."""

import numpy as np
import pytest
from tests.contract.literal import LITERAL, Samples

import dualanchor as da

N = 120
RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(N, 5))
TARGETS = ROWS @ np.ones(5) + RNG.normal(size=N)
LABELS = np.where(RNG.uniform(size=N) < 1 / (1 + np.exp(-ROWS[:, 0])), 1.0, -1.0)
GAME = RNG.normal(size=(N, 3, 3)) + 2 * np.eye(3)
SHIFT = RNG.normal(size=(N, 6))
COUNTS = RNG.poisson(np.exp(4 + 0.3 * ROWS[:, 0])).astype(float)
WITH_ONE = np.hstack([ROWS, np.ones((N, 1))])


def logistic(x, i):
    return ROWS[i] * (-LABELS[i] / (1 + np.exp(LABELS[i] * (ROWS[i] @ x))))[:, None]


def game(x, i):
    u, v = x[:3], x[3:]
    return np.hstack([GAME[i] @ v, -np.einsum("nij,i->nj", GAME[i], u)]) + SHIFT[i]


def poisson(x, i):
    return WITH_ONE[i] * (np.exp(WITH_ONE[i] @ x) - COUNTS[i])[:, None]


SUMS = {
    "least squares": (da.FiniteSum.rank_one(ROWS, targets=TARGETS), 5),
    "logistic": (da.FiniteSum(logistic, N), 5),
    "bilinear game": (da.FiniteSum(game, N), 6),
    "Poisson": (da.FiniteSum(poisson, N), 6),
}


BUDGETED = da.SVRG(components=N, budget=12 * N)


def run(oracle, x0, passes=100, **options):
    return da.solve(da.Problem(oracle, x0), da.SVRG(components=N, **options), budget=passes * N, record=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
def test_finds_a_root_without_constants(name):
    oracle, d = SUMS[name]
    start = np.linalg.norm(oracle.operator(np.zeros((1, d))))
    assert run(oracle, np.zeros(d)).residual < 1e-3 * start


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("passes", [1, 2, 3, 5])
def test_is_never_worse_than_the_start(name, passes):
    oracle, d = SUMS[name]
    start = np.linalg.norm(oracle.operator(np.ones((1, d))))
    result = run(oracle, np.ones(d), passes)
    assert result.residual <= start * (1 + 1e-12)
    assert result.state["residual"][0, 0] == pytest.approx(result.residual, rel=1e-9)
    assert result.state["start_residual"][0, 0] == pytest.approx(start, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("of_F", "of_x"), [(1e9, 1.0), (1e-9, 1.0), (1.0, 1e5), (1.0, 1e-5)])
def test_units_of_F_and_x_do_not_matter(of_F, of_x):
    oracle, d = SUMS["logistic"]
    scaled = da.FiniteSum(lambda x, i: of_F * logistic(x / of_x, i), N)
    here, there = run(oracle, np.zeros(d), 30).residual, run(scaled, np.zeros(d), 30).residual / of_F
    assert np.log10(there / here) == pytest.approx(0, abs=1.5)  # other trials, other epochs
    assert there < 1e-3


def test_ends_at_eps_or_where_nothing_moves():
    oracle, d = SUMS["logistic"]
    result = run(oracle, np.zeros(d), 300, eps=1e-4)
    assert result.status is da.Status.TARGET
    assert result.residual <= 1e-4
    assert result.nfev < 100 * N
    assert run(oracle, np.zeros(d), 3000).status is da.Status.HORIZON  # rounding
    assert run(da.FiniteSum.rank_one(ROWS), np.zeros(d)).nfev == N  # x0 is a root


@pytest.mark.parametrize("passes", [4, 6, 9, 11])
def test_the_last_epoch_is_shortened_so_that_a_pass_can_follow_it(passes):
    oracle, d = SUMS["least squares"]
    problem = da.Problem(oracle, np.zeros(d), constants=da.Constants(L=20.0))
    result = da.solve(problem, "svrg", budget=passes * N, record=0)
    assert (passes - 0.6) * N <= result.nfev <= passes * N
    longer = da.solve(problem, da.SVRG(1 / 20, N), budget=passes * N, record=0)
    assert result.residual <= longer.residual


def test_an_overflow_on_the_way_is_no_error():
    oracle, d = SUMS["Poisson"]
    result = run(oracle, np.zeros(d), 60, step_size=10.0)
    assert result.residual < np.linalg.norm(oracle.operator(np.zeros((1, d))))


@pytest.mark.slow
def test_what_it_does_is_its_literal_loop_with_trials():
    for name in SUMS:
        oracle, d = SUMS[name]
        problem = da.Problem(oracle, np.ones(d))
        for method in (da.SVRG(components=N), da.SVRG(components=N, small_batch=3), da.SVRG(50.0, N), BUDGETED):
            S = Samples(problem, 0, 0)
            with np.errstate(all="ignore"):
                expected = LITERAL["svrg"](method, S.x0, S, 900)
            result = da.solve(problem, method, stop=da.Steps(900), record=0)
            np.testing.assert_allclose(result.x, expected, rtol=1e-6)
            assert (result.draws, result.nfev) == (S.draws, S.evals)


def test_a_batch_that_is_not_the_same_at_both_points_is_noticed(monkeypatch):
    """With fresh samples at the snapshot the noise would not vanish."""
    oracle, d = SUMS["logistic"]
    exact = run(oracle, np.zeros(d)).residual

    def step(self, k, s, F, coin=None):
        change = F(s.x, F.draw(self.batch_size)) - F(s.snapshot, F.draw(self.batch_size))
        s.x = s.x - s.step * (s.value + change)
        s.total = s.total + s.x

    monkeypatch.setattr("dualanchor.methods.svrg.Epoch.step", step)
    assert run(oracle, np.zeros(d)).residual > 1e3 * exact
