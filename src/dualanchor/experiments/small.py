"""The paper's four experiments at small size, with the paper's grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dualanchor.core.errors import unknown_name
from dualanchor.core.problem import Problem
from dualanchor.core.result import Result
from dualanchor.methods import make
from dualanchor.problems import finite_sum_cocoercive, huber_minimax, worst_case_nonexpansive
from dualanchor.run import solve
from dualanchor.run.loop import Progress
from dualanchor.run.stop import require_count

STEPS = (0.005, 0.01, 0.05, 0.1, 1.0)
WEIGHTS = (0.001, 0.01, 0.1, 1.0)
BATCHES = (1, 10, 20, 50, 100)

GRIDS: dict[str, dict[str, Sequence[float]]] = {
    "s-dual-ohm": {"batch_size": BATCHES},
    "sgda": {"step_size": STEPS},
    "seg": {"step_size": STEPS},
    "halpern-page": {"big_batch": BATCHES, "small_batch": (1, 5, 10, 20)},
    "rain": {"step_size": STEPS, "anchor_weight": WEIGHTS, "growth": WEIGHTS},
}


@dataclass(frozen=True)
class Panel:
    """A problem and what each run may spend."""

    title: str
    problem: Problem
    budget: int


PANELS = {
    "exp1": Panel("worst-case nonexpansive operator, d = 201", worst_case_nonexpansive(dimension=201), 200),
    "exp2": Panel("finite sum, n = d = 50", finite_sum_cocoercive(components=50, dimension=50, rank=49), 500),
    "exp3-low": Panel("Huber minimax, sigma = 0.05", huber_minimax(sigma=0.05), 2000),
    "exp3-high": Panel("Huber minimax, sigma = 1.5", huber_minimax(sigma=1.5), 2000),
}

NOTE = "Small sizes and budgets: these numbers show that everything runs, not what the paper reports."


def run_panels(names: Sequence[str], seeds: int, progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
    """Every method on every panel, tuned by the mean final residual over the seeds."""
    require_count(seeds, "reproduce", "seeds", 1)
    for name in names:
        if name not in PANELS:
            raise unknown_name("panel", name, PANELS)
    chosen = {name: panel for name, panel in PANELS.items() if not names or name in names}
    panels = {name: _run_panel(panel, seeds, progress) for name, panel in chosen.items()}
    return {"seeds": seeds, "panels": panels, "note": NOTE}


def _run_panel(panel: Panel, seeds: int, progress: Callable[[Progress], None] | None) -> dict[str, Any]:
    methods: dict[str, Any] = {}
    for name, grid in GRIDS.items():
        points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        methods[name] = _tuned(panel, name, points, seeds, progress)
    # The paper runs S-OHM with the batch size that was selected for S-Dual-OHM.
    methods["s-ohm"] = _tuned(panel, "s-ohm", [methods["s-dual-ohm"]["selected"]], seeds, progress)
    if panel.problem.components is not None:
        methods["halpern-vr-finite"] = _tuned(panel, "halpern-vr-finite", [{}], seeds, progress)
    return {"title": panel.title, "budget": panel.budget, "methods": methods}


def _tuned(
    panel: Panel, name: str, points: list[dict[str, Any]], seeds: int, progress: Callable[[Progress], None] | None
) -> dict[str, Any]:
    configurations = [make(name, panel.problem, panel.budget, point) for point in points]
    result: Result = solve(panel.problem, configurations, budget=panel.budget, reps=seeds, record=0, progress=progress)
    means = result.residual.mean(axis=1)
    best = int(np.argmin(means))
    values = result.residual[best]
    final = {"mean": means[best], "p5": np.percentile(values, 5), "p95": np.percentile(values, 95), "per_seed": values}
    grid = [{"params": point, "mean": mean} for point, mean in zip(points, means, strict=True)]
    return {"selected": points[best], "final": final, "evals": int(result.nfev[best].max()), "grid": grid}
