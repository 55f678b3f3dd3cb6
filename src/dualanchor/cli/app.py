"""The commands, and how errors become messages and exit codes. Heavy imports wait for the command, so help is quick."""

import dataclasses
import inspect
import traceback
import warnings
from importlib import import_module
from typing import Any

import click

from dualanchor._version import __version__
from dualanchor.cli.advise import calibrate, certify, plan
from dualanchor.cli.bench import bench
from dualanchor.cli.options import json_option
from dualanchor.cli.output import emit, print_table
from dualanchor.cli.solve import solve
from dualanchor.cli.studies import compare, report, reproduce
from dualanchor.cli.verify import verify
from dualanchor.core.errors import AssumptionWarning, DualAnchorError, OracleError, explain


class Commands(click.Group):
    """A group whose commands end with a message and exit code 2 on the library's errors; bugs keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AssumptionWarning)  # results and reports show what it says
                return super().invoke(ctx)
        except (DualAnchorError, OSError) as error:
            bad_input = click.ClickException(_message(error))
            bad_input.exit_code = 2  # type: ignore[misc]
            raise bad_input from error


def _message(error: Exception) -> str:
    """The message of an error; of one that a user's function raised, with the line, since no traceback is shown."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: {error.filename}"
    cause = error.__cause__
    while isinstance(cause, DualAnchorError):
        cause = cause.__cause__
    if not isinstance(error, OracleError) or cause is None:
        return str(error)
    rule, received, _ = error.parts
    frames = traceback.extract_tb(cause.__traceback__)
    return explain(rule, received, f"Fix {frames[-1].filename}, line {frames[-1].lineno}" if frames else "Fix it")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="dualanchor %(version)s")
def app() -> None:
    """Roots, fixed points and saddle points of operators that can only be sampled."""


def _listing(kind: str, text: str) -> None:
    @app.command(kind, help=text)
    @click.argument("name", required=False)
    @json_option("one JSON array")
    def listing(name: str | None, as_json: bool) -> None:
        registry = import_module(f"dualanchor.{kind}").registry
        if name is not None:
            registry.get(name)  # complains about an unknown one
        entries = [entry for entry in registry.entries() if name in (None, entry.id)]
        data = []
        for entry in entries:
            fields = dataclasses.fields(entry.cls)  # a parameter that is required has no default
            defaults = {one.name: None if one.default is dataclasses.MISSING else one.default for one in fields}
            data.append({"id": entry.id, "title": entry.title, "parameters": defaults})
        rows = [(one["id"], one["title"], ", ".join(one["parameters"])) for one in data]
        text = f"{entries[0].id}: {entries[0].title}\n\n{inspect.getdoc(entries[0].cls)}"
        heads = ("id", "what it is", "parameters")
        emit(as_json, data, lambda: print_table(heads, rows) if name is None else click.echo(text))


_listing("methods", "List the methods, or describe the one called NAME.")
_listing("problems", "List the named problems, or describe the one called NAME.")
for one in (bench, calibrate, certify, compare, plan, report, reproduce, solve, verify):
    app.add_command(one)
