"""`dualanchor plan`, `calibrate` and `certify`."""

from pathlib import Path
from typing import Any

import click

from dualanchor.cli.options import COUNT, PATH, json_option, problem_options, seed_option
from dualanchor.cli.output import emit, user_code
from dualanchor.cli.user_code import load_problem
from dualanchor.core.errors import ArgumentError


@click.command()
@click.option("--eps", type=float, help="Root mean square residual to reach.")
@click.option("-b", "--budget", type=COUNT, help="Or: samples that may be spent.")
@click.option("--L", "L", type=float, help="F is 1/L-cocoercive in expectation.")
@click.option("--M", "M", type=float, help="Samples are M-Lipschitz in mean square; without --L, F is monotone.")
@click.option("--D", "D", type=float, help="Distance from the start to a root, at most.  [required]")
@click.option("--sigma", type=float, help="Root mean square noise of one sample, at most.")
@click.option("--mu", type=float, default=0.0, help="F is mu-strongly monotone, or sharp with mu.  [default: 0]")
@click.option("--step-size", type=float, help="At most 2/L.  [default: 2/L]")
@click.option("--batches", type=click.Choice(["tapered", "constant"]), default="tapered", show_default=True)
@click.option("--bound", type=click.Choice(["sharp", "paper"]), default="sharp", show_default=True)
@click.option("--L-mean", "L_mean", type=float, help="The mean operator is 1/L_mean-cocoercive, L_mean <= L.")
@click.option("--affine", is_flag=True, help="F is affine.")
@click.option("--no-a2", is_flag=True, help="L or M is a constant of F, not of single samples (no Assumption 3.2).")
@click.option("--growth", type=float, default=0.0, help="With --M: noise of sigma + growth |x - x0|.  [default: 0]")
@click.option("--prox", is_flag=True, help="There is a constraint or penalty, as in da.inclusion.")
@click.option("--confidence", type=float, help="Probability with which the residual is to be at most eps.")
@click.option("--workers", type=int, help="How many compute a batch together.")
@click.option("--latency", type=float, help="Seconds that a round takes beside its samples.")
@click.option("--sample-cost", type=float, help="Seconds of one sample on one worker.")
@click.option("--round-variance", type=float, metavar="C", help="For eps and sigma: each of n rounds has variance C n.")
@json_option()
def plan(as_json: bool, no_a2: bool, **given: Any) -> None:
    """Say how many rounds and samples an accuracy needs, or what a budget can promise.

    \b
    Examples:
      dualanchor plan --eps 0.05 --L 2 --D 45 --sigma 0.1
      dualanchor plan --budget 100000 --L 12.1 --mu 0.1 --D 1 --sigma 1.5
      dualanchor plan --eps 0.1 --M 1 --D 1 --sigma 1
      dualanchor plan --eps 0.01 --L 2 --D 45 --sigma 0.1 --workers 64 --latency 0.01 --sample-cost 0.001
    """
    from dualanchor.advise.plan import plan as make_plan

    planned = make_plan(**given, cocoercive_in_expectation=not no_a2)
    emit(as_json, planned.to_dict(), lambda: click.echo(repr(planned)))


@click.command()
@problem_options
@click.option("-n", "--samples", type=COUNT, default=2000, show_default=True, help="Operator evaluations, 16 or more.")
@seed_option()
@click.option("--radius", type=float, help="How far from the start matters.  [default: guessed]")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@json_option()
def calibrate(problem: str, options: Any, as_json: bool, **given: Any) -> None:
    """Estimate noise and local constants at the start of PROBLEM from samples, and warn of what breaks the theorems.

    PROBLEM is a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.

    \b
    Examples:
      dualanchor calibrate finite-sum-cocoercive
      dualanchor calibrate affine -o rotation=1 --samples 500 --json
    """
    from dualanchor.advise.calibrate import calibrate as run

    with user_code():
        chosen = load_problem(problem, dict(options))
        calibration = run(chosen, **given)
    emit(as_json, {"problem": chosen.name, **calibration.to_dict()}, lambda: click.echo(repr(calibration)))


@click.command()
@problem_options
@click.option("-n", "--samples", type=COUNT, required=True, help="Fresh samples at each point; better 256 or more.")
@click.option("--point", type=PATH, help="What `solve --save` wrote (npz), or an array (npy).  [default: the start]")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Between 0 and 1.")
@seed_option("Where the samples come from.")
@click.option("--rule", default="min", show_default=True, help="Or any-distribution, sub-gaussian, kurtosis.")
@click.option("--sigma", type=float, help="Known noise of one sample.  [default: what the problem declares]")
@click.option("--kurtosis", type=float, help="Known kurtosis of the noise, for the rule of that name.")
@json_option()
def certify(problem: str, point: Path | None, options: Any, as_json: bool, **given: Any) -> None:
    """Bound the residual at a point of PROBLEM from fresh samples, with a stated confidence.

    PROBLEM is a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.

    \b
    Examples:
      dualanchor solve affine --budget 5000 --save run.npz
      dualanchor certify affine --point run.npz --samples 4096
    """
    from dualanchor.advise.certify import certify as run

    with user_code():
        chosen = load_problem(problem, dict(options))
        certificate = run(chosen, None if point is None else _read_point(point, chosen), **given)
    facts = {"problem": chosen.name, "seed": given["seed"], "claim": certificate.text, **certificate.to_dict()}
    emit(as_json, facts, lambda: click.echo(repr(certificate)))


def _read_point(path: Path, problem: Any) -> Any:
    """A saved result, which has to be of this problem, or the array in a file."""
    import numpy as np

    from dualanchor.core.files import decoding, jsonable, require_plain
    from dualanchor.core.result import Result

    if path.suffix == ".npy":
        with decoding(path, "--point needs an array of numbers", "Write it with numpy.save"):
            require_plain(path)
            return np.load(path, allow_pickle=False)
    result = Result.load(path)
    described = jsonable(problem.describe())
    nameless = problem.id is None and result.problem["name"] in ("problem", "root")  # as Python code leaves it
    if (result.problem | {"name": problem.name} if nameless else result.problem) != described:
        remedy = "Name the same problem with the same -o options, or give the point as an npy file"
        raise ArgumentError(f"--point must be a result of the problem {described}", f"one of {result.problem}", remedy)
    return result
