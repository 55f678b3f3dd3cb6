"""Saving a run on its way and resuming it, bit for bit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CheckpointError
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.core.finding import Finding
from dualanchor.core.method import State
from dualanchor.core.result import History, Status
from dualanchor.core.session import Mark
from dualanchor.core.streams import per_row, shared
from dualanchor.core.types import Array
from dualanchor.run.rows import ActiveRows, Ended, Level

if TYPE_CHECKING:
    from dualanchor.run.driver import Driver

_FORMAT = "dualanchor-checkpoint-2"
_COUNTS = ("rows", "k", "draws", "evals")
_PLACE = ("k", "before", "recorded", "diverged_by")


@dataclass(frozen=True)
class Checkpoint:
    """Where a run saves itself, and how often.

    A run whose file exists is resumed from it; the file of another run is refused. It is written at most every
    `seconds`, when the run ends, is interrupted or fails.
    """

    path: str | Path
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, PathLike)):
            raise ArgumentTypeError("Checkpoint: path must be a path", repr(self.path), "Use a file name")
        parent = Path(self.path).absolute().parent
        if not parent.is_dir():
            raise ArgumentError("Checkpoint: path must lie in an existing folder", self.path, f"Create {parent} first")
        if Path(self.path).is_dir():
            raise ArgumentError("Checkpoint: path must be a file", f"the folder {self.path}", "Add a file name")
        check.number(self.seconds, "Checkpoint: seconds", remedy="Use seconds=30")


class Saver:
    """Writes and reads the checkpoints of one run, recognised by its `fingerprint`."""

    def __init__(self, checkpoint: Checkpoint | str | Path, fingerprint: dict[str, Any]) -> None:
        self._checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        self._fingerprint = fingerprint
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last >= self._checkpoint.seconds

    def save(self, run: Driver) -> None:
        """Write the run as it stands."""
        saved: dict[str, Any] = {f"history/{name}": value for name, value in vars(run.recorder.history()).items()}
        for i, piece in enumerate(run.ended):
            saved |= _saved_rows(f"ended/{i}", piece, {"state": piece.state})
        groups = []
        for i, rows in enumerate(run.active):
            memories = {f"memory/{j}": level.memory for j, level in enumerate(rows.levels)}
            spent = (rows.steps, rows.session.draws, rows.session.evals)
            k, draws, evals = (per_row(value, rows.rows.size) for value in spent)
            present = Ended(rows.rows, rows.state, k, draws, evals, [], None)  # no residual: under MPI one rank saves
            saved |= _saved_rows(f"active/{i}", present, {"state": rows.state, **memories})
            saved[f"active/{i}/position"] = per_row(rows.session.mark().position, rows.rows.size)
            stages = [(level.number, None if level.end == np.inf else int(level.end)) for level in rows.levels]
            groups.append({"stages": stages, **{name: getattr(rows, name) for name in _PLACE}})
        header = {
            "format": _FORMAT,
            "run": self._fingerprint,
            "active": groups,
            "status": [[one.name for one in piece.status] for piece in run.ended],
            "arrays": list(saved),
            "foreign": [name for name, value in saved.items() if arrays.is_foreign(value)],
        }
        write_arrays(self._checkpoint.path, header, {name: arrays.to_host(value) for name, value in saved.items()})
        self._last = time.monotonic()

    def load(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The run as it was saved, or None if it was not."""
        path = Path(self._checkpoint.path)
        if not path.exists():
            return None
        header, saved = read_arrays(path)
        if header.get("format") != _FORMAT:
            raise CheckpointError(
                "A checkpoint must be a file written by a run of this version",
                f"{path} with format {header.get('format')!r}",
                "Give another path, or delete the file",
            )
        theirs = header.get("run", {})
        differ = [
            line for key, value in self._fingerprint.items() for line in _differences(key, theirs.get(key), value)
        ]
        if differ:
            same = ", or pass the same stop and budget" if theirs.get("stop") != self._fingerprint.get("stop") else ""
            raise CheckpointError(
                f"A checkpoint must belong to the run that is resumed from it: {path}",
                ", ".join(differ),
                f"Give another path, or delete the file{same}",
            )
        return header, saved


def restore(run: Driver, header: dict[str, Any], saved: dict[str, Array]) -> None:
    """Put a run that has not begun into the state that was saved."""
    try:
        if missing := set(header["arrays"]) - saved.keys():
            raise KeyError(min(missing))
        like = run.active[0].state.x
        saved |= {name: arrays.like(saved[name], like) for name in header["foreign"]}
        run.recorder.restore(History(**_named("history/", saved)))
        for i, names in enumerate(header["status"]):
            run.ended.append(
                Ended(
                    state=State(**_named(f"ended/{i}/state/", saved)),
                    status=[Status[name] for name in names],
                    residual=saved.get(f"ended/{i}/residual"),
                    **{name: saved[f"ended/{i}/{name}"] for name in _COUNTS},
                )
            )
        starts = run.active
        run.active = [_restored_rows(starts, f"active/{i}", group, saved) for i, group in enumerate(header["active"])]
        steps = [rows.steps for rows in run.active] or [int(piece.k.max()) for piece in run.ended]
        run.findings.append(Finding.of("resumed", step=max(steps)))
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        rule = "A checkpoint must hold everything that the run had written"
        raise CheckpointError(rule, f"a file without {error}", "Delete it to start anew") from error


def _restored_rows(starts: list[ActiveRows], prefix: str, group: dict[str, Any], saved: dict[str, Array]) -> ActiveRows:
    numbers = saved[f"{prefix}/rows"]
    start = next(rows for rows in starts if numbers[0] in rows.rows)
    rows = start.take(np.isin(start.rows, numbers))
    method: Any = start.levels[0].method if start.levels else rows.method
    levels = []
    for j, (number, end) in enumerate(group["stages"]):
        memory = State(**_named(f"{prefix}/memory/{j}/", saved))
        levels.append(Level(method, number, np.inf if end is None else end, memory))
        method = method.stage(number, memory).method
    rows.method, rows.levels, rows.state = method, tuple(levels), State(**_named(f"{prefix}/state/", saved))
    for name in _PLACE:
        setattr(rows, name, group[name])
    rows.checked_until = max(rows.k + 1, rows.diverged_by or 0)
    rows.session.reset(Mark(*(shared(saved[f"{prefix}/{name}"]) for name in ("draws", "evals", "position"))))
    return rows


def _saved_rows(prefix: str, piece: Ended, states: dict[str, State]) -> dict[str, Any]:
    saved = {f"{prefix}/{name}": getattr(piece, name) for name in _COUNTS}
    for kind, state in states.items():
        saved |= {f"{prefix}/{kind}/{name}": value for name, value in vars(state).items()}
    return saved if piece.residual is None else {**saved, f"{prefix}/residual": piece.residual}


def _named(prefix: str, saved: dict[str, Array]) -> dict[str, Array]:
    return {name[len(prefix) :]: value for name, value in saved.items() if name.startswith(prefix)}


def _differences(name: str, there: Any, here: Any) -> Iterator[str]:
    """What differs, as deep down as it can be named; of two methods, or two problems, their names."""
    if there == here:
        return
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        there, here = (dict(enumerate(values)) for values in (there, here))
    if not (isinstance(there, dict) and isinstance(here, dict) and there.keys() == here.keys()):
        yield f"{name} = {there!r} there and {here!r} here"
        return
    named = next((key for key in ("id", "name") if there.get(key) != here.get(key)), None)
    for key in here if named is None else [named]:
        yield from _differences(f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}", there[key], here[key])
