"""The paper's claims about its experiments (claims.toml), judged by the numbers of a study.

`criteria` has the criteria and what a verdict means; `readings` how verdicts depend on details that the paper leaves
open.
"""

import tomllib
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

from dualanchor.paper import criteria
from dualanchor.paper.criteria import LEVEL
from dualanchor.studies.study import Study


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper and the criterion by which it is judged; `text` describes both."""

    id: str
    panel: str
    text: str
    methods: tuple[str, ...]  # that it is about, in the order in which `judge` takes them
    judge: criteria.Judge
    where: tuple[str, ...]  # the panels in which it must hold

    def covered(self, study: Study) -> bool:
        """Whether the study has the panels and methods of the claim."""
        panels = study.results["panels"]
        return all(panel in panels and set(self.methods) <= set(panels[panel]["methods"]) for panel in self.where)

    def find(self, study: Study) -> criteria.Judgement:
        """The judgement of the claim, over all its panels."""
        parts = {panel: self.judge(criteria.PanelSeeds(study, panel), *self.methods) for panel in self.where}
        if len(parts) == 1:
            return parts[self.where[0]]
        return criteria.all_of(part._replace(evidence=f"{panel}: {part.evidence}") for panel, part in parts.items())


def judge(study: Study) -> list[dict[str, Any]]:
    """All claims that the study covers, in the schema of `results.json`."""
    return [as_record(claim, claim.find(study)) for claim in CLAIMS if claim.covered(study)]


def as_record(claim: PaperClaim, judgement: criteria.Judgement) -> dict[str, Any]:
    """A claim and its judgement in the schema of `results.json`."""
    about = {"id": claim.id, "panel": claim.panel, "text": claim.text}
    return {**about, "verdict": judgement.verdict.value, "evidence": judgement.evidence, "readings": []}


_PHRASES = {
    "PAIRED": "log(final residual of S-Dual-OHM / that of the other) is below 0 in the mean over paired seeds "
    f"(one-sided t test, level {LEVEL})",
    "RESAMPLED": f"in at least {1 - LEVEL:.0%} of bootstrap resamples of the tuning seeds",
    "TENTHS": "(tenths: geometric means of the residual over each tenth of the budget)",
}


def _claim(name: str, table: dict[str, Any]) -> PaperClaim:
    text = table["text"].format(**vars(criteria), **_PHRASES)
    rule = partial(getattr(criteria, table["criterion"]), **table.get("parameters", {}))
    return PaperClaim(
        name, table["panel"], text, tuple(table["methods"]), rule, tuple(table.get("where", [table["panel"]]))
    )


_TABLES = tomllib.loads(resources.files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))
CLAIMS: tuple[PaperClaim, ...] = tuple(_claim(name, table) for name, table in _TABLES.items())
