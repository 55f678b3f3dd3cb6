"""Finished pieces of work, kept under a fingerprint of everything that can change their numbers."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dualanchor
from dualanchor._version import __version__
from dualanchor.core.errors import ArgumentError, CheckpointError
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.core.types import Array

_PIECE = re.compile(r"[0-9a-f]{16}-[0-9a-f]{24}\.npz")
_NUMERICAL = ("core", "estimators", "oracles", "methods", "problems", "run")


@cache
def code_fingerprint() -> str:
    """A hash of the sources that compute numbers, and of the version of NumPy."""
    root = Path(dualanchor.__file__).parent
    digest = hashlib.sha256(f"{__version__} {np.__version__}".encode())
    sources = [path for package in _NUMERICAL for path in sorted((root / package).glob("*.py"))]
    for path in (*sources, root / "studies" / "pieces.py"):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Store:
    """A folder of finished pieces. Writing is atomic: a piece is there or it is not."""

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self._folder, self._fresh = folder, fresh
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                "The folder of results must be one that can be written", f"{folder}: {error}", "Give another"
            ) from None

    def prune(self) -> int:
        """Remove the pieces of other versions, which are never used; how many there were."""
        pieces = [path for path in self._folder.glob("*.npz") if _PIECE.fullmatch(path.name)]
        stale = [path for path in pieces if not path.name.startswith(code_fingerprint())]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    def load(self, key: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """A finished piece, or None. A file that cannot be read counts as not there."""
        path = self._path(key)
        if self._fresh or not path.exists():
            return None
        try:
            return read_arrays(path)
        except CheckpointError:
            return None

    def save(self, key: dict[str, Any], header: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Keep a finished piece."""
        write_arrays(self._path(key), header, arrays)

    def _path(self, key: dict[str, Any]) -> Path:
        text = json.dumps(key, sort_keys=True)
        return self._folder / f"{code_fingerprint()}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"
