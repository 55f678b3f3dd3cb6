"""`dualanchor solve`."""

from __future__ import annotations

import dataclasses
import operator
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from dualanchor.cli.options import ASSIGNMENT, COUNT, PATH, json_option, problem_options, seed_option
from dualanchor.cli.output import INTERRUPTED, emit, of_run, progress_bar, user_code
from dualanchor.cli.user_code import load_problem
from dualanchor.core.errors import ArgumentError, DualAnchorError, optional_module

if TYPE_CHECKING:
    from dualanchor.core.problem import Problem
    from dualanchor.core.result import Result

MAX_PRINTED = 1000  # numbers; a larger x is not printed as JSON but only written by --save
_PLANNED = ("dual-ohm", "restarted-dual-ohm", "s-dual-ohm")


@click.command()
@problem_options
@click.option("-m", "--method", help="A name listed by `dualanchor methods`.  [default: see above]")
@click.option("-b", "--budget", type=COUNT, help="Operator evaluations per replication.")
@click.option(
    "--eps", type=float, help="Or: the residual to reach, planned from the constants or confirmed by a certificate."
)
@click.option("-p", "parameters", type=ASSIGNMENT, multiple=True, help="A hyper-parameter: -p batch_size=10.")
@click.option("-r", "--reps", type=int, default=1, show_default=True, help="Independent replications.")
@seed_option()
@click.option("--steps", type=int, help="Stop after this number of steps.")
@click.option("--target", type=float, help="Stop when the true residual is at most this.")
@click.option("--wall-time", type=float, help="Stop after this number of seconds.")
@click.option("--no-check", is_flag=True, help="Allow step sizes that the method's theorem does not admit.")
@click.option("--checkpoint", type=PATH, help="Save here during the run, and resume from here.")
@click.option("--engine", type=click.Choice(["local", "mpi", "ray"]), help="Where batches of samples are computed.")
@click.option("--workers", type=click.IntRange(min=1), help="How many compute a batch; under mpi the number of ranks.")
@click.option("--save", type=PATH, help="Write the result, with x, here (npz), for Result.load.")
@click.option("--plot", type=PATH, help="Write a figure of residual against samples here.")
@json_option()
def solve(problem: str, options: Any, as_json: bool, save: Path | None, plot: Path | None, **given: Any) -> None:
    """Run a method on PROBLEM, a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.

    The default is s-dual-ohm, with the paper's step size and horizon for the problem and the budget. With --eps a plan
    is made from the problem's L, D, sigma and mu, and the run does what it says. A problem that can only be sampled, or
    does not declare L (with --eps: L, D and sigma), is solved as by dualanchor.root, with a certificate, unless you
    name a method.

    \b
    Examples:
      dualanchor solve affine --eps 0.02 --reps 20
      dualanchor solve worst-case-nonexpansive --budget 2000 --reps 40
      dualanchor solve huber-minimax -o sigma=1.5 -m sgda -p step_size=0.05 --budget 10000 --json
      dualanchor solve affine -p "batch_size=Tapered(50)" --budget 5000 --plot residual.png
      mpiexec -n 4 dualanchor solve mine.py:problem --budget 100000 --engine mpi
    """
    from dualanchor.core.files import destination, replacing
    from dualanchor.engines import make

    for path in (save, plot):
        if path is not None:
            destination(path)  # raises before the run if nothing can be written there
    if plot is not None:
        figure = optional_module("matplotlib.figure", "plot", "--plot").Figure(figsize=(6.4, 4.0), layout="constrained")
        if plot.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
            rule = "--plot needs a file name that ends in a figure format"
            raise ArgumentError(rule, str(plot), "Use for example residual.png")
    with user_code() as out:
        chosen = load_problem(problem, dict(options))
        run = _root if _is_for_root(chosen, given, plot) else _run
        if given["engine"] is None and given["workers"] is not None:
            raise ArgumentError("--workers is for an engine", given["workers"], "Add --engine local")
        with make(given["engine"], workers=given["workers"]) if given["engine"] else nullcontext() as engine:
            prints = not getattr(engine, "rank", 0)  # under MPI only rank 0 prints
            try:
                result = run(chosen, given, engine, None if as_json or not prints else out)
            except DualAnchorError:
                if prints:
                    raise
                raise click.exceptions.Exit(2) from None
    if not prints:
        return
    hint = None
    if result.residual is None and result.certificate is None:
        first = "" if save else "--save run.npz, then "
        hint = f"for a bound on the residual: {first}dualanchor certify {problem} --point {save or 'run.npz'} -n 4096"
    facts = {**summary(result, given["budget"]), "hint": hint}
    try:
        emit(as_json, facts, lambda: click.echo(f"{result!r}\n{hint}" if hint else repr(result)))
    finally:  # also if printing fails, as into a closed pipe
        if save is not None:
            result.save(save)
        if plot is not None:
            result.plot(figure.subplots())
            with replacing(plot) as file:
                figure.savefig(file, format=plot.suffix[1:].lower())
    if "INTERRUPTED" in facts["status_per_rep"]:
        raise click.exceptions.Exit(INTERRUPTED)


def summary(result: Result, budget: int | None) -> dict[str, Any]:
    """What `dualanchor solve --json` prints."""
    import numpy as np

    statuses = [status.name for status in np.atleast_1d(result.status).ravel()]
    final = None
    if result.residual is not None:
        values = np.atleast_1d(result.residual)
        low, high = np.percentile(values, [5, 95]) if np.isfinite(values).all() else (np.inf, np.inf)
        final = {"mean": values.mean(), "rms": np.sqrt(np.mean(values**2)), "p5": low, "p95": high, "per_rep": values}
    return {
        "problem": result.problem["name"],
        "options": {name: value for name, value in result.problem.items() if name != "name"},
        "method": result.method["id"],
        "params": result.method["parameters"],
        "budget": budget,
        "seed": result.seed,
        **{name: int(np.max(getattr(result, name))) for name in ("nit", "nfev", "draws")},
        "status": statuses[0] if len(set(statuses)) == 1 else "mixed",
        "message": result.message,
        "success": bool(np.all(result.success)),
        **{f"{name}_per_rep": np.atleast_1d(getattr(result, name)) for name in ("nfev", "draws")},
        "status_per_rep": statuses,
        "residual_kind": result.residual_kind,
        "final": final,
        "x": result.x if result.x.size <= MAX_PRINTED else None,
        **{name: (one := getattr(result, name)) and one.to_dict() for name in ("plan", "certificate", "claim")},
        "findings": [finding.to_dict() for finding in result.findings],
    }


def _is_for_root(problem: Problem, given: dict[str, Any], plot: Path | None) -> bool:
    """Whether `root` solves the problem: no method or rule is given, and s-dual-ohm would lack constants or residuals.

    Raises if nothing ends the run.
    """
    from dualanchor.run import Budget

    rules = any(given[name] is not None for name in ("steps", "target", "wall_time"))
    if given["budget"] is not None:
        Budget(given["budget"])  # raises if it is not a budget
    elif given["eps"] is None and not rules and "horizon" not in dict(given["parameters"]):
        rule = "solve: a budget, an accuracy, a rule or a horizon must end the run"
        raise ArgumentError(rule, "neither --budget nor --eps", "Pass --budget, --eps or --steps, or -p horizon=100")
    only_sampled, known = not _instance(problem).oracle.knows_operator, problem.constants
    lacking = known.L is None or (given["eps"] is not None and None in (known.D, known.sigma))
    specific = given["method"] not in (None, "auto") or given["parameters"] or rules
    for_root = (lacking or only_sampled) and not specific
    if only_sampled and not for_root and (plot is not None or given["target"] is not None):
        remedy = "Use --budget, --steps or --wall-time; without --method and -p there is a certificate to plot"
        rule, received = "--plot and --target need residuals", "a method for an operator that can only be sampled"
        raise ArgumentError(rule, received, remedy)
    return for_root


def _root(problem: Problem, given: dict[str, Any], engine: Any, out: IO[str] | None) -> Result:
    from dualanchor.core.result import jsonable
    from dualanchor.front import root

    instance = _instance(problem, given["seed"])
    known: dict[str, Any] = {name: getattr(problem.constants, name) for name in ("L", "M", "mu", "sigma", "D")}
    known |= {name: given[name] for name in ("eps", "budget", "seed", "reps", "checkpoint")}
    with progress_bar(quiet=out is None) as show:
        result = root(instance.oracle, instance.x0[0], progress=of_run(show, "round"), engine=engine, **known)
    return dataclasses.replace(result, problem=jsonable(problem.describe()))


def _run(problem: Problem, given: dict[str, Any], engine: Any, out: IO[str] | None) -> Result:
    from dualanchor import methods
    from dualanchor.advise.plan import plan as make_plan
    from dualanchor.run import Steps, Target, WallTime
    from dualanchor.run import solve as run

    plan, steps = None, given["steps"]
    if given["eps"] is None:
        method = methods.make(given["method"] or "s-dual-ohm", problem, given["budget"], dict(given["parameters"]))
    else:
        if given["budget"] is not None or given["parameters"]:
            raise ArgumentError("--eps plans everything itself", "--budget or -p", "Leave them out, or leave --eps out")
        if given["method"] not in (None, *_PLANNED):
            rule = f"--eps plans {', '.join(_PLANNED)}"
            raise ArgumentError(rule, repr(given["method"]), "Leave --method out, or give a --budget")
        known = {name: getattr(problem.constants, name) for name in ("L", "D", "sigma", "mu")}
        batches = "constant" if given["method"] == "s-dual-ohm" else "tapered"
        plan = make_plan(eps=given["eps"], batches=batches, **known)
        method, steps = plan.method(), steps or max(1, plan.stop)
        if out is not None:
            click.echo(f"{plan!r}\n", file=out)
    kinds = ((Steps, steps), (Target, given["target"]), (WallTime, given["wall_time"]))
    rules = [kind(value) for kind, value in kinds if value is not None]
    check = not given["no_check"]
    try:
        if check:
            method.check(problem.constants)
    except ArgumentError as error:  # as the run would raise it, with the command's option as advice
        rule, received, _ = error.parts
        raise ArgumentError(rule, received, "Keep to it, or add --no-check to run outside the theorem") from error
    settings = {name: given[name] for name in ("seed", "reps", "checkpoint", "budget")}
    stop = reduce(operator.or_, rules) if rules else None
    with progress_bar(quiet=out is None) as show:
        result = run(problem, method, stop=stop, check=check, progress=of_run(show), engine=engine, **settings)
    return dataclasses.replace(result, plan=plan)


def _instance(problem: Problem, seed: int = 0) -> Any:
    """The oracle and the start of the first replication."""
    import numpy as np

    from dualanchor.core.streams import Purpose, Streams

    return problem.instance(Streams(seed, np.arange(1), Purpose.INSTANCE))
