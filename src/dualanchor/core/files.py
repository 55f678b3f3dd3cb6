"""Files with arrays and a JSON header (npz without pickle), written atomically; and plain JSON values."""

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
_DESCRIPTORS = "/proc/self/fd"
_BINARY = getattr(os, "O_BINARY", 0)  # without it, Windows changes line ends


def write_arrays(path: str | Path, header: dict[str, Any], arrays: dict[str, Array]) -> Path:
    """Write header and arrays to a file, which is replaced atomically."""
    text = json.dumps(header).encode()
    with replacing(Path(path)) as file:
        np.savez(file, **{_HEADER: np.frombuffer(text, np.uint8), **arrays})  # type: ignore[arg-type]
    return Path(path)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A context with a new file, which replaces the one at this path if no error occurs.

    Where the system supports files without a name, the new file gets its name at the end, so that a killed process
    leaves no part of it behind.
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
    """The descriptor of a new file without a name in this folder; None if the file system does not support it."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_DESCRIPTORS):
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o666)
    except OSError:
        return None


def _name(descriptor: int, path: Path) -> None:
    """Give a name to a file without one."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"{_DESCRIPTORS}/{descriptor}", path.name, dst_dir_fd=folder)  # follows the link only with dst_dir_fd
    finally:
        os.close(folder)


def destination(path: str | Path, owner: str = "The path of a file") -> Path:
    """The path to write to, with symbolic links resolved; raises unless it is a plain file or can be created."""
    try:
        target = Path(os.path.realpath(path))
        kind = _kind(Path(path)) or _kind(target)
    except (OSError, ValueError) as error:  # a loop of links, a name with a null character
        raise ArgumentError(f"{owner} must be valid", f"{path!s}: {error}", "Give another") from error
    if kind is None and not target.parent.is_dir():
        raise ArgumentError(f"{owner} must lie in a folder that exists", str(path), "Create the folder first")
    if kind not in (None, _PLAIN):
        raise ArgumentError(
            f"{owner} must lead to a plain file, or be new", f"{path!s}, {kind}", "Give the path of a file"
        )
    return target


def require_plain(path: str | Path) -> None:
    """Raise ValueError for a path to something else than a plain file: reading a pipe or a device might never end."""
    if (kind := _kind(Path(path))) not in (None, _PLAIN):
        raise ValueError(f"this is {kind}, not a plain file")


def _kind(path: Path) -> str | None:
    """What kind of file the path leads to, as a phrase; None if there is none."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _PLAIN if stat.S_ISREG(mode) else "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"


@contextmanager
def decoding(path: str | Path, rule: str, remedy: str) -> Iterator[None]:
    """A context in which any exception that the content of a file causes becomes a CheckpointError that says why."""
    try:
        yield
    except (CheckpointError, FileNotFoundError):
        raise
    except Exception as error:  # damaged content can raise anything
        reason = f"no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        if isinstance(error, DualAnchorError):
            reason = f"{error.parts[0]}, not {error.parts[1]}"
        raise CheckpointError(rule, f"{path}: {reason}", remedy) from error


def read_arrays(path: str | Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays that `write_arrays` wrote; a CheckpointError for any other file."""
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


def below(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def jsonable(value: Any) -> Any:
    """The value as plain JSON values: arrays as lists, objects by `to_dict` or `repr`, non-finite numbers as None."""
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
