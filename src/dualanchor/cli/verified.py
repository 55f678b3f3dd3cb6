"""What `dualanchor verify` prints: a table of checks, a table of exponents, and how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from dualanchor.cli.output import _console, _table
from dualanchor.core.errors import install_command
from dualanchor.paper.verify import HOLDS, Check, worst_case
from dualanchor.theory.bounds import OURS, PAPER

if TYPE_CHECKING:
    from dualanchor.paper.verify.complexity import Curve, Fit

HEADINGS = ("statement", "kind", "on", "measured", "bound", "ratio", "verdict")
_TITLES = {PAPER: "The paper", OURS: "Not in the paper"}


def print_checks(checks: Sequence[Check], whole: bool) -> None:
    """The checks, the paper's first, and how many there were; `whole` if nothing was left out on purpose."""
    console = _console()
    for source, title in _TITLES.items():
        if rows := [check for check in checks if check.source == source]:
            console.print(f"\n[bold]{title}[/bold]")
            console.print(_check_table(rows))
    holding = sum(check.verdict == HOLDS for check in checks)
    statements = len({check.id for check in checks})
    click.echo(f"\n{holding} of {len(checks)} checks of {statements} statements hold.")
    if any(check.ratio > 1 and check.verdict == HOLDS for check in checks):
        click.echo("A ratio above 1 that holds is chance: means are judged to within 4.75 standard errors.")
    if whole and not worst_case.installed():
        click.echo(f"Worst cases over all operators were left out: they need {install_command('pep')}.")


def _check_table(checks: Sequence[Check]) -> Any:
    from rich.markup import escape

    table = _table(show_header=True)
    for heading in HEADINGS:
        right = heading in ("measured", "bound", "ratio")
        table.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
    before = ""
    for check in checks:
        table.add_row(
            escape(check.statement if check.statement != before else ""),
            check.kind,
            escape(check.operator),
            number(check.measured),
            number(check.bound),
            share(check.ratio),
            check.verdict if check.verdict == HOLDS else f"[bold red]{check.verdict}[/bold red]",
        )
        before = check.statement
    return table


def print_curves(curves: Sequence[Curve]) -> None:
    """Exponents, planned and measured."""
    from rich.markup import escape

    table = _table(show_header=True)
    for heading in ("operator", "method", "by", "claimed", "planned", "measured", "without logarithms", "verdict"):
        table.add_column(heading, overflow="fold")
    before = ""
    for curve in curves:
        table.add_row(
            escape(curve.operator if curve.operator != before else ""),
            escape(curve.method),
            curve.source,
            f"{curve.claim:g}",
            f"{curve.planned.exponent:.2f}",
            _interval(curve.measured),
            _interval(curve.without_logarithms),
            curve.verdict if curve.verdict == HOLDS else f"[bold red]{curve.verdict}[/bold red]",
        )
        before = curve.operator
    _console().print("\n[bold]Exponent of samples in one over the accuracy, with 95 % intervals[/bold]")
    _console().print(table)


def _interval(fit: Fit) -> str:
    return f"{fit.exponent:.2f} ({fit.low:.2f} to {fit.high:.2f})"


def number(value: float) -> str:
    """Four digits, or one where there is nothing but rounding."""
    return f"{value:.0e}" if 0 < abs(value) < 1e-9 else f"{value:.4g}"


def share(value: float) -> str:
    """A ratio to three decimals; a dash where there is none."""
    return "-" if np.isnan(value) else f"{value:.3f}"


@contextmanager
def steps(quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """A callback for (done, total, what) that shows a bar on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)
