"""The commands, and how errors become messages and exit codes. Each command does its own imports: help is quick."""

import dataclasses
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from dualanchor._version import __version__
from dualanchor.cli.advise import calibrate, certify, plan
from dualanchor.cli.bench import bench
from dualanchor.cli.options import json_option
from dualanchor.cli.output import INTERRUPTED, NOT_READ, discard_output, emit, print_table
from dualanchor.cli.solve import solve
from dualanchor.cli.studies import compare, report, reproduce
from dualanchor.cli.user_code import USER_FILE, in_words, last_line
from dualanchor.cli.verify import verify
from dualanchor.core.errors import AssumptionWarning, DualAnchorError, OracleError, explain


class Commands(click.Group):
    """A group whose commands end with a message and exit code 2 on the library's errors and on those of user code.

    Bugs of ours keep their traceback.
    """

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _ending({}):
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        # Results and reports show what the warnings say.
        with _ending(ctx.meta), warnings.catch_warnings(action="ignore", category=AssumptionWarning):
            return super().invoke(ctx)


@contextmanager
def _ending(meta: dict[str, Any]) -> Iterator[None]:
    """Turn errors into messages and exit codes."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit(NOT_READ) from None
    except (click.ClickException, click.exceptions.Exit):
        raise
    except (Exception, SystemExit) as error:
        if (message := _message(error, meta.get(USER_FILE))) is None:
            raise
        if isinstance(error, OSError):
            discard_output()  # it may be what could not be written
        bad_input = click.ClickException(message)
        bad_input.exit_code = 2  # type: ignore[misc]
        raise bad_input from error


def _message(error: BaseException, file: Path | None) -> str | None:
    """The message instead of a traceback, with the line if it is in the user's file; None for a bug of ours."""
    line = None if file is None else last_line(error, file.parent)
    if isinstance(error, OracleError) and error.__cause__ is not None:
        rule, received, _ = error.parts
        return explain(rule, received, f"Fix {line or last_line(error) or 'it'}")
    if isinstance(error, DualAnchorError):
        return f"{error} ({line})" if line and line not in str(error) else str(error)
    if line is not None or isinstance(error, SystemExit):  # commands themselves end by click's Exit
        return explain("Your code must run without an error", in_words(error), f"Fix {line or 'it'}")
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}" if error.filename is not None and error.strerror else str(error)
    if isinstance(error, MemoryError):
        return explain("A run must fit into memory", in_words(error), "Use fewer replications or unknowns")
    return None


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
            registry.get(name)  # raises if it is unknown
        entries = [entry for entry in registry.entries() if name in (None, entry.id)]
        data = []
        for entry in entries:
            fields = dataclasses.fields(entry.cls)  # a parameter that is required has no default
            defaults = {field.name: None if field.default is dataclasses.MISSING else field.default for field in fields}
            data.append({"id": entry.id, "title": entry.title, "parameters": defaults})
        rows = [(entry["id"], entry["title"], ", ".join(entry["parameters"])) for entry in data]
        text = f"{entries[0].id}: {entries[0].title}\n\n{inspect.getdoc(entries[0].cls)}"
        heads = ("id", "what it is", "parameters")
        emit(as_json, data, lambda: print_table(heads, rows) if name is None else click.echo(text))


_listing("methods", "List the methods, or describe the one called NAME.")
_listing("problems", "List the named problems, or describe the one called NAME.")
for command in (bench, calibrate, certify, compare, plan, report, reproduce, solve, verify):
    app.add_command(command)
