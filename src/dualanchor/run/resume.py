"""A run as arrays and plain values, and back: everything that is read is checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.finding import Finding
from dualanchor.core.method import State
from dualanchor.core.result import History, Status
from dualanchor.core.session import Mark
from dualanchor.core.streams import shared
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array
from dualanchor.run.rows import NOTED, PLACE, ActiveRows, Ended, Level

if TYPE_CHECKING:
    from dualanchor.run.driver import Driver

_COUNTS = ("k", "draws", "evals")
_FINAL = {Status.HORIZON, Status.DIVERGED, Status.TARGET, Status.BUDGET}  # the last two where a method ends itself
_MOST = 1 << 60  # of any count


def saved_run(run: Driver) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run as it stands; rows that a rule, a callback or an interrupt has stopped as rows that may go on."""
    saved: dict[str, Any] = {f"history/{name}": value for name, value in vars(run.recorder.history()).items()}
    final = [piece for piece in run.ended if piece.frozen is None]
    for i, piece in enumerate(final):
        saved |= {f"ended/{i}/{name}": getattr(piece, name) for name in ("rows", *_COUNTS)}
        saved |= {f"ended/{i}/state/{name}": value for name, value in vars(piece.state).items()}
        ends = {"residual": piece.residual, "growth": piece.growth}
        saved |= {f"ended/{i}/{name}": value for name, value in ends.items() if value is not None}
    groups = [piece.frozen for piece in run.ended if piece.frozen is not None]
    groups += [rows.frozen() for rows in run.active]
    for i, group in enumerate(groups):
        saved |= {f"active/{i}/{name}": value for name, value in group.arrays.items()}
    header = {
        "active": [group.facts for group in groups],
        "status": [[one.name for one in piece.status] for piece in final],
        "arrays": list(saved),
    }
    return header, saved


def restore(run: Driver, header: dict[str, Any], saved: dict[str, Array]) -> None:
    """Put a run that has not begun into the state that was saved; any error if it cannot be one of this run."""
    names, starts = header["arrays"], run.active
    if missing := set(names) - saved.keys():
        raise KeyError(min(missing))
    _require(len(set(names)) == len(names) == len(saved), "arrays that no run has")
    total = sum(rows.rows.size for rows in starts)
    ended = [_ended(starts, f"ended/{i}/", names, saved) for i, names in enumerate(header["status"])]
    active = [_active(starts, f"active/{i}/", group, saved) for i, group in enumerate(header["active"])]
    rows = np.concatenate([*(piece.rows for piece in ended), *(group.rows for group in active)])
    _require(np.array_equal(np.sort(rows), np.arange(total)), f"other rows than 0 to {total - 1}, each once")
    recorded = np.full(total, _MOST)
    for group in active:
        recorded[group.rows] = group.recorded
    _restore_history(run, History(**_named("history/", saved)), recorded)
    run.active, run.ended = active, ended
    steps = [group.steps for group in active] or [int(piece.k.max()) for piece in ended]
    run.findings.append(Finding.of("resumed", step=max(steps)))


def _restore_history(run: Driver, history: History, recorded: Array) -> None:
    """What was recorded; not the last line of rows that go on, if it is there only because they had been stopped."""
    counts = [history.row, history.k, history.draws, history.evals]
    counts += [one for one in (history.rounds, history.stage) if one.size]
    fine = all(one.shape == (len(history),) and _are_counts(one) for one in counts)
    _require(fine and (history.row < recorded.size).all(), "a history that is not one of these rows")
    residual = history.residual
    for column in (residual, history.samples):
        fine = column.shape in ((0,), (len(history),)) and column.dtype.kind == "f"
        _require(fine and not (column < 0).any(), "a history whose residuals are not numbers")
    kept = history.k <= recorded[history.row]
    columns = {name: value[kept] if value.size else value for name, value in vars(history).items()}
    run.recorder.restore(History(**columns))


def _ended(starts: list[ActiveRows], prefix: str, names: list[str], saved: dict[str, Array]) -> Ended:
    numbers, status = saved[f"{prefix}rows"], [Status[name] for name in names]
    start = _start_of(starts, numbers)
    counts: dict[str, Any] = {name: saved[prefix + name] for name in _COUNTS}
    _require(set(status) <= _FINAL and len(status) == numbers.size, f"statuses {names} of {numbers.size} rows")
    _require(all(one.shape == numbers.shape and _are_counts(one) for one in counts.values()), "counts that are none")
    whole = State(**{**vars(start.levels[0].memory), "x": start.point()}) if start.levels else start.state
    state = _state(f"{prefix}state/", saved, whole, numbers.size)
    diverged = np.array([one is Status.DIVERGED for one in status])
    _require((arrays.finite_rows(state.x) | diverged).all(), "an end that is not finite")
    residual = saved.get(f"{prefix}residual")
    _require((residual is not None) == start.session.oracle.knows_operator, "residuals of another problem")
    growth = saved.get(f"{prefix}growth")
    for values in (residual, growth):
        fine = values is None or (values.shape == numbers.shape and values.dtype.kind == "f" and (values >= 0).all())
        _require(fine, "residuals that are not numbers")
    return Ended(rows=numbers, state=state, status=status, residual=residual, growth=growth, **counts)


def _active(starts: list[ActiveRows], prefix: str, group: dict[str, Any], saved: dict[str, Array]) -> ActiveRows:
    numbers = saved[f"{prefix}rows"]
    start = _start_of(starts, numbers)
    rows = start.take(np.isin(start.rows, numbers))
    for name in PLACE:
        low, value = -1 if name == "recorded" else 0, group[name]
        absent = name == "diverged_by" and value is None
        _require(absent or (type(value) is int and low <= value < _MOST), f"{name} = {value!r}")
        setattr(rows, name, value)
    method: Any = start.levels[0].method if start.levels else rows.method
    whole, levels = start.levels[0].memory if start.levels else rows.state, list[Level]()
    _require(bool(group["stages"]) == bool(start.levels), "stages of another method")
    for j, (number, end) in enumerate(group["stages"]):
        _require(type(number) is int and 0 <= number < _MOST, f"a stage {number!r}")
        _require(end is None or (type(end) is int and rows.steps <= end < _MOST), f"a stage that ends at {end!r}")
        memory = _state(f"{prefix}memory/{j}/", saved, whole, numbers.size)
        levels.append(Level(method, number, np.inf if end is None else end, memory))
        stage = method.stage(number, memory)
        method, whole = stage.method, stage.state
    rows.method, rows.levels = method, tuple(levels)
    rows.state = _state(f"{prefix}state/", saved, whole, numbers.size)
    _require(rows.bounded().all(), "an iterate that is not finite")
    for name in NOTED:
        if (noted := saved.get(prefix + name)) is not None:
            fine = noted.shape[:: noted.ndim - 1] == (numbers.size, 2) and noted.ndim == (2 if name == "opening" else 3)
            fine = fine and noted.dtype.kind == "f" and bool((noted >= 0).all())
            _require(fine, f"{name} samples that are none")
            setattr(rows, name, noted)
    if rows.trail is not None and f"{prefix}trail" in saved:  # tensors had none at first
        trail, shape = saved[f"{prefix}trail"], rows.trail.packed().shape
        _require(trail.shape == shape and trail.dtype == float, "sums of samples of another shape")
        sums = trail[:, -4:]
        _require((sums == sums[:1]).all() and (sums >= 0).all(), "a negative count")
        rows.trail = Trail.unpacked(trail)
    remaining = rows.remaining()
    _require(remaining is None or np.min(remaining) >= 0, f"k = {rows.k} beyond the end")
    counts = [saved[prefix + name] for name in Mark._fields]
    _require(all(one.shape == numbers.shape and _are_counts(one) for one in counts), "counts that are none")
    rows.checked_until = max(rows.k + 1, rows.diverged_by or 0)
    rows.session.reset(Mark(*map(shared, counts)))
    return rows


def _start_of(starts: list[ActiveRows], numbers: Array) -> ActiveRows:
    """The rows at the start that these are among, in the same order."""
    _require(numbers.ndim == 1 and numbers.size > 0 and _are_counts(numbers), "rows that are not numbered")
    start = next((rows for rows in starts if numbers[0] in rows.rows), starts[0])
    known = np.array_equal(start.rows[np.isin(start.rows, numbers)], numbers)
    _require(known, f"rows {numbers.tolist()[:9]} that are not among those of this run, or in another order")
    return start


def _state(prefix: str, saved: dict[str, Array], whole: State, count: int) -> State:
    """A saved state for a number of rows, in the form of the state that the run has at the start."""
    found = _named(prefix, saved)
    if missing := vars(whole).keys() - found.keys():
        raise KeyError(prefix + min(missing))
    for name, value in found.items():
        expected = getattr(whole, name)
        shape, dtype = (count, *expected.shape[1:]), arrays.numpy_dtype(expected.dtype)
        received = f"{prefix}{name} of {arrays.form(value)} and dtype {value.dtype}, not {shape} and {dtype}"
        _require(value.shape == shape and value.dtype == dtype, received)
        found[name] = arrays.like(value, expected) if arrays.is_foreign(expected) else value
    return State(**found)


def _named(prefix: str, saved: dict[str, Array]) -> dict[str, Array]:
    return {name[len(prefix) :]: value for name, value in saved.items() if name.startswith(prefix)}


def _are_counts(values: Array) -> bool:
    return values.dtype == np.int64 and bool(((values >= 0) & (values < _MOST)).all())


def _require(fine: Any, received: str) -> None:
    if not fine:
        raise ValueError(received)
