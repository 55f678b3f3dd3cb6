"""A hash of all source code that a result depends on, found by following import statements in the files."""

import ast
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import numpy as np

_LIBRARY = Path(__file__).parents[1]
_INSTALLED = {Path(sysconfig.get_paths()[kind]) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}


def code_fingerprint(modules: Iterable[str], classes: Iterable[type]) -> str | None:
    """A hash of all `source_files` and of NumPy's version; None if the source of a class is not in a file."""
    if (files := source_files(modules, classes)) is None:
        return None
    digest = hashlib.sha256(np.__version__.encode())
    for path in sorted(files):
        digest.update(path.name.encode() + _read(path))
    return digest.hexdigest()[:16]


def source_files(modules: Iterable[str], classes: Iterable[type]) -> frozenset[Path] | None:
    """The files of these modules of the library, of classes and their bases, and of everything that they import."""
    bases = {base for cls in classes for base in cls.__mro__}
    own = {_file_of(cls) for cls in bases if cls.__module__.partition(".")[0] not in sys.stdlib_module_names}
    starts = {_file(_LIBRARY.parent, name) for name in modules} | own
    waiting = files = {path for path in starts if path is not None}
    if files != starts:
        return None
    while waiting:
        waiting = {file for path in waiting for file in imported(path)} - files
        files |= waiting
    return frozenset(files)


@cache
def imported(path: Path) -> frozenset[Path]:
    """The files that a file or its functions import: of this library, and beside the file or in its own package."""
    if path.suffix != ".py":  # the imports of compiled code cannot be seen
        return frozenset()
    packages = list(takewhile(lambda folder: (folder / "__init__.py").exists(), path.parents))
    root = packages[-1].parent if packages else path.parent
    top = packages[-1].name if packages else None
    prefix = [folder.name for folder in reversed(packages)]
    names = set()
    for name, level in _imports(ast.parse(_read(path))):
        base = prefix[: len(prefix) - level + 1] if level else []
        names.add(".".join([*base, name] if name else base))
    if _LIBRARY.name in names and not path.is_relative_to(_LIBRARY):  # it may use every public name
        names |= {name for name, _ in _imports(ast.parse(_read(_LIBRARY / "__init__.py")), declared=True)}
    files = set()
    for parts in (name.split(".") for name in names):
        own = parts[0] == top or (top is None and root not in _INSTALLED)
        if parts[0] == _LIBRARY.name or own:
            home = _LIBRARY.parent if parts[0] == _LIBRARY.name else root
            files |= {_file(home, ".".join(parts[:end])) for end in range(1, len(parts) + 1)}  # and its packages
    return frozenset(file for file in files if file is not None)


def _imports(tree: ast.AST, declared: bool = False) -> Iterator[tuple[str, int]]:
    """Dotted names that may be modules, with their levels; those under TYPE_CHECKING only if `declared`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node.level
            yield from ((f"{base}.{alias.name}".lstrip("."), node.level) for alias in node.names)
        elif declared or not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            yield from _imports(node, declared)


def _file_of(cls: type) -> Path | None:
    """The file with the source of a class; None if it was typed into a console."""
    module = sys.modules.get(cls.__module__)  # None if the file was run by its path
    codes = [value.__code__ for value in vars(cls).values() if inspect.isfunction(value)]
    names = (getattr(module, "__file__", None), *(code.co_filename for code in codes))
    return next((Path(name).resolve() for name in names if name and Path(name).is_file()), None)


def _file(home: Path, name: str) -> Path | None:
    path = home.joinpath(*name.split("."))
    return next((file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py") if file.is_file()), None)


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()
