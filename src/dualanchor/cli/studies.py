"""`dualanchor reproduce`, `compare` and `report`."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from dualanchor.cli.options import COUNT, PATH, problem_options, study_options
from dualanchor.cli.output import emit, of_study, print_study, progress_bar, user_code
from dualanchor.cli.user_code import load_problem


@click.command()
@click.argument("panels", nargs=-1)
@click.option("--seeds", type=int, help="Independent seeds.  [default: 10, or 3 with --quick]")
@click.option("--quick", is_flag=True, help="Three seeds and coarse grids.")
@click.option("--readings", is_flag=True, help="Judge the claims under every reading of the paper's open details.")
@study_options(out="results", tune_seeds="same")
def reproduce(
    panels: tuple[str, ...], quick: bool, readings: bool, tune_seeds: str, out: Path, as_json: bool, **settings: Any
) -> None:
    """Run the paper's experiments and write tables, figures and report.html.

    PANELS are exp1, exp2, exp3-low, exp3-high, appendix (these four with S-Dual-OHM and S-OHM only), or your own panel
    files (name.toml); the four if none is named. Finished pieces are stored, so an interrupted run goes on.
    """
    _one_thread()
    from dualanchor.paper.claims import judge
    from dualanchor.paper.panels import panels_for
    from dualanchor.paper.readings import with_readings
    from dualanchor.studies.study import run_study

    chosen = panels_for(panels, quick)
    if settings["seeds"] is None:
        settings["seeds"] = 3 if quick else 10
    with _interruptible(out / "store"), progress_bar(quiet=as_json) as show:
        run: Any = partial(run_study, folder=out / "store", progress=of_study(show), **settings)
        study = run(chosen, tune_seeds=tune_seeds)
        if quick:
            few = "--quick has few seeds and leaves out values of the grids"
            study.notes.append(f"The paper's claims are not judged: {few}.")
        else:
            study.results["claims"] = with_readings(study, run) if readings else judge(study)
    _finish(study, out, as_json)


@click.command()
@problem_options
@click.option("-b", "--budget", type=COUNT, required=True, help="Operator evaluations of each run.")
@click.option("--methods", help="Names, separated by commas.  [default: all that can run on the problem]")
@click.option("--seeds", type=int, default=10, show_default=True, help="Seeds that are reported.")
@study_options(out="comparison", tune_seeds="disjoint")
def compare(problem: str, options: Any, methods: str | None, out: Path, as_json: bool, **settings: Any) -> None:
    """Compare methods on PROBLEM, tuned fairly under one budget, and write the same tables and report as reproduce.

    PROBLEM is a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.
    """
    _one_thread()
    from dualanchor.studies.compare import compare as run

    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    with _interruptible(out / "store"), progress_bar(quiet=as_json) as show, user_code():
        chosen = load_problem(problem, dict(options))
        comparison = run(chosen, names, folder=out / "store", progress=of_study(show), **settings)
    _finish(comparison.study, out, as_json)


@click.command()
@click.argument("folder", type=PATH)
def report(folder: Path) -> None:
    """Write figures and report.html again from results.json and curves.csv in FOLDER."""
    from dualanchor.report import load_study, write_report

    click.echo(write_report(load_study(folder), folder))


def _one_thread() -> None:
    """Use one BLAS thread here as in workers, before NumPy is imported, so that sums do not depend on --jobs."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """On Ctrl-C, say where finished pieces are; errors in the pool's threads are then not shown."""
    before, failures = threading.excepthook, list[threading.ExceptHookArgs]()
    threading.excepthook = failures.append
    try:
        yield
    except KeyboardInterrupt:
        failures.clear()
        if any(folder.glob("*.npz")):
            click.echo(f"Finished pieces are in {folder}: the same command goes on from there.", err=True)
        raise
    finally:
        threading.excepthook = before
        for failure in failures:
            before(failure)


def _finish(study: Any, out: Path, as_json: bool) -> None:
    from dualanchor.report import write_report

    page = write_report(study, out)
    emit(as_json, study.results, lambda: print_study(study, page))
