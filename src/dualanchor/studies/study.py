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

CURVE_COLUMNS = ["panel", "method", "seed", "k", "evals", "residual"]  # of curves.csv
RECORDED_GRID = 20  # points; larger grids record curves only if evaluating F for them is cheap:
RECORDED_SHARE = 0.05  # at most this share of the evaluations of a run


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
    """Residuals during the runs of the selected configuration: one line per seed and recorded step."""

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
    """The outcome of a study: `results` in the schema of results.json, and curves by panel and method."""

    results: dict[str, Any]
    curves: dict[str, dict[str, Curve]]
    panels: dict[str, Panel]
    notes: list[str] = field(default_factory=list)

    def curves_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CURVE_COLUMNS)
        for panel, methods in self.curves.items():
            for method, curve in methods.items():
                columns = (column.tolist() for column in vars(curve).values())
                writer.writerows((panel, method, *line) for line in zip(*columns, strict=True))
        return text.getvalue()


_Ids = tuple[str, str]  # of a panel and of an entry
_Parts = list[tuple[Piece, Arrays]]  # pieces of an entry with their arrays, in the order of their seeds
_Runs = dict[_Ids, _Parts]


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

    `seeds` is how many independent seeds are reported, or which. Parameters are selected on the same seeds, as in the
    paper, or on as many others ("disjoint"). Finished pieces are stored in `folder`; `fresh` ignores stored ones.
    `jobs` is the number of processes, by default one per core; `progress` is called with an Event after each piece.
    """
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        seeds = range(check.count(seeds, "A study: seeds", most=10**6))
    reported = tuple(check.count(seed, "A study: each of seeds", 0) for seed in seeds)
    if len(set(reported)) != len(reported) or not reported:
        raise ArgumentError("A study: seeds must be numbers, each once", list(seeds), "Use seeds=10 or seeds=[0, 1, 2]")
    jobs = (os.cpu_count() or 1) if jobs is None else check.count(jobs, "A study: jobs")
    check.choice(tune_seeds, "tune_seeds", ("same", "disjoint"))
    tuned_on = reported if tune_seeds == "same" else tuple(max(reported) + 1 + i for i in range(len(reported)))
    store = None if folder is None else Store(folder, fresh)
    run = partial(_run, store=store, jobs=jobs, progress=progress)

    pairs = {(panel.id, entry.id): (panel, entry) for panel in panels for entry in panel.entries}
    grids = {
        ids: pieces_of(panel, entry, entry.points(), tuned_on, _records_while_tuning(panel, entry))
        for ids, (panel, entry) in pairs.items()
        if entry.like is None
    }
    tuned = run("tuning", grids)
    selected = {ids: _best_point(panel, entry, tuned) for ids, (panel, entry) in pairs.items()}
    final: _Runs = {}
    if tuned_on == reported:
        recorded = ((ids, _recorded(panel, entry, selected[ids], tuned)) for ids, (panel, entry) in pairs.items())
        final = {ids: parts for ids, parts in recorded if parts}
    missing = {
        ids: pieces_of(panel, entry, [selected[ids]], reported, curves=True)
        for ids, (panel, entry) in pairs.items()
        if ids not in final
    }
    final |= run("curves", missing)
    study = Study({}, {panel.id: {} for panel in panels}, {panel.id: panel for panel in panels})
    methods: dict[str, dict[str, Any]] = {panel.id: {} for panel in panels}
    for ids, (panel, entry) in pairs.items():
        study.curves[panel.id][entry.id], ends = _at_point(final[ids], selected[ids])
        tuning = zip(entry.points(), _joined(tuned[ids], "residual"), strict=True) if entry.grid else ()
        methods[panel.id][entry.id] = {
            "method": entry.cls.id,
            "selected": selected[ids],
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
        reason = "were of another version of the code and have been computed anew"
        study.notes.append(f"{store.replaced} finished pieces {reason}.")
    return study


def _run(
    phase: str,
    groups: dict[_Ids, list[Piece]],
    store: Store | None,
    jobs: int,
    progress: Callable[[Event], None] | None,
) -> _Runs:
    """The arrays of all pieces of a phase, "tuning" or "curves"."""
    arrays_of: dict[int, Arrays] = {}  # by id(piece)
    pieces = [piece for group in groups.values() for piece in group]
    for piece, arrays in run_pieces(pieces, store, jobs):
        arrays_of[id(piece)] = arrays
        if progress is not None:
            best = float(np.min(arrays["residual"].mean(axis=1)))
            progress(Event(phase, piece.panel.id, piece.entry.id, len(arrays_of), len(pieces), best))
    return {ids: [(piece, arrays_of[id(piece)]) for piece in group] for ids, group in groups.items()}


def _records_while_tuning(panel: Panel, entry: Entry) -> bool:
    """Whether tuning records the curves of all runs: not if evaluating F is costly, nor if coins make steps differ."""
    points = entry.points()
    cheap = CURVE_POINTS * (panel.problem.components or 1) <= RECORDED_SHARE * panel.budget
    return (cheap or len(points) <= RECORDED_GRID) and panel.make(entry, points[0]).probability(0) is None


def _best_point(panel: Panel, entry: Entry, tuned: _Runs) -> dict[str, Any]:
    """The point of the grid with the smallest mean final residual; a point with a diverged seed comes last."""
    source = entry if entry.like is None else panel.entry(entry.like)
    means = _joined(tuned[panel.id, source.id], "residual").mean(axis=1)
    return source.points()[int(np.argmin(np.where(np.isnan(means), np.inf, means)))]


def _recorded(panel: Panel, entry: Entry, point: dict[str, Any], tuned: _Runs) -> _Parts | None:
    """The runs of a point, if tuning has recorded them, for this entry or for another with the same runs."""
    for other in (entry, *panel.entries):
        parts = tuned.get((panel.id, other.id))
        if parts and parts[0][0].curves and other.runs_like(entry) and point in parts[0][0].points:
            return parts
    return None


def _joined(parts: _Parts, name: str) -> Array:
    """An array of all pieces, (points, seeds)."""
    return np.concatenate([arrays[name] for _, arrays in parts], axis=1)


def _at_point(parts: _Parts, point: dict[str, Any]) -> tuple[Curve, Arrays]:
    """The curve at one point of a grid, and the final residuals and evaluations of its seeds."""
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
    """Mean, 5th and 95th percentile over seeds (NumPy's linear rule), which are not finite if a seed diverged."""
    with np.errstate(invalid="ignore"):
        low, high = np.percentile(values, [5, 95])
    return {"mean": values.mean(), "p5": low, "p95": high, "per_seed": values}
