"""Methods as records: what they are made of, and what they refuse."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da
import dualanchor.methods
from dualanchor.core.session import Session
from dualanchor.methods import make

PROBLEM = da.problems.affine(dimension=4)
STRONG = da.problems.affine(dimension=4, mu=0.5)
FINITE = da.problems.finite_sum_cocoercive(components=9, dimension=5, rank=4)
METHODS = pytest.mark.parametrize("entry", da.list_methods(), ids=lambda entry: entry.id)


def problem_for(entry):
    """The first problem that has what the method needs: a finite sum, or strong monotonicity."""
    for problem in (PROBLEM, FINITE):
        try:
            make(entry.id, problem, 100, {})
        except (da.errors.CapabilityError, da.errors.ArgumentError):
            continue
        return problem
    return STRONG


@METHODS
def test_a_name_is_enough(entry):
    problem = problem_for(entry)
    method = make(entry.id, problem, 100, {})
    assert isinstance(method, entry.cls)
    method.check(problem.constants)
    by_name = da.solve(problem, entry.id, budget=100)
    np.testing.assert_array_equal(by_name.x, da.solve(problem, method, budget=100).x)
    assert by_name.method["id"] == entry.id
    assert by_name.method["parameters"].keys() == method.parameters().keys()


@METHODS
def test_methods_are_values(entry):
    problem = problem_for(entry)
    one, other = make(entry.id, problem, 100, {}), make(entry.id, problem, 100, {})
    assert one == other
    assert hash(one) == hash(other)
    assert one != one.with_changes(step_size=one.step_size / 2)
    assert f"step_size={one.step_size}" in repr(one)


@METHODS
def test_docstrings_have_their_parts(entry):
    for part in ("\n    Guarantee", "Parameters\n", "Examples\n"):
        assert part in entry.cls.__doc__


def test_default_steps():
    assert make("s-dual-ohm", PROBLEM, 50, {}).step_size == PROBLEM.step_size
    worst = da.problems.worst_case_nonexpansive(dimension=5)
    assert make("s-dual-ohm", worst, 50, {}).step_size == 1.0
    assert make("sgda", worst, 50, {}).step_size == 0.5
    assert make("seg", worst, 50, {}).step_size == 0.25
    assert make("halpern-vr-finite", FINITE, 50, {}).step_size == 0.25
    assert make("halpern-vr-finite", FINITE, 50, {}).components == 9


def test_the_default_method_is_the_papers():
    assert da.solve(PROBLEM, budget=20).method["id"] == "s-dual-ohm"


@METHODS
def test_what_neither_problem_nor_budget_imply_must_be_given(entry):
    bare = da.Problem(da.FiniteSum(lambda x, i: np.tile(x, (i.size, 1)), 3), np.ones(2))
    if entry.id == "svrg":  # finds its steps
        assert make(entry.id, bare, 50, {}).step_size is None
        return
    with pytest.raises(da.errors.ArgumentError, match=r"step_size must be given|follow from"):
        make(entry.id, bare, 50, {})
    if "horizon" in entry.cls.parameter_names() and entry.cls.id == "s-dual-ohm":
        with pytest.raises(da.errors.ArgumentError, match="horizon must be given"):
            make(entry.id, PROBLEM, None, {})


@METHODS
def test_a_direct_step_past_the_horizon_raises(entry):
    if "horizon" not in entry.cls.parameter_names():
        return
    method = make(entry.id, PROBLEM, None, {"horizon": 5})
    F = Session(PROBLEM.instance(da.Streams(0, np.arange(2))).oracle, da.Streams(0, np.arange(2), dimension=4))
    s = method.init(np.zeros((2, 4)))
    coin = None if method.probability(0) is None else np.ones(2, bool)
    for k in range(4):
        method.step(k, s, F, coin)
    before = s.copy()
    for k in (4, 5, 100):
        with pytest.raises(da.errors.HorizonError, match=f"k = {k}"):
            method.step(k, s, F, coin)
    np.testing.assert_array_equal(before.x, s.x)
    one = make(entry.id, PROBLEM, None, {"horizon": 1})
    with pytest.raises(da.errors.HorizonError):
        one.step(0, one.init(np.zeros((2, 4))), F, coin)


def test_a_method_without_a_single_update_says_so():
    with pytest.raises(NotImplementedError, match="SEG"):
        da.SEG(0.1).update(0, None, None)


def test_a_state_can_be_taken_and_copied():
    s = da.DualOHM(1.0, 5).init(np.arange(6.0).reshape(3, 2))
    part = s.take(np.array([2, 0]))
    np.testing.assert_array_equal(part.x, [[4, 5], [0, 1]])
    copied = s.copy()
    copied.x += 1
    np.testing.assert_array_equal(s.x, np.arange(6.0).reshape(3, 2))
    assert set(vars(s)) == {"x", "z"}


@pytest.mark.parametrize(
    ("make_method", "limit"),
    [
        (lambda step: da.DualOHM(step, 20), 2.0),
        (lambda step: da.OHM(step, 20), 2.0),
        (lambda step: da.HalpernPAGE(step), 2.0),
    ],
)
def test_steps_up_to_the_limit_are_admitted(make_method, limit):
    for L in (1.0, 3.0, 0.7):
        problem = da.problems.affine(dimension=4, L=L)
        da.solve(problem, make_method(limit / L), budget=20)
        too_large = make_method(limit / L * 1.001)
        with pytest.raises(da.errors.ArgumentError, match="step_size must satisfy"):
            da.solve(problem, too_large, budget=20)
        assert da.solve(problem, too_large, budget=20, check=False).nit > 0
        with pytest.raises(da.errors.ArgumentError, match="step_size must satisfy"):
            da.solve(problem, [make_method(limit / L), too_large], budget=20)
    unknown = da.Problem(da.AdditiveNoise(lambda x: x, 0.1), np.ones(2))
    da.solve(unknown, make_method(100.0), stop=da.Steps(3))


def test_methods_without_a_rule_take_any_step():
    for method in (da.SGDA(50.0), da.SEG(50.0), da.RAIN(50.0)):
        da.solve(PROBLEM, method, stop=da.Steps(3))


def test_a_method_found_in_a_file_of_its_own_needs_no_registration():
    ids = {entry.id for entry in da.list_methods()}
    classes = {entry.cls for entry in da.list_methods()}
    assert len(ids) == len(classes)
    files = {Path(inspect.getfile(cls)) for cls in classes}
    assert {path.parent for path in files} == {Path(dualanchor.methods.__file__).parent}
