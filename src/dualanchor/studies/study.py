"""From panels to results: tune every method over its grid, run the selected ones for their curves, collect."""

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualanchor._version import __version__
from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.studies.panel import Entry, Panel
from dualanchor.studies.pieces import CURVE_POINTS, Arrays, Piece, Store, pieces_of, run_pieces

RECORDED_GRID = 20  # points; larger grids are recorded where F costs next to nothing
RECORDED_SHARE = 0.05  # of the evaluations of a run


class Event(NamedTuple):
    """Progress of a study: one more piece of a panel's method is done, `done` of `total` in this phase."""

    phase: str  # "tuning" or "curves"
    panel: str
    method: str
    done: int
    total: int
    best: float  # smallest mean final residual in the piece


@dataclass
class Curve:
    """Residuals on the way of the selected configuration: one line per seed and recorded step."""

    seed: Array
    k: Array
    evals: Array
    residual: Array

    def on(self, grid: Array) -> Array:
        """Each seed's residual at the last recorded step within these evaluations: (seeds, points of the grid)."""
        rows = []
        for seed in np.unique(self.seed):
            chosen = self.seed == seed
            at = np.searchsorted(self.evals[chosen], grid, side="right") - 1
            rows.append(self.residual[chosen][np.maximum(at, 0)])
        return np.array(rows)


@dataclass
class Study:
    """What a study found: `results` in the published schema, and the curves behind the figures."""

    results: dict[str, Any]
    curves: dict[str, dict[str, Curve]]
    panels: dict[str, Panel]
    notes: list[str] = field(default_factory=list)

    def curves_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["panel", "method", "seed", "k", "evals", "residual"])
        for panel, methods in self.curves.items():
            for method, curve in methods.items():
                columns = (column.tolist() for column in vars(curve).values())
                writer.writerows((panel, method, *line) for line in zip(*columns, strict=True))
        return text.getvalue()


_At = tuple[str, str]  # ids of panel and entry
_Runs = dict[_At, list[tuple[Piece, Arrays]]]  # pieces with their numbers, in the order of their seeds


def run_study(
    panels: Sequence[Panel],
    *,
    seeds: int | Sequence[int] = 10,
    tune_seeds: str = "same",
    folder: Path | None = None,
    fresh: bool = False,
    jobs: int | None = None,
    progress: Callable[[Event], None] | None = None,
) -> Study:
    """Tune and run every method of the panels.

    `seeds` says how many independent seeds are reported, or which; parameters are selected on the same, as in the
    paper, or on as many others ("disjoint"). Finished pieces are stored in `folder`; `fresh` ignores what is there.
    `jobs` is the number of processes, by default one per core; `progress` is called with an Event after each piece.
    """
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        seeds = range(check.count(seeds, "A study: seeds", most=10**6))
    reported = tuple(check.count(one, "A study: each of seeds", 0) for one in seeds)
    if len(set(reported)) != len(reported) or not reported:
        raise ArgumentError("A study: seeds must be numbers, each once", list(seeds), "Use seeds=10 or seeds=[0, 1, 2]")
    jobs = (os.cpu_count() or 1) if jobs is None else check.count(jobs, "A study: jobs")
    check.choice(tune_seeds, "tune_seeds", ("same", "disjoint"))
    tuned_on = reported if tune_seeds == "same" else tuple(max(reported) + 1 + i for i in range(len(reported)))
    store = None if folder is None else Store(folder, fresh)
    run = partial(_run, store=store, jobs=jobs, progress=progress)

    pairs = {(panel.id, entry.id): (panel, entry) for panel in panels for entry in panel.entries}
    grids = {
        at: pieces_of(panel, entry, entry.points(), tuned_on, _records_while_tuning(panel, entry))
        for at, (panel, entry) in pairs.items()
        if entry.like is None
    }
    tuned = run("tuning", grids)
    selected = {at: _best_point(panel, entry, tuned) for at, (panel, entry) in pairs.items()}
    final: _Runs = {}
    if tuned_on == reported:
        recorded = ((at, _recorded(panel, entry, selected[at], tuned)) for at, (panel, entry) in pairs.items())
        final = {at: parts for at, parts in recorded if parts}
    missing = {
        at: pieces_of(panel, entry, [selected[at]], reported, curves=True)
        for at, (panel, entry) in pairs.items()
        if at not in final
    }
    final |= run("curves", missing)
    study = Study({}, {panel.id: {} for panel in panels}, {panel.id: panel for panel in panels})
    methods: dict[str, dict[str, Any]] = {panel.id: {} for panel in panels}
    for at, (panel, entry) in pairs.items():
        study.curves[panel.id][entry.id], ends = _at_point(final[at], selected[at])
        tuning = zip(entry.points(), _joined(tuned[at], "residual"), strict=True) if entry.grid else ()
        methods[panel.id][entry.id] = {
            "method": entry.cls.id,
            "selected": selected[at],
            "final": final_statistics(ends["residual"]),
            "evals": int(ends["evals"].max()),
            "ours": entry.ours,
            "grid": [{"params": point, "mean": values.mean(), "per_seed": values} for point, values in tuning],
        }
    study.results = {
        "version": __version__,
        "seeds": list(reported),
        "tune_seeds": list(tuned_on),
        "panels": {panel.id: _summary(panel, reported, methods[panel.id]) for panel in panels},
        "claims": [],
    }
    if store is not None and store.replaced:
        anew = "were of another version of the code and have been computed anew"
        study.notes.append(f"{store.replaced} finished pieces {anew}.")
    return study


def _run(
    phase: str,
    groups: dict[_At, list[Piece]],
    store: Store | None,
    jobs: int,
    progress: Callable[[Event], None] | None,
) -> _Runs:
    found: dict[int, Arrays] = {}
    pieces = [piece for group in groups.values() for piece in group]
    for piece, arrays in run_pieces(pieces, store, jobs):
        found[id(piece)] = arrays
        if progress is not None:
            best = float(np.min(arrays["residual"].mean(axis=1)))
            progress(Event(phase, piece.panel.id, piece.entry.id, len(found), len(pieces), best))
    return {at: [(piece, found[id(piece)]) for piece in group] for at, group in groups.items()}


def _records_while_tuning(panel: Panel, entry: Entry) -> bool:
    """Whether a grid records all its runs: not where F costs many passes, nor where coins make all lengths differ."""
    points = entry.points()
    cheap = CURVE_POINTS * (panel.problem.components or 1) <= RECORDED_SHARE * panel.budget
    return (cheap or len(points) <= RECORDED_GRID) and panel.make(entry, points[0]).probability(0) is None


def _best_point(panel: Panel, entry: Entry, tuned: _Runs) -> dict[str, Any]:
    """The point of the grid with the smallest mean final residual; a diverged seed ranks a point last."""
    source = entry if entry.like is None else panel.entry(entry.like)
    means = _joined(tuned[panel.id, source.id], "residual").mean(axis=1)
    return source.points()[int(np.argmin(np.where(np.isnan(means), np.inf, means)))]


def _recorded(panel: Panel, entry: Entry, point: dict[str, Any], tuned: _Runs) -> list[tuple[Piece, Arrays]] | None:
    """The runs of a point that tuning has recorded, be it for another entry that runs the same method."""
    for other in (entry, *panel.entries):
        parts = tuned.get((panel.id, other.id))
        if parts and parts[0][0].curves and other.runs_like(entry) and point in parts[0][0].points:
            return parts
    return None


def _joined(parts: list[tuple[Piece, Arrays]], name: str) -> Array:
    return np.concatenate([arrays[name] for _, arrays in parts], axis=1)


def _at_point(parts: list[tuple[Piece, Arrays]], point: dict[str, Any]) -> tuple[Curve, Arrays]:
    """The curve at one point of a grid, and residuals and evaluations at its end."""
    i, columns = parts[0][0].points.index(point), []
    for piece, arrays in parts:
        number, seed = np.divmod(arrays["curve/row"], len(piece.seeds))
        here = number == i
        lines = (arrays[f"curve/{name}"][here] for name in ("k", "evals", "residual"))
        columns.append((np.array(piece.seeds)[seed[here]], *lines))
    curve = Curve(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    return curve, {name: _joined(parts, name)[i] for name in ("residual", "evals")}


def _summary(panel: Panel, seeds: tuple[int, ...], methods: dict[str, Any]) -> dict[str, Any]:
    instance = panel.problem.instance(Streams(0, np.array(seeds), Purpose.INSTANCE))
    start = instance.oracle.operator(instance.x0)
    return {
        "title": panel.title,
        "problem": panel.problem.describe(),
        "budget": panel.budget,
        "initial_residual": None if start is None else float(np.linalg.norm(start, axis=1).mean()),
        "methods": methods,
    }


def final_statistics(values: Array) -> dict[str, Any]:
    """Mean and 5th and 95th percentile over seeds (NumPy's linear rule); not finite if a seed diverged."""
    with np.errstate(invalid="ignore"):
        low, high = np.percentile(values, [5, 95])
    return {"mean": values.mean(), "p5": low, "p95": high, "per_seed": values}
