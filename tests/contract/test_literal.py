"""Every method does what its formula says, to rounding, with exactly the samples it is charged for."""

import numpy as np
import pytest
from tests.contract.cases import SEED, every_variant, small
from tests.contract.literal import LITERAL, Samples

import dualanchor as da


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
        assert (result.nit[replication], result.draws[replication]) == (steps, S.draws)
        assert result.nfev[replication] == S.evals


@every_variant
def test_stopping_early_does_not_change_the_path(case, change):
    """The horizon sets the coefficients; where a run stops does not."""
    method = case.make(horizon=50, **change)
    result = da.solve(case.problem, method, stop=da.Steps(37), seed=SEED, record=0)
    S = Samples(case.problem, SEED, 0)
    expected = LITERAL[case.method.id](method, S.x0, S, 37)
    scale = max(np.linalg.norm(expected), np.linalg.norm(S.x0), 1.0)
    assert np.linalg.norm(result.x - expected) <= 1e-12 * scale
    assert (result.nit, result.draws, result.nfev) == (37, S.draws, S.evals)


@pytest.mark.parametrize("entry", da.list_problems(), ids=lambda entry: entry.id)
def test_replications_differ_and_seeds_differ(entry):
    """Without this the comparisons above could compare one path with itself."""
    problem = small(entry)
    runs = [da.solve(problem, "sgda", budget=20, seed=seed, reps=2, record=0).x for seed in (1, 2)]
    points = np.concatenate(runs)
    assert len({point.tobytes() for point in points}) == 4
