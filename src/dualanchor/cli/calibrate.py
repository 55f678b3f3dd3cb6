"""`dualanchor calibrate`."""

from __future__ import annotations

from typing import Any

import click

from dualanchor.cli.arguments import ASSIGNMENT, load_problem, named_errors


@click.command()
@click.argument("problem")
@click.option(
    "-n", "--samples", type=int, default=2000, show_default=True, help="Operator evaluations to spend, 64 or more."
)
@click.option("-s", "--seed", type=int, default=0, show_default=True, help="Where all randomness comes from.")
@click.option("--radius", type=float, help="How far from the start matters.  [default: guessed]")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("-o", "options", type=ASSIGNMENT, multiple=True, help="An option of the problem: -o sigma=1.5.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@named_errors
def calibrate(problem: str, options: Any, as_json: bool, **given: Any) -> None:
    """Estimate noise and local constants at the start of PROBLEM from samples, and warn of what breaks the theorems.

    PROBLEM is a name listed by `dualanchor problems` or `file.py:name` for a Problem of yours.

    \b
    Examples:
      dualanchor calibrate finite-sum-cocoercive
      dualanchor calibrate affine -o rotation=1 --samples 500 --json
    """
    from dualanchor.advise.calibrate import calibrate as run
    from dualanchor.core.result import to_json

    chosen = load_problem(problem, dict(options))
    found = run(chosen, **given)
    click.echo(to_json({"problem": chosen.name, **found.to_dict()}, indent=2) if as_json else repr(found))
