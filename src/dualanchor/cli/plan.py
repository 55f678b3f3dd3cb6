"""`dualanchor plan`: rounds and samples before anything runs."""

from __future__ import annotations

from typing import Any

import click

from dualanchor.cli.arguments import named_errors


@click.command()
@click.option("--eps", type=float, help="Root mean square residual to reach.")
@click.option("-b", "--budget", type=int, help="Or: samples that may be spent.")
@click.option("--L", "L", type=float, help="F is 1/L-cocoercive in expectation.")
@click.option("--M", "M", type=float, help="Or, with --mu: F is M-Lipschitz.")
@click.option("--D", "D", type=float, help="Distance from the start to a root, at most.  [required]")
@click.option("--sigma", type=float, help="Root mean square noise of one sample, at most.")
@click.option("--mu", type=float, default=0.0, help="F is mu-strongly monotone, or sharp with mu.  [default: 0]")
@click.option("--step-size", type=float, help="At most 2/L.  [default: 2/L]")
@click.option("--batches", type=click.Choice(["tapered", "constant"]), default="tapered", show_default=True)
@click.option("--bound", type=click.Choice(["sharp", "paper"]), default="sharp", show_default=True)
@click.option("--L-mean", "L_mean", type=float, help="The mean operator is 1/L_mean-cocoercive, L_mean <= L.")
@click.option("--affine", is_flag=True, help="F is affine.")
@click.option("--no-a2", is_flag=True, help="F is cocoercive, but not in expectation (no Assumption 3.2).")
@click.option("--workers", type=int, help="How many compute a batch together.")
@click.option("--latency", type=float, help="Seconds that a round takes beside its samples.")
@click.option("--sample-cost", type=float, help="Seconds of one sample on one worker.")
@click.option(
    "--round-variance", type=float, metavar="C", help="Instead of eps and sigma: each of n rounds has variance C n."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@named_errors
def plan(as_json: bool, no_a2: bool, **given: Any) -> None:
    """Say how many rounds and samples an accuracy needs, or what a budget can promise.

    \b
    Examples:
      dualanchor plan --eps 0.05 --L 2 --D 45 --sigma 0.1
      dualanchor plan --budget 100000 --L 12.1 --mu 0.1 --D 1 --sigma 1.5
      dualanchor plan --eps 0.01 --L 2 --D 45 --sigma 0.1 --workers 64 --latency 0.01 --sample-cost 0.001
    """
    from dualanchor.advise.plan import plan as make
    from dualanchor.cli import output

    made = make(**given, cocoercive_in_expectation=not no_a2)
    if as_json:
        output.print_json(made.to_dict())
    else:
        click.echo(repr(made))
