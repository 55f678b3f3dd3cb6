"""Rows that have ended, and the Result made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.result import History, Result, Status
from dualanchor.core.types import Array, IntArray


@dataclass
class Ended:
    """Rows that have stopped, as they were then."""

    rows: IntArray
    state: State
    k: IntArray
    draws: IntArray
    evals: IntArray
    status: list[Status]
    residual: Array | None


def assemble(
    ended: list[Ended], history: History, shape: tuple[int, ...], describe: dict[str, Any], target: float | None
) -> Result:
    """One Result from the rows that have ended, each in its place."""
    order = np.argsort(np.concatenate([piece.rows for piece in ended]))

    def gather(values: list[Array]) -> Array:
        if len(values) == 1:  # all rows ended together: no copy
            return values[0]
        return arrays.take(arrays.concatenate(values), order)

    def shaped(values: Any) -> Any:
        values = np.asarray(values)
        return values.reshape(shape) if shape else values.reshape(-1)[0].item()

    names = vars(ended[0].state)
    state = {name: gather([getattr(piece.state, name) for piece in ended]) for name in names}
    statuses = gather([np.array(piece.status, dtype=object) for piece in ended])
    success = np.array([one.ended_as_asked for one in statuses])
    residual = None
    if ended[0].residual is not None:
        residual = gather([piece.residual for piece in ended if piece.residual is not None])
        if target is not None:
            success &= (residual <= target) | np.array([one is Status.TARGET for one in statuses])
    k = gather([piece.k for piece in ended])
    notes = _notes(statuses, k, describe["method"]) + _growth(history, residual)
    return Result(
        x=state["x"].reshape(*shape, -1),
        success=shaped(success),
        status=statuses.reshape(shape) if shape else statuses[0],
        nit=shaped(k),
        nfev=shaped(gather([piece.evals for piece in ended])),
        draws=shaped(gather([piece.draws for piece in ended])),
        residual=None if residual is None else shaped(residual),
        residual_kind=None if residual is None else "true",
        history=history,
        state=state,
        notes=notes,
        **describe,
    )


def _notes(statuses: Array, k: Array, method: dict[str, Any]) -> tuple[str, ...]:
    """What a reader of the result should know and might overlook."""
    notes = []
    if Status.TARGET in statuses:
        notes.append("stopped when the residual looked good: the last-iterate theorem does not apply to this point")
    early = np.array([status in (Status.BUDGET, Status.STEPS, Status.WALL_TIME) for status in statuses])
    parameters = method["parameters"]
    each = parameters if isinstance(parameters, list) else [parameters]
    horizons = np.repeat([one.get("horizon") or 0 for one in each], statuses.size // len(each))
    early &= (k < horizons - 1) & (not method["anytime"])
    if early.any():
        first = int(np.flatnonzero(early)[0])
        which = "" if early.all() else f" in {np.count_nonzero(early)} of {early.size} runs"
        notes.append(
            f"ended at step {k[first]}, before the horizon {horizons[first]}{which}: "
            "that is not the iterate which the last-iterate theorem speaks of"
        )
    return tuple(notes)


def _growth(history: History, residual: Array | None) -> tuple[str, ...]:
    """A word of warning where a run ended far above its start."""
    if residual is None or not history.residual.size:
        return ()
    start = history.residual[history.k == 0]
    with np.errstate(invalid="ignore"):
        grown = start.size == residual.size and np.isfinite(residual) & (residual > 10 * start)
    if not np.any(grown):
        return ()
    row = int(np.flatnonzero(grown)[0])
    return (
        f"the residual grew from {start[row]:.3g} to {residual[row]:.3g}: "
        "the step is too large for this operator (is L right?), the noise is, or F is not cocoercive",
    )
