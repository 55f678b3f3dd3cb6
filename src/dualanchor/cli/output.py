"""What commands print: tables or one JSON value on standard output, progress on standard error."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import click

Show: TypeAlias = Callable[[float, float | None, str], None]  # called with what is done, the total if known, a text
INTERRUPTED, NOT_READ = 130, 141  # exit codes as of shells: 128 plus the number of SIGINT, SIGPIPE
_INTERVAL = 2.0  # seconds before anything is shown, and between two lines of progress
_LATER_INTERVAL = 10.0  # between two lines after the first ten seconds


def emit(as_json: bool, value: Any, show: Callable[[], None]) -> None:
    """Print the value as JSON, with null for numbers that are not finite; or else call `show`."""
    from dualanchor.core.result import to_json

    if as_json:
        click.echo(to_json(value, indent=2))
    else:
        show()


@contextmanager
def user_code() -> Iterator[IO[str]]:
    """Send what user code prints, here or in its processes, to standard error; yields the real standard output."""
    out = sys.stdout
    try:
        number = out.fileno()
    except (OSError, ValueError):  # not a file of the operating system
        number = None
    if number is None:
        with redirect_stdout(sys.stderr):
            yield out
        return
    out.flush()
    real_output = os.dup(number)
    try:
        with suppress(OSError):  # no standard error
            os.dup2(2, number)
        with (
            open(real_output, "w", encoding=out.encoding, errors=out.errors, closefd=False) as file,
            redirect_stdout(sys.stderr),
        ):
            yield file
    finally:
        os.dup2(real_output, number)
        os.close(real_output)


def discard_output() -> None:
    """Drop what is still buffered for standard output, which nobody reads; flushing it at exit would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(heads: Sequence[str], rows: Iterable[Any], title: str = "", numbers: Sequence[str] = ()) -> None:
    """Print a table with a title; the columns named in `numbers` are aligned to the right and not wrapped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        right = head in numbers
        table.add_column(head, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    with console.capture() as text:  # on a closed pipe Rich would end the program
        if title:
            console.print(Text(f"\n{title}", style="bold"))
        console.print(table)
    click.echo(text.get(), nl=False)


def print_study(study: Any, page: Path) -> None:
    """Print the tables of a study, the claims, the notes, and the path of the report."""
    from dualanchor.core.result import jsonable
    from dualanchor.report import formats

    results = jsonable(study.results)
    numbers = ("mean residual", "5%", "95%")
    for panel in results["panels"].values():
        rows = []
        for method, row in formats.ranked(panel["methods"]):
            final = (formats.residual(row["final"][key]) for key in ("mean", "p5", "p95"))
            rows.append((method + "*" * bool(row.get("ours")), formats.parameters(row["selected"]), *final))
        title = f"{panel['title']}  budget {panel['budget']:,}, {len(results['seeds'])} seeds"
        print_table(("method", "selected", *numbers), rows, title, numbers)
    if any(row.get("ours") for panel in results["panels"].values() for row in panel["methods"].values()):
        click.echo("\n* this library's own, untuned; not in the paper")
    if claims := results["claims"]:
        rows = [(claim["id"], claim["verdict"], claim["evidence"]) for claim in claims]
        print_table(("claim", "verdict", "evidence"), rows, "What the paper says of its experiments")
    for note in study.notes:
        click.echo(f"Note: {note}")
    click.echo(f"\nReport: {page}")


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Show | None]:
    """A function that shows progress; None if quiet."""
    if quiet or not sys.stderr.isatty():
        yield None if quiet else lines(lambda text: click.echo(text, err=True))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, began = bar.add_task("", total=None, visible=False), time.monotonic()

        def show(done: float, total: float | None, text: str) -> None:
            visible = time.monotonic() - began > _INTERVAL
            bar.update(task, completed=done, total=total, description=text, visible=visible)

        yield show


def of_run(show: Show | None, unit: str = "step") -> Callable[[Any], None] | None:
    """The `progress` of a run; `unit` is what its result calls a step."""
    text = f"{unit} {{0.k:,}}, {{0.evals:,}} evaluations, {{0.active}} of {{0.rows}} rows"

    def end(now: Any) -> float | None:
        return None if now.fraction is None else 1.0  # at the beginning the fraction is 0.0

    return show and (lambda now: show(now.fraction or 0.0, end(now), text.format(now)))


def of_study(show: Show | None) -> Callable[[Any], None] | None:
    """The `progress` of a study."""

    def text(event: Any) -> str:
        best = "" if event.best is None else f", residual {event.best:.4g}"
        return f"{event.phase}: {event.done} of {event.total} pieces, last {event.panel} {event.method}{best}"

    return show and (lambda event: show(event.done, event.total, text(event)))


def lines(write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Show:
    """A function that writes a line of progress every two seconds, later every ten."""
    began = last = clock()

    def show(done: float, total: float | None, text: str) -> None:
        nonlocal last
        now = clock()
        if now - last >= (_INTERVAL if now - began < _LATER_INTERVAL else _LATER_INTERVAL):
            last = now
            write(f"{'' if total is None else f'{done / total:4.0%}, '}{text}, {now - began:.0f} s")

    return show
