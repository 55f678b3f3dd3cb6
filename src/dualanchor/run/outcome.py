"""The Result made of rows that have ended."""

from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.finding import Finding
from dualanchor.core.result import History, Result, Status
from dualanchor.core.types import Array
from dualanchor.run.rows import Ended


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
        findings=(*_about_the_end(statuses, k, describe["method"], target), *_about_growth(history, residual)),
        **describe,
    )


def _about_the_end(statuses: Array, k: Array, method: dict[str, Any], target: float | None) -> list[Finding]:
    """Whether the last-iterate theorem speaks of another iterate than the one returned."""
    findings = []
    if Status.TARGET in statuses and target is not None:  # by a rule, not by a method that certifies its end
        findings.append(Finding.of("target-not-last-iterate"))
    early = np.array([status in (Status.BUDGET, Status.STEPS, Status.WALL_TIME) for status in statuses])
    parameters = method["parameters"]
    each = parameters if isinstance(parameters, list) else [parameters]
    horizons = np.repeat([one.get("horizon") or 0 for one in each], statuses.size // len(each))
    early &= (k < horizons - 1) & (not method["anytime"])
    if early.any():
        first = int(np.flatnonzero(early)[0])
        runs = {"runs": np.count_nonzero(early), "of": early.size}
        findings.append(Finding.of("stopped-early", step=k[first], horizon=horizons[first], **runs))
    return findings


def _about_growth(history: History, residual: Array | None) -> list[Finding]:
    """A warning where a run ended far above its start."""
    if residual is None or not history.residual.size:
        return []
    start = history.residual[history.k == 0]
    with np.errstate(invalid="ignore"):
        grown = start.size == residual.size and np.isfinite(residual) & (residual > 10 * start)
    if not np.any(grown):
        return []
    row = int(np.flatnonzero(grown)[0])
    return [Finding.of("residual-grew", start=start[row], end=residual[row])]
