"""The commands. Each imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dualanchor._version import __version__
from dualanchor.cli.arguments import (
    ASSIGNMENT,
    asks_for_little,
    engine_for,
    front_door,
    load_problem,
    named_errors,
    only_sampled,
    plan_for,
    require_end,
    require_folder,
    tells,
)
from dualanchor.cli.bench import bench
from dualanchor.cli.calibrate import calibrate
from dualanchor.cli.certify import certify
from dualanchor.cli.plan import plan
from dualanchor.cli.verify import verify

if TYPE_CHECKING:
    from dualanchor.core.problem import Problem
    from dualanchor.core.registry import Entry
    from dualanchor.core.result import Result
    from dualanchor.engines import Engine

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=SETTINGS)
@click.version_option(__version__, "-V", "--version", message="dualanchor %(version)s")
def app() -> None:
    """Roots, fixed points and saddle points of operators that can only be sampled."""


@app.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@named_errors
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or describe the one called NAME."""
    from dualanchor.methods import list_methods, registry

    if name is not None:
        registry.get(name)
    _show([entry for entry in list_methods() if name in (None, entry.id)], name, as_json)


@app.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@named_errors
def problems(name: str | None, as_json: bool) -> None:
    """List the named problems, or describe the one called NAME."""
    from dualanchor.problems import list_problems, registry

    if name is not None:
        registry.get(name)
    _show([entry for entry in list_problems() if name in (None, entry.id)], name, as_json)


@app.command()
@click.argument("problem")
@click.option(
    "-m",
    "--method",
    help="A name listed by `dualanchor methods`.  [default: s-dual-ohm; with --eps as planned; for what can only be "
    "sampled as dualanchor.root]",
)
@click.option("-b", "--budget", type=int, help="Operator evaluations per replication.")
@click.option("--eps", type=float, help="Or: the root mean square residual to reach, planned from the constants.")
@click.option("-p", "parameters", type=ASSIGNMENT, multiple=True, help="A hyper-parameter: -p batch_size=10.")
@click.option("-o", "options", type=ASSIGNMENT, multiple=True, help="An option of the problem: -o sigma=1.5.")
@click.option("-r", "--reps", type=int, default=1, show_default=True, help="Independent replications.")
@click.option("-s", "--seed", type=int, default=0, show_default=True, help="Where all randomness comes from.")
@click.option("--steps", type=int, help="Stop after so many steps.")
@click.option("--target", type=float, help="Stop when the true residual is at most this.")
@click.option("--wall-time", type=float, help="Stop after so many seconds.")
@click.option("--no-check", is_flag=True, help="Allow step sizes that the method's theorem does not admit.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Save here on the way, and go on from here.")
@click.option("--engine", type=click.Choice(["local", "mpi", "ray"]), help="Where batches of samples are computed.")
@click.option("--workers", type=click.IntRange(min=1), help="How many compute a batch; under mpi the number of ranks.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the result, with x, here (npz), for Result.load.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a figure of residual against samples here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@named_errors
def solve(problem: str, as_json: bool, save: Path | None, plot: Path | None, **given: Any) -> None:
    """Run a method on PROBLEM, a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.

    Step size and horizon default to the paper's choice for the problem and the budget. With --eps a plan is made from
    the problem's L, D, sigma and mu, and the run does what it says. A problem of yours that can only be sampled, or
    declares no L, is solved as by dualanchor.root, with a certificate, unless you name a method.

    \b
    Examples:
      dualanchor solve affine --eps 0.02 --reps 20
      dualanchor solve worst-case-nonexpansive --budget 2000 --reps 40
      dualanchor solve huber-minimax -o sigma=1.5 -m sgda -p step_size=0.05 --budget 10000 --json
      dualanchor solve affine -p "batch_size=Tapered(50)" --budget 5000 --plot residual.png
      mpiexec -n 4 dualanchor solve mine.py:problem --budget 100000 --engine mpi
    """
    from dualanchor.cli import output
    from dualanchor.core.errors import ArgumentError, DualAnchorError
    from dualanchor.run import Budget

    for path in (save, plot):
        require_folder(path)
    if plot is not None:
        output.require_figure_format(plot)
    chosen = load_problem(problem, dict(given["options"]))
    budget = given["budget"]
    if budget is not None:
        Budget(budget)  # complain about a bad budget before anything is made from it
    require_end(given)
    little = asks_for_little(chosen, given)
    if plot is not None and not little and only_sampled(chosen):
        raise ArgumentError(
            "--plot shows residuals, or a certificate",
            "a method for an operator that can only be sampled",
            "Leave --method and -p out, for a run with a certificate, or leave --plot out",
        )
    with engine_for(given) as engine:
        try:
            result = _solved(chosen, given, engine, little, quiet=as_json)
        except DualAnchorError:
            if not tells(engine):
                raise SystemExit(2) from None
            raise
    if not tells(engine):
        return
    if result.residual is None and not little:
        first = "" if save else "--save run.npz, then "
        bound = f"for a bound on the residual: {first}dualanchor certify {problem} --point {save or 'run.npz'} -n 4096"
        result = dataclasses.replace(result, notes=(*result.notes, bound))
    if as_json:
        output.print_json(output.solve_summary(result, budget))
    elif little:
        click.echo(repr(result))
    else:
        output.print_result(result, chosen, budget)
    _keep(result, save, plot)


def _solved(chosen: Problem, given: dict[str, Any], engine: Engine | None, little: bool, quiet: bool) -> Result:
    """What `solve` was asked to do; `little` where that is left to `root`."""
    from dualanchor import methods as registered
    from dualanchor.cli import output
    from dualanchor.run import Steps, Target, WallTime
    from dualanchor.run import solve as run

    quiet = quiet or not tells(engine)
    if little:
        with output.progress(quiet=quiet, word="round") as progress:
            return front_door(chosen, given, progress, engine)
    budget, plan = given["budget"], None
    if given["eps"] is not None:
        plan = plan_for(chosen, given["eps"], given["method"], budget, given["parameters"])
        method, given["steps"] = plan.method(), given["steps"] or max(1, plan.stop)
    else:
        method = registered.make(given["method"] or "s-dual-ohm", chosen, budget, dict(given["parameters"]))
    rules = {Steps: given["steps"], Target: given["target"], WallTime: given["wall_time"]}
    stop = None
    for rule, value in rules.items():
        if value is not None:
            stop = rule(value) if stop is None else stop | rule(value)
    with output.progress(quiet=quiet) as progress:
        result = run(
            chosen,
            method,
            budget=budget,
            stop=stop,
            seed=given["seed"],
            reps=given["reps"],
            check=not given["no_check"],
            checkpoint=given["checkpoint"],
            progress=progress,
            engine=engine,
        )
    return dataclasses.replace(result, plan=plan)


@app.command()
@click.argument("panels", nargs=-1)
@click.option("--seeds", type=int, help="Independent seeds.  [default: 10, or 3 with --quick]")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Where to write."
)
@click.option("--quick", is_flag=True, help="Three seeds and coarse grids.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("--fresh", is_flag=True, help="Compute finished pieces again.")
@click.option("--tune-seeds", type=click.Choice(["same", "disjoint"]), default="same", show_default=True)
@click.option("--readings", is_flag=True, help="Judge the claims under every reading of the paper's open details.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json and nothing else.")
@named_errors
def reproduce(panels: tuple[str, ...], out: Path, as_json: bool, **settings: Any) -> None:
    r"""Run the paper's experiments and write tables, figures and report.html.

    PANELS are exp1, exp2, exp3-low, exp3-high, appendix (these four with S-Dual-OHM and S-OHM only), or your own panel
    files (name.toml); the four if none is named. Finished pieces are kept, so an interrupted run goes on.
    """
    _one_thread()
    from dualanchor.cli.live import figures_soon, going_on_later, study_progress
    from dualanchor.paper.reproduce import Settings, panels_for
    from dualanchor.paper.reproduce import reproduce as run

    chosen = panels_for(panels, settings["quick"])
    with going_on_later(out / "store"), figures_soon(), study_progress(chosen, quiet=as_json) as progress:
        study = run(chosen, out, Settings(**settings), progress)
    _finish(study, out, as_json, settings["jobs"])


@app.command()
@click.argument("problem")
@click.option("-b", "--budget", type=int, required=True, help="Operator evaluations of each run.")
@click.option("--methods", help="Names, separated by commas.  [default: all that can run on the problem]")
@click.option("-o", "options", type=ASSIGNMENT, multiple=True, help="An option of the problem: -o sigma=1.5.")
@click.option("--seeds", type=int, default=10, show_default=True, help="Seeds that are reported.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("comparison"), show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("--fresh", is_flag=True, help="Compute finished pieces again.")
@click.option("--tune-seeds", type=click.Choice(["same", "disjoint"]), default="disjoint", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print results.json and nothing else.")
@named_errors
def compare(problem: str, options: Any, methods: str | None, out: Path, as_json: bool, **settings: Any) -> None:
    """Compare methods on PROBLEM, tuned fairly under one budget, and write the same tables and report as reproduce.

    PROBLEM is a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.
    """
    _one_thread()
    from dualanchor.cli.live import figures_soon, going_on_later, study_progress
    from dualanchor.studies.compare import compare as run

    chosen = load_problem(problem, dict(options))
    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    with going_on_later(out / "store"), figures_soon(), study_progress([], quiet=as_json) as progress:
        comparison = run(chosen, names, folder=out / "store", progress=progress, **settings)
    _finish(comparison.study, out, as_json, settings["jobs"])


@app.command()
@click.argument("folder", type=click.Path(path_type=Path))
@named_errors
def report(folder: Path) -> None:
    """Write figures and report.html anew from results.json and curves.csv in FOLDER."""
    from dualanchor.report.load import load_study
    from dualanchor.report.write import write_report

    click.echo(write_report(load_study(folder), folder))


def _one_thread() -> None:
    """One BLAS thread here as in workers, before NumPy is imported: sums come out the same whatever --jobs says."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def _keep(result: Any, save: Path | None, plot: Path | None) -> None:
    """Write what was asked for; an interrupted run has an exit code of its own."""
    from dualanchor.cli import output

    if save is not None:
        result.save(save)
    if plot is not None:
        output.save_plot(result, plot)
    if "INTERRUPTED" in output.status_names(result):
        raise SystemExit(130)


def _finish(study: Any, out: Path, as_json: bool, jobs: int | None) -> None:
    """Write everything, and print the tables or the results."""
    from dualanchor.cli import output
    from dualanchor.report.write import write_report

    page = write_report(study, out, anew=False, jobs=jobs or os.cpu_count() or 1)
    if as_json:
        output.print_json(study.results)
    else:
        output.print_study(study)
        click.echo(f"\nReport: {page}")


def _show(entries: list[Entry], name: str | None, as_json: bool) -> None:
    from dualanchor.cli import output

    if as_json:
        output.print_json(output.entry_summary(entries))
    elif name is None:
        output.print_entries(entries)
    else:
        output.print_description(entries[0])


app.add_command(bench)
app.add_command(calibrate)
app.add_command(certify)
app.add_command(plan)
app.add_command(verify)
