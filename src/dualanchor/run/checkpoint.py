"""Saving a run on its way and taking it up again, bit for bit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CheckpointError
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.core.types import Array

_FORMAT = "dualanchor-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """Where a run saves itself, and how often.

    A run whose file exists goes on from it; the file of another run is refused. It is written at most every
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
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, (int, float)):
            raise ArgumentTypeError("Checkpoint: seconds must be a number", repr(self.seconds), "Use seconds=30")
        if not self.seconds >= 0:
            raise ArgumentError("Checkpoint: seconds must be at least 0", self.seconds, "Use seconds=30")


class Saver:
    """Writes and reads the checkpoints of one run, told apart by its `fingerprint`."""

    def __init__(self, checkpoint: Checkpoint | str | Path, fingerprint: dict[str, Any]) -> None:
        self._checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        self._fingerprint = fingerprint
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last >= self._checkpoint.seconds

    def save(self, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Write the run as it stands."""
        write_arrays(self._checkpoint.path, {"format": _FORMAT, "run": self._fingerprint, **header}, arrays)
        self._last = time.monotonic()

    def load(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The run as it was saved, or None if it was not."""
        path = Path(self._checkpoint.path)
        if not path.exists():
            return None
        header, arrays = read_arrays(path)
        if header.get("format") != _FORMAT:
            raise CheckpointError(
                "A checkpoint must be a file written by a run",
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
                f"A checkpoint must belong to the run that goes on from it: {path}",
                ", ".join(differ),
                f"Give another path, or delete the file{same}",
            )
        return header, arrays


def _differences(name: str, there: Any, here: Any) -> Iterator[str]:
    """What differs, as deep down as it can be named; of two methods, or two problems, their names."""
    if there == here:
        return
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        there, here = (dict(enumerate(values)) for values in (there, here))
    if not (isinstance(there, dict) and isinstance(here, dict) and there.keys() == here.keys()):
        yield f"{name} = {there!r} there and {here!r} here"
        return
    told = next((key for key in ("id", "name") if there.get(key) != here.get(key)), None)
    for key in here if told is None else [told]:
        yield from _differences(f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}", there[key], here[key])
