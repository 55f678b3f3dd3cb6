"""A run as plain values and arrays, and back. What is read is checked first: a file may have been made by anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.files import below
from dualanchor.core.finding import Finding
from dualanchor.core.method import State
from dualanchor.core.result import History, Status
from dualanchor.core.session import Mark
from dualanchor.core.streams import per_row, shared
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array, IntArray
from dualanchor.run.rows import ActiveRows, Ended, Level

if TYPE_CHECKING:
    from dualanchor.run.driver import Driver

_POSITION = ("k", "before", "recorded", "diverged_by", "stage")  # attributes of active rows, saved in the header
_COUNTS = ("k", "draws", "evals")
_FINAL = {Status.HORIZON, Status.DIVERGED, Status.TARGET, Status.BUDGET}  # the last two if a method ends itself
_MAX_COUNT = 1 << 60


def saved_run(run: Driver) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run as it stands: a header of plain values, and arrays by name.

    Rows that a rule, a callback or an interrupt has stopped are saved as active rows, which may continue.
    """
    saved: dict[str, Any] = {f"history/{name}": value for name, value in vars(run.recorder.history()).items()}
    final = [piece for piece in run.ended if piece.resumable is None]
    for i, piece in enumerate(final):
        ends = {name: getattr(piece, name) for name in ("rows", *_COUNTS, "residual", "growth")}
        saved |= {f"ended/{i}/{name}": value for name, value in ends.items() if value is not None}
        saved |= {f"ended/{i}/state/{name}": value for name, value in vars(piece.state).items()}
    active = [piece.resumable for piece in run.ended if piece.resumable is not None] + run.active
    for i, rows in enumerate(active):
        saved |= {f"active/{i}/{name}": value for name, value in _arrays_of(rows).items()}
    header = {
        "active": [_facts_of(rows) for rows in active],
        "status": [[status.name for status in piece.status] for piece in final],
        "arrays": list(saved),
    }
    return header, saved


def _facts_of(rows: ActiveRows) -> dict[str, Any]:
    stages = [(level.number, None if level.end == np.inf else int(level.end)) for level in rows.levels]
    return {"stages": stages, **{name: getattr(rows, name) for name in _POSITION}}


def _arrays_of(rows: ActiveRows) -> dict[str, Any]:
    """The arrays of active rows by name, with one entry per row; some may be missing."""
    counts = {name: per_row(value, rows.count) for name, value in rows.session.mark()._asdict().items()}
    trail = None if rows.trail is None else rows.trail.packed()
    named = {"rows": rows.rows, **counts, "opening": rows.opening, "closing": rows.closing, "trail": trail}
    states = {"state": rows.state} | {f"memory/{j}": level.memory for j, level in enumerate(rows.levels)}
    for kind, state in states.items():
        named |= {f"{kind}/{name}": value for name, value in vars(state).items()}
    return {name: value for name, value in named.items() if value is not None}


def restore(run: Driver, header: dict[str, Any], saved: dict[str, Array]) -> None:
    """Put a run that has not begun into the state that was saved; any error if it cannot be one of this run."""
    names = header["arrays"]
    if missing := set(names) - saved.keys():
        raise KeyError(min(missing))
    _require(len(set(names)) == len(names) == len(saved), "arrays that no run has")
    ended = [_Group(run, f"ended/{i}/", saved).ended(status) for i, status in enumerate(header["status"])]
    active = [_Group(run, f"active/{i}/", saved).active(facts) for i, facts in enumerate(header["active"])]

    total = sum(rows.count for rows in run.active)
    rows = np.concatenate([*(piece.rows for piece in ended), *(group.rows for group in active)])
    _require(np.array_equal(np.sort(rows), np.arange(total)), f"other rows than 0 to {total - 1}, each once")
    recorded = np.full(total, _MAX_COUNT)
    for group in active:
        recorded[group.rows] = group.recorded
    run.recorder.restore(_history(saved, recorded))
    run.active, run.ended = active, ended
    steps = [group.steps for group in active] or [int(piece.k.max()) for piece in ended]
    run.findings.append(Finding.of("resumed", step=max(steps)))


class _Group:
    """The saved arrays of some rows, and the same rows at the start of the run, which say what form to expect."""

    def __init__(self, run: Driver, prefix: str, saved: dict[str, Array]) -> None:
        self._prefix, self._saved = prefix, saved
        self._rows: IntArray = saved[f"{prefix}rows"]
        known = self._rows.ndim == 1 and self._rows.size > 0 and _are_counts(self._rows)
        _require(known, "rows that are not numbered")
        self._start = next((rows for rows in run.active if self._rows[0] in rows.rows), run.active[0])
        self._mask = np.isin(self._start.rows, self._rows)
        known = np.array_equal(self._start.rows[self._mask], self._rows)
        _require(known, f"rows {self._rows.tolist()[:9]} that are not among those of this run, or in another order")

    def ended(self, names: list[str]) -> Ended:
        """Rows that have ended with these statuses."""
        status = [Status[name] for name in names]
        _require(set(status) <= _FINAL and len(status) == self._rows.size, f"statuses {names}")
        state = self._state("state/", self._start.final_state())
        diverged = np.array([one is Status.DIVERGED for one in status])
        _require((arrays.finite_rows(state.x) | diverged).all(), "an end that is not finite")
        residual = self._norms("residual")
        knows_operator = self._start.session.oracle.knows_operator
        _require((residual is not None) == knows_operator, "residuals of another problem")
        k, draws, evals = map(self._counts, _COUNTS)
        return Ended(self._rows, state, k, draws, evals, status, residual, self._norms("growth"))

    def active(self, facts: dict[str, Any]) -> ActiveRows:
        """Rows that continue, from the facts in the header."""
        start, rows = self._start, self._start.take(self._mask)
        for name in _POSITION:
            value = facts[name]
            fits = type(value) is int and (-1 if name == "recorded" else 0) <= value < _MAX_COUNT
            _require(fits or (name == "diverged_by" and value is None), f"{name} = {value!r}")
            setattr(rows, name, value)

        _require(bool(facts["stages"]) == bool(start.levels), "stages of another method")
        method: Any = start.levels[0].method if start.levels else rows.method
        template = start.levels[0].memory if start.levels else rows.state
        levels = []
        for j, (number, end) in enumerate(facts["stages"]):
            _require(type(number) is int and 0 <= number < _MAX_COUNT, f"a stage {number!r}")
            fits = end is None or (type(end) is int and rows.steps <= end < _MAX_COUNT)
            _require(fits, f"a stage that ends at {end!r}")
            memory = self._state(f"memory/{j}/", template)
            levels.append(Level(method, number, np.inf if end is None else end, memory))
            stage = method.stage(number, memory)
            method, template = stage.method, stage.state
        rows.method, rows.levels = method, tuple(levels)
        rows.state = self._state("state/", template)
        _require(rows.bounded().all(), "an iterate that is not finite")
        remaining = rows.remaining()
        _require(remaining is None or np.min(remaining) >= 0, f"k = {rows.k} beyond the end")

        rows.opening, rows.closing = self._norms("opening", 2), self._norms("closing", -1, 2)
        if rows.trail is not None:
            packed = self._array("trail", rows.trail.packed())
            counts = packed[:, -4:]
            _require((counts == counts[:1]).all() and (counts >= 0).all(), "a negative count")
            rows.trail = Trail.unpacked(packed)
        rows.checked_until = max(rows.k + 1, rows.diverged_by or 0)
        rows.session.reset(Mark(*(shared(self._counts(name)) for name in Mark._fields)))
        return rows

    def _array(self, name: str, like: Array) -> Any:
        """A saved array, which must have the dtype of another one and its shape, but for the number of rows."""
        value = self._saved[self._prefix + name]
        shape, dtype = (self._rows.size, *like.shape[1:]), arrays.numpy_dtype(like.dtype)
        received = f"{name} of {arrays.form(value)} and dtype {value.dtype}, not {shape} and {dtype}"
        _require(value.shape == shape and value.dtype == dtype, received)
        return arrays.like(value, like) if arrays.is_foreign(like) else value

    def _state(self, kind: str, template: State) -> State:
        return State(**{name: self._array(kind + name, value) for name, value in vars(template).items()})

    def _counts(self, name: str) -> IntArray:
        counts = self._array(name, self._rows)
        _require(_are_counts(counts), f"{name} that are not counts")
        return counts

    def _norms(self, name: str, *shape: int) -> Array | None:
        """Numbers of at least 0, of this shape for each row (-1: any length); None if they were not saved."""
        values = self._saved.get(self._prefix + name)
        if values is not None:
            fits = values.ndim == 1 + len(shape) and values.dtype.kind == "f" and bool((values >= 0).all())
            sizes = zip(values.shape, (self._rows.size, *shape), strict=False)
            _require(fits and all(size == wanted or wanted < 0 for size, wanted in sizes), f"{name} of other rows")
        return values


def _history(saved: dict[str, Array], recorded: IntArray) -> History:
    """The saved history, without lines beyond the last `recorded` step of each row.

    A row that continues may have such a line, of the step at which it was stopped.
    """
    history = History.from_arrays(below("history/", saved), recorded.size)
    valid = history.k <= recorded[history.row]
    return History(**{name: column[valid] if column.size else column for name, column in vars(history).items()})


def _are_counts(values: Array) -> bool:
    return values.dtype == np.int64 and bool(((values >= 0) & (values < _MAX_COUNT)).all())


def _require(fits: Any, received: str) -> None:
    if not fits:
        raise ValueError(received)
