"""From panels to results: tune every method over its grid, run the selected ones for their curves, collect."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor._version import __version__
from dualanchor.core.errors import ArgumentError
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.run.stop import require_count
from dualanchor.studies.panel import Entry, Panel
from dualanchor.studies.pieces import CURVE_POINTS, Piece, run_all

APPENDIX = ("s-dual-ohm", "s-ohm", "s-ohm-tuned")
QUICK_SEEDS = 3
RECORDED_GRID = 20  # points; larger grids are recorded where F costs next to nothing
RECORDED_SHARE = 0.05  # of the evaluations of a run


@dataclass(frozen=True)
class Event:
    """Progress of a study: one more piece is done.

    Attributes
    ----------
    phase : str
        "tuning" or "curves".
    panel, method : str
        What the piece belongs to.
    part, parts : int
        How many pieces of that method and panel are done, and how many there are.
    done, total : int
        The same for the whole phase.
    best : float or None
        Smallest mean final residual in the piece.
    """

    phase: str
    panel: str
    method: str
    part: int
    parts: int
    done: int
    total: int
    best: float | None = None


@dataclass
class Curve:
    """Residuals on the way of the selected configuration: one line per seed and recorded step."""

    seed: Array
    k: Array
    evals: Array
    residual: Array

    def on(self, grid: Array) -> Array:
        """Each seed's residual at the last recorded step that cost at most so much: (seeds, points of the grid)."""
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
        """All curves as one tidy table."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["panel", "method", "seed", "k", "evals", "residual"])
        for panel, methods in self.curves.items():
            for method, curve in methods.items():
                columns = (column.tolist() for column in (curve.seed, curve.k, curve.evals, curve.residual))
                writer.writerows((panel, method, *line) for line in zip(*columns, strict=True))
        return text.getvalue()


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

    Parameters
    ----------
    panels : list of Panel
        What to run.
    seeds : int or list of int
        Independent seeds that are reported.
    tune_seeds : "same" or "disjoint"
        Whether parameters are selected on the reported seeds, as in the paper, or on as many others.
    folder : path, optional
        Where finished pieces are kept.
    fresh : bool
        Whether to ignore what is kept.
    jobs : int, optional
        Processes; default as many as there are cores.
    progress : callable, optional
        Told of each piece.
    """
    reported = _seeds(seeds)
    if tune_seeds not in ("same", "disjoint"):
        raise ArgumentError("tune_seeds must be same or disjoint", repr(tune_seeds), "Use tune_seeds='same'")
    tuned_on = reported if tune_seeds == "same" else tuple(max(reported) + 1 + i for i in range(len(reported)))
    jobs = jobs or os.cpu_count() or 1
    runner = _Runner(folder, fresh, jobs, progress)

    grids = runner.tune(panels, tuned_on)
    selected = {panel.id: _select(panel, grids[panel.id]) for panel in panels}
    curves, finals = runner.curves(panels, selected, reported)
    return Study(
        results={
            "version": __version__,
            "seeds": list(reported),
            "tune_seeds": list(tuned_on),
            "panels": {
                panel.id: _summary(panel, reported, grids[panel.id], selected[panel.id], finals[panel.id])
                for panel in panels
            },
            "claims": [],
        },
        curves=curves,
        panels={panel.id: panel for panel in panels},
    )


class _Runner:
    """Cuts work into pieces, has them run, and puts the numbers together again."""

    def __init__(self, folder: Path | None, fresh: bool, jobs: int, progress: Callable[[Event], None] | None) -> None:
        self._folder = None if folder is None else folder.absolute()  # workers may have another current folder
        self._fresh, self._jobs, self._progress = fresh, jobs, progress
        self._tuned: list[tuple[Piece, dict[str, Array]]] = []

    def tune(self, panels: Sequence[Panel], seeds: tuple[int, ...]) -> dict[str, dict[str, dict[str, Array]]]:
        """For each panel and tuned entry: residuals and evaluations (points, seeds)."""
        pieces = [
            Piece(panel, entry, tuple(entry.points()), block, curves=records_while_tuning(panel, entry))
            for panel in panels
            for entry in panel.entries
            if entry.like is None
            for block in _blocks(seeds, panel.seeds_per_block)
        ]
        parts = self._tuned = self._run(pieces, "tuning")
        grids: dict[str, dict[str, dict[str, Array]]] = {panel.id: {} for panel in panels}
        for panel in panels:
            for entry in panel.entries:
                mine = [
                    (piece.seeds, arrays) for piece, arrays in parts if piece.panel is panel and piece.entry is entry
                ]
                mine.sort(key=lambda part: seeds.index(part[0][0]))
                if mine:
                    grids[panel.id][entry.id] = {
                        name: np.concatenate([arrays[name] for _, arrays in mine], axis=1)
                        for name in ("residual", "evals")
                    }
        return grids

    def curves(
        self, panels: Sequence[Panel], selected: dict[str, dict[str, dict[str, Any]]], seeds: tuple[int, ...]
    ) -> tuple[dict[str, dict[str, Curve]], dict[str, dict[str, dict[str, Array]]]]:
        """The selected configurations, recorded on the way; run again unless tuning has recorded them."""
        parts = {
            (panel.id, entry.id): self._recorded(panel, entry, selected[panel.id][entry.id], seeds)
            for panel in panels
            for entry in panel.entries
        }
        pieces = [
            Piece(panel, entry, (selected[panel.id][entry.id],), block, curves=True)
            for panel in panels
            for entry in panel.entries
            if not parts[panel.id, entry.id]
            for block in _blocks(seeds, panel.seeds_per_block)
        ]
        for piece, arrays in self._run(pieces, "curves"):
            parts[piece.panel.id, piece.entry.id].append((piece, arrays))
        curves: dict[str, dict[str, Curve]] = {panel.id: {} for panel in panels}
        finals: dict[str, dict[str, dict[str, Array]]] = {panel.id: {} for panel in panels}
        for panel in panels:
            for entry in panel.entries:
                mine = sorted(parts[panel.id, entry.id], key=lambda part: seeds.index(part[0].seeds[0]))
                found = [_at_point(piece, arrays, selected[panel.id][entry.id]) for piece, arrays in mine]
                columns = zip(*(curve for curve, _ in found), strict=True)
                curves[panel.id][entry.id] = Curve(*(np.concatenate(column) for column in columns))
                finals[panel.id][entry.id] = {
                    name: np.concatenate([final[name] for _, final in found]) for name in ("residual", "evals")
                }
        return curves, finals

    def _recorded(
        self, panel: Panel, entry: Entry, point: dict[str, Any], seeds: tuple[int, ...]
    ) -> list[tuple[Piece, dict[str, Array]]]:
        """Parts of the tuning in which these runs were recorded, be it under the name of another entry."""
        there = [part for part in self._tuned if part[0].curves and set(part[0].seeds) <= set(seeds)]
        for other in (entry, *panel.entries):
            if other.runs_like(entry):
                mine = [part for part in there if part[0].panel is panel and part[0].entry is other]
                if mine and point in mine[0][0].points:
                    return mine
        return []

    def _run(self, pieces: list[Piece], what: str) -> list[tuple[Piece, dict[str, Array]]]:
        results: list[tuple[Piece, dict[str, Array]]] = []

        def done(piece: Piece, arrays: dict[str, Array]) -> None:
            results.append((piece, arrays))
            if self._progress is not None:
                best = float(np.min(arrays["residual"].mean(axis=1)))
                part, parts = (_alike(piece, some) for some in ([one for one, _ in results], pieces))
                where = (piece.panel.id, piece.entry.id, part, parts)
                self._progress(Event(what, *where, len(results), len(pieces), best))

        run_all(pieces, self._folder, self._fresh, self._jobs, done, backwards=what == "curves")
        return results


def records_while_tuning(panel: Panel, entry: Entry) -> bool:
    """Whether a grid records all its runs; if not, the selected ones are run again for their curves.

    Not if F costs a pass over many components at many points, nor if coins make all lengths different.
    """
    points = entry.points()
    cheap = CURVE_POINTS * (panel.problem.components or 1) <= RECORDED_SHARE * panel.budget
    return (cheap or len(points) <= RECORDED_GRID) and panel.make(entry, points[0]).probability(0) is None


def _at_point(
    piece: Piece, arrays: dict[str, Array], point: dict[str, Any]
) -> tuple[tuple[Array, ...], dict[str, Array]]:
    """Seeds, steps, evaluations and residuals recorded at one point of a piece, and its ends."""
    i, count = piece.points.index(point), len(piece.seeds)
    chosen = arrays["curve/row"] // count == i
    seed = np.array(piece.seeds)[arrays["curve/row"][chosen] % count]
    columns = (arrays[f"curve/{name}"][chosen] for name in ("k", "evals", "residual"))
    return (seed, *columns), {name: arrays[name][i] for name in ("residual", "evals")}


def _alike(piece: Piece, pieces: Sequence[Piece]) -> int:
    return sum(one.panel is piece.panel and one.entry is piece.entry for one in pieces)


def quick(panel: Panel) -> Panel:
    """The panel with the paper's methods only and coarse grids: of each parameter the first, middle and last value.

    A grid of three parameters or more keeps the first and the middle value of all but its first parameter.
    """
    entries = (replace(entry, grid=_coarse(entry.grid)) for entry in panel.entries if not entry.ours)
    return replace(panel, entries=tuple(entries))


def _coarse(grid: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    coarse: dict[str, Sequence[Any]] = {}
    for name, values in grid.items():
        few = list(dict.fromkeys((0, len(values) // 2, len(values) - 1)))
        coarse[name] = [values[i] for i in (few[:2] if coarse and len(grid) > 2 else few)]
    return coarse


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        return tuple(seeds)
    require_count(seeds, "A study", "seeds", 1)
    return tuple(range(seeds))


def _blocks(seeds: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]


def _select(panel: Panel, grids: dict[str, dict[str, Array]]) -> dict[str, dict[str, Any]]:
    """The point of each grid with the smallest mean final residual; a diverged seed ranks a point last."""
    selected = {}
    for entry in panel.entries:
        if entry.like is None:
            means = grids[entry.id]["residual"].mean(axis=1)
            selected[entry.id] = entry.points()[int(np.argmin(np.where(np.isnan(means), np.inf, means)))]
    for entry in panel.entries:
        if entry.like is not None:
            selected[entry.id] = selected[entry.like]
    return selected


def _summary(
    panel: Panel,
    seeds: tuple[int, ...],
    grids: dict[str, dict[str, Array]],
    selected: dict[str, dict[str, Any]],
    finals: dict[str, dict[str, Array]],
) -> dict[str, Any]:
    instance = panel.problem.instance(Streams(0, np.array(seeds), Purpose.INSTANCE))
    start = instance.oracle.operator(instance.x0)
    methods = {}
    for entry in panel.entries:
        grid = grids.get(entry.id)
        methods[entry.id] = {
            "method": entry.method,
            "selected": selected[entry.id],
            "final": final_statistics(finals[entry.id]["residual"]),
            "evals": int(finals[entry.id]["evals"].max()),
            "ours": entry.ours,
            "grid": []
            if grid is None or not entry.grid
            else [
                {"params": point, "mean": values.mean(), "per_seed": values}
                for point, values in zip(entry.points(), grid["residual"], strict=True)
            ],
        }
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
