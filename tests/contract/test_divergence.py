"""A row that leaves the finite numbers is an ordinary outcome: retired at the right step, without effect on others."""

import warnings

import numpy as np
import pytest
from tests.contract.cases import SEED, Case, bare, every_diverging_case, every_diverging_method
from tests.contract.driver import CHUNK_SECONDS, Clock
from tests.contract.oracles import WatchedProblem

import dualanchor as da
from dualanchor.core.streams import Purpose
from dualanchor.run.driver import CHECK_INTERVAL
from dualanchor.run.rows import WINDOW


def iterate(s):
    """What moves: a method made of stages may return the end of the stage before."""
    return getattr(s, "iterate", s.x)


def blow_up(case, **changes):
    return case.make(horizon=400, step_size=1e6, **changes)


@every_diverging_method
def test_a_diverged_row_says_so(case):
    result = da.solve(case.problem, blow_up(case), stop=da.Steps(390), seed=SEED, reps=3, check=False)
    assert (result.status == da.Status.DIVERGED).all()
    assert np.isposinf(result.residual).all()
    assert not result.success.any()
    assert (result.nit < 390).all()
    assert "diverged" in result.message
    with pytest.raises(da.errors.UnsuccessfulError, match="diverged"):
        result.raise_for_status()


@every_diverging_case
def test_it_ends_at_the_very_step_that_was_too_large(case):
    """One step earlier the iterate could still be squared, for every row and however rows are grouped."""
    method = blow_up(case)
    result = da.solve(case.problem, method, stop=da.Steps(390), seed=SEED, reps=3, check=False)
    with np.errstate(all="ignore"):
        for row, nit in enumerate(result.nit):
            before, _ = bare(case, method, [row], int(nit) - 1)
            after, session = bare(case, method, [row], int(nit))
            assert np.isfinite(np.sum(iterate(before) ** 2))
            assert not np.isfinite(np.sum(iterate(after) ** 2))
            assert result.nfev[row] == np.broadcast_to(session.evals, 1)[0]
            assert result.draws[row] == np.broadcast_to(session.draws, 1)[0]


@every_diverging_method
def test_a_diverged_row_stops_costing(case):
    """The counting oracle sees some calls twice, when the run goes back to find the step; never a retired row."""
    problem = WatchedProblem(case.problem)
    methods = [blow_up(case), case.make(horizon=400, step_size=0.01)]
    together = da.solve(problem, methods, stop=da.Steps(150), seed=SEED, check=False, record=0)
    assert together.status[0, 0] is da.Status.DIVERGED
    assert together.status[1, 0] is da.Status.STEPS
    alone = WatchedProblem(case.problem)
    quiet = da.solve(alone, methods[1], stop=da.Steps(150), seed=SEED, check=False, record=0)
    assert quiet.nfev == together.nfev[1, 0]
    again = da.solve(case.problem, methods[1], stop=da.Steps(CHECK_INTERVAL), seed=SEED, check=False, record=0)
    assert problem.log.evals <= together.nfev.sum() + again.nfev  # the steps of one chunk, for the diverged row alone


def test_no_row_but_the_diverged_ones_is_stepped_again(monkeypatch):
    """In a grid of 60 configurations, 3 of which diverge in different chunks; F(x) = x, counted row by row."""
    Clock(monkeypatch)
    evaluated = np.zeros((60, 2), int)

    class Counting(da.Oracle):
        rows = None

        def draw(self, streams, size):
            return da.Batch(size, None)

        def mean(self, x, batch):
            evaluated.ravel()[self.rows] += 1
            return x

        def take(self, rows):
            part = Counting()
            part.rows = np.arange(len(rows)) if self.rows is None else self.rows[rows]
            return part

    methods = [da.SGDA(size) for size in (3.0, *[0.1] * 28, 30.0, *[0.5] * 29, 1e4)]
    problem, steps = da.Problem(Counting(), np.ones(2)), 5 * CHECK_INTERVAL
    result = da.solve(problem, methods, stop=da.Steps(steps), reps=2, record=0)
    gone = result.status == da.Status.DIVERGED
    assert np.flatnonzero(gone[:, 0]).tolist() == np.flatnonzero(gone[:, 1]).tolist() == [0, 29, 59]
    assert (evaluated[~gone] == steps).all()
    chunk = (result.nit[gone] - 1) // CHECK_INTERVAL  # in which the row diverged
    assert len(set(chunk)) == 2
    begin, end = np.maximum(WINDOW, chunk * CHECK_INTERVAL), (chunk + 1) * CHECK_INTERVAL  # first steps alone
    np.testing.assert_array_equal(evaluated[gone], end + result.nit[gone] - begin)


@every_diverging_method
def test_nothing_is_recorded_past_divergence(case):
    methods = [blow_up(case), case.make(horizon=400, step_size=0.01)]
    result = da.solve(case.problem, methods, stop=da.Steps(100), seed=SEED, check=False, record="all")
    gone = result.history.of(0)
    assert gone.k.tolist() == list(range(result.nit[0, 0] + 1))
    assert np.isfinite(gone.residual[:-1]).all()
    assert np.isinf(gone.residual[-1])  # the curve of a diverged row does not stay where it was last seen
    assert result.history.of(1).k.tolist() == list(range(101))
    assert np.isfinite(result.history.of(1).residual).all()


def test_rain_with_growth_one_neither_warns_nor_disturbs_others():
    """Its weights pass the largest float after 1,024 of 5,000 steps."""
    problem = da.problems.affine(dimension=8)
    methods = [da.RAIN(1e-3, 0.01, growth) for growth in (1.0, 1e-4, 5.0)]
    options = {"stop": da.Steps(5000), "seed": SEED, "reps": 2, "record": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stacked = da.solve(problem, methods, **options)
        quiet = da.solve(problem, methods[1], **options)
    assert (stacked.status[0] == da.Status.DIVERGED).all()
    assert (stacked.status[2] == da.Status.DIVERGED).all()
    assert (stacked.nit[1] == 5000).all()
    np.testing.assert_array_equal(stacked.x[1], quiet.x)


def test_rain_at_a_root_stays_there_or_diverges_quietly():
    """Infinite weight times zero distance is not a number; the outcome is a status all the same."""
    problem = da.Problem(da.AdditiveNoise(lambda x: x, 0.0), np.zeros(3), constants=da.Constants(L=1.0))
    result = da.solve(problem, da.RAIN(0.1, 0.01, 1.0), stop=da.Steps(5000), record=0)
    assert result.status in (da.Status.DIVERGED, da.Status.STEPS)


@every_diverging_method
def test_without_a_known_operator_a_diverged_row_has_no_residual(case):
    def sample(x, n, rng):
        return 2 * x + rng.normal(size=x.size) / np.sqrt(n)

    problem = da.Problem(da.Sampler(sample), np.ones(8), constants=da.Constants(L=2.0))
    other = Case(case.method, problem)
    try:
        method = blow_up(other)
    except da.errors.CapabilityError:
        return  # it needs a finite sum, whose operator is known
    result = da.solve(problem, method, stop=da.Steps(390), check=False)
    assert result.status is da.Status.DIVERGED
    assert result.residual is None
    assert result.residual_kind is None


def test_single_precision_diverges_at_the_limit_of_single_precision():
    problem = da.Problem(da.AdditiveNoise(lambda x: x, 0.0), np.ones(3, np.float32))
    result = da.solve(problem, da.SGDA(11.0), stop=da.Steps(100), check=False)
    assert result.status is da.Status.DIVERGED
    assert result.nit == 20  # 3 * 10^(2k) passes 3.4e38 at k = 20, with factors of -10


def test_an_infinite_sample_is_divergence_and_not_an_error():
    def operator(x):
        return np.where(np.abs(x) < 0.5, np.inf, x)

    problem = da.Problem(da.AdditiveNoise(operator, 0.0), np.ones(2), constants=da.Constants(L=1.0))
    result = da.solve(problem, da.SGDA(0.1), budget=50, record=0)
    assert result.status is da.Status.DIVERGED
    assert result.nit == 8  # 0.9^7 < 0.5, so the eighth step is infinite


def test_divergence_with_samples_that_cannot_be_had_again():
    """The run then checks every step, since it could not go back; undeclared, it is found out at the divergence."""
    rng = np.random.default_rng(0)
    asked = []

    def simulate(x, n, _):
        asked.append(n)
        return 2 * x + rng.normal(size=x.size)

    for declared in (False, None):
        asked.clear()
        problem = da.Problem(da.Sampler(simulate, replayable=declared), np.ones(2))
        methods = [da.SGDA(100.0), da.SGDA(0.1)]
        result = da.solve(problem, methods, stop=da.Steps(300), record=0)
        assert result.status[0, 0] is da.Status.DIVERGED
        assert result.status[1, 0] is da.Status.STEPS
        again = sum(asked) - result.nfev.sum()  # not declared: steps are taken again to find the one that was too large
        assert again == 0 if declared is False else 0 <= again <= 2 * CHECK_INTERVAL


@pytest.mark.parametrize("record", [0, "all"])
def test_an_excursion_is_seen_whatever_is_recorded(record):
    """Steps that are far too large at first and small later: the iterate leaves, and would come back."""
    problem = da.problems.huber_minimax(dimension=4, mu=1.0)
    method = da.DecreasingSGDA(1e6, 1, 1.0, mu=0.0019)
    result = da.solve(problem, method, stop=da.Steps(4000), check=False, record=record)
    assert (result.status, result.nit) == (da.Status.DIVERGED, 224)


def test_a_value_that_turns_complex_on_the_way_is_located():
    def operator(x):
        value = np.emath.sqrt(9.0 - x) - 2.0  # complex once x > 9
        return -abs(value) if np.isrealobj(value) else value

    oracle = da.AdditiveNoise(operator, sigma=0.1, vectorized=True)
    problem = da.Problem(oracle, np.zeros(5), constants=da.Constants(L=2.0))
    with pytest.raises(da.errors.OracleError, match="dtype complex128 at iteration 460") as caught:
        da.solve(problem, da.SEG(0.1), stop=da.Steps(500), check=False, record=0)
    assert caught.value.result.nit == 460


def test_a_row_that_comes_back_from_far_out_ends_alike_however_often_it_is_checked(monkeypatch):
    problem = da.problems.finite_sum_cocoercive(components=9, dimension=4, rank=3)
    method, options = da.HalpernPAGE(6.0, 7, 3), {"stop": da.Steps(2000), "reps": [4, 5], "check": False, "seed": 3}
    usual = da.solve(problem, method, record=0, **options)
    for seconds in (0.01, 1e9):
        monkeypatch.setattr(CHUNK_SECONDS, seconds)
        other = da.solve(problem, method, record=0, **options)
        np.testing.assert_array_equal(other.nit, usual.nit)
        np.testing.assert_array_equal(other.x, usual.x)
    np.testing.assert_array_equal(da.solve(problem, method, record="all", **options).nit, usual.nit)


def test_rows_that_diverge_return_to_the_start_of_their_replication() -> None:
    problem, reps = da.problems.huber_minimax(), 3
    starts = problem.instance(da.Streams(0, np.arange(reps), Purpose.INSTANCE)).x0
    result = da.solve(problem, [da.SGDA(50.0), da.SGDA(60.0)], budget=2000, reps=reps, check=False)
    assert all(status is da.Status.DIVERGED for status in result.status.ravel())
    np.testing.assert_array_equal(result.x, np.stack([starts, starts]))
