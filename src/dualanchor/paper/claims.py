"""What the paper says about its experiments, each statement with its criterion, judged on a study's own numbers.

The criteria and what a verdict means stand in `criteria`; how verdicts depend on open details in `readings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from dualanchor.paper.criteria import (
    CALM,
    COMPARABLE,
    CONVERGED,
    DIVERGING,
    EARLY,
    EFFECTIVE,
    LEVEL,
    STEADY,
    Finding,
    Judge,
    Seen,
    all_of,
    comparable,
    diverges,
    ends_below,
    fast_then_stagnates,
    hardly_moves,
    overtakes,
    same_batch,
    selects,
    solves,
    stable,
    steadier,
    steady,
)
from dualanchor.studies.study import Study


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Attributes
    ----------
    id, panel : str
        Its names.
    text : str
        What is stated, and the criterion it is held to.
    methods : tuple of str
        Whom it is about, in the order in which `judge` takes them.
    judge : callable
        The criterion.
    panels : tuple of str
        Where it must hold, if not in the panel it is named after.
    """

    id: str
    panel: str
    text: str
    methods: tuple[str, ...]
    judge: Judge
    panels: tuple[str, ...] = ()

    @property
    def where(self) -> tuple[str, ...]:
        """The panels in which the statement must hold."""
        return self.panels or (self.panel,)

    def covered(self, study: Study) -> bool:
        """Whether a study has what the statement is about."""
        panels = study.results["panels"]
        return all(panel in panels and set(self.methods) <= set(panels[panel]["methods"]) for panel in self.where)

    def find(self, study: Study) -> Finding:
        """The finding of a study that covers the statement."""
        parts = {panel: self.judge(Seen(study, panel), *self.methods) for panel in self.where}
        if len(parts) == 1:
            return parts[self.where[0]]
        return all_of(part._replace(evidence=f"{panel}: {part.evidence}") for panel, part in parts.items())


def judge(study: Study) -> list[dict[str, Any]]:
    """All claims that the study covers, in the schema of `results.json`."""
    return [as_record(claim, claim.find(study)) for claim in CLAIMS if claim.covered(study)]


def as_record(claim: Claim, finding: Finding) -> dict[str, Any]:
    """A claim and its finding in the schema of `results.json`."""
    return {
        "id": claim.id,
        "panel": claim.panel,
        "text": claim.text,
        "verdict": finding.verdict,
        "evidence": finding.evidence,
        "readings": [],
    }


# The paper's statements

_DUAL, _OHM, _TUNED = "s-dual-ohm", "s-ohm", "s-ohm-tuned"
_BASELINES = (_OHM, "sgda", "seg", "rain", "halpern-page")
_PAIRED = (
    "log(final residual of S-Dual-OHM / that of the other) is below 0 in the mean over paired seeds "
    f"(one-sided t test, level {LEVEL})"
)
_RESAMPLED = f"in at least {1 - LEVEL:.0%} of bootstrap resamples of the tuning seeds"
_TENTHS = "(tenths: geometric means of the residual over each tenth of the budget)"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "exp1-smallest",
        "exp1",
        f"At the end S-Dual-OHM has the smallest residual of all methods compared. Criterion: against each, {_PAIRED}.",
        (_DUAL, *_BASELINES),
        ends_below,
    ),
    Claim(
        "exp1-s-ohm-diverges",
        "exp1",
        "S-OHM with S-Dual-OHM's batch size does not converge; its residual grows. Criterion: in every seed the last "
        f"tenth is at least {DIVERGING:g} times the lowest level and above the fifth tenth {_TENTHS}.",
        (_OHM,),
        diverges,
    ),
    Claim(
        "exp1-not-anytime",
        "exp1",
        "S-Dual-OHM is not an anytime method: on the way it is worse than others that it beats at the end. Criterion: "
        "for most of the other methods the mean log ratio of residuals is above 0 at half the budget and below 0 at "
        f"the end (one-sided paired t tests, level {LEVEL}); contradicted if for none.",
        (_DUAL, *_BASELINES),
        overtakes,
    ),
    Claim(
        "exp1-page-rain-stable",
        "exp1",
        "Variance reduction (Halpern-PAGE) and moving anchors (RAIN) make anchoring stable. Criterion: in every seed "
        f"of both the last tenth is at most {CALM:g} times the lowest level and {CONVERGED:g} of the start {_TENTHS}.",
        ("halpern-page", "rain"),
        stable,
    ),
    Claim(
        "exp1-sgda-seg-steady",
        "exp1",
        "SGDA and SEG converge steadily. Criterion: in every seed of both the rank correlation of tenths with time is "
        f"at most {STEADY:g} and the last tenth at most {CONVERGED:g} of the start {_TENTHS}.",
        ("sgda", "seg"),
        steady,
    ),
    Claim(
        "exp2-beats-s-ohm",
        "exp2",
        f"S-Dual-OHM ends below S-OHM with the same batch size. Criterion: {_PAIRED}.",
        (_DUAL, _OHM),
        ends_below,
    ),
    Claim(
        "exp2-sgda-effective",
        "exp2",
        "SGDA, a basic method, solves this generic problem effectively. Criterion: its residual ends at no more than "
        f"{EFFECTIVE:g} of the start (one-sided t test of the mean log ratio, level {LEVEL}).",
        ("sgda",),
        solves,
    ),
    Claim(
        "exp2-vr-finite-slow",
        "exp2",
        "Halpern-VR-Finite hardly moves under this budget. Criterion: its residual ends above "
        f"{CONVERGED:g} of the start (one-sided t test of the mean log ratio, level {LEVEL}).",
        ("halpern-vr-finite",),
        hardly_moves,
    ),
    Claim(
        "exp3-low-batch-1",
        "exp3-low",
        f"With little noise mini-batches do not pay: S-Dual-OHM selects B = 1. Criterion: so {_RESAMPLED}.",
        (_DUAL,),
        partial(selects, batch_size=1),
    ),
    Claim(
        "exp3-low-fast-then-stagnates",
        "exp3-low",
        f"S-Dual-OHM is fast at first and then stagnates. Criterion: in every seed {EARLY:.0%} or more of the decrease "
        f"of the log residual falls into the first fifth of the budget, and the last tenth is at most {CONVERGED:g} of "
        f"the start {_TENTHS}.",
        (_DUAL,),
        fast_then_stagnates,
    ),
    Claim(
        "exp3-low-others-steadier",
        "exp3-low",
        "RAIN, SGDA and SEG converge more steadily than S-Dual-OHM. Criterion: for each, the share of the decrease of "
        "the log residual that falls into the first fifth of the budget is smaller in the mean over paired seeds "
        f"(one-sided t test, level {LEVEL}).",
        (_DUAL, "rain", "sgda", "seg"),
        steadier,
    ),
    Claim(
        "exp3-low-s-ohm-inferior",
        "exp3-low",
        f"S-OHM with the same batch size ends above S-Dual-OHM. Criterion: {_PAIRED}.",
        (_DUAL, _OHM),
        ends_below,
    ),
    Claim(
        "exp3-high-batch-10",
        "exp3-high",
        f"With much noise mini-batches pay: S-Dual-OHM selects B = 10. Criterion: so {_RESAMPLED}.",
        (_DUAL,),
        partial(selects, batch_size=10),
    ),
    Claim(
        "exp3-high-comparable",
        "exp3-high",
        "S-Dual-OHM with mini-batches is comparable to the classical methods SGDA and SEG and to RAIN. Criterion: the "
        f"mean log ratio of the final residuals is within a factor of {COMPARABLE:g} either way of each "
        f"(two one-sided paired t tests, level {LEVEL}).",
        (_DUAL, "sgda", "seg", "rain"),
        comparable,
    ),
    Claim(
        "appendix-same-batch",
        "appendix",
        "Tuned by itself, S-OHM selects the batch size of S-Dual-OHM in experiment 2 and in experiment 3 with little "
        f"noise. Criterion: so {_RESAMPLED}, in both panels.",
        (_DUAL, _TUNED),
        same_batch,
        ("exp2", "exp3-low"),
    ),
    Claim(
        "appendix-other-batch",
        "appendix",
        "Tuned by itself, S-OHM selects another batch size than S-Dual-OHM in experiment 1 and in experiment 3 with "
        f"much noise. Criterion: so {_RESAMPLED}, in both panels.",
        (_DUAL, _TUNED),
        partial(same_batch, same=False),
        ("exp1", "exp3-high"),
    ),
    Claim(
        "appendix-strictly-larger",
        "appendix",
        f"Even with a batch size of its own, S-OHM ends above S-Dual-OHM. Criterion: in all four panels, {_PAIRED}.",
        (_DUAL, _TUNED),
        ends_below,
        ("exp1", "exp2", "exp3-low", "exp3-high"),
    ),
)
