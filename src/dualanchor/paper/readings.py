"""Details that the paper leaves open, each decided the other way, and what that does to the claims.

A reading changes entries of panels or the seeds that tuning looks at. Only what it changes, and what a claim is about,
is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dualanchor.methods import registry
from dualanchor.paper.claims import CLAIMS, Claim, as_record
from dualanchor.paper.criteria import Finding
from dualanchor.studies.panel import Entry, Panel
from dualanchor.studies.study import Study

AS_DECIDED = "as decided"
"""The name under which the study itself stands beside the readings."""

TUNING = {"same": "tuned on the seeds that are reported", "disjoint": "tuned on other seeds than are reported"}
"""The two readings of tuning, by what `run_study` calls them. A study has one of them, the other is the reading."""


class Run(Protocol):
    """`run_study` with seeds, folder and jobs already given."""

    def __call__(self, panels: Sequence[Panel], *, tune_seeds: str) -> Study:
        """Tune and run every method of the panels."""
        ...


@dataclass(frozen=True)
class Reading:
    """Another reading of how some methods are run or charged.

    Attributes
    ----------
    name : str
        What is read otherwise.
    methods : tuple of str
        Whom it concerns.
    changes : mapping
        Fields of a panel's entry and their other values.
    """

    name: str
    methods: tuple[str, ...]
    changes: Mapping[str, Any]

    def applies(self, entry: Entry) -> bool:
        """Whether the entry would be read otherwise; not if it is so already, or if the method is missing."""
        differs = any(getattr(entry, name) != value for name, value in self.changes.items())
        return entry.method in self.methods and differs and self.changes.get("method", entry.method) in registry.all()


READINGS: tuple[Reading, ...] = (
    Reading("PAGE differences use fresh samples", ("halpern-page",), {"method": "halpern-page-fresh"}),
    Reading("PAGE differences are charged once per sample", ("halpern-page",), {"unit": "draws"}),
    Reading("SEG and RAIN are charged once per step", ("seg", "rain"), {"budget_factor": 2}),
)


def readings(panels: Iterable[Panel]) -> dict[str, list[Panel]]:
    """What each reading changes: panels, with the entries to run again. Readings that change nothing are left out."""
    panels = list(panels)
    changed = {reading.name: [_changed(panel, reading) for panel in panels] for reading in READINGS}
    kept = {name: [panel for panel in those if panel.entries] for name, those in changed.items()}
    return {name: those for name, those in kept.items() if those}


def with_readings(study: Study, run: Run) -> list[dict[str, Any]]:
    """The claims of a study, each with the verdicts of all readings that concern it.

    A claim on which readings disagree gets the verdict "depends"; that of the study itself then stands among its
    readings, under `AS_DECIDED`. The evidence is always that of the study itself.

    Parameters
    ----------
    study : Study
        What was found; it is not changed.
    run : callable
        Runs panels on the seeds of the study: `functools.partial(run_study, seeds=..., folder=..., jobs=...)`.
    """
    claims = [claim for claim in CLAIMS if claim.covered(study)]
    panels = [_claimed(panel, claims) for panel in study.panels.values()]
    tuning = "same" if list(study.results["tune_seeds"]) == list(study.results["seeds"]) else "disjoint"
    other = "disjoint" if tuning == "same" else "same"
    parts = {name: run(changed, tune_seeds=tuning) for name, changed in readings(panels).items()}
    if tuned := [panel for panel in map(_tuned, panels) if panel.entries]:
        parts[TUNING[other]] = run(tuned, tune_seeds=other)
    return [_compared(claim, study, parts) for claim in claims]


def _compared(claim: Claim, study: Study, parts: Mapping[str, Study]) -> dict[str, Any]:
    own = claim.find(study)
    found = {name: claim.find(_merged(study, part)) for name, part in parts.items() if _concerns(claim, part)}
    disagree = any(finding.verdict != own.verdict for finding in found.values())
    record = as_record(claim, own._replace(verdict="depends") if disagree else own)
    record["readings"] = [_line(name, finding) for name, finding in {AS_DECIDED: own, **found}.items()] if found else []
    return record


def _line(name: str, finding: Finding) -> dict[str, Any]:
    return {"reading": name, "verdict": finding.verdict, "value": finding.value}


def _claimed(panel: Panel, claims: Iterable[Claim]) -> Panel:
    """The panel with those entries only that claims are about, and those whose parameters they take over."""
    names = {name for claim in claims if panel.id in claim.where for name in claim.methods}
    sources = {entry.like for entry in panel.entries if entry.id in names and entry.like is not None}
    return panel.only([*names, *sources])


def _tuned(panel: Panel) -> Panel:
    """The panel with those entries only that tuning can change."""
    return panel.only([entry.id for entry in panel.entries if entry.grid or entry.like is not None])


def _changed(panel: Panel, reading: Reading) -> Panel:
    """The panel with those entries only that the reading changes, and those that take parameters over from them."""
    names = {entry.id for entry in panel.entries if reading.applies(entry)}
    entries = (
        replace(entry, **reading.changes) if entry.id in names else entry
        for entry in panel.entries
        if entry.id in names or entry.like in names
    )
    return replace(panel, entries=tuple(entries))


def _concerns(claim: Claim, part: Study) -> bool:
    """Whether something that the claim is about was run again."""
    panels = part.results["panels"]
    return any(set(claim.methods) & set(panels[panel]["methods"]) for panel in claim.where if panel in panels)


def _merged(study: Study, part: Study) -> Study:
    """The study with what was run again in its place."""
    panels = dict(study.results["panels"])
    curves = dict(study.curves)
    for name, panel in part.results["panels"].items():
        panels[name] = {**panels[name], "methods": {**panels[name]["methods"], **panel["methods"]}}
        curves[name] = {**curves[name], **part.curves[name]}
    return replace(study, results={**study.results, "panels": panels}, curves=curves)
