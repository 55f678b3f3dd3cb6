"""`dualanchor certify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dualanchor.cli.arguments import ASSIGNMENT, load_problem, named_errors

if TYPE_CHECKING:
    from dualanchor.core.problem import Problem


@click.command()
@click.argument("problem")
@click.option("-n", "--samples", type=int, required=True, help="Fresh samples at each point; better 256 or more.")
@click.option(
    "--point",
    type=click.Path(path_type=Path),
    help="Where: what `solve --save` wrote (npz), or an array (npy).  [default: the problem's start]",
)
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Between 0 and 1.")
@click.option("-s", "--seed", type=int, default=0, show_default=True, help="Where the samples come from.")
@click.option(
    "--rule",
    default="min",
    show_default=True,
    help="min, or with a known sigma any-distribution or sub-gaussian.",
)
@click.option("--sigma", type=float, help="Known noise of one sample.  [default: what the problem declares]")
@click.option("-o", "options", type=ASSIGNMENT, multiple=True, help="An option of the problem: -o sigma=1.5.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@named_errors
def certify(problem: str, point: Path | None, options: Any, as_json: bool, **given: Any) -> None:
    """Bound the residual at a point of PROBLEM from fresh samples, with a stated confidence.

    PROBLEM is a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.

    \b
    Examples:
      dualanchor solve affine --budget 5000 --save run.npz
      dualanchor certify affine --point run.npz --samples 4096
    """
    from dualanchor.advise.certify import certify as run
    from dualanchor.core.result import to_json

    chosen = load_problem(problem, dict(options))
    certificate = run(chosen, None if point is None else _read_point(point, chosen), **given)
    if as_json:
        facts = {"problem": chosen.name, "seed": given["seed"], **certificate.to_dict(), "claim": certificate.claim}
        click.echo(to_json(facts, indent=2))
    else:
        click.echo(certificate.claim)
        for note in certificate.notes:
            click.echo(f"note: {note}")


def _read_point(path: Path, problem: Problem) -> Any:
    """A saved result, which has to be of this problem, or the array in a file."""
    import numpy as np

    from dualanchor.core.errors import ArgumentError
    from dualanchor.core.problem import Problem
    from dualanchor.core.result import Result, jsonable

    if path.suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ArgumentError(
                "--point needs an array of numbers", f"{path}: {error}", "Write it with numpy.save"
            ) from error
    result = Result.load(path)
    described = jsonable(problem.describe())
    nameless = type(problem) is Problem and result.problem["name"] in ("problem", "root")  # as Python code leaves it
    if (result.problem | {"name": problem.name} if nameless else result.problem) != described:
        raise ArgumentError(
            f"--point must be a result of the problem {described}",
            f"one of {result.problem}",
            "Name the same problem with the same -o options, or give the point as an npy file",
        )
    return result
