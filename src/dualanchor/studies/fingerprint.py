"""A hash of all source code that a result depends on: the library's, and that of a user's classes."""

import ast
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path

import numpy as np

_LIBRARY = Path(__file__).parents[1]
_NO_NUMBERS = ("cli", "integrations", "paper", "report")  # packages in which no number of a study is computed
_INSTALLED = {Path(sysconfig.get_paths()[kind]) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}


def code_fingerprint(classes: Iterable[type]) -> str | None:
    """A hash of all `source_files` and of NumPy's version; None if the source of a class is not in a file."""
    if (files := source_files(classes)) is None:
        return None
    digest = hashlib.sha256(np.__version__.encode())
    for path in sorted(files):
        digest.update(path.name.encode() + _read(path))
    return digest.hexdigest()[:16]


def source_files(classes: Iterable[type]) -> frozenset[Path] | None:
    """The files of the library, and those of classes and their bases with what they import from their own folder."""
    bases = {base for cls in classes for base in cls.__mro__}
    own = {_file_of(cls) for cls in bases if cls.__module__.partition(".")[0] not in sys.stdlib_module_names}
    if None in own:
        return None
    return _library().union(*(with_imports(path) for path in own if path is not None))


@cache
def _library() -> frozenset[Path]:
    files = _python_files(_LIBRARY)
    return frozenset(path for path in files if path.relative_to(_LIBRARY).parts[0] not in _NO_NUMBERS)


@cache
def with_imports(path: Path) -> frozenset[Path]:
    """A user's file with its whole package or, outside of packages, with what it imports from its folder."""
    packages = list(takewhile(lambda folder: (folder / "__init__.py").exists(), path.parents))
    if packages and packages[-1] != _LIBRARY:
        return frozenset({path, *_python_files(packages[-1])})
    files, waiting = {path}, {path}
    while waiting and path.parent not in _INSTALLED and not packages:
        tops = {path.parent / name for file in waiting for name in _imported(file)}
        modules = {top.with_suffix(".py") for top in tops if top.with_suffix(".py").is_file()}
        waiting = modules.union(*map(_python_files, tops)) - files
        files |= waiting
    return frozenset(files)


def _python_files(folder: Path) -> Iterator[Path]:
    """The files below a folder; not links to nothing, as editors make them while a file is changed."""
    return (path for path in folder.rglob("*.py") if path.is_file())


def _imported(path: Path) -> Iterator[str]:
    """The first parts of the names of modules that a file or its functions import; none of compiled code."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(_read(path))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _file_of(cls: type) -> Path | None:
    """The file with the source of a class; None if it was typed into a console."""
    module = sys.modules.get(cls.__module__)  # None if the file was run by its path
    codes = [value.__code__ for value in vars(cls).values() if inspect.isfunction(value)]
    names = (getattr(module, "__file__", None), *(code.co_filename for code in codes))
    return next((Path(name).resolve() for name in names if name and Path(name).is_file()), None)


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()
