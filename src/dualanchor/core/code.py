"""A digest of the code of a user's functions, which changes with the code and is the same in every process."""

import functools
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from dualanchor.core.oracle import Oracle

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Digests of different versions of Python cannot be compared."""

_PACKAGE = __name__.partition(".")[0]


def code_digest(*values: Any) -> str:
    """A digest of the code of functions and of the functions of their modules that they call.

    Of callable objects, the methods of their class count. Data does not: the contents of closures, attributes and
    arguments may change from call to call. Functions of installed packages count by their names only.
    """
    digest = hashlib.sha256()
    visited = set[int]()
    for value in values:
        for part in _parts(value, visited):
            digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:16]


def _parts(value: Any, visited: set[int]) -> Iterator[str]:
    """Texts that stand for the code of a value and of the functions within it."""
    if id(value) in visited:
        return
    visited.add(id(value))
    cls, inner = type(value), list[Any]()
    if isinstance(value, FunctionType):
        inner = [value.__globals__.get(name) for name in _names(value.__code__)] if _is_users(value) else []
        inner = [item for item in inner if isinstance(item, FunctionType) and item.__module__ == value.__module__]
        inner += [*_contents(value), *(value.__defaults__ or ()), getattr(value, "__wrapped__", None)]
        yield f"{value.__module__}.{value.__qualname__}" if not _is_users(value) else repr(_of_code(value.__code__))
    elif isinstance(value, MethodType):
        inner = [value.__func__, *_methods(type(value.__self__))]
    elif isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, tuple):
        inner = list(value)
    elif cls.__module__.partition(".")[0] == _PACKAGE:
        inner = list(getattr(value, "__dict__", {}).values())
    elif callable(value) or isinstance(value, Oracle):  # a user's
        inner = [getattr(value, "__wrapped__", None), *_methods(cls)]
        yield cls.__qualname__
    for item in inner:
        yield from _parts(item, visited)


def _is_users(function: FunctionType) -> bool:
    """Whether a function is the user's: not of the standard library, this library or an installed package."""
    module = (function.__module__ or "").partition(".")[0]
    installed = "-packages" in function.__code__.co_filename
    return not installed and module != _PACKAGE and module not in sys.stdlib_module_names


def _methods(cls: type) -> list[FunctionType]:
    attributes = [attribute for base in cls.__mro__ for attribute in vars(base).values()]
    return [method for method in attributes if isinstance(method, FunctionType) and _is_users(method)]


def _contents(function: FunctionType) -> Iterator[Any]:
    """The values in a function's closure."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names(code: CodeType) -> list[str]:
    """The global names that code uses, also in functions nested in it."""
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *(name for inner in nested for name in _names(inner))]


def _of_code(value: Any) -> Any:
    """A code object or constant as plain values, whose repr is the same in every process."""
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_of_code(constant) for constant in value.co_consts]
    if isinstance(value, tuple):
        return [_of_code(item) for item in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
