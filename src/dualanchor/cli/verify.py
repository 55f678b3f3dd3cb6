"""`dualanchor verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dualanchor.cli.arguments import named_errors


@click.command()
@click.option("--only", multiple=True, metavar="ID", help="Check this statement only; may be repeated.")
@click.option("--quick", is_flag=True, help="Fewer replications, and no worst cases: a few seconds.")
@click.option(
    "--pep/--no-pep",
    default=None,
    help="Compute worst cases over all operators (extra pep).  [default: if installed and not --quick]",
)
@click.option("--complexity", is_flag=True, help="Measure exponents of samples in accuracy instead.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("complexity"),
    show_default=True,
    help="Where --complexity writes its picture and numbers.",
)
@click.option("-s", "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Where chance comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
@named_errors
def verify(complexity: bool, out: Path, as_json: bool, **given: Any) -> None:
    """Check every statement of the theory on concrete operators, and say how near each comes to its bound.

    Identities are checked to rounding, inequalities in expectation from independent replications: one fails when its
    mean is more than 4.75 standard errors above the bound. An ID is a statement's name in lower case with dashes:
    theorem-4.1. The exit code is 1 if anything fails.

    \b
    Examples:
      dualanchor verify
      dualanchor verify --only theorem-4.1 --only lemma-a.2
      dualanchor verify --complexity --out complexity
    """
    if complexity:
        _measure(out, as_json, given)
    else:
        _check(as_json, given)


def _check(as_json: bool, given: dict[str, Any]) -> None:
    from dualanchor.cli import output
    from dualanchor.cli.verified import print_checks, steps
    from dualanchor.paper.verify import FAILS
    from dualanchor.paper.verify import verify as run

    names = [name for text in given["only"] for name in text.split(",") if name.strip()]
    with steps(quiet=as_json) as show:
        found = run(
            names or None,
            quick=given["quick"],
            seed=given["seed"],
            pep=given["pep"],
            progress=None if show is None else lambda done, total, statement: show(done, total, statement.name),
        )
    if as_json:
        output.print_json([check.to_dict() for check in found])
    else:
        print_checks(found, whole=not names and not given["quick"] and given["pep"] is None)
    if any(check.verdict == FAILS for check in found):
        raise SystemExit(1)


def _measure(out: Path, as_json: bool, given: dict[str, Any]) -> None:
    from dualanchor.cli import output
    from dualanchor.cli.verified import print_curves, steps
    from dualanchor.core.errors import ArgumentError
    from dualanchor.core.result import to_json
    from dualanchor.paper.verify import FAILS
    from dualanchor.paper.verify.complexity import measure
    from dualanchor.report.complexity_figure import draw_complexity
    from dualanchor.report.write import write_files

    if given["only"] or given["pep"]:
        raise ArgumentError(
            "--complexity stands by itself", "--only or --pep beside it", "Run it and the checks one by one"
        )
    out.mkdir(parents=True, exist_ok=True)
    with steps(quiet=as_json) as show:
        curves = measure(quick=given["quick"], seed=given["seed"], progress=show)
    numbers = {"seed": given["seed"], "quick": given["quick"], "curves": [curve.to_dict() for curve in curves]}
    pictures = {f"complexity.{kind}": picture for kind, picture in draw_complexity(curves).items()}
    write_files(out, {"complexity.json": to_json(numbers, indent=1).encode(), **pictures})
    if as_json:
        output.print_json(numbers)
    else:
        print_curves(curves)
        click.echo(f"\nPicture: {out / 'complexity.png'}")
    if any(curve.verdict == FAILS for curve in curves):
        raise SystemExit(1)
