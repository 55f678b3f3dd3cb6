"""Claims: a made-up study in which all hold, and mutants of it in which one does not."""

import json
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dualanchor.core.result import jsonable
from dualanchor.paper.claims import CLAIMS, judge
from dualanchor.paper.criteria import Judgement, PanelSeeds, Verdict, all_of, log_ratio, rank_correlation, tails
from dualanchor.studies.study import Curve, Study, final_statistics

IDS = [
    "exp1-smallest",
    "exp1-s-ohm-diverges",
    "exp1-not-anytime",
    "exp1-page-rain-stable",
    "exp1-sgda-seg-steady",
    "exp2-beats-s-ohm",
    "exp2-sgda-effective",
    "exp2-vr-finite-slow",
    "exp3-low-batch-1",
    "exp3-low-fast-then-stagnates",
    "exp3-low-others-steadier",
    "exp3-low-s-ohm-inferior",
    "exp3-high-batch-10",
    "exp3-high-comparable",
    "appendix-same-batch",
    "appendix-other-batch",
    "appendix-strictly-larger",
]
YES, OPEN, NO = Verdict
BUDGET, BATCHES = 1000, (1, 10, 20, 50, 100)


def decay(t, start, rate):
    return start * np.exp(-rate * t)


def late(t, start=60.0, end=0.1):
    """High until the end: not an anytime method."""
    return start * (1 - t) + end


def growing(t, start=60.0, slope=5.0):
    """Falls at once, then rises for the rest of the budget."""
    return start / (1 + 1000 * t) + slope * t


def hump(t, end):
    """Falls at once, rises before half the budget is spent, then falls again."""
    return growing(t, slope=0) + np.interp(t, [0, 0.2, 0.4, 1], [0.5, 0.5, 5, end])


def plateau(t, start=0.1, end=0.0025):
    """Falls at once, then stands still."""
    return start * np.exp(-50 * t) + end


def curve(start, rate):
    return partial(decay, start=start, rate=rate)


CURVES = {
    "exp1": {
        "s-dual-ohm": late,
        "s-ohm": growing,
        "s-ohm-tuned": curve(60, 4.8),
        "sgda": curve(60, 5),
        "seg": curve(60, 4.9),
        "rain": curve(60, 5.3),
        "halpern-page": curve(60, 5.5),
    },
    "exp2": {
        "s-dual-ohm": curve(1, 2.4),
        "s-ohm": curve(1, 2.0),
        "s-ohm-tuned": curve(1, 2.0),
        "sgda": curve(1, 2.9),
        "halpern-vr-finite": curve(1, 0.03),
    },
    "exp3-low": {
        "s-dual-ohm": plateau,
        "s-ohm": partial(plateau, end=0.0035),
        "s-ohm-tuned": partial(plateau, end=0.0035),
        "rain": curve(0.1, 4.2),
        "sgda": curve(0.1, 4.4),
        "seg": curve(0.1, 4.3),
    },
    "exp3-high": {
        "s-dual-ohm": curve(0.1, 1.45),
        "s-ohm-tuned": curve(0.1, 1.2),
        "sgda": curve(0.1, 1.45),
        "seg": curve(0.1, 1.4),
        "rain": curve(0.1, 1.5),
    },
}
"""Residuals by share of the budget."""

SELECTED = {
    "exp1": {"s-dual-ohm": 1, "s-ohm-tuned": 10},
    "exp2": {"s-dual-ohm": 1, "s-ohm-tuned": 1},
    "exp3-low": {"s-dual-ohm": 1, "s-ohm-tuned": 1},
    "exp3-high": {"s-dual-ohm": 10, "s-ohm-tuned": 20},
}
"""The batch size that is best."""


def made_up(curves=None, selected=None, seeds=range(10), noise=0.05, tie=0.0, diverged=None):
    """A study with these curves in place of those above, each seed a noisy multiple.

    `tie` makes the second best batch size as good as the best but for noise; `diverged` maps methods of exp1 to seeds.
    """
    seeds, curves, selected, diverged = list(seeds), curves or {}, selected or {}, diverged or {}
    panels, drawn = {}, {}
    for panel, methods in CURVES.items():
        panels[panel] = {"budget": BUDGET, "methods": {}}
        drawn[panel] = {}
        for number, (method, shape) in enumerate(methods.items()):
            rng = np.random.default_rng([number, len(panel)])
            factor = np.exp(noise * rng.standard_normal(max(seeds) + 1))[seeds]
            evals = np.linspace(0, BUDGET, 201).astype(int)
            rows = factor[:, None] * curves.get((panel, method), shape)(evals / BUDGET)
            rows[:, 0] /= factor  # all start from the same point
            if panel == "exp1":
                rows[np.isin(seeds, diverged.get(method, [])), 100:] = np.inf
            best = selected.get((panel, method), SELECTED[panel].get(method))
            panels[panel]["methods"][method] = {
                "selected": {} if best is None else {"batch_size": best},
                "final": final_statistics(rows[:, -1]),
                "evals": BUDGET,
                "grid": [] if best is None else grid(best, len(seeds), rng, tie),
            }
            drawn[panel][method] = Curve(np.repeat(seeds, 201), *np.tile([evals, evals], len(seeds)), rows.ravel())
    return Study({"seeds": seeds, "tune_seeds": seeds, "panels": panels, "claims": []}, drawn, {})


def grid(best, n, rng, tie):
    distance = {B: abs(np.log(B / best)) for B in BATCHES}
    second = sorted(distance, key=distance.get)[1]
    if tie:
        distance[second] = 0.0
    return [
        {"params": {"batch_size": B}, "per_seed": (1 + distance[B]) * np.exp((0.01 + tie) * rng.standard_normal(n))}
        for B in BATCHES
    ]


def find(study, name):
    return next(claim for claim in CLAIMS if claim.id == name).find(study)


def verdicts(study):
    return {record["id"]: Verdict(record["verdict"]) for record in judge(study)}


def test_the_ids_are_the_published_ones():
    assert [claim.id for claim in CLAIMS] == IDS


def test_records_follow_the_schema_and_state_their_criterion():
    for record in json.loads(json.dumps(jsonable(judge(made_up())), allow_nan=False)):
        assert list(record) == ["id", "panel", "text", "verdict", "evidence", "readings"]
        assert record["panel"] in (*CURVES, "appendix")
        assert record["id"].startswith(record["panel"])
        assert "Criterion: " in record["text"]
        assert any(character.isdigit() for character in record["evidence"])
        assert record["readings"] == []


@pytest.mark.parametrize("seeds", [10, 3])
def test_all_claims_hold_where_they_should(seeds):
    assert verdicts(made_up(seeds=range(seeds))) == dict.fromkeys(IDS, YES)


MUTANTS = [
    # a rival ends below, or as a whole group
    ("exp1-smallest", {("exp1", "halpern-page"): curve(60, 8)}, {}, NO),
    ("exp1-smallest", {("exp1", "s-ohm"): curve(60, 8)}, {}, NO),
    # no growth; growth that ends at half the budget; growth too small
    ("exp1-s-ohm-diverges", {("exp1", "s-ohm"): curve(60, 5)}, {}, NO),
    ("exp1-s-ohm-diverges", {("exp1", "s-ohm"): partial(hump, end=0.5)}, {}, NO),
    ("exp1-s-ohm-diverges", {("exp1", "s-ohm"): partial(hump, end=4)}, {}, NO),
    ("exp1-s-ohm-diverges", {("exp1", "s-ohm"): lambda t: growing(t, slope=0) + 1 + 0.5 * t}, {}, NO),
    # good all the way; behind all the way; turned round against two of five only
    ("exp1-not-anytime", {("exp1", "s-dual-ohm"): curve(60, 10)}, {}, NO),
    ("exp1-not-anytime", {("exp1", "s-dual-ohm"): lambda t: late(t, end=20)}, {}, NO),
    ("exp1-not-anytime", {("exp1", method): curve(60, 8) for method in ("sgda", "seg", "rain")}, {}, OPEN),
    # one of the two grows; one stands still high up
    ("exp1-page-rain-stable", {("exp1", "halpern-page"): growing}, {}, NO),
    ("exp1-page-rain-stable", {("exp1", "rain"): growing}, {}, NO),
    ("exp1-page-rain-stable", {("exp1", "rain"): curve(60, 0.1)}, {}, NO),
    # one of the two stands still early; one oscillates; one hardly moves
    ("exp1-sgda-seg-steady", {("exp1", "seg"): growing}, {}, NO),
    ("exp1-sgda-seg-steady", {("exp1", "sgda"): lambda t: decay(t, 60, 2) * np.exp(np.sin(20 * t))}, {}, NO),
    ("exp1-sgda-seg-steady", {("exp1", "sgda"): curve(60, 0.3)}, {}, NO),
    # swapped, and equal in the mean
    ("exp2-beats-s-ohm", {("exp2", "s-dual-ohm"): curve(1, 2), ("exp2", "s-ohm"): curve(1, 2.4)}, {}, NO),
    ("exp2-beats-s-ohm", {("exp2", "s-dual-ohm"): curve(1, 2)}, {}, OPEN),
    ("exp2-sgda-effective", {("exp2", "sgda"): curve(1, 2)}, {}, NO),
    ("exp2-vr-finite-slow", {("exp2", "halpern-vr-finite"): curve(1, 1)}, {}, NO),
    ("exp3-low-batch-1", {}, {("exp3-low", "s-dual-ohm"): 10}, NO),
    # steady; fast, and as much again later; nowhere
    ("exp3-low-fast-then-stagnates", {("exp3-low", "s-dual-ohm"): curve(0.1, 4)}, {}, NO),
    ("exp3-low-fast-then-stagnates", {("exp3-low", "s-dual-ohm"): lambda t: plateau(t) * np.exp(-4 * t)}, {}, NO),
    ("exp3-low-fast-then-stagnates", {("exp3-low", "s-dual-ohm"): lambda t: plateau(t, 0.02, 0.08)}, {}, NO),
    # as fast at first; no convergence at all
    ("exp3-low-others-steadier", {("exp3-low", "rain"): lambda t: plateau(5 * t)}, {}, NO),
    ("exp3-low-others-steadier", {("exp3-low", "sgda"): curve(0.1, -1)}, {}, NO),
    ("exp3-low-s-ohm-inferior", {("exp3-low", "s-ohm"): partial(plateau, end=0.002)}, {}, NO),
    ("exp3-high-batch-10", {}, {("exp3-high", "s-dual-ohm"): 1}, NO),
    # much worse than one; much better than one
    ("exp3-high-comparable", {("exp3-high", "rain"): curve(0.1, 2.5)}, {}, NO),
    ("exp3-high-comparable", {("exp3-high", "seg"): curve(0.1, 0.5)}, {}, NO),
    ("exp3-high-comparable", {("exp3-high", "sgda"): curve(0.1, 1.45 + np.log(2))}, {}, OPEN),
    ("appendix-same-batch", {}, {("exp2", "s-ohm-tuned"): 50}, NO),
    ("appendix-same-batch", {}, {("exp3-low", "s-dual-ohm"): 50}, NO),
    ("appendix-other-batch", {}, {("exp1", "s-ohm-tuned"): 1}, NO),
    ("appendix-other-batch", {}, {("exp3-high", "s-ohm-tuned"): 10}, NO),
    *(("appendix-strictly-larger", {(panel, "s-ohm-tuned"): curve(0.05, 9)}, {}, NO) for panel in CURVES),
]


@pytest.mark.parametrize(("name", "curves", "selected", "expected"), MUTANTS)
def test_mutants_are_recognised(name, curves, selected, expected):
    assert find(made_up(curves, selected), name).verdict == expected


def test_every_claim_has_a_mutant_that_contradicts_it():
    assert {name for name, *_, expected in MUTANTS if expected == NO} == set(IDS)


def test_claims_without_their_panel_or_methods_are_left_out():
    study = made_up()
    del study.results["panels"]["exp2"]
    assert {name for name in IDS if "exp2" in name} == {
        "exp2-beats-s-ohm",
        "exp2-sgda-effective",
        "exp2-vr-finite-slow",
    }
    gone = {name for name in IDS if "exp2" in name} | {"appendix-same-batch", "appendix-strictly-larger"}
    assert set(IDS) - set(verdicts(study)) == gone
    del study.results["panels"]["exp1"]["methods"]["rain"]
    gone |= {"exp1-smallest", "exp1-not-anytime", "exp1-page-rain-stable"}
    assert set(IDS) - set(verdicts(study)) == gone


def test_the_appendix_alone_has_claims():
    study = made_up()
    for panel in study.results["panels"].values():
        panel["methods"] = {name: panel["methods"][name] for name in panel["methods"] if "ohm" in name}
    assert set(verdicts(study)) == {
        "exp1-s-ohm-diverges",
        "exp2-beats-s-ohm",
        "exp3-low-batch-1",
        "exp3-low-fast-then-stagnates",
        "exp3-low-s-ohm-inferior",
        "exp3-high-batch-10",
        "appendix-same-batch",
        "appendix-other-batch",
        "appendix-strictly-larger",
    }


def test_nothing_to_judge():
    assert judge(Study({"seeds": [0], "tune_seeds": [0], "panels": {}, "claims": []}, {}, {})) == []


def test_a_rival_that_diverges_everywhere_is_beaten_and_diverges():
    found = verdicts(made_up(diverged={"s-ohm": range(10)}))
    assert found["exp1-smallest"] == found["exp1-s-ohm-diverges"] == YES


def test_diverged_seeds_count_against_the_method():
    one = verdicts(made_up(diverged={"rain": [4], "sgda": [4]}))
    assert one["exp1-smallest"] == YES, "a sign test takes over"
    assert one["exp1-page-rain-stable"] == one["exp1-sgda-seg-steady"] == OPEN
    most = verdicts(made_up(diverged={"rain": range(6), "sgda": range(6), "s-dual-ohm": range(10)}))
    assert most["exp1-page-rain-stable"] == most["exp1-sgda-seg-steady"] == NO
    assert most["exp1-smallest"] == most["appendix-strictly-larger"] == NO


def test_infinite_tuning_results_are_never_selected():
    study = made_up()
    for panel in study.results["panels"].values():
        for method in panel["methods"].values():
            for point in method["grid"]:
                if point["params"] != method["selected"]:
                    point["per_seed"] = [None, *point["per_seed"][1:]]
    assert verdicts(study) == dict.fromkeys(IDS, YES)


def test_seeds_that_nearly_tie_do_not_settle_a_selection():
    found = find(made_up(tie=0.1), "exp3-high-batch-10")
    assert found.verdict == OPEN
    assert 0.05 < found.value < 0.95
    assert f"{found.value:.1%} of resamples" in found.evidence


def test_one_seed_settles_no_comparison():
    found = verdicts(made_up(seeds=[0]))
    assert {found[name] for name in ("exp1-smallest", "exp2-beats-s-ohm", "exp3-high-comparable")} == {OPEN}
    assert found["exp1-s-ohm-diverges"] == found["exp3-low-batch-1"] == YES


def test_curves_and_finals_are_paired_by_seed_in_any_order():
    seen = PanelSeeds(made_up(seeds=[7, 2, 5]), "exp1")
    np.testing.assert_array_equal(seen.at("sgda", np.ones(1))[:, 0], seen.final("sgda"))
    in_order = PanelSeeds(made_up(seeds=[2, 5, 7]), "exp1")
    np.testing.assert_array_equal(seen.final("sgda")[[1, 2, 0]], in_order.final("sgda"))


def test_a_budget_read_more_generously_is_read_as_shares():
    study = made_up()
    study.curves["exp1"]["seg"].evals *= 2
    study.results["panels"]["exp1"]["methods"]["seg"]["evals"] = 2 * BUDGET
    doubled, plain = PanelSeeds(study, "exp1"), PanelSeeds(made_up(), "exp1")
    np.testing.assert_array_equal(doubled.tenths("seg"), plain.tenths("seg"))


def test_p_values_agree_with_scipy():
    values = np.random.default_rng(3).normal(-0.3, 1, 12)
    below, above = tails(values)
    assert below == pytest.approx(stats.ttest_1samp(values, 0, alternative="less").pvalue)
    assert above == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue)
    values[0] = -np.inf
    wins = int((values < 0).sum())
    assert tails(values)[0] == pytest.approx(stats.binomtest(wins, 12, alternative="greater").pvalue)
    assert tails(values)[1] == pytest.approx(stats.binomtest(12 - wins, 12, alternative="greater").pvalue)


def test_p_values_without_spread():
    assert tails(np.zeros(5)) == (0.5, 0.5)
    assert tails(np.full(5, -1.0)) == (0.0, 1.0)
    assert tails(np.zeros(1)) == (1.0, 1.0)
    assert tails(np.array([-1.0])) == (0.5, 1.0)


def test_log_ratios_of_infinite_and_zero_residuals():
    a, b = np.array([np.inf, 1.0, np.inf, 0.0, 0.0]), np.array([np.inf, np.inf, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(log_ratio(a, b), [0, -np.inf, np.inf, 0, -np.inf])


def test_rank_correlation_agrees_with_scipy():
    rows = np.random.default_rng(4).random((3, 10))
    expected = [stats.spearmanr(row, np.arange(10)).statistic for row in rows]
    np.testing.assert_allclose(rank_correlation(rows), expected)


def test_the_value_is_that_of_the_strongest_rival():
    study = made_up({("exp1", "rain"): curve(60, 9), ("exp1", "halpern-page"): curve(60, 8)})
    value = find(study, "exp1-smallest").value
    assert f"{value:.3g} times rain" in find(study, "exp1-smallest").evidence
    assert value > 10


def test_the_most_doubtful_part_decides():
    parts = [Judgement(YES, 1.0, "a", 0.01), Judgement(OPEN, 2.0, "b", 0.2), Judgement(YES, 3.0, "c", 0.04)]
    assert all_of(parts) == Judgement(OPEN, 2.0, "a; b; c", 0.2)
    assert all_of([*parts, Judgement(NO, 4.0, "d", 0.99)]).value == 4.0
    assert all_of([parts[0], parts[2]]).value == 3.0
