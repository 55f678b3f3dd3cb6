"""Compiled steps take the readable steps, number for number."""

import sys

import numpy as np
import pytest
from tests.contract.cases import CASES, ON_ONE, SEED, assert_close, every_case, every_method, every_stack, every_variant

import dualanchor as da
from dualanchor import fast
from dualanchor.core.method import State
from dualanchor.fast.steps import Steps, steps_of
from dualanchor.fast.stretch import Stretch
from dualanchor.run.combine import combined_update

PAPER = {"s-dual-ohm", "s-ohm", "sgda", "seg", "rain", "halpern-page"}
SAMPLED = {"worst-case-nonexpansive", "huber-minimax", "finite-sum-cocoercive"}


def both_ways(case, methods, **options):
    """Results without and with compiled steps; bit for bit the same, or to rounding where a batch is a sum."""
    options = {"seed": SEED, "check": False, **options}
    readable, compiled = (da.solve(case.problem, methods, fast=on, **options) for on in (False, True))
    for name in ("status", "nit", "nfev", "draws"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(readable, name), err_msg=name)
    for name in ("row", "k", "draws", "evals"):
        np.testing.assert_array_equal(getattr(compiled.history, name), getattr(readable.history, name), err_msg=name)
    finite = np.isfinite(readable.residual)
    np.testing.assert_array_equal(np.isfinite(compiled.residual), finite)
    assert_close(case, compiled.x[finite], readable.x[finite])
    assert_close(case, np.asarray(compiled.residual)[finite], np.asarray(readable.residual)[finite])
    for name, value in readable.state.items():
        assert_close(case, np.asarray(compiled.state[name])[np.ravel(finite)], np.asarray(value)[np.ravel(finite)])
    return compiled


@pytest.fixture
def stretches(monkeypatch):
    """How many steps were taken by compiled stretches."""
    taken = []
    advance = Stretch.advance

    def counted(self, method, state, session, ks, coins, asked=()):
        found = advance(self, method, state, session, ks, coins, asked)
        taken.append(0 if found is None else len(ks))
        return found

    monkeypatch.setattr(Stretch, "advance", counted)
    return taken


@pytest.mark.slow
@every_variant
def test_one_run(case, change):
    both_ways(case, case.make(**change), stop=da.Steps(60))


@every_stack
def test_a_grid_with_replications(case, methods):
    both_ways(case, methods, budget=300, reps=3)


@pytest.mark.slow
@every_case
def test_rows_that_diverge(case):
    methods = [case.make(horizon=130, step_size=size) for size in (0.1, 2000.0, 1e6, 0.05, 700.0)]
    both_ways(case, methods, stop=da.Steps(120), reps=3)


@pytest.mark.parametrize("case", [c for c in CASES if c.method.id in PAPER and c.problem.name in SAMPLED], ids=str)
def test_the_paper_s_methods_on_its_problems_are_compiled(case, stretches):
    large = {"big_batch": 5} if "big_batch" in case.parameters else {}  # at most n: larger batches are drawn otherwise
    both_ways(case, case.make(**large), stop=da.Steps(40), reps=2)
    assert sum(stretches) == 40


@pytest.mark.parametrize("d", [512, 1025, 1300])
@pytest.mark.parametrize("problem", ["worst-case-nonexpansive", "huber-minimax"])
@pytest.mark.parametrize("method", [da.SEG(0.05), da.RAIN(0.05), da.HalpernPAGE(0.05, 8, 2), da.DualOHM(0.05, 40)])
def test_rows_longer_than_the_chunks_in_which_an_operator_and_its_use_take_turns(method, problem, d, stretches):
    problem = da.problems.make(problem, {"dimension": d + d % 2 if problem == "huber-minimax" else d})
    options = {"stop": da.Steps(30), "reps": 2, "seed": SEED, "check": False}
    readable, compiled = (da.solve(problem, method, fast=on, **options) for on in (False, True))
    assert sum(stretches) == 30
    for name, value in readable.state.items():
        np.testing.assert_array_equal(compiled.state[name], value, err_msg=name)


@every_method
def test_a_run_that_is_taken_up_again_goes_on_as_it_would_have(case, tmp_path):
    method, options = case.make(horizon=60), {"seed": SEED, "reps": 3, "fast": True, "record": [0, 7, 31, 50]}
    whole = da.solve(case.problem, method, stop=da.Steps(50), **options)
    stopped = []

    def stop_at_31(intermediate_result):
        stopped.append(int(np.max(intermediate_result.nit)))
        if stopped[-1] == 31:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        da.solve(
            case.problem,
            method,
            stop=da.Steps(50),
            callback=stop_at_31,
            checkpoint=da.Checkpoint(tmp_path / "run.npz", seconds=0),
            **options,
        )
    again = da.solve(case.problem, method, stop=da.Steps(50), checkpoint=tmp_path / "run.npz", **options)
    np.testing.assert_array_equal(again.x, whole.x)


@pytest.mark.parametrize("case", [c for c in ON_ONE if c.method.cls.step is da.Method.step], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_updates_of_long_rows(case, dtype):
    """By compiled passes and in pieces: what `update` does to the whole, bit for bit. By BLAS: to rounding."""
    method = case.make()
    rng = np.random.default_rng(3)
    start, values = rng.standard_normal((2, 200_011)).astype(dtype), rng.standard_normal((5, 2, 200_011)).astype(dtype)
    states = [method.init(start) for _ in range(4)]
    compiled, combined = fast.compiled_update(method, states[1]), combined_update(method, states[2])
    if method.id in {"s-dual-ohm", "dual-ohm", "s-ohm", "sgda", "sgda-decreasing", "oc-halpern", "dual-oc-halpern"}:
        assert compiled is not None
        assert combined is not None
    for k, G in enumerate(values):
        states = [State(**vars(s)) for s in states]
        ways = (method.update, compiled or method.update, combined or method.update, method.update_in_pieces)
        for way, s in zip(ways, states, strict=True):
            way(k, s, G)
    whole, passes, terms, pieces = states
    for name, value in vars(whole).items():
        assert value.dtype == getattr(terms, name).dtype == dtype
        np.testing.assert_array_equal(getattr(passes, name), value, err_msg=name)
        np.testing.assert_array_equal(getattr(pieces, name), value, err_msg=name)
        np.testing.assert_allclose(getattr(terms, name), value, rtol=0, atol=30 * np.finfo(dtype).eps, err_msg=name)


def test_a_long_row_is_solved_alike_by_all_three_ways():
    d = 70_001
    problem = da.Problem(da.AdditiveNoise(lambda x: 0.5 * x, sigma=0.1), x0=np.ones(d), constants=da.Constants(L=1.0))
    method = da.DualOHM(step_size=1.0, horizon=12, batch_size=3)
    runs = [da.solve(problem, method, fast=on) for on in (False, True)]
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=0, atol=1e-14)
    streams = da.Streams(0, np.arange(1), dimension=d)
    s, session = method.init(np.ones((1, d))), da.Session(problem.instance(streams).oracle, streams)
    for k in range(11):
        method.step(k, s, session)
    np.testing.assert_array_equal(runs[1].x, s.x[0])


@pytest.mark.parametrize("on", [False, True])
def test_long_rows_come_out_the_same_whatever_is_beside_them(on):
    oracle, constants = da.AdditiveNoise(lambda x: 0.5 * x, sigma=0.1), da.Constants(L=1.0)
    problem = da.Problem(oracle, np.ones(70_001), constants=constants)
    methods = [da.DualOHM(0.5, 12), da.DualOHM(1.0, 9), da.DualOHM(0.7, 12)]
    together = da.solve(problem, methods, budget=9, reps=2, fast=on, check=False)
    for i, method in enumerate(methods):
        for rep in range(2):
            alone = da.solve(problem, method, budget=9, reps=[rep], fast=on, check=False)
            np.testing.assert_array_equal(together.x[i, rep], alone.x[0])


class Neighbours(da.Oracle):
    """Coordinates and their neighbours, as a product of a sparse matrix with all rows gives them: column by column."""

    replayable = rowwise = True

    def draw(self, streams, size):
        return da.Batch(size, 0.01 * streams.normals())

    def mean(self, x, batch):
        return np.asfortranarray(x - 0.5 * np.roll(x, 1, axis=1) + batch.data)


class Itself(da.Oracle):
    """F(x) = x, handed out as the very array that it was given."""

    def draw(self, streams, size):
        return da.Batch(size, None)

    def mean(self, x, batch):
        return x


@pytest.mark.parametrize("on", [False, True])
def test_long_rows_of_a_value_that_stands_otherwise_in_memory(on):
    problem, method = da.Problem(Neighbours(), np.cos(np.arange(70_000))), da.DualOHM(0.3, horizon=20)
    together = da.solve(problem, method, budget=15, reps=3, check=False, fast=on).x
    for rep in range(3):
        alone = da.solve(problem, method, budget=15, reps=[rep], check=False, fast=on).x
        np.testing.assert_array_equal(alone[0], together[rep])


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("method", [da.DualOHM(0.5, horizon=20), da.OHM(0.5), da.SGDA(0.5), da.DualOCHalpern(0.5, 20)])
def test_an_oracle_that_returns_its_point_does_no_harm_in_long_rows(method, on):
    short, long = (
        da.solve(da.Problem(Itself(), np.ones(d)), method, budget=10, check=False, fast=on).x for d in (3, 70_000)
    )
    np.testing.assert_allclose(long[:3], short, rtol=1e-14)


def test_what_is_compiled_in_long_rows_depends_on_nothing_but_them():
    problem = da.problems.worst_case_nonexpansive(dimension=70_000)
    methods = [da.DualOHM(0.5, horizon=40), da.DualOHM(0.3, horizon=30)]
    alone, together = (da.solve(problem, some, budget=20, reps=2, check=False).x for some in (methods[:1], methods))
    np.testing.assert_array_equal(alone[0], together[0])


def test_asking_in_vain_is_noted_and_other_words_are_refused():
    own = da.Problem(da.AdditiveNoise(lambda x: x, sigma=0.1), x0=np.ones(3), constants=da.Constants(L=1.0))
    method = da.SGDA(0.1)
    assert any("nothing to compile" in note for note in da.solve(own, method, budget=9, fast=True).notes)
    known = da.problems.huber_minimax(dimension=4)
    for problem, on in ((own, None), (own, False), (known, True)):
        assert not any("nothing to compile" in note for note in da.solve(problem, method, budget=9, fast=on).notes)
    with pytest.raises(da.errors.ArgumentTypeError, match=r"fast must be True, False or None. Got 'yes'"):
        da.solve(known, method, budget=9, fast="yes")


def test_data_that_are_not_numbers_are_a_defect_and_no_divergence():
    U = np.random.default_rng(0).standard_normal((50, 6))
    U[17, 3] = np.nan
    problem = da.Problem(da.FiniteSum.rank_one(U), x0=np.ones(6), constants=da.Constants(L=1.0))
    errors = []
    for on in (False, True):
        with pytest.raises(da.errors.OracleError, match="Got NaN") as caught:
            da.solve(problem, da.SGDA(0.01), budget=2000, fast=on)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_which_methods_are_compiled():
    """All whose steps are elementwise formulas between at most two evaluations of F."""
    compiled = {case.method.id for case in ON_ONE if steps_of(case.make()) is not None}
    assert compiled >= PAPER | {"dual-ohm", "dual-oc-halpern", "oc-halpern", "eag-c", "feg", "sgda-decreasing"}
    assert not compiled & {"auto", "averaged", "restarted-dual-ohm", "rain-double-loop"}


@pytest.mark.parametrize("name", sorted(SAMPLED))
def test_what_is_recorded_does_not_depend_on_how_far_leaps_go(name, monkeypatch):
    """How far they go depends on the clock; a full pass over a sum rounds differently beside other points."""
    options = {"rank": 49, "components": 80} if name == "finite-sum-cocoercive" else {}
    problem = da.problems.make(name, {"dimension": 50, **options})
    methods = [da.SGDA(size) for size in (0.001, 0.003, 0.01, 0.03, 0.1)]
    runs = []
    for reach in (1024, 7, 100, 33):
        monkeypatch.setattr("dualanchor.run.loop._REACH", reach)
        result = da.solve(problem, methods, budget=400, reps=3, record=50, fast=True)
        order = np.lexsort((result.history.row, result.history.k))
        runs.append([result.history.k[order], result.history.residual[order]])
    for other in runs[1:]:
        np.testing.assert_array_equal(other, runs[0])


def test_batches_that_outgrow_a_sum_are_compiled_up_to_there_however_far_leaps_go():
    problem = da.problems.finite_sum_cocoercive(components=50, dimension=31, rank=20)
    method, options = da.SEG(0.5, batch_size=da.Growing(0.5)), {"reps": 3, "check": False, "record": 0, "fast": True}
    whole = da.solve(problem, method, stop=da.Steps(150), **options)
    never = da.Target(1e-300, every=7)
    np.testing.assert_array_equal(da.solve(problem, method, stop=da.Steps(150) | never, **options).x, whole.x)


def test_a_mutant_of_a_compiled_step_is_caught(monkeypatch):
    case = next(c for c in CASES if c.method.id == "s-dual-ohm" and c.problem.name == "huber-minimax")
    both_ways(case, case.make(), stop=da.Steps(20))
    monkeypatch.setattr(Steps, "coefficients", lambda self, k, given: [np.ones_like(k), given[0], given[0]])
    with pytest.raises(AssertionError):
        both_ways(case, case.make(), stop=da.Steps(20))


def test_a_subclass_with_a_formula_of_its_own_is_not_compiled_as_its_parent():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Slower(da.DualOHM):
        def update(self, k, s, G):
            s.x -= 0.01 * G

    problem = da.problems.worst_case_nonexpansive(dimension=11)
    runs = [da.solve(problem, Slower(0.5, horizon=100), fast=on) for on in (False, True)]
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    assert fast.compiled_update(Slower(0.5, horizon=100), Slower(0.5, horizon=100).init(np.ones((1, 3)))) is None


def test_asking_for_compiled_steps_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    problem = da.problems.huber_minimax(dimension=4)
    da.solve(problem, budget=20)
    with pytest.raises(da.errors.MissingExtraError, match=r"dualanchor\[fast\]"):
        da.solve(problem, budget=20, fast=True)
