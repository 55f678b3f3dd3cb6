"""Problems in a user's file, `file.py:name`, and the lines behind an error, which tell a user's error from ours."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import traceback
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, DualAnchorError, unknown_name

if TYPE_CHECKING:
    from dualanchor.core.problem import Problem

_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')
USER_FILE = "dualanchor.user_file"  # in the command's context: the file of `file.py:name`


def load_problem(spec: str, options: dict[str, Any]) -> Problem:
    """A named problem, or for `file.py:name` the Problem (or a function that makes one) of that name in the file."""
    from dualanchor import problems
    from dualanchor.core.problem import Problem

    path, colon, name = spec.rpartition(":")
    if not (colon and path.endswith(".py")):
        if spec.endswith(".py"):
            raise ArgumentError("A problem in a file is named as file.py:name", repr(spec), f"Write {spec}:my_problem")
        return problems.make(spec, options)
    value = _from_file(Path(path), name)
    rule = f"{spec} must be a Problem or a function that returns one"
    if callable(value) and not isinstance(value, Problem):
        if _is_sampler(value) and not options:
            remedy = f"A sampler becomes a problem by da.Problem(da.Sampler({name}), x0=...)"
            raise ArgumentTypeError(rule, f"a function of {inspect.signature(value)}", remedy)
        _require_arguments(value, options, spec, name)
        value = value(**options)
    elif options:
        not_one = f"-o sets options of a function that makes a problem, and {name} is not one"
        raise ArgumentError(not_one, options, "Leave -o out")
    if not isinstance(value, Problem):
        raise ArgumentTypeError(rule, type(value).__name__, "An oracle becomes one by da.Problem(oracle, x0=...)")
    if value.name == "problem":  # the default
        value = copy(value)
        value._name = name
    return value


def _from_file(path: Path, name: str) -> Any:
    """The object of this name in a file; raises, with names of Problems and functions in the file, if there is none."""
    if not path.is_file():
        raise ArgumentError("A problem's file must exist", str(path), "Check the path")
    file = path.absolute()
    if context := click.get_current_context(silent=True):
        context.meta[USER_FILE] = file
    sys.path.insert(0, str(file.parent))
    try:  # The module has a name while it runs, as dataclasses need, but not after: it travels to processes by value.
        content = runpy.run_path(str(file), run_name=f"_problem_{path.stem}")
    except DualAnchorError:  # `app` adds the line to the message
        raise
    except (Exception, SystemExit) as error:
        rule, place = "A problem's file must run without an error", last_line(error, file.parent) or str(file)
        raise ArgumentError(rule, in_words(error), f"Fix {place}") from error
    if name in content:
        return content[name]
    from dualanchor.core.problem import Problem

    public = {key: value for key, value in content.items() if not key.startswith("_")}
    functions = {key for key, value in public.items() if inspect.isfunction(value) and not _is_sampler(value)}
    own = {key for key in functions if public[key].__module__ == content["__name__"]}
    known = [key for key, value in public.items() if isinstance(value, Problem) or key in own]
    raise unknown_name(f"{path}: name", name, known or public)


def _require_arguments(function: Any, options: dict[str, Any], spec: str, name: str) -> None:
    """Raise unless the options are arguments of a function, and all that it needs; some functions have no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        rule, given = f"{spec} must make a Problem from the options given", ", ".join(options) or "no options"
        raise ArgumentTypeError(
            rule, f"{given} for {name}{signature}", "Set its arguments with -o name=value"
        ) from error


def _is_sampler(function: Any) -> bool:
    """Whether a function looks like `sample(x, n, rng)`: three arguments without defaults."""
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(argument.default is argument.empty and argument.kind in positional for argument in arguments) == 3


def last_line(error: BaseException, folder: Path | None = None) -> str | None:
    """The line that raised the error or its first cause, as "file, line 3"; the last one in a folder, if one is given.

    None if no line of that folder ran.
    """
    lines = [f"{name}, line {number}" for name, number in _lines(error) if folder in (None, Path(name).parent)]
    return lines[-1] if lines else None


def in_words(error: BaseException) -> str:
    """Type and text of an error, even if its `str` fails."""
    lines = traceback.format_exception_only(error)
    return lines[-1 if isinstance(error, SyntaxError) else 0].strip()[:500]


def _lines(error: BaseException) -> Iterator[tuple[str, int | None]]:
    """Files and lines of the traceback, from the outermost to the innermost, then those of the causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield from ((frame.filename, frame.lineno) for frame in traceback.extract_tb(cause.__traceback__))
        if isinstance(cause, SyntaxError) and cause.filename:
            yield cause.filename, cause.lineno
        if type(cause).__name__ == "_RemoteTraceback":  # the traceback of a worker, as text
            yield from ((name, int(number)) for name, number in _PLACE.findall(str(cause)))
        cause = cause.__cause__
