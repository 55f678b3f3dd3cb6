"""Machine code in the user's own cache folder, so that the next process need not compile it again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from dualanchor.core.files import replacing

_DIGEST = 32  # bytes before the code, by which a damaged file is told


def read(name: str) -> bytes | None:
    """The code of this name, if it is there and whole, where nobody else can write to it."""
    with suppress(OSError):
        if (folder := _folder()) is not None and _is_private(folder) and _is_private(folder / name):
            data = (folder / name).read_bytes()
            if _digest(name, data[_DIGEST:]) == data[:_DIGEST]:
                return data[_DIGEST:]
    return None


def write(name: str, code: bytes) -> None:
    """Keep the code, if there is such a folder or one can be made."""
    with suppress(OSError):
        if (folder := _folder()) is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(folder):
                with replacing(folder / name, mode=0o600) as file:
                    file.write(_digest(name, code) + code)


def _digest(name: str, code: bytes) -> bytes:
    return sha256(name.encode() + code).digest()


def _folder() -> Path | None:
    """DUALANCHOR_CACHE of the environment, none if that is empty, or else the usual place of the system."""
    chosen = os.environ.get("DUALANCHOR_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    usual = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Caches")}
    variable, place = usual.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    with suppress(RuntimeError):  # there is no home
        return Path(os.environ.get(variable) or Path.home() / place) / "dualanchor"
    return None


def _is_private(path: Path) -> bool:
    """Whether this is a folder or a plain file that only its user, who is this one, can write to."""
    found = path.stat()
    if not (S_ISDIR(found.st_mode) or S_ISREG(found.st_mode)):
        return False
    if sys.platform == "win32":
        return True  # the usual place is
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
