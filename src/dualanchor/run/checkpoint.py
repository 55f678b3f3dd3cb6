"""The checkpoint of a call: a file with its run as it stands, and what was computed before and after the run."""

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
from dualanchor.core.session import one_sample
from dualanchor.core.types import Array
from dualanchor.engines import engine_of
from dualanchor.engines.mpi import MPI
from dualanchor.run.resume import restore, saved_run

if TYPE_CHECKING:
    from dualanchor.run.driver import Driver

_FORMAT = "dualanchor-checkpoint-4"
_SAMPLE, _NOTE = "sample", "note/"
_REPEATS = 8  # evaluations of a sample that differs from the file's: one that does not repeat proves nothing


@dataclass(frozen=True)
class Checkpoint:
    """Where a run saves itself, and how often.

    A run whose file exists is resumed from it; the file of another run is refused. It is written after a calibration,
    then at most every `seconds`, and when the run ends, is interrupted or fails. When to stop may change from call to
    call, as long as the method does not depend on it.

    A function that has changed is refused: by its code, unless the run has failed, and by one sample at the start, free
    of charge (two where it is not known whether samples repeat). `check_code=False` does not compare the code.

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
        destination(self.path, "Checkpoint: path")
        check.number(self.seconds, "Checkpoint: seconds", remedy="Use seconds=30")


class Saver:
    """Reads and writes the checkpoint of one call, on rank 0 of an MPI job.

    `identity` is everything that the numbers of the call depend on, as plain JSON values; the file must have the same.
    `limits` say when to stop and may differ. `x0` (d,) is the point of the sample that shows whether F has changed, and
    `functions` are those of the user whose code is compared. Raises before anything is spent if the file is of another
    call, or cannot be written.
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
        self._options = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        self._path = destination(self._options.path)
        engine = engine_of(oracle)
        self._on_rank_0: Callable[..., Any] = engine.agree if isinstance(engine, MPI) else lambda function: function()
        described = {"oracle": jsonable(oracle.describe()), "seed": int(seed), "start": digest_of(x0)}
        self._identity = {**identity, **described}
        self._run_identity: dict[str, Any] = {}
        self._code = {VERSION: code_digest(oracle, *functions)}
        self._limits = limits
        self._saved_limits: Any = limits  # those in the file
        self._notes: dict[str, Any] = {}  # what `once` has made, by name
        self._note_arrays: dict[str, Array] = {}
        self._run: tuple[dict[str, Any], dict[str, Any]] | None = None  # header and arrays of the run
        self._failed = False
        self._saved_at = time.monotonic()
        self.findings: list[Finding] = []
        content = self._on_rank_0(self._read)
        if content is None:
            self._sample = one_sample(oracle, x0, seed, times=1 if oracle.replayable else 2)
            return
        self._load(*content)
        same = (self._is_sample(one_sample(oracle, x0, seed, times)) for times in (1, _REPEATS))
        if self._sample is not None and not any(same):
            raise self._changed("that gives another sample at the start than when the file was written")

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._saved_at >= self._options.seconds

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
        self._run = {"identity": self._run_identity, **header}, saved
        self._failed = failed
        self._write()

    def once(
        self,
        name: str,
        make: Callable[[], Any],
        facts: Callable[[Any], Any],
        read: Callable[[Any], Any],
        key: Any = None,
    ) -> Any:
        """What `make` returned in this call or, with the same key, in the call that is resumed.

        `facts` turns it into plain JSON values, or into one array, and `read` turns these back.
        """
        note = self._notes.get(name)
        if note is not None and note.get("key") == key:
            with self._decoding():
                return read(self._note_arrays.get(name, note.get("value")))
        made = make()
        value = facts(made)
        self._note_arrays.pop(name, None)
        if isinstance(value, np.ndarray):
            self._note_arrays[name], value = value, None
        self._notes[name] = {"key": key, "value": value}
        self._write()
        return made

    def _write(self) -> None:
        """Write the file; if that fails, the run continues, with a finding."""
        if (failure := self._on_rank_0(self._try_to_write)) is not None and not self.findings:
            self.findings.append(Finding.of("checkpoint-not-written", error=failure))
            if not self._failed:  # the user's own error comes first
                warnings.warn(str(self.findings[0]), RuntimeWarning, stacklevel=2)
        self._saved_at = time.monotonic()

    def _try_to_write(self) -> str | None:
        """Write the file; returns why that failed, if it did."""
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
        """The file's header and arrays, if there is a file; raises if the folder cannot be written to."""
        try:
            for partial in self._path.parent.glob(f".{glob.escape(self._path.name)}.*.part"):  # of a killed process
                partial.unlink(missing_ok=True)
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                file.write(bytes(1 << 12))
        except OSError as error:
            rule = "Checkpoint: path must lie in a folder that can be written to"
            raise ArgumentError(rule, error, "Choose another folder, or free some space") from error
        return read_arrays(self._path) if self._path.exists() else None

    def _load(self, header: dict[str, Any], saved: dict[str, Array]) -> None:
        """Take over the content of the file; raises unless it was written by this call, and is complete."""
        if header.get("format") != _FORMAT:
            raise CheckpointError(
                "A checkpoint must be a file written by a run of this version",
                f"{self._path} with format {header.get('format')!r}",
                "Give another path, or delete the file",
            )
        self._saved_limits = header.get("limits")
        self._compare(header.get("identity"), self._identity)
        code = header.get("code")
        comparable = isinstance(code, dict) and VERSION in code and not header.get("failed")
        if self._options.check_code and comparable and code != self._code:
            raise self._changed(
                "whose code was another when the file was written", "; Checkpoint(path, check_code=False) takes it"
            )
        with self._decoding():
            if header["digest"] != digest({name: header[name] for name in header if name != "digest"}, saved):
                raise ValueError("the content has been changed since")
            notes, run = header["notes"], header["run"]
            tables = [notes, *notes.values(), {} if run is None else run]
            if not all(isinstance(table, dict) for table in tables):
                raise ValueError("notes and run must be tables")
            self._sample, self._notes = saved.pop(_SAMPLE, None), notes
            self._note_arrays = {name: saved.pop(_NOTE + name) for name in notes if _NOTE + name in saved}
            self._run = None if run is None else (run, saved)

    def _decoding(self) -> AbstractContextManager[None]:
        rule = "A checkpoint must hold everything that the run had written"
        return decoding(self._path, rule, "Delete it to start anew")

    def _compare(self, saved: Any, present: dict[str, Any]) -> None:
        """Raise if the identity in the file differs from the present one."""
        saved = saved if isinstance(saved, dict) else {}
        differences = [line for key, value in present.items() for line in _differences(key, saved.get(key), value)]
        if not differences:
            return
        remedy = "Give another path, or delete the file"
        changed = ", ".join(_differences("", self._saved_limits, self._limits))
        if changed and saved.get("method") != present.get("method"):
            remedy = f"The method depends on when to stop ({changed}): pass the same, or give another path"
        rule = f"A checkpoint must belong to the run that is resumed from it: {self._path}"
        raise CheckpointError(rule, ", ".join(differences), remedy)

    def _is_sample(self, sample: Array | None) -> bool:
        """Whether this may be the sample in the file; None, where samples do not repeat, may be any."""
        saved = self._sample
        if sample is None or saved is None:
            return True
        tolerance = float(np.sqrt(np.finfo(sample.dtype).eps))  # another engine or library may round otherwise
        alike = (sample.shape, sample.dtype) == (saved.shape, saved.dtype)
        return alike and np.allclose(sample, saved, tolerance, tolerance, equal_nan=True)

    def _changed(self, received: str, more: str = "") -> CheckpointError:
        rule = f"A checkpoint must be resumed with the functions that it was made with: {self._path}"
        return CheckpointError(rule, f"a function {received}", f"Give another path, or delete the file{more}")


def digest(header: dict[str, Any], content: dict[str, Array]) -> str:
    """A hash of header and arrays, which shows whether a file was changed by hand."""
    sha = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, value in sorted(content.items()):
        sha.update(f"{name} {value.dtype.str} {value.shape}".encode() + value.tobytes())
    return sha.hexdigest()


def digest_of(x: Array) -> str:
    """A short hash of an array's numbers, and its dtype."""
    host = arrays.to_host(x)
    return f"{hashlib.sha256(host.tobytes()).hexdigest()[:16]} ({host.dtype})"


def _differences(name: str, saved: Any, present: Any) -> Iterator[str]:
    """Sentences about the innermost values that differ; of two methods, or two problems, about their names only."""
    if saved == present:
        return
    if isinstance(saved, list) and isinstance(present, list) and len(saved) == len(present):
        saved, present = (dict(enumerate(values)) for values in (saved, present))
    if not (isinstance(saved, dict) and isinstance(present, dict) and saved.keys() == present.keys()):
        yield f"{name} = {saved!r} there and {present!r} here"
        return
    differing_name = next((key for key in ("id", "name") if saved.get(key) != present.get(key)), None)
    for key in present if differing_name is None else [differing_name]:
        path = f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}".lstrip(".")
        yield from _differences(path, saved[key], present[key])
