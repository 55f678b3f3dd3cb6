"""Every method does what its formula says, to rounding, with exactly the samples it is charged for."""

import numpy as np
import pytest
from tests.contract.cases import SEED, Case, every_method, every_variant, serves, small
from tests.contract.literal import LITERAL, Samples

import dualanchor as da
from dualanchor.methods.auto import DUAL, ESTIMATE, EXTRA, Auto


def test_every_registered_method_has_a_literal_loop():
    assert set(LITERAL) == {entry.id for entry in da.list_methods()}


@every_variant
def test_equals_its_literal_loop(case, change):
    method, steps = case.make(**change), 200
    result = da.solve(case.problem, method, stop=da.Steps(steps), seed=SEED, reps=2, record=0)
    for replication in range(2):
        S = Samples(case.problem, SEED, replication)
        expected = LITERAL[case.method.id](method, S.x0, S, steps)
        assert np.isfinite(expected).all()
        scale = max(np.linalg.norm(expected), np.linalg.norm(S.x0), 1.0)
        assert np.linalg.norm(result.x[replication] - expected) <= 1e-12 * scale
        assert result.nit[replication] == steps or result.status[replication] is da.Status.HORIZON
        assert (result.draws[replication], result.nfev[replication]) == (S.draws, S.evals)


@pytest.mark.slow
def test_every_way_through_auto_equals_its_literal_loop(monkeypatch):
    stages, stage = set(), Auto.stage

    def watched(self, number, memory):
        stages.add(number >> 20 << 20)
        return stage(self, number, memory)

    monkeypatch.setattr(Auto, "stage", watched)
    turn = np.array([[0.0, -0.5], [0.5, 0.0]])

    def leaky(x):
        return np.where(x > 0, x, 0.1 * x) + x @ turn

    problems = [
        da.Problem(da.AdditiveNoise(leaky, 0.01, vectorized=True), np.full(2, 2.0), constants=da.Constants(L=3.6)),
        da.problems.affine(dimension=8),
        da.problems.huber_minimax(dimension=4),
        da.problems.finite_sum_cocoercive(components=9, dimension=8, rank=5),
        da.Problem(
            da.AdditiveNoise(lambda x: np.tanh(9 * x), 1.0, vectorized=True),
            np.full(4, 5.0),
            constants=da.Constants(L=9.0),
        ),
        da.Problem(
            da.AdditiveNoise(lambda x: 0.9 * x, 1e-9, vectorized=True), np.full(4, 5.0), constants=da.Constants(L=1.0)
        ),
    ]
    for problem in problems:
        for rounds, several, spare in ((150, 2, 0), (200, 1, 10), (400, 2, 100), (3000, 1, 0)):
            method = Auto(problem.step_size, rounds, several, spare)
            result = da.solve(problem, method, seed=SEED, reps=3, record=0)
            for replication in range(3):
                S = Samples(problem, SEED, replication)
                expected = LITERAL["auto"](method, S.x0, S, rounds + spare)
                scale = max(np.linalg.norm(expected), np.linalg.norm(S.x0), 1.0)
                assert np.linalg.norm(result.x[replication] - expected) <= 1e-10 * scale
                assert result.nfev[replication] == result.draws[replication] == S.evals
                assert rounds * several <= S.evals <= (rounds + spare) * several
    assert stages == {0, ESTIMATE, DUAL, EXTRA}


@every_method
def test_stopping_early_does_not_change_the_path(case):
    """The horizon sets the coefficients; where a run stops does not."""
    method = case.make(horizon=50)
    result = da.solve(case.problem, method, stop=da.Steps(37), seed=SEED, record=0)
    S = Samples(case.problem, SEED, 0)
    expected = LITERAL[case.method.id](method, S.x0, S, 37)
    scale = max(np.linalg.norm(expected), np.linalg.norm(S.x0), 1.0)
    assert np.linalg.norm(result.x - expected) <= 1e-12 * scale
    assert (result.nit, result.draws, result.nfev) == (37, S.draws, S.evals)


A = np.array([[0.6, 0.3], [-0.3, 0.6]])
OWN = {
    "sampler": da.Sampler(lambda x, n, rng: A @ x + rng.normal(size=(n, 2)).mean(axis=0), shards=2, replayable=True),
    "noise of its own": da.AdditiveNoise(
        lambda x: A @ x, noise=lambda n, rng: rng.exponential(size=(n, 2)).mean(0) - 1
    ),
    "components": da.FiniteSum(lambda x, i: np.cos(i)[:, None] + np.tile(A @ x, (i.size, 1)), 5),
    "matrices": da.FiniteSum.linear(np.stack([A, A.T, np.eye(2)]), np.eye(3)[:, :2]),
    "one component": da.FiniteSum.rank_one([[0.8]], targets=[2.0]),
    "one unknown": da.AdditiveNoise(lambda x: 0.5 * x, 1.0, vectorized=True),
}
"""Oracles that a user writes, with 1 or 2 unknowns."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_own_oracles_too(name):
    oracle = OWN[name]
    problem = da.Problem(oracle, [1.0] if name.startswith("one") else [1.0, -2.0], constants=da.Constants(L=1.0, M=1.0))
    tried = 0
    for entry in da.list_methods():
        case = Case(entry, problem)
        if not serves(problem, entry):
            continue
        for change in ({}, *({name: 4} for name in ("batch_size", "small_batch") if name in case.parameters)):
            method, tried = case.make(horizon=41, **change), tried + 1
            result = da.solve(problem, method, stop=da.Steps(25), seed=SEED, reps=2, record=0)
            for replication in range(2):
                S = Samples(problem, SEED, replication)
                expected = LITERAL[entry.id](method, S.x0, S, 25)
                np.testing.assert_allclose(result.x[replication], expected, rtol=1e-11, atol=1e-12)
                assert (result.draws[replication], result.nfev[replication]) == (S.draws, S.evals)
    assert tried >= 8


@pytest.mark.parametrize("entry", da.list_problems(), ids=lambda entry: entry.id)
def test_replications_differ_and_seeds_differ(entry):
    """Without this the comparisons above could compare one path with itself."""
    problem = small(entry)
    runs = [da.solve(problem, "sgda", budget=20, seed=seed, reps=2, record=0).x for seed in (1, 2)]
    points = np.concatenate(runs)
    assert len({point.tobytes() for point in points}) == 4
