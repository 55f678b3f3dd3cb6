"""Plain JSON values, and arrays with a JSON header in one file: npz without pickle, written atomically."""

import json
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

import numpy as np

from dualanchor.core.errors import ArgumentError, CheckpointError, DualAnchorError
from dualanchor.core.types import Array

_HEADER = "header.json"
_PLAIN = "a plain file"
_KINDS = {
    stat.S_IFREG: _PLAIN,
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_DESCRIPTORS = "/proc/self/fd"
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would turn line ends


def write_arrays(path: str | Path, header: dict[str, Any], arrays: dict[str, Array]) -> Path:
    """Write header and arrays; a reader sees the old file or the new one, never a part of it."""
    text = json.dumps(header).encode()
    with replacing(Path(path)) as file:
        np.savez(file, **{_HEADER: np.frombuffer(text, np.uint8), **arrays})  # type: ignore[arg-type]
    return Path(path)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of the one at this path when written without an error.

    Where the system has files without a name it gets one at the very end, so that a killed process leaves nothing.
    """
    path = destination(path)
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.part")
    unnamed = _unnamed(path.parent)
    named = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
    try:
        with os.fdopen(os.open(temporary, named, 0o666) if unnamed is None else unnamed, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if unnamed is not None:
                _name(unnamed, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _unnamed(folder: Path) -> int | None:
    """A descriptor of a new file without a name; None where the system or the file system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_DESCRIPTORS):
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o666)
    except OSError:
        return None


def _name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"{_DESCRIPTORS}/{descriptor}", path.name, dst_dir_fd=folder)  # with it, os.link follows the link
    finally:
        os.close(folder)


def destination(path: str | Path) -> Path:
    """The file to write for a path, behind its symbolic links: a plain one, or a new one in a folder that exists."""
    try:
        target = Path(os.path.realpath(path))
        kind = _kind(Path(path)) or _kind(target)
    except (OSError, ValueError) as error:  # a loop of links, a name with a null character
        raise ArgumentError("A file needs a path that can be written", f"{path!s}: {error}", "Give another") from error
    if kind is None and not target.parent.is_dir():
        raise ArgumentError("A file is written into a folder that exists", str(path), "Create the folder first")
    if kind not in (None, _PLAIN):
        raise ArgumentError("Only a plain file is written over", f"{path!s}, {kind}", "Give the path of a file")
    return target


def require_plain(path: str | Path) -> None:
    """Raise ValueError for what is there but no plain file: a pipe would never end, nor would some devices."""
    if (kind := _kind(Path(path))) not in (None, _PLAIN):
        raise ValueError(f"this is {kind}, not a plain file")


def _kind(path: Path) -> str | None:
    """What there is at a path, behind its symbolic links; None for nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(path.stat().st_mode), "something else")
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def decoding(path: str | Path, rule: str, remedy: str) -> Iterator[None]:
    """What goes wrong while the content of a file is checked and taken over becomes a CheckpointError that says why."""
    try:
        yield
    except (CheckpointError, FileNotFoundError):
        raise
    except Exception as error:  # whatever foreign content may end in
        reason = f"no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        if isinstance(error, DualAnchorError):
            reason = f"{error.parts[0]}, not {error.parts[1]}"
        raise CheckpointError(rule, f"{path}: {reason}", remedy) from error


def read_arrays(path: str | Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what `write_arrays` wrote; anything else is a CheckpointError that says why."""
    rule = "A saved file must be a complete npz with a JSON header, as dualanchor writes it"
    remedy = "Give the path of a file that dualanchor wrote; a damaged checkpoint can be deleted to start anew"
    with decoding(path, rule, remedy):
        require_plain(path)
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("this is not an npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is not an object")
    return header, arrays


def jsonable(value: Any) -> Any:
    """The value with arrays as lists, records by their `to_dict` or as text, and non-finite numbers as null."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value.to_dict() if hasattr(value, "to_dict") else repr(value)


def to_json(value: Any, **options: Any) -> str:
    """JSON text in which a non-finite number is null."""
    return json.dumps(jsonable(value), allow_nan=False, ensure_ascii=False, **options)
