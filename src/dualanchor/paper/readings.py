"""Details that the paper leaves open, each decided the other way, and how that changes the verdicts on its claims.

A reading changes entries of panels, or the seeds that tuning uses. Only entries that it changes, and that a claim is
about, are run again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualanchor.core.method import Cost
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows
from dualanchor.estimators.page import PAGE
from dualanchor.methods.halpern_page import HalpernPAGE
from dualanchor.paper.claims import CLAIMS, PaperClaim, as_record
from dualanchor.paper.criteria import Verdict
from dualanchor.studies.panel import Panel
from dualanchor.studies.study import Study

AS_DECIDED = "as decided"  # the name of the study itself beside the readings
# The names of the two readings of tuning, by `tune_seeds` of `run_study`. A study uses one, the other is the reading.
TUNING = {"same": "tuned on the seeds that are reported", "disjoint": "tuned on other seeds than are reported"}


class Reading(NamedTuple):
    """Another reading of how some methods are run or charged: other values for fields of their entries."""

    name: str
    methods: tuple[str, ...]
    changes: Mapping[str, Any]

    def of(self, panel: Panel) -> Panel:
        """The panel with only the entries that the reading changes, and those that use their selected parameters."""
        other = {entry.id: replace(entry, **self.changes) for entry in panel.entries if entry.method in self.methods}
        changed = {name: entry for name, entry in other.items() if entry != panel.entry(name)}
        entries = (entry for entry in panel.entries if entry.id in changed or entry.like in changed)
        return replace(panel, entries=tuple(changed.get(entry.id, entry) for entry in entries))


@dataclass(frozen=True)
class FreshPAGE(PAGE):
    """PAGE with other samples at the second point of a difference, so that no noise cancels; for comparison."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def cost(self, k: Any, horizon: Any, coin: Any) -> Cost:
        both = np.where(coin, self.big_batch, 2 * self.small_batch)
        return Cost(both, both)

    def difference(self, F: Session, x: Array, previous: Array, rows: Rows) -> Array:
        size = self._size(self.small_batch, rows)
        return F(x, F.draw(size)) - F(previous, F.draw(size))


@dataclass(frozen=True)
class FreshHalpernPAGE(HalpernPAGE):
    """Halpern-PAGE with independent samples at the two points of a difference, so that no noise cancels."""

    id = "halpern-page-fresh"
    kind = FreshPAGE


READINGS: tuple[Reading, ...] = (
    Reading("PAGE differences use fresh samples", ("halpern-page",), {"method": FreshHalpernPAGE}),
    Reading("PAGE differences are charged once per sample", ("halpern-page",), {"unit": "draws"}),
    Reading("SEG and RAIN are charged once per step", ("seg", "rain"), {"budget_factor": 2}),
)


def readings(panels: Iterable[Panel]) -> dict[str, list[Panel]]:
    """For each reading that changes something, the panels with the entries to run again."""
    panels = list(panels)
    changed = {reading.name: _with_entries(map(reading.of, panels)) for reading in READINGS}
    return {name: panels for name, panels in changed.items() if panels}


def with_readings(study: Study, run: Callable[..., Study]) -> list[dict[str, Any]]:
    """The claims of a study with the verdicts of all readings that concern them; "depends" if verdicts disagree.

    The evidence is that of the study itself. `run(panels, tune_seeds=...)` runs panels on the seeds of the study.
    """
    claims = [claim for claim in CLAIMS if claim.covered(study)]
    panels = [_claimed(panel, claims) for panel in study.panels.values()]
    same = list(study.results["tune_seeds"]) == list(study.results["seeds"])
    tuning, other = ("same", "disjoint") if same else ("disjoint", "same")
    parts = {name: run(changed, tune_seeds=tuning) for name, changed in readings(panels).items()}
    if tuned := _with_entries(panel.only([e.id for e in panel.entries if e.grid or e.like]) for panel in panels):
        parts[TUNING[other]] = run(tuned, tune_seeds=other)
    return [_compared(claim, study, parts) for claim in claims]


def _with_entries(panels: Iterable[Panel]) -> list[Panel]:
    return [panel for panel in panels if panel.entries]


def _claimed(panel: Panel, claims: Iterable[PaperClaim]) -> Panel:
    """The panel with only the entries that claims are about, and those whose parameters they use."""
    names = {name for claim in claims if panel.id in claim.where for name in claim.methods}
    sources = {entry.like for entry in panel.entries if entry.id in names and entry.like is not None}
    return panel.only([*names, *sources])


def _compared(claim: PaperClaim, study: Study, parts: Mapping[str, Study]) -> dict[str, Any]:
    """The record of a claim, with the readings for which one of its methods was run again."""
    own = claim.find(study)
    judgements = {AS_DECIDED: own}
    for name, part in parts.items():
        panels = part.results["panels"]
        if any(set(claim.methods) & set(panels[panel]["methods"]) for panel in claim.where if panel in panels):
            judgements[name] = claim.find(_merged(study, part))
    disagree = any(judgement.verdict != own.verdict for judgement in judgements.values())
    record = as_record(claim, own._replace(verdict=Verdict.DEPENDS) if disagree else own)
    if len(judgements) > 1:
        record["readings"] = [
            {"reading": name, "verdict": judgement.verdict.value, "value": judgement.value}
            for name, judgement in judgements.items()
        ]
    return record


def _merged(study: Study, part: Study) -> Study:
    """The study with the methods of another one in place of its own."""
    panels, curves = dict(study.results["panels"]), dict(study.curves)
    for name, panel in part.results["panels"].items():
        panels[name] = {**panels[name], "methods": {**panels[name]["methods"], **panel["methods"]}}
        curves[name] = {**curves[name], **part.curves[name]}
    return replace(study, results={**study.results, "panels": panels}, curves=curves)
