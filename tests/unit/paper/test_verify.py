"""Statements hold for the library's methods, and each check rejects wrong methods and wrong bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.lemmas.test_mutants import MomentumOffByOne, MovingAnchor, WithoutDualAnchor

import dualanchor as da
from dualanchor.paper.verify import STATEMENTS, check, complexity, identifier, selected, verify, worst_case
from dualanchor.theory import bounds

pytestmark = pytest.mark.slow

WORST = "proposition-3.3-worst-case"
OWN = {name for name in bounds.STATEMENTS if hasattr(bounds, name)}  # those of theory.monotone have tests of their own


@pytest.fixture(scope="module")
def found() -> list[check.Check]:
    return verify(quick=True)


def failing(**methods: Any) -> set[str]:
    return {one.id for one in verify(quick=True, **methods) if one.verdict == "fails"}


# -- what holds ------------------------------------------------------------------------------------------------


def test_every_statement_holds(found: list[check.Check]) -> None:
    """False failures: 1e-6 to 1e-5 for each of the hundred checks in expectation, at equality; most are far from it."""
    assert [one for one in found if one.verdict != "holds"] == []
    assert {one.id for one in found} == set(STATEMENTS) - {WORST}


@pytest.mark.slow
def test_every_statement_holds_with_all_replications_and_in_the_worst_case() -> None:
    assert {one.verdict for one in verify(pep=True)} == {"holds"}


def test_every_bound_of_the_theory_is_checked() -> None:
    covered = {name for statement in STATEMENTS.values() for name in statement.covers}
    own = {
        name for name in bounds.STATEMENTS if hasattr(bounds, name)
    }  # those of theory.monotone have tests of their own
    assert covered == own


def test_bounds_that_are_attained_are_attained(found: list[check.Check]) -> None:
    nearest = {name: max(one.ratio for one in found if one.id == name) for name in STATEMENTS if name != WORST}
    tight = [
        "proposition-3.3",
        "s-ohm",
        "lemma-4.3",
        "lemma-a.2",
        "lemma-a.2-sharper",
        "cross-term-halved",
        "lemma-4.6",
        "theorem-a",
        "theorem-a-constant-batch",
        "theorem-a-affine",
        "theorem-b",
        "theorem-c",
        "drift-bound",
        "cocoercivity-of-a-batch",
        "sgda",
    ]
    assert {name: nearest[name] for name in tight if not 0.9 < nearest[name] < 1.15} == {}


def test_a_statement_has_a_formula_and_its_id_is_its_name() -> None:
    for name, statement in STATEMENTS.items():
        assert statement.id == name == identifier(statement.name)
        assert len(statement.formula) > 20
        assert statement.kind in ("identity", "inequality", "rate")


# -- what fails ------------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("name", sorted(OWN))
def test_a_bound_of_half_of_what_is_measured_fails(
    name: str, found: list[check.Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {statement.id for statement in STATEMENTS.values() if name in statement.covers}
    right = getattr(bounds, name)
    for number in ids:
        nearest = max(one.ratio for one in found if one.id == number)
        monkeypatch.setattr(bounds, name, partial(scaled, right, min(1.0, nearest) / 2))
        assert "fails" in {one.verdict for one in verify([number], quick=True)}, number


def scaled(right: Callable[..., Any], share: float, *given: Any, **named: Any) -> Any:
    return share * right(*given, **named)


@dataclass(frozen=True)
class ReversedTaper(da.Tapered):
    def size(self, k: Any, horizon: Any) -> Any:
        return super().size(horizon - 2 - k, horizon)


def reversed_batches(step_size: float, horizon: int, batch_size: Any = 1) -> da.Method:
    """The largest batches first."""
    if isinstance(batch_size, da.Tapered):
        batch_size = ReversedTaper(batch_size.C)
    elif isinstance(batch_size, list):
        batch_size = batch_size[::-1]
    return da.DualOHM(step_size, horizon, batch_size)


def halved_batches(step_size: float, horizon: int, batch_size: Any = 1) -> da.Method:
    """Half of the samples that were planned."""
    if isinstance(batch_size, list):
        batch_size = [max(1, size // 2) for size in batch_size]
    elif isinstance(batch_size, da.Growing):
        batch_size = da.Growing(batch_size.c / 2)
    return da.OHM(step_size, horizon, batch_size)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (
            {"dual": WithoutDualAnchor},
            {"lemma-4.2", "lemma-a.1", "h-duality", "noise-gains", "theorem-4.1", "lemma-4.3", "lemma-a.2", "theorem-a"}
            | {"proposition-3.3-attained", "common-end-on-affine-maps", "cross-term-halved", "drift-bound-at-the-end"},
        ),
        (
            {"dual": MomentumOffByOne},
            {"lemma-4.2", "lemma-a.1", "h-duality", "noise-gains", "proposition-3.3-attained", "lemma-a.2-sharper"},
        ),
        ({"dual": reversed_batches}, {"theorem-a", "theorem-b"}),
        (
            {"anchor": MovingAnchor},
            {"identity-of-s-ohm-4.1.1", "h-duality", "noise-gains", "proposition-3.3-attained", "proposition-3.3"},
        ),
        ({"anchor": halved_batches}, {"s-ohm"}),
    ],
    ids=["without dual anchor", "momentum off by one", "reversed taper", "moving anchor", "halved batches"],
)
def test_wrong_methods_are_rejected_by_the_checks_that_know_them(methods: Any, expected: set[str]) -> None:
    failed = failing(**methods)
    assert expected <= failed
    about = {"dual": "anchor", "anchor": "dual"}[next(iter(methods))]
    assert about == "dual" or "identity-of-s-ohm-4.1.1" not in failed
    assert about == "anchor" or "lemma-4.2" not in failed


# -- how it is judged ------------------------------------------------------------------------------------------


def test_means_are_judged_to_within_4_75_standard_errors() -> None:
    values = np.array([0.0, 2.0] * 50)  # mean 1, standard error 0.1005
    error = values.std(ddof=1) / 10
    assert check.mean_at_most("", values, 1 - 4.7 * error).holds
    assert not check.mean_at_most("", values, 1 - 4.8 * error).holds
    assert check.mean_equal("", values, 1 + 4.7 * error).holds
    assert not check.mean_equal("", values, 1 + 4.8 * error).holds
    two = np.stack([values, values], axis=1)
    shown = check.mean_at_most("", two, [2.0, 0.9])
    assert (shown.measured, shown.bound, shown.holds) == (1.0, 0.9, True)


@pytest.mark.parametrize("judge", [check.at_most, check.equal])
def test_what_is_not_a_number_fails(judge: Any) -> None:
    assert not judge("", [1.0, np.nan], [1.0, 1.0]).holds
    assert not judge("", np.inf, 1.0).holds
    assert not check.mean_at_most("", [1.0, np.nan], 5.0).holds
    assert not check.zero("", [0.0, np.nan]).holds


def test_rounding_is_allowed_and_no_more() -> None:
    assert check.at_most("", 1 + 1e-12, 1.0).holds
    assert not check.at_most("", 1 + 1e-10, 1.0).holds
    assert check.at_most("", 0.0, 0.0).holds


# -- what is chosen --------------------------------------------------------------------------------------------


def test_a_check_does_not_depend_on_which_others_are_made(found: list[check.Check]) -> None:
    alone = verify(["lemma-4.4", "theorem-4.1"], quick=True)
    assert alone == [one for one in found if one.id in ("lemma-4.4", "theorem-4.1")]


def test_seeds_change_what_is_random_and_nothing_else() -> None:
    one, two = (verify(["Lemma 4.4"], quick=True, seed=seed) for seed in (0, 1))
    assert [a.bound for a in one] == [a.bound for a in two]
    assert all(a.measured != b.measured for a, b in zip(one, two, strict=True))


def test_unknown_ids_are_named_with_those_that_are_close() -> None:
    with pytest.raises(da.errors.UnknownNameError, match=r"'theorem-4\.2'.*theorem-4\.1"):
        verify(["Theorem 4.2"])


def test_worst_cases_are_left_out_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def ids(**given: Any) -> set[str]:
        return {statement.id for statement in selected(**given)}

    assert WORST in ids()
    assert WORST not in ids(quick=True)
    assert WORST in ids(quick=True, pep=True)
    assert ids(only=[WORST], quick=True) == {WORST}
    assert ids(only=["lemma-4.2"], pep=True) == {"lemma-4.2", WORST}
    monkeypatch.setattr(worst_case, "installed", lambda: False)
    assert WORST not in ids()


# -- the worst case over all operators -------------------------------------------------------------------------


def test_worst_case_is_the_rate() -> None:
    checks = verify([WORST])
    assert [one.verdict for one in checks] == ["holds", "holds"]
    assert all(abs(one.ratio - 1) < 1e-4 for one in checks)


def test_worst_case_of_a_wrong_method_is_worse() -> None:
    assert worst_case.worst_case(WithoutDualAnchor, 4) > 1.5 * 4 / 16


def test_worst_case_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PEPit", None)
    with pytest.raises(da.errors.MissingExtraError, match=r"dualanchor\[pep\]"):
        verify([WORST])


# -- samples against accuracy ----------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("study", [*complexity.GENERAL, *complexity.STRONG], ids=lambda study: study.method)
def test_exponents_are_those_claimed(study: complexity.RateStudy) -> None:
    """Five accuracies over a factor of seven: exponents are within 0.25 of the claim, and all points hold."""
    ground = complexity.grounds()[2 if study in complexity.STRONG else 1]
    curve = complexity.curve(study, ground, quick=True)
    assert curve.verdict == "holds"
    assert curve.measured.low <= curve.measured.exponent <= curve.measured.high
    assert all(point.reached <= point.eps for point in curve.points)
    assert [point.samples for point in curve.points] == sorted(point.samples for point in curve.points)


def test_a_plan_that_is_too_cheap_fails() -> None:
    right = complexity.GENERAL[1]

    def cheap(eps: float, case: Any) -> complexity.RunSequence:
        return right.plan(eps, replace(case, sigma=case.sigma / 10))

    curve = complexity.curve(right._replace(plan=cheap), complexity.grounds()[1], quick=True)
    assert curve.verdict == "fails"
    assert not any(point.holds for point in curve.points)
    assert abs(curve.measured.exponent - 3) < 0.1


def test_a_wrong_claim_fails() -> None:
    curve = complexity.curve(complexity.GENERAL[1]._replace(claim=2.0), complexity.grounds()[1], quick=True)
    assert curve.verdict == "fails"
    assert all(point.holds for point in curve.points)


def test_a_wide_interval_does_not_excuse_an_exponent() -> None:
    """From 0.1 on the horizon of early stopping is set by its steps: 2.8 where 2 is claimed, give or take 0.8."""
    ground = complexity.grounds()[2]._replace(first=0.1, last=0.002)
    curve = complexity.curve(complexity.STRONG[0], ground)
    assert curve.without_logarithms.low < 2.1
    assert curve.verdict == "fails"


def test_intervals_cover_the_slope_of_noisy_lines() -> None:
    rng = np.random.default_rng(3)
    x = np.linspace(0, 4, 9)
    hits = 0
    for _ in range(400):
        fit = complexity._regression(x, 3 * x + 0.1 * rng.standard_normal(9))
        hits += fit.low <= 3 <= fit.high
    assert 360 <= hits <= 396  # 380 expected, 4.4 standard deviations down and 3.7 up


def test_horizons_are_odd_where_that_is_asked_for() -> None:
    flip = complexity.grounds()[0]
    for study in flip.studies:
        for eps in (0.1, 0.05):
            lowered, plan = flip.plan(study, eps)
            assert plan.runs[0][0].horizon % 2 == 1
            assert 0.95 * eps < lowered <= eps
