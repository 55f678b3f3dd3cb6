"""The Result of a run, from its rows that have ended."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.callbacks import Progress
from dualanchor.core.finding import Finding
from dualanchor.core.result import History, Result, Status
from dualanchor.core.types import Array
from dualanchor.run.rows import ActiveRows, Ended
from dualanchor.run.stop import Budget, Rule

GROWN = 10.0  # factor by which samples must have grown, where F is not known, to say that the run made things worse

_COUNTS: dict[str, tuple[str, Callable[[ActiveRows], Any]]] = {  # names in `Ended`, and the same of active rows
    "nit": ("k", lambda rows: rows.steps),
    "nfev": ("evals", lambda rows: rows.session.evals),
    "draws": ("draws", lambda rows: rows.session.draws),
}


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


@dataclass
class Running:
    """The fields of a Result while the run goes on, by name; x and counts are computed without all the rest.

    The arguments are those of the driver, which change as it goes on; `result_of` assembles a Result.
    """

    ended: list[Ended]
    active: list[ActiveRows]
    shape: tuple[int, ...]
    describe: dict[str, Any]
    result_of: Callable[[list[Ended]], Result]

    def __call__(self, name: str) -> Any:
        """The value of a field, newly allocated."""
        if name == "x":
            points = [*(piece.state.x for piece in self.ended), *(arrays.copy(rows.point()) for rows in self.active)]
            return self._in_order(points).reshape(*self.shape, -1)
        if name not in _COUNTS:
            return self.describe[name] if name in self.describe else getattr(self._whole, name)
        of_ended, of_active = _COUNTS[name]
        counts = [of_active(rows) for rows in self.active]
        per_group = [np.full(rows.count, count) for rows, count in zip(self.active, counts, strict=True)]
        values = self._in_order([*(getattr(piece, of_ended) for piece in self.ended), *per_group])
        return values.reshape(self.shape) if self.shape else values.item()

    def _in_order(self, values: list[Array]) -> Array:
        if len(values) == 1:
            return values[0]
        rows = [*(piece.rows for piece in self.ended), *(group.rows for group in self.active)]
        order = np.argsort(np.concatenate(rows))
        return arrays.take(arrays.concatenate(values), order)

    @cached_property
    def _whole(self) -> Result:
        copies = [rows.take(np.ones(rows.count, bool)) for rows in self.active]
        return self.result_of([*self.ended, *(rows.ended([Status.RUNNING] * rows.count) for rows in copies)])


def progress_of(active: list[ActiveRows], total: int, rule: Rule, elapsed: float) -> Progress:
    """The progress of a run with `total` rows, by the rows that it is advancing."""
    rows = active[-1]
    evals = int(np.max(rows.session.evals))
    parts = [evals / budget.evals for budget in rule.of(Budget)]
    if not rows.levels and rows.method.steps:
        parts.append(rows.k / rows.method.steps)
    fraction = min(1.0, max(parts)) if parts else None
    return Progress(rows.steps, fraction, sum(group.count for group in active), total, evals, elapsed)


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
