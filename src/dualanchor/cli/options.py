"""Options shared by several commands, and values parsed from the command line; nothing is evaluated as code."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
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


class _Count(click.types.IntParamType):
    """A whole number, also in scientific notation, such as 5e3."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = parse_value(value) if isinstance(value, str) else value
        return super().convert(int(number) if isinstance(number, float) and number.is_integer() else value, param, ctx)


ASSIGNMENT, COUNT = _Assignment(), _Count()


def parse_value(text: str) -> Any:
    """An int, a float, a list of numbers, true, false, none, a schedule or an estimator; else the text itself."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
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


def json_option(what: str = "one JSON object") -> Callable[[F], F]:
    """`--json`, passed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} and nothing else.")


def seed_option(purpose: str = "Where all randomness comes from.") -> Callable[[F], F]:
    """`--seed`, 0 by default."""
    return click.option("-s", "--seed", type=int, default=0, show_default=True, help=purpose)


def problem_options(command: F) -> F:
    """The argument PROBLEM and its options `-o`."""
    text = "An option of the problem: -o sigma=1.5."
    command = click.option("-o", "options", type=ASSIGNMENT, multiple=True, help=text)(command)
    return click.argument("problem")(command)


def study_options(out: str, tune_seeds: str) -> Callable[[F], F]:
    """The options that `reproduce` and `compare` share."""
    seeds = click.Choice(["same", "disjoint"])
    options = (
        click.option("--out", type=PATH, default=Path(out), show_default=True, help="Where to write."),
        click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one per core]"),
        click.option("--fresh", is_flag=True, help="Compute finished pieces again."),
        click.option("--tune-seeds", type=seeds, default=tune_seeds, show_default=True, help="On which seeds to tune."),
        json_option("results.json"),
    )
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)
