"""Is success what a user takes it for? Wrong operators at all the front doors, and well-posed ones beside them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.hostile import campaign
from tests.hostile.campaign import Case, above_root_mean_square, judge, run_all, summary, table, through, too_often
from tests.hostile.operators import WELL_POSED, WRONG, poisson_regression, truth

import dualanchor as da
from dualanchor.core.finding import Severity

SENSIBLE = ("eps", "confidence", "budget", "guarantee")  # the others have too few samples for some of the operators
KNOWN = ("right", "no sigma, D", "none")  # what a user may know of a well-posed operator


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Warnings of assumptions are expected throughout; so is overflow in operators that grow."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def codes(result: da.Result) -> list[str]:
    return [one.code for one in result.findings]


def warned(result: da.Result) -> bool:
    return any(one.severity is not Severity.NOTE for one in result.findings)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", WRONG)
def test_no_success_is_false(name: str, hostile_full: bool) -> None:
    chosen = list(campaign.cases("wrong", 2 if hostile_full else 1, [name]))
    outcomes = run_all(chosen if hostile_full else chosen[::8])
    print(table(outcomes), summary(outcomes), sep="\n")
    assert not [campaign.line(one) for one in outcomes if one.verdict == "gross" or one.far]
    assert not too_often(outcomes, pools=len(WRONG))
    assert not above_root_mean_square(outcomes)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", WELL_POSED)
def test_what_is_well_posed_succeeds(name: str, hostile_full: bool) -> None:
    operator, seeds = WELL_POSED[name], 2 if hostile_full else 1
    chosen = [
        Case("well-posed", name, door, mode, constants, seed)
        for door in operator.doors
        for mode in (SENSIBLE if hostile_full else ("eps", "budget"))
        for constants in (("right",) if mode == "guarantee" else KNOWN)
        for seed in range(seeds)
    ]
    chosen = chosen if hostile_full else chosen[::2]
    outcomes = [one for one in run_all(chosen) if one.verdict != "refused"]
    print(table(outcomes), summary(outcomes), sep="\n")
    assert len(outcomes) >= len(chosen) / 2
    assert sum(one.verdict == "true" for one in outcomes) >= 0.95 * len(outcomes)


@pytest.mark.parametrize("name", ["constant", "decreasing", "hyperbolic", "sign", "jump", "2(x - 1), L = 1"])
def test_the_campaign_finds_a_result_that_lies(name: str) -> None:
    for mode in ("eps", "budget"):
        case = Case("wrong", name, "root", mode, "L x 0.5", 0)
        result = campaign.call(WRONG[name], case)
        lie = replace(result, x=WRONG[name].x0 + 10.0, success=True, nfev=2000)
        assert judge(case, WRONG[name], lie, (-np.inf, np.inf)).verdict in ("false", "gross"), mode


@pytest.mark.parametrize("known", [True, False])
def test_solve_with_a_decreasing_operator_has_no_success(known: bool) -> None:
    def sample(x: Any, n: int, rng: np.random.Generator) -> Any:
        return -x + 0.3 * rng.normal(size=2) / np.sqrt(n)

    oracle = da.AdditiveNoise(lambda x: -x, 0.5) if known else da.Sampler(sample)
    result = da.solve(da.Problem(oracle, x0=[1.0, 0.5], constants=da.Constants(L=1.0)), budget=30)
    assert not result.success
    assert {"residual-grew", "samples-grew"} & set(codes(result))


@pytest.mark.no_cover
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", ["decreasing", "hyperbolic", "rotation", "cube", "double well", "a sign forgotten"])
def test_solve_is_no_success_where_it_grew(name: str, known: bool) -> None:
    """With a known F wherever the residual grew, as far as noise allows; by samples alone, where they grew a lot."""
    operator = WRONG[name]
    oracle = da.AdditiveNoise(operator.F, operator.sigma) if known else da.Sampler(operator.sampler())
    problem = da.Problem(oracle, x0=operator.x0, constants=da.Constants(L=operator.L))
    start = truth(operator, operator.x0)
    for method in ("s-dual-ohm", "sgda", "averaged", "auto", "seg"):
        result = da.solve(problem, method, budget=300)
        end = truth(operator, result.x)
        assert not result.success or end <= (1.5 * start + 1 if known else 100 * start), (method, end)


@pytest.mark.no_cover
@pytest.mark.parametrize("budget", [1000, 2000])
def test_poisson_regression_without_L_ends_below_its_start(budget: int) -> None:
    operator = poisson_regression()
    start = truth(operator, operator.x0)
    for seed in range(5):
        result = da.root(operator.sampler(), operator.x0, budget=budget, seed=seed)
        end = truth(operator, result.x)
        assert end <= 1.05 * start, (seed, end)
        assert not result.success or end < 0.7 * start or warned(result), (seed, end)


@pytest.mark.no_cover
def test_poisson_regression_with_eps_certifies_nothing_that_rare_rows_contradict() -> None:
    operator = poisson_regression()
    start = truth(operator, operator.x0)
    for seed in range(5):
        result = da.root(operator.sampler(), operator.x0, eps=5.0, max_samples=20_000, seed=seed)
        end = truth(operator, result.x)
        assert end <= 1.05 * start, (seed, end)
        assert result.certificate is None or result.certificate.upper >= 0.5 * end, (seed, end)
        assert not result.success or end <= 5.0, (seed, end)


def test_one_dimension_without_a_root_is_not_a_silent_success() -> None:
    def sample(x: Any, n: int, rng: np.random.Generator) -> Any:  # from 1.46 down to 1 at best
        return np.sqrt(1 + x**2) + 0.5 * rng.normal(size=1) / np.sqrt(n)

    for seed in range(3):
        result = da.root(sample, np.array([1.0637]), budget=2000, L=1.0, seed=seed)
        assert not result.success or warned(result)


def _multiplicative(x: Any, n: int, rng: np.random.Generator) -> Any:
    return x - 1 + 300 * np.linalg.norm(x) * rng.normal(size=20) / np.sqrt(20 * n)


@pytest.mark.no_cover
def test_compare_does_not_rank_a_diverged_method_first() -> None:
    problem = da.Problem(da.Sampler(_multiplicative), x0=np.zeros(20), constants=da.Constants(L=3.0))
    compared = da.compare(problem, ["rain", "auto", "averaged"], budget=2000, seeds=3, jobs=1)
    for name, row in compared.methods.items():
        assert min(row["final"]["per_seed"]) > 0, f"{name}: a residual of 0 where x is far from every root"
    assert "nan" not in str(compared)


def _twice(x: Any, n: int, rng: np.random.Generator) -> Any:
    return 2 * (x - 1) + rng.normal(size=3) / np.sqrt(3 * n)


@pytest.mark.parametrize("confidence", [None, 0.95])
def test_no_success_where_the_certificate_is_above_eps(confidence: float | None) -> None:
    for seed in range(10):
        options = {"eps": 1.0, "L": 1.0, "sigma": 1.0, "D": 2.0, "confidence": confidence, "seed": seed}
        result = da.root(_twice, np.zeros(3), **options)
        end = float(np.linalg.norm(2 * (result.x - 1)))
        assert not result.success or end <= 1.5, (seed, end)
        claimed = result.claim is not None and result.claim.by_theorem
        assert not claimed or result.certificate is None or result.certificate.residual <= 1.5, seed


def test_a_small_budget_on_a_decreasing_operator_has_no_success() -> None:
    operator = WRONG["decreasing"]
    result = da.root(operator.sampler(), operator.x0, budget=127, L=1.0)
    assert not result.success
    assert truth(operator, result.x) <= 1.2 * truth(operator, operator.x0)
    assert {"residual-grew", "decreasing", "diverged"} & set(codes(result))


@pytest.mark.parametrize("name", ["constant", "sign", "jump", "n ignored", "double well", "no root: sin + 2"])
def test_a_guarantee_that_is_not_given_is_no_success(name: str) -> None:
    for seed in range(3):
        result = da.root(
            WRONG[name].sampler(), WRONG[name].x0, budget=2000, guarantee=True, L=1.0, sigma=0.5, D=1.5, seed=seed
        )
        assert result.claim is not None
        assert not result.success or result.claim.by_theorem


def test_a_diverging_run_returns_a_point_it_can_vouch_for() -> None:
    operator = WRONG["hyperbolic"]
    result = da.root(operator.sampler(), operator.x0, budget=20_000, L=1.0)
    assert not result.success
    assert truth(operator, result.x) <= 1.2 * truth(operator, operator.x0)
    assert np.isfinite(result.residual)
    assert {"residual-grew", "diverged"} & set(codes(result))
    assert "not-monotone" in codes(result)


@pytest.mark.parametrize("L", [1.0, None])
def test_a_decreasing_operator_is_named_and_nothing_more_is_spent(L: float | None) -> None:
    operator = WRONG["decreasing"]
    result = da.root(operator.sampler(), operator.x0, budget=20_000, L=L)
    assert not result.success
    assert "decreasing" in codes(result)
    assert result.nfev < 5_000
    assert truth(operator, result.x) <= 1.2 * truth(operator, operator.x0)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["constant", "decreasing", "sign", "steep kink", "2(x - 1), L = 1"])
@pytest.mark.parametrize("options", [{"budget": 2000}, {"eps": 0.25, "max_samples": 20_000}])
def test_replications_are_judged_one_by_one(name: str, options: dict[str, Any]) -> None:
    operator = WRONG[name]
    result = da.root(operator.sampler(), operator.x0, reps=6, L=1.0, sigma=0.5, D=operator.D, **options)
    start = truth(operator, operator.x0)
    ends = np.array([truth(operator, x) for x in result.x])
    assert np.all(ends <= 1.2 * start + 0.3)
    false = result.success & (ends > options.get("eps", 0.99 * start))
    assert np.count_nonzero(false) <= 1, (ends, result.success)


def test_success_without_checks_says_so() -> None:
    operator = WRONG["sign"]
    options = {"eps": 0.25, "L": 1.0, "sigma": 0.5, "D": 1.5, "check": False, "certificate": False}
    result = da.root(operator.sampler(), operator.x0, **options)
    assert not result.success or "not-checked" in codes(result)


def test_an_inclusion_speaks_of_its_own_residual() -> None:
    result = through("box", WELL_POSED["quadratic in a box"], budget=2000, L=2.3)
    assert result.certificate is not None
    assert "F(x) + g" in result.certificate.text
    assert "||F(x)||" not in str(result)


def test_the_plot_of_a_budget_run_shows_start_and_end() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = through("root", WELL_POSED["linear"], budget=2000, L=1.1).plot()
    points = np.concatenate([line.get_xydata() for line in axes.get_lines()])
    assert len(np.unique(points[np.isfinite(points).all(axis=1), 0])) >= 2
    matplotlib.pyplot.close("all")
