"""A study that takes no time and has everything a report may have to show."""

import numpy as np

from dualanchor.studies.panel import parse_panel
from dualanchor.studies.study import run_study

WORST_CASE = """
id = "exp1"
title = "Worst case <small> & noisy"
problem = "worst-case-nonexpansive"
budget = 60
options.dimension = 21

[methods.s-dual-ohm]
grid.batch_size = [1, 5]
[methods.s-ohm]
like = "s-dual-ohm"
[methods.s-ohm-tuned]
method = "s-ohm"
grid.batch_size = [1, 5]
[methods.halpern-page]
fixed = {big_batch = 5, small_batch = 1}
[methods.explosive]
method = "sgda"
fixed.step_size = 1e12
"""
FINITE_SUM = """
id = "own"
problem = "finite-sum-cocoercive"
budget = 200
options = {components = 10, dimension = 10, rank = 9}

[methods.s-dual-ohm]
grid.batch_size = [1, 10]
[methods.sgda]
grid.step_size = [0.1, 1.0]
"""
CLAIMS = [
    {
        "id": f"claim-{number}",
        "panel": panel,
        "text": f"Statement {number} <b>",
        "verdict": verdict,
        "evidence": "0.1 against 0.2",
        "readings": [{"reading": "another reading", "verdict": "depends", "value": np.inf}] * number,
    }
    for number, (panel, verdict) in enumerate(
        [("exp1", "reproduced"), ("own", "not reproduced"), ("appendix", "depends"), ("exp1", "unheard of")]
    )
]


def small_study():
    """Two panels, one of them with a method that diverges and with text that is not HTML; claims; a note."""
    panels = [parse_panel(WORST_CASE, "exp1.toml"), parse_panel(FINITE_SUM, "own.toml")]
    study = run_study(panels, seeds=4, tune_seeds="disjoint", jobs=1)
    study.results["claims"] = CLAIMS
    study.notes.append("A small study.")
    return study
