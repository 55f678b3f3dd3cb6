"""What is recorded on the way: where it was asked for, consistent with the counters, and without side effects."""

import numpy as np
import pytest
from tests.contract.cases import SEED, bare, every_case, every_method, session_for
from tests.contract.driver import TickingClock
from tests.contract.oracles import WatchedProblem

import dualanchor as da

RECORDS = [None, 1, 5, 1000, "all", [0, 3, 7, 1000], np.array([2, 2, 5]), range(0, 50, 10)]


def assert_tidy(result):
    """One line per row and recorded step, in order, from no cost at step 0 to the counters at the end."""
    history = result.history
    lengths = {name: column.size for name, column in history.columns().items()}
    assert len(set(lengths.values())) == 1
    nit, nfev, draws = (np.ravel(getattr(result, name)) for name in ("nit", "nfev", "draws"))
    residual, status = np.ravel(result.residual), np.ravel(np.atleast_1d(result.status))
    assert set(history.row.tolist()) <= set(range(nit.size))
    for row in range(nit.size):
        lines = history.of(row)
        assert (np.diff(lines.k) > 0).all(), "steps increase, and none is recorded twice"
        assert (np.diff(lines.evals) > 0).all()
        assert (np.diff(lines.draws) >= 0).all()
        assert np.isfinite(lines.residual[:-1]).all()
        assert np.isfinite(lines.residual[-1]) == (status[row] is not da.Status.DIVERGED)
        if lines.k.size and lines.k[0] == 0:
            assert lines.evals[0] == lines.draws[0] == 0
        if status[row] is not da.Status.DIVERGED:
            last = lines.k[-1], lines.evals[-1], lines.draws[-1], lines.residual[-1]
            assert last == (nit[row], nfev[row], draws[row], residual[row])


@every_method
def test_recording_changes_nothing_but_the_history(case):
    method, options = case.make(horizon=40), {"budget": 90, "seed": SEED, "reps": 2}
    quiet = da.solve(case.problem, method, record=0, **options)
    for record in RECORDS:
        result = da.solve(case.problem, method, record=record, **options)
        np.testing.assert_array_equal(result.x, quiet.x)
        np.testing.assert_array_equal(result.nfev, quiet.nfev)
        np.testing.assert_array_equal(result.residual, quiet.residual)
        assert_tidy(result)


@every_case
def test_everything_is_recorded_with_the_true_residual(case):
    method, steps = case.make(horizon=40), 12
    result = da.solve(case.problem, method, stop=da.Steps(steps), seed=SEED, reps=2, record="all")
    assert_tidy(result)
    assert result.residual_kind == "true"
    for row in range(2):
        lines = result.history.of(row)
        assert lines.k.tolist() == list(range(steps + 1))
        for k in (0, 1, 5, steps):
            s, session = bare(case, method, [row], k)
            residual = np.linalg.norm(session.oracle.operator(s.x))
            assert lines.residual[k] == pytest.approx(residual, rel=1e-12)
            assert lines.evals[k] == np.broadcast_to(session.evals, 1)[0]
            assert lines.draws[k] == np.broadcast_to(session.draws, 1)[0]


@every_method
def test_residuals_next_to_rows_that_come_and_go_are_not_stale(case):
    """Each line's residual is that of the row's own iterate at that very step."""
    shorter = 9 if "horizon" in case.parameters else 30  # stages and rounds cannot differ within one array
    methods = [case.make(horizon=N, step_size=size) for N, size in ((shorter, 0.1), (30, 1e6), (30, 0.05))]
    stacked = da.solve(case.problem, methods, stop=da.Steps(25), seed=SEED, check=False, record="all")
    assert_tidy(stacked)
    for i, method in enumerate(methods):
        alone = da.solve(case.problem, method, stop=da.Steps(25), seed=SEED, check=False, record="all")
        lines = stacked.history.of(i)
        np.testing.assert_array_equal(lines.k, alone.history.k)
        np.testing.assert_array_equal(lines.evals, alone.history.evals)
        np.testing.assert_allclose(lines.residual, alone.history.residual, rtol=1e-10)


def test_points_are_spread_over_the_run():
    problem = da.problems.affine(dimension=4)
    history = da.solve(problem, da.SGDA(0.1), budget=1000, record=10).history
    assert history.k.tolist() == list(range(0, 1001, 100))
    assert da.solve(problem, da.SGDA(0.1), budget=1000, record=0).history.k.tolist() == [1000]
    assert da.solve(problem, da.SGDA(0.1), budget=1000, record=False).history.k.tolist() == [1000]
    assert da.solve(problem, da.SGDA(0.1), budget=1000, record=[1, 64, 65]).history.k.tolist() == [1, 64, 65, 1000]
    assert len(da.solve(problem, da.SGDA(0.1), budget=1000).history) == 65
    assert len(da.solve(problem, da.SGDA(0.1, 10), budget=1000, record=10).history) == 11
    assert len(da.solve(problem, da.SGDA(0.1), budget=1000, stop=da.Steps(30), record="all").history) == 31


def test_short_and_long_rows_of_one_run_get_points_of_their_own():
    problem = da.problems.affine(dimension=4)
    result = da.solve(problem, [da.DualOHM(1.0, 21), da.DualOHM(1.0, 2001)], record=10)
    assert set(range(0, 21, 2)) <= set(result.history.of(0).k.tolist())
    assert set(range(0, 2001, 200)) <= set(result.history.of(1).k.tolist())


def test_points_of_a_run_without_a_known_end_grow_apart(monkeypatch):
    TickingClock(monkeypatch)
    problem = da.problems.affine(dimension=4, sigma=0.5)
    result = da.solve(problem, da.SGDA(0.1), stop=da.Target(1e-9) | da.WallTime(3000.0))
    steps = result.history.k[:-1]
    assert len(steps) > 30
    assert result.history.k[-1] == result.nit
    gaps = np.diff(steps)
    assert (gaps <= np.maximum(1, steps[:-1] // 8)).all(), "no long interval is left without a point"
    assert len(steps) < 64 + 8 * np.log(result.nit)


@every_method
def test_single_evaluation_methods_spend_as_many_samples_as_evaluations(case):
    method = case.make(horizon=40)
    if method.needs or method.estimator_in_use is None:
        steps = da.solve(case.problem, method, stop=da.Steps(9), seed=SEED, record="all").history
        assert (steps.draws <= steps.evals).all()
    else:
        history = da.solve(case.problem, method, stop=da.Steps(30), seed=SEED, reps=2, record="all").history
        np.testing.assert_array_equal(history.draws, history.evals)


def test_an_operator_that_is_not_known_leaves_no_residuals():
    problem = da.Problem(da.Sampler(lambda x, n, rng: x + rng.normal(size=2)), np.ones(2))
    result = da.solve(problem, da.SGDA(0.1), budget=40, record=4, reps=2)
    assert result.residual is None
    assert result.residual_kind is None
    assert "residual" not in result.history.columns()
    assert result.history.k.tolist() == [0, 10, 20, 30, 40] * 2
    assert result.history.of(1).k.tolist() == [0, 10, 20, 30, 40]


@every_method
def test_looking_at_the_operator_is_kept_in_proportion(case):
    """An operator worth n evaluations is not computed 64 times in a run of a few n, unless asked for."""
    problem = WatchedProblem(case.problem)
    problem.instance = lambda streams, ask=problem.instance: _dear(ask(streams))
    da.solve(problem, case.make(horizon=200), budget=200)
    assert problem.log.looks <= 5
    problem.log.looks = 0
    da.solve(problem, case.make(horizon=200), budget=200, record=20)
    assert problem.log.looks > 5


def _dear(instance):
    instance.oracle.operator_price = 100.0
    return instance


@every_method
def test_the_first_residual_is_that_of_the_start(case):
    start, session, _ = session_for(case, [0, 1, 2])
    expected = np.linalg.norm(session.oracle.operator(start), axis=1)
    history = da.solve(case.problem, case.make(), stop=da.Steps(1), seed=SEED, reps=3, record=[0]).history
    np.testing.assert_allclose(history.residual[history.k == 0], expected, rtol=1e-12)
