"""A digest of the code of a user's functions: the same in every process, another one where the code has changed."""

import functools
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Digests of different versions of Python cannot be compared."""

_PACKAGE = __name__.partition(".")[0]


def code_digest(*values: Any) -> str:
    """A digest of the code of functions, and of what they call in their own module; of callable objects, their class.

    Data is not looked at: what closures, attributes and arguments contain may change from call to call. Installed
    packages count by the names of their functions alone.
    """
    digest, seen = hashlib.sha256(), set[int]()
    for part in (part for value in values for part in _parts(value, seen)):
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:16]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    seen.add(id(value))
    cls, inner = type(value), list[Any]()
    if isinstance(value, FunctionType):
        inner = [value.__globals__.get(name) for name in _names(value.__code__)] if _is_users(value) else []
        inner = [one for one in inner if isinstance(one, FunctionType) and one.__module__ == value.__module__]
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
    elif callable(value) or any(base.__module__.startswith(f"{_PACKAGE}.") for base in cls.__mro__):  # a user's Oracle
        inner = [getattr(value, "__wrapped__", None), *_methods(cls)]
        yield cls.__qualname__
    for one in inner:
        yield from _parts(one, seen)


def _is_users(function: FunctionType) -> bool:
    module = (function.__module__ or "").partition(".")[0]
    installed = "-packages" in function.__code__.co_filename
    return not installed and module != _PACKAGE and module not in sys.stdlib_module_names


def _methods(cls: type) -> list[FunctionType]:
    found = [one for base in cls.__mro__ for one in vars(base).values() if isinstance(one, FunctionType)]
    return [one for one in found if _is_users(one)]


def _contents(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names(code: CodeType) -> list[str]:
    return [*code.co_names, *(name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one))]


def _of_code(value: Any) -> Any:
    """What a code object does, in plain values that are printed alike in every process."""
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_of_code(one) for one in value.co_consts]
    if isinstance(value, tuple):
        return [_of_code(one) for one in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
