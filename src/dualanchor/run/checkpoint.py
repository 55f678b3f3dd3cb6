"""The checkpoint of a call: a file that holds its run on the way, and what was found before and after it."""

from __future__ import annotations

import glob
import hashlib
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.code import VERSION, code_digest
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CheckpointError
from dualanchor.core.files import decoding, destination, jsonable, read_arrays, write_arrays
from dualanchor.core.finding import Finding
from dualanchor.core.oracle import Oracle
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.engines import engine_of
from dualanchor.engines.mpi import MPI
from dualanchor.run.resume import restore, saved_run

if TYPE_CHECKING:
    from dualanchor.run.driver import Driver

_FORMAT = "dualanchor-checkpoint-4"
_SAMPLE, _NOTE = "sample", "note/"
_REPEATS = 8  # of a sample that is another than in the file, before that is put down to another function


@dataclass(frozen=True)
class Checkpoint:
    """Where a run saves itself, and how often.

    A run whose file exists is resumed from it; the file of another run is refused. It is written once a calibration is
    made, then at most every `seconds`, and when the run ends, is interrupted or fails. When to stop may change from
    call to call, as long as the method does not depend on it.

    Whether a function has changed is seen by one sample at the start, free of charge (two of them where it is not known
    whether samples repeat), and by its code, unless the run has failed. `check_code=False` leaves the code out.

    Examples
    --------
    >>> import tempfile, pathlib, dualanchor as da
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = da.Checkpoint(pathlib.Path(folder) / "run.npz", seconds=60)
    ...     first = da.solve(da.problems.affine(), da.SGDA(0.1), budget=50, checkpoint=saved)
    ...     longer = da.solve(da.problems.affine(), da.SGDA(0.1), budget=80, checkpoint=saved)
    >>> first.nit, longer.nit
    (50, 80)
    """

    path: str | Path
    seconds: float = 30.0
    check_code: bool = True

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
    """Reads and writes the checkpoint of one call, on rank 0 of an MPI job.

    `identity` says which call it is: everything that its numbers depend on, as plain JSON values. `limits` say when to
    stop; they may differ. One sample of the oracle at `x0` (d,) shows whether F has changed. Raises before
    anything is spent if the file is of another call, or cannot be written.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | str | Path,
        identity: dict[str, Any],
        limits: dict[str, Any],
        oracle: Oracle,
        x0: Array,
        seed: int,
        *functions: Any,
    ) -> None:
        self._place = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        self._path, engine = destination(self._place.path), engine_of(oracle)
        self._agree: Callable[..., Any] = engine.agree if isinstance(engine, MPI) else lambda function: function()
        described = {"oracle": jsonable(oracle.describe()), "seed": int(seed), "start": digest_of(x0)}
        self._identity = {**identity, **described}
        self._code, self._limits = {VERSION: code_digest(oracle, *functions)}, limits
        self._notes, self._note_arrays = dict[str, Any](), dict[str, Array]()
        self._run: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._last, self._failed = time.monotonic(), False
        self.findings: list[Finding] = []
        self._sample: Array | None = None
        self._there: Any = limits  # the limits in the file
        found = self._agree(self._read)
        if found is None:
            self._sample = _one_sample(oracle, x0, seed, 1 if oracle.replayable else 2)
        else:
            self._take_up(*found)
            same = (self._is_sample(_one_sample(oracle, x0, seed, times)) for times in (1, _REPEATS))
            if self._sample is not None and not any(same):
                raise self._changed("that gives another sample at the start than when the file was written")

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last >= self._place.seconds

    def identify(self, identity: dict[str, Any]) -> None:
        """Say what the run depends on, beyond what the call does; a saved run must depend on the same."""
        self._run_identity = identity
        if self._run is not None:
            self._compare(self._run[0].get("identity"), identity)

    def resume(self, run: Driver) -> None:
        """Put a run that has not begun into the state that was saved, if one was."""
        if self._run is not None:
            with self._decoding():
                restore(run, *self._run)

    def save(self, run: Driver, failed: bool = False) -> None:
        """Write the run as it stands."""
        header, saved = saved_run(run)
        self._run, self._failed = ({"identity": self._run_identity, **header}, saved), failed
        self._write()

    def once(
        self,
        name: str,
        make: Callable[[], Any],
        facts: Callable[[Any], Any],
        read: Callable[[Any], Any],
        key: Any = None,
    ) -> Any:
        """What `make` returned in this call or, with the same key, in one that it resumes.

        `facts` turns it into plain JSON values, or into one array, and `read` turns these back.
        """
        if (kept := self._notes.get(name)) is not None and kept.get("key") == key:
            with self._decoding():
                return read(self._note_arrays.get(name, kept.get("value")))
        made = make()
        value = facts(made)
        self._note_arrays.pop(name, None)
        if isinstance(value, np.ndarray):
            self._note_arrays[name], value = value, None
        self._notes[name] = {"key": key, "value": value}
        self._write()
        return made

    def _write(self) -> None:
        """Write the file; where that fails, the run goes on."""
        if (failure := self._agree(self._written)) is not None and not self.findings:
            self.findings.append(Finding.of("checkpoint-not-written", error=failure))
            if not self._failed:  # the user's own error comes first
                warnings.warn(str(self.findings[0]), RuntimeWarning, stacklevel=2)
        self._last = time.monotonic()

    def _written(self) -> str | None:
        run, saved = self._run or (None, {})
        content = {name: arrays.to_host(value) for name, value in saved.items()}
        content |= {_NOTE + name: value for name, value in self._note_arrays.items()}
        header = {
            "format": _FORMAT,
            "identity": self._identity,
            "code": self._code,
            "limits": self._limits,
            "failed": self._failed,
            "notes": self._notes,
            "run": run,
        }
        if self._sample is not None:
            content[_SAMPLE] = self._sample
        try:
            write_arrays(self._path, {**header, "digest": digest(header, content)}, content)
        except (OSError, ArgumentError) as error:  # a full disk, a folder that is gone
            return str(error)
        return None

    def _read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The file's content, if there is a file; tries whether one can be written."""
        try:
            for left in self._path.parent.glob(f".{glob.escape(self._path.name)}.*.part"):  # by a killed process
                left.unlink(missing_ok=True)
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                file.write(bytes(1 << 12))
        except OSError as error:
            rule = "Checkpoint: path must lie in a folder that can be written to"
            raise ArgumentError(rule, error, "Choose another folder, or free some space") from error
        return read_arrays(self._path) if self._path.exists() else None

    def _take_up(self, header: dict[str, Any], saved: dict[str, Array]) -> None:
        if header.get("format") != _FORMAT:
            raise CheckpointError(
                "A checkpoint must be a file written by a run of this version",
                f"{self._path} with format {header.get('format')!r}",
                "Give another path, or delete the file",
            )
        self._there = header.get("limits")
        self._compare(header.get("identity"), self._identity)
        code = header.get("code")
        comparable = self._place.check_code and not header.get("failed") and isinstance(code, dict) and VERSION in code
        if comparable and code != self._code:
            raise self._changed(
                "whose code was another when the file was written", "; Checkpoint(path, check_code=False) takes it"
            )
        with self._decoding():
            if header["digest"] != digest({name: header[name] for name in header if name != "digest"}, saved):
                raise ValueError("the content has been changed since")
            notes, run = header["notes"], header["run"]
            tables = [notes, *notes.values(), {} if run is None else run]
            if not all(isinstance(one, dict) for one in tables):
                raise ValueError("notes and run must be tables")
            self._sample, self._notes = saved.pop(_SAMPLE, None), notes
            self._note_arrays = {name: saved.pop(_NOTE + name) for name in notes if _NOTE + name in saved}
            self._run = None if run is None else (run, saved)

    def _decoding(self) -> AbstractContextManager[None]:
        rule = "A checkpoint must hold everything that the run had written"
        return decoding(self._path, rule, "Delete it to start anew")

    def _compare(self, theirs: Any, ours: dict[str, Any]) -> None:
        theirs = theirs if isinstance(theirs, dict) else {}
        differ = [line for key, value in ours.items() for line in _differences(key, theirs.get(key), value)]
        if not differ:
            return
        remedy = "Give another path, or delete the file"
        changed = ", ".join(_differences("", self._there, self._limits))
        if changed and any(line.startswith("method") for line in differ):
            remedy = f"The method depends on when to stop ({changed}): pass the same, or give another path"
        rule = f"A checkpoint must belong to the run that is resumed from it: {self._path}"
        raise CheckpointError(rule, ", ".join(differ), remedy)

    def _is_sample(self, here: Array | None) -> bool:
        """Whether this may be the sample in the file; so it may if there is none, as where samples do not repeat."""
        there = self._sample
        if here is None or there is None:
            return True
        tolerance = float(np.sqrt(np.finfo(here.dtype).eps))  # another engine or library may round otherwise
        alike = (here.shape, here.dtype) == (there.shape, there.dtype)
        return alike and np.allclose(here, there, tolerance, tolerance, equal_nan=True)

    def _changed(self, received: str, more: str = "") -> CheckpointError:
        rule = f"A checkpoint must be resumed with the functions that it was made with: {self._path}"
        return CheckpointError(rule, f"a function {received}", f"Give another path, or delete the file{more}")


def digest(header: dict[str, Any], content: dict[str, Array]) -> str:
    """What tells a file as it was written from one that was changed by hand."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, value in sorted(content.items()):
        found.update(f"{name} {value.dtype.str} {value.shape}".encode() + value.tobytes())
    return found.hexdigest()


def digest_of(x: Array) -> str:
    """What tells an array from another: its numbers and its dtype."""
    host = arrays.to_host(x)
    return f"{hashlib.sha256(host.tobytes()).hexdigest()[:16]} ({host.dtype})"


def _one_sample(oracle: Oracle, x0: Array, seed: int, times: int) -> Array | None:
    """One sample at x0, shape (d,), from a fixed stream; None if it is not the same each time, or fails."""
    if oracle.replayable is False:
        return None
    F = Session(oracle.take(np.arange(1)), Streams(seed, np.zeros(1, int), Purpose.PILOT, x0.shape[0], x0.dtype))
    try:
        with arrays.quiet():
            batch = F.draw(1)
            values = [arrays.to_host(F(x0[None], batch))[0] for _ in range(times)]
    except Exception:  # the run will meet it, and say where
        return None
    return values[0] if all(np.array_equal(values[0], one, equal_nan=True) for one in values) else None


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
        path = f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}".lstrip(".")
        yield from _differences(path, there[key], here[key])
