"""The unit of work: one method of one panel, at some points of its grid, for some seeds, as one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core.oracle import Session
from dualanchor.core.result import Result, Status, jsonable
from dualanchor.core.streams import Purpose, Streams, remember
from dualanchor.core.types import Array
from dualanchor.estimators.residual import debiased_squared_residual
from dualanchor.fast import available as fast_is_available
from dualanchor.run import Draws, solve
from dualanchor.studies.panel import Entry, Panel
from dualanchor.studies.processes import spread
from dualanchor.studies.store import Store

CURVE_POINTS = 100
EVALUATION_SAMPLES = 4096
NOISE_KEPT = 21_000_000  # numbers, in each process


@dataclass(frozen=True)
class Piece:
    """Points of an entry's grid for a block of seeds; with `curves`, residuals are recorded on the way."""

    panel: Panel
    entry: Entry
    points: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    curves: bool = False

    def key(self) -> dict[str, Any]:
        """Everything that can change the numbers, beside the code."""
        return {
            "problem": jsonable(self.panel.problem.describe()),
            "budget": self.panel.budget,
            "method": self.entry.method,
            "fixed": jsonable(self.entry.fixed),
            "unit": self.entry.unit,
            "budget_factor": self.entry.budget_factor,
            "points": jsonable(list(self.points)),
            "seeds": list(self.seeds),
            "record": CURVE_POINTS if self.curves else 0,
        }

    def run(self) -> dict[str, Array]:
        """Residuals and evaluations (points, seeds), and the recorded lines if asked for."""
        panel, entry = self.panel, self.entry
        methods = [panel.make(entry, point) for point in self.points]
        limit = panel.budget * entry.budget_factor
        count = {"stop": Draws(limit)} if entry.unit == "draws" else {"budget": limit}
        record = CURVE_POINTS if self.curves else 0
        result = solve(
            panel.problem, methods, reps=list(self.seeds), record=record, check=False, fast=fast_is_available(), **count
        )
        if any(status is Status.INTERRUPTED for status in result.status.ravel()):
            raise KeyboardInterrupt  # an unfinished piece is not a result
        residual = self._estimated(result.x) if result.residual is None else result.residual
        arrays = {"residual": residual, "evals": result.nfev, "draws": result.draws, "nit": result.nit}
        if self.curves:
            arrays |= {f"curve/{name}": value for name, value in self._curve(result, residual).items()}
        return arrays

    def _curve(self, result: Result, residual: Array) -> dict[str, Array]:
        """What was recorded on the way; the end alone where F is not known."""
        if result.history.residual.size:
            return result.history.columns()
        ends = {"k": result.nit, "draws": result.draws, "evals": result.nfev, "residual": residual}
        return {"row": np.arange(residual.size), **{name: np.ravel(value) for name, value in ends.items()}}

    def _estimated(self, x: Array) -> Array:
        """Final residuals where F is not known, by unbiased estimates of their squares; outside of the budget."""
        shape, d = x.shape[:-1], x.shape[-1]
        seeds = np.array(self.seeds)
        oracle = self.panel.problem.instance(Streams(0, seeds, Purpose.INSTANCE)).oracle
        rows = np.tile(np.arange(seeds.size), shape[0])
        streams = Streams(0, seeds[rows], Purpose.CERTIFICATE, d, x.dtype)
        flat = x.reshape(-1, d)
        finite = np.asarray(np.isfinite(flat).all(axis=1))
        F = Session(oracle.take(rows[finite]), streams.take(finite))
        squares = np.full(rows.size, np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            squares[finite] = debiased_squared_residual(F, flat[finite], max(EVALUATION_SAMPLES, self.panel.budget))
        squares[np.isnan(squares)] = np.inf
        return np.sqrt(np.maximum(squares, 0.0)).reshape(shape)


def run_stored(piece: Piece, folder: Path | None, fresh: bool) -> dict[str, Array]:
    """The numbers of a piece, from the store if they are there, and kept there if not."""
    remember(NOISE_KEPT)  # the next piece is likely to be of the same panel and seeds
    if folder is None:
        return piece.run()
    store = Store(folder, fresh)
    if (found := store.load(piece.key())) is not None:
        return found[1]
    arrays = piece.run()
    store.save(piece.key(), {"piece": piece.key()}, arrays)
    return arrays


def run_all(
    pieces: Sequence[Piece],
    folder: Path | None,
    fresh: bool,
    jobs: int,
    done: Callable[[Piece, dict[str, Array]], None],
    backwards: bool = False,
) -> None:
    """Run pieces, in processes if there are several and jobs allow; `done` is told of each as it ends.

    One method after another is run on the same panel and seeds, so that it finds the noise of the one before. Going
    backwards, the first finds what was left by the last of an earlier call that went forwards.
    """
    waiting = []
    for piece in pieces:
        found = None if folder is None else Store(folder, fresh).load(piece.key())
        if found is not None:
            done(piece, found[1])
        else:
            waiting.append(piece)
    work = {id(piece.panel): 0.0 for piece in waiting}
    for piece in waiting:
        work[id(piece.panel)] += _work(piece)
    waiting.sort(key=_work, reverse=True)  # the large ones first
    waiting.sort(key=lambda piece: (work[id(piece.panel)], piece.seeds), reverse=backwards)
    noise = [(piece.panel.problem.dimension, piece.seeds) for piece in waiting]
    here = all(_is_short(piece) for piece in waiting)
    for i, arrays in spread(run_stored, [(piece, folder, fresh) for piece in waiting], jobs, kin=noise, here=here):
        done(waiting[i], arrays)


def _work(piece: Piece) -> float:
    """Roughly the seconds a piece takes: what a call costs however small it is, its samples, its arithmetic."""
    sizes = [point.get("batch_size", 1) for point in piece.points]
    shares = [1 / size if isinstance(size, int) else 1.0 for size in sizes]
    calls, width = piece.panel.budget * max(shares), len(piece.seeds) * piece.panel.problem.dimension
    return calls * (4e-5 + 1e-8 * width) + 3e-9 * piece.panel.budget * sum(shares) * width


def _is_short(piece: Piece) -> bool:
    """Whether it takes seconds for sure."""
    return type(piece.panel.problem).__module__.startswith("dualanchor.problems.") and _work(piece) < 10
