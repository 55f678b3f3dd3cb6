"""From the words of a command line to values: no word is ever evaluated as code."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from dualanchor.advise.planned import Plan
    from dualanchor.core.problem import Problem
    from dualanchor.core.result import Result
    from dualanchor.engines import Engine

P = ParamSpec("P")
R = TypeVar("R")

_CALL = re.compile(r"(\w+)\((.*)\)")


class _Assignment(click.ParamType[tuple[str, Any]]):
    """`name=value` with a number, a list of numbers, a word, or Tapered(C), Growing(c), PAGE(s1, s2)."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not (equals and key.strip() and text.strip()):
            self.fail(f"must look like name=value. Got {value!r}. Write for example batch_size=10.", param, ctx)
        return key.strip().replace("-", "_"), parse_value(text.strip())


ASSIGNMENT = _Assignment()


def parse_value(text: str) -> Any:
    """An int, a float, a list of numbers, true, false, none, a schedule or an estimator; else the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if (call := _CALL.fullmatch(text)) and (made := _make(call[1], call[2])) is not None:
        return made
    if "," in text:
        parts = [parse_value(part.strip()) for part in text.strip("[]").split(",") if part.strip()]
        if all(isinstance(part, (int, float)) for part in parts):
            return parts
    return text


def _make(name: str, arguments: str) -> Any:
    from dualanchor.core.schedule import Growing, Tapered
    from dualanchor.estimators import PAGE

    makers: dict[str, Callable[..., Any]] = {"tapered": Tapered, "growing": Growing, "page": PAGE}
    if name.lower() not in makers:
        return None
    try:
        return makers[name.lower()](*(parse_value(word.strip()) for word in arguments.split(",") if word.strip()))
    except (TypeError, ValueError) as error:
        raise click.BadParameter(f"{name}({arguments}) cannot be made: {error}") from None


def load_problem(spec: str, options: dict[str, Any]) -> Problem:
    """A named problem, or for `file.py:name` the Problem (or a function that makes one) of that name in the file."""
    from dualanchor import problems
    from dualanchor.core.errors import ArgumentError, ArgumentTypeError
    from dualanchor.core.problem import Problem

    path, colon, name = spec.rpartition(":")
    if not (colon and path.endswith(".py")):
        if spec.endswith(".py"):
            raise ArgumentError("A problem in a file is named as file.py:name", repr(spec), f"Write {spec}:my_problem")
        return problems.make(spec, options)
    value = _from_file(Path(path), name)
    if callable(value) and not isinstance(value, Problem):
        if _is_sampler(value) and not options:
            raise ArgumentTypeError(
                f"{spec} must be a Problem or a function that returns one",
                f"a function of {inspect.signature(value)}",
                f"A sampler becomes a problem by da.Problem(da.Sampler({name}), x0=...)",
            )
        try:
            value = value(**options)
        except TypeError as error:
            raise ArgumentTypeError(
                f"{spec} must make a Problem from the options given", error, "Set its arguments with -o name=value"
            ) from error
    elif options:
        raise ArgumentError(
            f"-o sets options of a function that makes a problem, and {name} is not one", options, "Leave -o out"
        )
    if not isinstance(value, Problem):
        raise ArgumentTypeError(
            f"{spec} must be a Problem or a function that returns one",
            type(value).__name__,
            "An oracle becomes one by da.Problem(oracle, x0=...)",
        )
    return _named(value, name)


def _named(problem: Problem, name: str) -> Problem:
    """The problem, under the name that it has in its file unless it was given one."""
    if problem.name != "problem":
        return problem
    named = copy(problem)
    named._name = name
    return named


def _is_sampler(function: Any) -> bool:
    """Whether a function looks like `sample(x, n, rng)`: three arguments without defaults."""
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.default is one.empty and one.kind in positional for one in arguments) == 3


def only_sampled(problem: Problem) -> bool:
    """Whether nobody knows the operator itself, so that a residual can only be estimated."""
    import numpy as np

    from dualanchor.core.streams import Purpose, Streams

    oracle, x0, _ = problem.instance(Streams(0, np.arange(1), Purpose.INSTANCE))
    return oracle.operator(x0) is None


def asks_for_little(problem: Problem, given: dict[str, Any]) -> bool:
    """Whether a problem of the user's is to be solved as by `dualanchor.root`.

    It is where nothing but a budget or an accuracy is asked for, and the operator can only be sampled or constants that
    the bare method needs are missing.
    """
    from dualanchor.core.problem import Problem

    plain = given["method"] in (None, "auto") and not given["parameters"]
    if type(problem) is not Problem or not plain or _rules(given):
        return False
    known = problem.constants
    lacking = known.L is None or (given["eps"] is not None and None in (known.D, known.sigma))
    return lacking or only_sampled(problem)


def require_end(given: dict[str, Any]) -> None:
    """Raise unless something is said that can end a run."""
    from dualanchor.core.errors import ArgumentError

    said = _rules(given) or given["parameters"]
    if given["budget"] is None and given["eps"] is None and not said:
        raise ArgumentError("solve: something must end the run", "neither --budget nor --eps", "Pass --budget or --eps")


def _rules(given: dict[str, Any]) -> bool:
    return any(given[name] is not None for name in ("steps", "target", "wall_time"))


def engine_for(given: dict[str, Any]) -> AbstractContextManager[Engine | None]:
    """The engine that was asked for, to be closed afterwards; None if none was."""
    if given["engine"] is None:
        if given["workers"] is not None:
            from dualanchor.core.errors import ArgumentError

            raise ArgumentError("--workers is for an engine", given["workers"], "Add --engine local")
        return nullcontext()
    from dualanchor.engines import make

    return make(given["engine"], workers=given["workers"])


def tells(engine: Engine | None) -> bool:
    """Whether this process prints and writes: under MPI rank 0 alone."""
    return not getattr(engine, "rank", 0)


def front_door(problem: Problem, given: dict[str, Any], progress: Any, engine: Engine | None = None) -> Result:
    """Solve the problem as `dualanchor.root` does."""
    from dataclasses import replace

    import numpy as np

    from dualanchor.core.result import jsonable
    from dualanchor.core.streams import Purpose, Streams
    from dualanchor.front import root

    oracle, x0, _ = problem.instance(Streams(given["seed"], np.arange(1), Purpose.INSTANCE))
    known = problem.constants
    constants: dict[str, Any] = {name: getattr(known, name) for name in ("L", "M", "mu", "sigma", "D")}
    asked = {name: given[name] for name in ("eps", "budget", "seed", "reps", "checkpoint")}
    result = root(oracle, x0[0], progress=progress, engine=engine, **constants, **asked)
    return replace(result, problem=jsonable(problem.describe()))


def plan_for(problem: Problem, eps: float, method: str | None, budget: int | None, parameters: Any) -> Plan:
    """The plan of an accuracy for a problem, from its declared constants."""
    from dualanchor.advise.plan import plan
    from dualanchor.core.errors import ArgumentError

    plans = (None, "dual-ohm", "restarted-dual-ohm", "s-dual-ohm")
    if budget is not None or parameters:
        received = "--budget" if budget is not None else "-p"
        raise ArgumentError("--eps plans everything itself", received, "Leave it out, or leave --eps out")
    if method not in plans:
        known = ", ".join(name for name in plans if name)
        raise ArgumentError(f"--eps plans {known}", repr(method), "Leave --method out, or give a --budget")
    constants = problem.constants
    missing = [name for name in ("L", "D", "sigma") if getattr(constants, name) is None]
    if missing:
        raise ArgumentError(
            "--eps is planned from L, D and sigma",
            f"{problem.name} without {', '.join(missing)}",
            "Declare them in Constants(...), or leave --method out, which needs less",
        )
    batches = "constant" if method == "s-dual-ohm" else "tapered"
    return plan(eps=eps, L=constants.L, D=constants.D, sigma=constants.sigma, mu=constants.mu, batches=batches)


def _from_file(path: Path, name: str) -> Any:
    import importlib.util

    from dualanchor.core.errors import ArgumentError, unknown_name

    if not path.is_file():
        raise ArgumentError("A problem's file must exist", str(path), "Check the path")
    module_spec = importlib.util.spec_from_file_location(f"_problem_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    # Known by name while it runs, as dataclasses need, but not afterwards: so it travels to other processes by value.
    sys.path.insert(0, str(path.absolute().parent))
    sys.modules[module_spec.name] = module
    try:
        module_spec.loader.exec_module(module)
    finally:
        del sys.modules[module_spec.name]
    if not hasattr(module, name):
        raise unknown_name(f"{path}: name", name, _problems_in(module))
    return getattr(module, name)


def _problems_in(module: Any) -> list[str]:
    """What a file calls its Problems and the functions that may make one; all its names if there are none."""
    from dualanchor.core.problem import Problem

    names = {key: value for key, value in vars(module).items() if not key.startswith("_")}

    def fits(value: Any) -> bool:
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        return isinstance(value, Problem) or (own and not _is_sampler(value))

    return [key for key, value in names.items() if fits(value)] or list(names)


def require_folder(path: Path | None) -> None:
    """Raise unless a file could be written there: its folder must exist."""
    from dualanchor.core.errors import ArgumentError

    if path is not None and not path.absolute().parent.is_dir():
        raise ArgumentError("A file is written into a folder that exists", str(path), "Create the folder first")


class _BadInputError(click.ClickException):
    exit_code = 2


def named_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the library's errors into a message and exit code 2; bugs keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        from dualanchor.core.errors import AssumptionWarning, DualAnchorError

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AssumptionWarning)  # results and reports show what it says
                return command(*args, **kwargs)
        except (DualAnchorError, OSError) as error:
            raise _BadInputError(_said(error)) from error

    return wrapped


_OPTIONS = {
    "pass check=False": "add --no-check",
    "Pass budget=... or stop=Steps(k)": "Pass --budget or --steps",
    "Use Budget, Steps or WallTime": "Use --budget, --steps or --wall-time",
}
"""Advice of the library for which the command line has words of its own."""


def _in_options(message: str) -> str:
    for words, option in _OPTIONS.items():
        message = message.replace(words, option)
    return message


def _said(error: Exception) -> str:
    """The message of an error; of one that a user's function raised, with the line, since no traceback is shown."""
    from dualanchor.core.errors import DualAnchorError, OracleError, explain

    cause = error.__cause__
    while cause is not None and isinstance(cause, DualAnchorError):
        cause = cause.__cause__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: {error.filename}"
    if not isinstance(error, OracleError) or cause is None:
        return _in_options(str(error))
    rule, received, _ = error.parts
    frames = traceback.extract_tb(cause.__traceback__)
    return explain(rule, received, f"Mend {frames[-1].filename}, line {frames[-1].lineno}" if frames else "Mend it")
