"""Rules by themselves: how many more steps they allow."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import Cost
from dualanchor.run.stop import UNLIMITED, Outlook, Rule


def outlook(k=0, rows=2, evals=0, draws=0, ahead=(1, 2, 3, 4), samples=(0, 1, 1, 2), elapsed=0.0, residual=(1.0, 2.0)):
    return Outlook(
        k=k,
        rows=rows,
        evals=evals,
        draws=draws,
        ahead=Cost(draws=np.array(samples), evals=np.array(ahead)),
        elapsed=elapsed,
        residual=lambda: np.array(residual),
    )


def test_a_budget_allows_what_it_can_pay_for():
    rule = da.Budget(10)
    assert rule.allowance(outlook(evals=0)) == 4
    assert rule.allowance(outlook(evals=8)) == 2
    assert rule.allowance(outlook(evals=10)) == 0
    per_row = rule.allowance(outlook(evals=np.array([6, 9]), ahead=[[1, 2, 3], [2, 4, 6]]))
    assert per_row.tolist() == [3, 0]
    assert rule.allowance(outlook(evals=np.array([6, 9]))).tolist() == [4, 1]


def test_samples_are_counted_apart_from_evaluations():
    rule = da.Draws(10)
    assert rule.allowance(outlook(draws=8)) == 4
    assert rule.allowance(outlook(draws=9)) == 3
    assert rule.allowance(outlook(draws=10)) == 1
    assert rule.allowance(outlook(draws=np.array([9, 10]))).tolist() == [3, 1]
    assert rule.status is da.Status.BUDGET


def test_steps_targets_and_clocks():
    assert da.Steps(5).allowance(outlook(k=3)) == 2
    assert da.Steps(5).allowance(outlook(k=7)) <= 0
    assert da.Target(1.5).allowance(outlook()).tolist() == [0, UNLIMITED]
    assert da.Target(1.0).allowance(outlook()).tolist() == [0, UNLIMITED]
    assert da.Target(5.0, every=2).allowance(outlook(k=3)) == UNLIMITED
    assert da.WallTime(2).allowance(outlook(elapsed=1.9)) == UNLIMITED
    assert da.WallTime(2).allowance(outlook(elapsed=2.0)) == 0


def test_combinations_allow_the_least_or_the_most():
    steps, budget, target = da.Steps(2), da.Budget(3), da.Target(1.5)
    assert (steps | budget).allowance(outlook()) == 2
    assert (steps & budget).allowance(outlook()) == 3
    assert (target | steps).allowance(outlook()).tolist() == [0, 2]
    assert (target & steps).allowance(outlook()).tolist() == [2, UNLIMITED]
    assert ((target & steps) | budget).leaves() == [target, steps, budget]


def test_reasons_name_the_rule_that_stopped_the_row():
    done = outlook(k=2, evals=3)
    steps, budget, target = da.Steps(2), da.Budget(3), da.Target(1.5)
    assert (steps | target).reasons(done) == [da.Status.STEPS] * 2
    assert target.reasons(done) == [da.Status.TARGET, None]
    assert (steps & target).reasons(done) == [da.Status.TARGET, None]
    assert (steps & budget).reasons(done) == [da.Status.BUDGET] * 2
    assert (target & budget | da.Steps(9)).reasons(done)[1] is None


def test_how_often_a_rule_wants_to_look():
    assert da.Target(1.0, every=6).every == 6
    assert (da.Target(1.0, every=6) | da.Steps(3)).every == 6
    both = (da.Target(1.0, every=6) | da.Target(1.0, every=4)).every
    assert 6 % both == 0
    assert 4 % both == 0
    assert (da.Budget(3) & da.Steps(3)).every is None


def test_a_rule_of_ones_own():
    class Odd(Rule):
        every = 1
        status = da.Status.CALLBACK

        def allowance(self, outlook):
            return 0 if outlook.k == 3 else UNLIMITED

    result = da.solve(da.problems.affine(dimension=4), da.SGDA(0.1), stop=Odd(), budget=10)
    assert (result.nit, result.status) == (3, da.Status.CALLBACK)
    assert da.solve(da.problems.affine(dimension=4), da.SGDA(0.1), stop=Odd() & da.Steps(2)).nit == 3


@pytest.mark.parametrize("combine", [lambda rule: rule | 3, lambda rule: rule & "x"])
def test_a_rule_combines_with_rules_only(combine):
    with pytest.raises(TypeError, match="combines with another rule"):
        combine(da.Steps(3))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (da.Steps(3), [False, True]),
        (da.Budget(7), [False, True]),
        (da.Draws(5), [False, True]),
        (da.Budget(7) | da.Steps(99), [False, True]),
        (da.Budget(7) & da.Steps(99), [False, False]),
        (da.Target(0.1) | da.WallTime(0), [False, False]),
    ],
    ids=str,
)
def test_a_rule_says_which_rows_have_gone_further_than_it_allows(rule, expected):
    """By an allowance below 0: at a limit, and beyond it."""
    spent = [{"k": 3, "draws": 5, "evals": 7}, {"k": 4, "draws": 6, "evals": 8}]
    allowances = [rule.allowance(outlook(rows=1, residual=(np.inf,), **counts)) for counts in spent]
    assert [bool(np.all(allowance < 0)) for allowance in allowances] == expected
