"""Progress of a study: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from dualanchor.studies.panel import Panel
from dualanchor.studies.study import Event

_SOON = 1.0  # seconds; a study from the store has ended by then and may have its figures


@contextmanager
def figures_soon() -> Iterator[None]:
    """Import what figures need meanwhile, unless that is over at once."""

    def prepare() -> None:
        from dualanchor.report import figures

        with suppress(ImportError):  # said when it comes to drawing
            figures.prepare()

    timer = threading.Timer(_SOON, prepare)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def going_on_later(folder: Path) -> Iterator[None]:
    """On Ctrl-C, say what is kept, if anything is, and nothing about joblib's threads, which are stopped for it."""
    before = threading.excepthook

    def note(problem: threading.ExceptHookArgs) -> None:
        if not type(problem.thread).__module__.startswith("joblib."):
            before(problem)

    threading.excepthook = note
    try:
        yield
    except KeyboardInterrupt:
        kept = f" Finished pieces are kept in {folder}: the same command goes on from there."
        click.echo("Interrupted." + (kept if any(folder.glob("*.npz")) else ""), err=True)
        raise SystemExit(130) from None
    finally:
        threading.excepthook = before


@contextmanager
def study_progress(panels: Sequence[Panel], quiet: bool) -> Iterator[Callable[[Event], None] | None]:
    """What to hand to a study as `progress`."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _table(panels)
    else:
        yield _lines()


def _table(panels: Sequence[Panel]) -> Iterator[Callable[[Event], None]]:
    from rich.console import Console
    from rich.live import Live

    board = _Board(panels)
    with Live(board.render(), console=Console(stderr=True), refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            board.note(event)
            live.update(board.render())

        yield show


class _Board:
    """Panels across, methods down; in each cell what is known so far."""

    def __init__(self, panels: Sequence[Panel]) -> None:
        self._panels = [panel.id for panel in panels]
        self._methods = list(dict.fromkeys(entry.id for panel in panels for entry in panel.entries))
        self._cells = {(panel.id, entry.id): "waiting" for panel in panels for entry in panel.entries}
        self._phase, self._foot, self._began = "", "starting", time.monotonic()

    def note(self, event: Event) -> None:
        if event.phase != self._phase:
            self._phase, self._began = event.phase, time.monotonic()
        best = "" if event.best is None else f" {event.best:.4g}"
        self._cells[event.panel, event.method] = (
            f"{event.part}/{event.parts}{best}" if event.phase == "tuning" else best
        )
        spent = time.monotonic() - self._began
        left = spent / event.done * (event.total - event.done)
        self._foot = f"{event.phase}: {event.done} of {event.total} pieces, about {left:.0f} s left"

    def render(self) -> Any:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, caption=self._foot, caption_justify="left")
        for heading in ("method", *self._panels):
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for method in self._methods:
            table.add_row(method, *(self._cells.get((panel, method), "") for panel in self._panels))
        return table


def _lines() -> Callable[[Event], None]:
    last = began = time.monotonic()

    def show(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < 2 and event.done < event.total:
            return
        if now - began < 1:
            return
        last = now
        count = f"{event.phase}: {event.done} of {event.total} pieces"
        click.echo(f"{count}, {now - began:.0f} s, last {event.panel} {event.method}", err=True)

    return show
