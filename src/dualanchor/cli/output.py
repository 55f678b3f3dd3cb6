"""What the commands print: tables for people, one JSON value for programs."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from dualanchor.core.errors import ArgumentError, missing_extra
from dualanchor.core.problem import Problem
from dualanchor.core.registry import Entry
from dualanchor.core.result import Result, Status, to_json
from dualanchor.run.told import Progress
from dualanchor.studies.study import Study

if TYPE_CHECKING:
    from rich.table import Table

MOST_NUMBERS = 1000
"""Points with more numbers than this are not printed; --save keeps them."""


def print_json(value: Any) -> None:
    """One JSON value on standard output; non-finite numbers are null."""
    click.echo(to_json(value, indent=2))


# -- solve -------------------------------------------------------------------------------------------------------


def status_names(result: Result) -> list[str]:
    """The status of each replication."""
    return [status.name for status in np.atleast_1d(result.status).ravel()]


def solve_summary(result: Result, budget: int | None) -> dict[str, Any]:
    """What `dualanchor solve --json` prints."""
    statuses = status_names(result)
    final: dict[str, Any] | None = None
    if result.residual is not None:
        values = np.atleast_1d(result.residual)
        finite = bool(np.isfinite(values).all())
        final = {
            "mean": values.mean(),
            "rms": np.sqrt(np.mean(values**2)) if finite else np.inf,
            "p5": np.percentile(values, 5) if finite else np.inf,
            "p95": np.percentile(values, 95) if finite else np.inf,
            "per_rep": values,
        }
    return {
        "problem": result.problem["name"],
        "options": {name: value for name, value in result.problem.items() if name != "name"},
        "method": result.method["id"],
        "params": result.method["parameters"],
        "budget": budget,
        "seed": result.seed,
        "nit": int(np.max(result.nit)),
        "nfev": int(np.max(result.nfev)),
        "draws": int(np.max(result.draws)),
        "status": statuses[0] if len(set(statuses)) == 1 else "mixed",
        "message": result.message,
        "success": bool(np.all(result.success)),
        "nfev_per_rep": np.atleast_1d(result.nfev),
        "draws_per_rep": np.atleast_1d(result.draws),
        "status_per_rep": statuses,
        "residual_kind": result.residual_kind,
        "final": final,
        "x": result.x if result.x.size <= MOST_NUMBERS else None,
        "notes": list(result.notes),
        "plan": None if result.plan is None else result.plan.to_dict(),
        "certificate": None if result.certificate is None else result.certificate.to_dict(),
        "why": result.why,
        "claim": result.sense,
        "warnings": list(result.warnings),
    }


def print_result(result: Result, problem: Problem, budget: int | None) -> None:
    """A readable summary of a run."""
    summary = solve_summary(result, budget)
    parameters = ", ".join(f"{name}={_short(value)}" for name, value in summary["params"].items() if value is not None)
    known = {name: value for name, value in dataclasses.asdict(problem.constants).items() if value is not None}
    lines = {
        "problem": f"{summary['problem']}, d = {problem.dimension}",
        "constants": ", ".join(f"{name} = {value:.4g}" for name, value in known.items()) or "none declared",
        "method": f"{summary['method']} ({parameters})",
        "status": summary["message"],
        "steps": f"{summary['nit']:,}",
        "evaluations": f"{summary['nfev']:,}" + (f" of {budget:,}" if budget else ""),
        "samples": f"{summary['draws']:,}",
    }
    if result.plan is not None:
        lines["plan"] = f"{result.plan.theorem}: root mean square residual <= {result.plan.bound:.4g}"
    if (first := _first_residual(result)) is not None:
        lines["residual at start"] = first
    if summary["final"] is None:
        lines["residual"] = "not known: the operator can only be sampled"
    elif len(summary["status_per_rep"]) == 1:
        lines["residual"] = _short(summary["final"]["mean"])
    else:
        final = summary["final"]
        lines["residual"] = (
            f"mean {_short(final['mean'])}, 5% to 95%: {_short(final['p5'])} to {_short(final['p95'])}"
            f" over {len(final['per_rep'])} replications"
        )
    if not result.shape:
        with np.printoptions(precision=5, threshold=6, edgeitems=2):
            lines["x"] = str(result.x)
    if result.notes:
        lines["note"] = "; ".join(result.notes)
    from rich.markup import escape

    table = _table()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in lines.items():
        table.add_row(name, escape(text))
    _console().print(table)


def _first_residual(result: Result) -> str | None:
    history = result.history
    at_start = history.residual[history.k == 0] if history.residual.size else history.residual
    return f"{at_start.mean():.4g}" if at_start.size else None


def require_figure_format(path: Path) -> None:
    """Raise unless matplotlib is there and can write such a file."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise missing_extra("matplotlib", "plot", "--plot") from None
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise ArgumentError(
            "--plot needs a file name that ends in a figure format", str(path), "Use for example residual.png"
        )


def save_plot(result: Result, path: Path) -> None:
    """Write the figure of a result."""
    try:
        import matplotlib
    except ImportError:
        raise missing_extra("matplotlib", "plot", "--plot") from None
    matplotlib.use("Agg")
    from dualanchor.report.figures import plot_result

    plot_result(result).figure.savefig(path)


# -- methods, problems, studies -----------------------------------------------------------------------------------


def entry_summary(entries: list[Entry]) -> list[dict[str, Any]]:
    """Methods or problems for JSON: id, title and parameters with their defaults (null where required)."""
    return [{"id": entry.id, "title": entry.title, "parameters": _defaults(entry)} for entry in entries]


def print_entries(entries: list[Entry]) -> None:
    """Methods or problems, a line each."""
    table = _table(show_header=True)
    for heading in ("id", "what it is", "parameters"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        table.add_row(entry.id, entry.title, ", ".join(_defaults(entry)))
    _console().print(table)


def print_description(entry: Entry) -> None:
    """Everything about one method or problem."""
    click.echo(f"{entry.id}: {entry.title}\n")
    click.echo(inspect.getdoc(entry.cls))


def _defaults(entry: Entry) -> dict[str, Any]:
    return {
        field.name: None if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(entry.cls)
    }


def print_study(study: Study) -> None:
    """The tables of a study, the claims, and what else there is to say."""
    from rich.markup import escape

    console = _console()
    for panel in study.results["panels"].values():
        console.print(
            f"\n[bold]{escape(panel['title'])}[/bold]  budget {panel['budget']:,}, {len(study.results['seeds'])} seeds"
        )
        console.print(_panel_table(panel))
    if any(row.get("ours") for panel in study.results["panels"].values() for row in panel["methods"].values()):
        console.print("\n* this library's own, untuned; not in the paper")
    if claims := study.results["claims"]:
        table = _table(show_header=True)
        for heading in ("claim", "verdict", "evidence"):
            table.add_column(heading, overflow="fold")
        for claim in claims:
            table.add_row(claim["id"], claim["verdict"], escape(claim["evidence"]))
        console.print("\n[bold]What the paper says of its experiments[/bold]")
        console.print(table)
    for note in study.notes:
        console.print(f"Note: {escape(note)}")


def _panel_table(panel: dict[str, Any]) -> Table:
    from rich.markup import escape

    table = _table(show_header=True)
    table.add_column("method")
    table.add_column("selected", overflow="fold")
    for heading in ("mean residual", "5%", "95%"):
        table.add_column(heading, justify="right")
    ranked = sorted(panel["methods"].items(), key=lambda item: np.nan_to_num(item[1]["final"]["mean"], nan=np.inf))
    for method, row in ranked:
        selected = ", ".join(f"{key}={_short(value)}" for key, value in row["selected"].items())
        table.add_row(
            escape(method + "*" * bool(row.get("ours"))),
            escape(selected),
            *(_short(float(row["final"][key])) for key in ("mean", "p5", "p95")),
        )
    return table


# -- progress ----------------------------------------------------------------------------------------------------


@contextmanager
def progress(quiet: bool, word: str = "step") -> Iterator[Callable[[Progress], None] | None]:
    """A progress callback: a bar on a terminal, otherwise a line now and then; nothing before two seconds.

    `word` is what the result calls a step.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _bar(word)
    else:
        yield _lines(word)


def _bar(word: str) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("solving", total=1.0, text="", visible=False)

        def show(now: Progress) -> None:
            text = f"{word} {now.k:,}, {now.evals:,} evaluations, {now.active} of {now.rows} rows"
            bar.update(task, completed=now.fraction or 0.0, text=text, visible=now.elapsed > 2)

        yield show


def _lines(word: str) -> Callable[[Progress], None]:
    last = time.monotonic()

    def show(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last < (2 if now.elapsed < 10 else 10):
            return
        last = time.monotonic()
        click.echo(now.line(word), err=True)

    return show


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def _table(show_header: bool = False) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD if show_header else None, show_header=show_header, pad_edge=False)


def _short(value: Any) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return Status.DIVERGED.name.lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
