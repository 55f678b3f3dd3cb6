"""Plain JSON values, and arrays with a JSON header in one file: npz without pickle, written atomically."""

import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

import numpy as np

from dualanchor.core.errors import CheckpointError
from dualanchor.core.types import Array

_HEADER = "header.json"
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would turn line ends


def write_arrays(path: str | Path, header: dict[str, Any], arrays: dict[str, Array]) -> Path:
    """Write header and arrays; a reader sees the old file or the new one, never a part of it."""
    text = json.dumps(header).encode()
    with replacing(Path(path)) as file:
        np.savez(file, **{_HEADER: np.frombuffer(text, np.uint8), **arrays})  # type: ignore[arg-type]
    return Path(path)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file that takes the place of the one at this path when written without an error; `mode` as for `os.open`."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.part")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_arrays(path: str | Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what `write_arrays` wrote; anything else is a CheckpointError that says why."""
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("this is not an npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is not an object")
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever reading foreign bytes may end in
        rule = "A saved file must be a complete npz with a JSON header, as dualanchor writes it"
        remedy = "Give the path of a file that dualanchor wrote; a damaged checkpoint can be deleted to start anew"
        raise CheckpointError(rule, f"{path}: {type(error).__name__}: {error}", remedy) from error
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
