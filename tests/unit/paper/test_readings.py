"""Readings: what they change, what is run again, and what disagreement does to a verdict."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from dualanchor.paper.claims import judge
from dualanchor.paper.panels import PAPER, paper_panel
from dualanchor.paper.readings import AS_DECIDED, READINGS, TUNING, FreshHalpernPAGE, readings, with_readings
from dualanchor.studies.panel import parse_panel
from dualanchor.studies.study import run_study

FRESH, ONCE, SINGLE = (reading.name for reading in READINGS)

SMALL = """
id = "exp1"
problem = "worst-case-nonexpansive"
budget = 120
options = {dimension = 11, sigma = 0.1}
[methods.s-dual-ohm.grid]
batch_size = [1, 10]
[methods.s-ohm]
like = "s-dual-ohm"
[methods.s-ohm-tuned]
method = "s-ohm"
grid.batch_size = [1, 10]
[methods.sgda.grid]
step_size = [0.1, 1.0]
[methods.seg.grid]
step_size = [0.1, 1.0]
[methods.rain]
fixed = {anchor_weight = 0.01, growth = 0.01}
grid.step_size = [0.1, 1.0]
[methods.halpern-page.grid]
big_batch = [10]
small_batch = [1, 5]
"""


@pytest.fixture(scope="module")
def panel():
    return parse_panel(SMALL, "small.toml")


@pytest.fixture(scope="module")
def study(panel):
    return run_study([panel], seeds=3, jobs=1)


class Recording:
    """Runs panels and notes which."""

    def __init__(self):
        self.calls = []

    def __call__(self, panels, *, tune_seeds):
        entries = {panel.id: {entry.id: entry for entry in panel.entries} for panel in panels}
        self.calls.append((tune_seeds, entries))
        return run_study(panels, seeds=3, tune_seeds=tune_seeds, jobs=1)


def lines(records, name):
    record = next(record for record in records if record["id"] == name)
    return record["verdict"], {line["reading"]: line["verdict"] for line in record["readings"]}


def test_a_reading_changes_its_entries_and_nothing_else():
    panels = {name: paper_panel(name) for name in PAPER}
    found = readings(panels.values())
    assert list(found) == [FRESH, ONCE, SINGLE]
    expected = {
        FRESH: {"halpern-page": {"method": FreshHalpernPAGE}},
        ONCE: {"halpern-page": {"unit": "draws"}},
        SINGLE: {"seg": {"budget_factor": 2}, "rain": {"budget_factor": 2}},
    }
    for name, changes in expected.items():
        assert [changed.id for changed in found[name]] == list(PAPER)
        for changed in found[name]:
            original = panels[changed.id]
            assert {entry.id for entry in changed.entries} == set(changes)
            assert all(entry == replace(original.entry(entry.id), **changes[entry.id]) for entry in changed.entries)
            assert replace(changed, entries=()) == replace(original, entries=())


def test_a_reading_that_changes_nothing_is_left_out(panel):
    assert readings([panel.only(["s-dual-ohm", "s-ohm", "sgda"])]) == {}
    assert list(readings([panel.only(["seg"])])) == [SINGLE]
    already = replace(panel, entries=(replace(panel.entry("halpern-page"), unit="draws"),))
    assert list(readings([already])) == [FRESH]


def test_entries_that_take_parameters_over_follow(panel):
    follower = replace(panel.entry("sgda"), id="sgda-like-seg", grid={}, like="seg")
    (changed,) = readings([replace(panel, entries=(*panel.entries, follower))])[SINGLE]
    assert {entry.id for entry in changed.entries} == {"seg", "rain", "sgda-like-seg"}
    assert changed.entry("sgda-like-seg") == follower


def test_only_what_changes_and_what_claims_are_about_is_run_again(study):
    run = Recording()
    with_readings(study, run)
    assert [tuning for tuning, _ in run.calls] == ["same", "same", "same", "disjoint"]
    assert [set(entries["exp1"]) for _, entries in run.calls[:3]] == [
        {"halpern-page"},
        {"halpern-page"},
        {"seg", "rain"},
    ]
    assert "s-ohm-tuned" not in run.calls[3][1]["exp1"], "the appendix's claims need all four panels"
    assert {"s-dual-ohm", "s-ohm", "halpern-page"} <= set(run.calls[3][1]["exp1"])


def test_an_entry_is_tuned_with_the_one_it_takes_parameters_from(panel):
    run = Recording()
    with_readings(run_study([panel.only(["s-dual-ohm", "s-ohm"])], seeds=3, jobs=1), run)
    assert [set(entries["exp1"]) for _, entries in run.calls] == [{"s-dual-ohm", "s-ohm"}]


def test_claims_list_the_readings_that_concern_them(study):
    records = with_readings(study, Recording())
    assert [record["id"] for record in records] == [record["id"] for record in judge(study)]
    other = TUNING["disjoint"]
    concerned = {record["id"]: [line["reading"] for line in record["readings"]] for record in records}
    assert concerned == {
        "exp1-smallest": [AS_DECIDED, FRESH, ONCE, SINGLE, other],
        "exp1-s-ohm-diverges": [AS_DECIDED, other],
        "exp1-not-anytime": [AS_DECIDED, FRESH, ONCE, SINGLE, other],
        "exp1-page-rain-stable": [AS_DECIDED, FRESH, ONCE, SINGLE, other],
        "exp1-sgda-seg-steady": [AS_DECIDED, SINGLE, other],
    }
    for record in records:
        assert all(set(line) == {"reading", "verdict", "value"} for line in record["readings"])
        assert all(isinstance(line["value"], float) for line in record["readings"])


def with_finals(study, **finals):
    """The study with other final residuals of some methods."""
    changed = deepcopy(study)
    for name, method in changed.results["panels"]["exp1"]["methods"].items():
        key = name.replace("-", "_")
        if key in finals:
            method["final"]["per_seed"] = np.array(finals[key])
    return changed


def dominated(study):
    """As if S-Dual-OHM had come out best."""
    others = ("s_ohm", "sgda", "seg", "rain", "halpern_page")
    return with_finals(study, s_dual_ohm=[0.01, 0.012, 0.011], **{name: [1.0, 1.1, 0.9] for name in others})


@pytest.mark.parametrize(
    ("page", "expected"),
    [([1e-9, 2e-9, 3e-9], "not reproduced"), ([np.inf] * 3, "depends"), ([2.0, 2.1, 1.9], "reproduced")],
)
def test_readings_that_disagree_make_a_claim_depend(study, page, expected):
    def run(panels, *, tune_seeds):
        return part(panels, with_finals(dominated(study), halpern_page=page))

    records = with_readings(dominated(study), run)
    verdict, found = lines(records, "exp1-smallest")
    assert found == {
        AS_DECIDED: "reproduced",
        FRESH: expected,
        ONCE: expected,
        SINGLE: "reproduced",
        TUNING["disjoint"]: expected,
    }
    assert verdict == ("reproduced" if expected == "reproduced" else "depends")
    own = next(record for record in judge(dominated(study)) if record["id"] == "exp1-smallest")
    assert records[0]["evidence"] == own["evidence"]


def part(panels, study):
    """What a run of these panels would find if its numbers were those of the study."""
    names = {panel.id: [entry.id for entry in panel.entries] for panel in panels}
    chosen = deepcopy(study)
    for panel, methods in names.items():
        results = chosen.results["panels"][panel]
        results["methods"] = {name: results["methods"][name] for name in methods}
        chosen.curves[panel] = {name: chosen.curves[panel][name] for name in methods}
    return chosen


def test_the_curves_of_a_reading_are_its_own(study):
    def run(panels, *, tune_seeds):
        found = part(panels, study)
        for curve in found.curves["exp1"].values():
            curve.residual = 1 / (1 + curve.k)
        return found

    _, found = lines(with_readings(study, run), "exp1-s-ohm-diverges")
    assert found == {AS_DECIDED: "reproduced", TUNING["disjoint"]: "not reproduced"}


def test_the_study_is_not_changed(study):
    before = judge(study)
    with_readings(study, lambda panels, *, tune_seeds: part(panels, dominated(study)))
    assert judge(study) == before
    assert study.results["claims"] == []


def test_readings_that_agree_leave_the_verdict(study):
    records = with_readings(study, lambda panels, *, tune_seeds: part(panels, study))
    for record, own in zip(records, judge(study), strict=True):
        assert {line["verdict"] for line in record["readings"]} == {own["verdict"]}
        assert {**record, "readings": []} == own


def test_the_other_tuning_is_the_reading(panel):
    disjoint = run_study([panel], seeds=3, tune_seeds="disjoint", jobs=1)
    run = Recording()
    records = with_readings(disjoint, run)
    assert [tuning for tuning, _ in run.calls] == ["disjoint", "disjoint", "disjoint", "same"]
    assert TUNING["same"] in lines(records, "exp1-smallest")[1]


def test_untuned_methods_have_no_tuning_to_read_otherwise():
    panel = parse_panel(
        'id = "exp2"\nproblem = "finite-sum-cocoercive"\nbudget = 100\n'
        "options = {components = 10, dimension = 6, rank = 5}\n[methods.halpern-vr-finite]\n",
        "untuned.toml",
    )
    run = Recording()
    (record,) = with_readings(run_study([panel], seeds=3, jobs=1), run)
    assert record["id"] == "exp2-vr-finite-slow"
    assert record["readings"] == run.calls == []
