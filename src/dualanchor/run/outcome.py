"""The Result of a run, from its rows that have ended."""

from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.finding import Finding
from dualanchor.core.result import History, Result, Status
from dualanchor.core.types import Array
from dualanchor.run.rows import Ended

GROWN = 10.0  # factor by which samples must have grown, where F is not known, to say that the run made things worse


def assemble(
    ended: list[Ended],
    start: Array | None,
    history: History,
    shape: tuple[int, ...],
    describe: dict[str, Any],
    target: float | None,
) -> Result:
    """One Result from all rows, in the order of their numbers; `start` (rows,) are the true residuals at the start."""
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
    k = gather([piece.k for piece in ended])
    success = np.array([status.ended_as_asked for status in statuses])
    residual = growth = None
    if ended[0].residual is not None:
        residual = gather([piece.residual for piece in ended if piece.residual is not None])
        reached = statuses == Status.TARGET
        if target is not None:
            success &= (residual <= target) | reached
        if start is not None:
            success &= (residual < start) | (k == 0) | reached | (residual == 0)
    else:
        growth = gather([np.zeros(piece.rows.size) if piece.growth is None else piece.growth for piece in ended])
        success &= growth <= GROWN**2
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
        findings=(
            *_about_the_end(statuses, k, describe["method"], target),
            *_about_growth(statuses, start, residual, growth),
        ),
        **describe,
    )


def _about_the_end(statuses: Array, k: Array, method: dict[str, Any], target: float | None) -> list[Finding]:
    """Findings about rows that diverged, or that return another iterate than the last-iterate theorem is about."""
    findings = []
    if (diverged := np.flatnonzero(statuses == Status.DIVERGED)).size:
        findings.append(Finding.of("diverged", step=k[diverged].min(), runs=diverged.size, of=statuses.size))
    if Status.TARGET in statuses and target is not None:  # stopped by a rule, not by a method that certifies
        findings.append(Finding.of("target-not-last-iterate"))
    early = np.array([status in (Status.BUDGET, Status.STEPS, Status.WALL_TIME) for status in statuses])
    parameters = method["parameters"]
    configurations = parameters if isinstance(parameters, list) else [parameters]
    known = [configuration.get("horizon") or 0 for configuration in configurations]
    horizons = np.repeat(known, statuses.size // len(known))
    early &= (k < horizons - 1) & (not method["anytime"])
    if early.any():
        first = int(np.flatnonzero(early)[0])
        runs = {"runs": np.count_nonzero(early), "of": early.size}
        findings.append(Finding.of("stopped-early", step=k[first], horizon=horizons[first], **runs))
    return findings


def _about_growth(statuses: Array, start: Array | None, residual: Array | None, growth: Array | None) -> list[Finding]:
    """A warning if a row ended above its start, by true residuals or by the samples of its first and last steps."""
    not_diverged = statuses != Status.DIVERGED
    if residual is not None and start is not None:
        with np.errstate(invalid="ignore"):
            grown = np.flatnonzero(not_diverged & (residual > start))
        return [Finding.of("residual-grew", start=start[grown[0]], end=residual[grown[0]])] if grown.size else []
    if growth is not None and (grown := np.flatnonzero(not_diverged & (growth > GROWN**2))).size:
        return [Finding.of("samples-grew", factor=float(growth[grown[0]]) ** 0.5)]
    return []


def row_name(row: int | None, shape: tuple[int, ...]) -> str:
    """A row, or all rows (None), of a result of this shape in an error message."""
    if row is None:
        return "all rows" if np.prod(shape) > 1 else "row 0"
    if len(shape) == 2:
        configuration, replication = divmod(row, shape[1])
        return f"row {row} (configuration {configuration}, replication {replication})"
    return f"row {row}"
