"""`dualanchor verify`."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from dualanchor.cli.options import PATH, json_option
from dualanchor.cli.output import emit, print_table, progress_bar
from dualanchor.core.errors import ArgumentError, install_command

_PEP = "Worst cases (extra pep).  [default: if installed, not with --quick]"


@click.command()
@click.option("--only", multiple=True, metavar="ID", help="Check this statement only; may be repeated.")
@click.option("--quick", is_flag=True, help="Fewer replications, and no worst cases: a few seconds.")
@click.option("--pep/--no-pep", default=None, help=_PEP)
@click.option("--complexity", is_flag=True, help="Measure exponents of samples in accuracy instead.")
@click.option("--out", type=PATH, default=Path("complexity"), show_default=True, help="Where --complexity writes.")
@click.option("-s", "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Where chance comes from.")
@json_option("one JSON value")
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
    judged = _measure(out, as_json, **given) if complexity else _check(as_json, **given)
    if any(check.verdict == "fails" for check in judged):
        raise click.exceptions.Exit(1)


def _check(as_json: bool, only: tuple[str, ...], quick: bool, pep: bool | None, seed: int) -> Sequence[Any]:
    from dualanchor.paper.verify import verify as run

    names = [name for text in only for name in text.split(",") if name.strip()]
    with progress_bar(quiet=as_json) as show:
        progress = None if show is None else lambda done, total, statement: show(done, total, statement.name)
        checks = run(names or None, quick=quick, seed=seed, pep=pep, progress=progress)
    whole = not names and not quick and pep is None
    emit(as_json, [check.to_dict() for check in checks], lambda: _print_checks(checks, whole))
    return checks


def _measure(out: Path, as_json: bool, only: Any, quick: bool, pep: Any, seed: int) -> Sequence[Any]:
    from dualanchor.core.result import to_json
    from dualanchor.paper.verify.complexity import draw_complexity, measure
    from dualanchor.report.folder import write_files

    if only or pep:
        raise ArgumentError("--complexity stands by itself", "--only or --pep beside it", "Run it and the checks apart")
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar(quiet=as_json) as show:
        curves = measure(quick=quick, seed=seed, progress=show)
    numbers = {"seed": seed, "quick": quick, "curves": [curve.to_dict() for curve in curves]}
    pictures = {f"complexity.{kind}": picture for kind, picture in draw_complexity(curves).items()}
    write_files(out, {"complexity.json": to_json(numbers, indent=1).encode(), **pictures})
    emit(as_json, numbers, lambda: _print_curves(curves, out / "complexity.png"))
    return curves


def _print_checks(checks: Sequence[Any], whole: bool) -> None:
    from dualanchor.paper.verify import worst_case
    from dualanchor.theory.bounds import OURS, PAPER

    numbers = ("measured", "bound", "ratio")
    for source, title in {PAPER: "The paper", OURS: "Not in the paper"}.items():
        rows = []
        for x in checks:
            if x.source == source:
                ratio = f"{x.ratio:.3f}" if x.bound else "-"
                rows.append((x.statement, x.kind, x.operator, number(x.measured), number(x.bound), ratio, x.verdict))
        if rows:
            print_table(("statement", "kind", "on", *numbers, "verdict"), _once(rows), title, numbers)
    holding = sum(check.verdict == "holds" for check in checks)
    click.echo(f"\n{holding} of {len(checks)} checks of {len({check.id for check in checks})} statements hold.")
    if any(check.ratio > 1 and check.verdict == "holds" for check in checks):
        click.echo("A ratio above 1 that holds is chance: means are judged to within 4.75 standard errors.")
    if whole and not worst_case.installed():
        click.echo(f"Worst cases over all operators were left out: they need {install_command('pep')}.")


def _print_curves(curves: Sequence[Any], picture: Path) -> None:
    rows = []
    for curve in curves:
        fits = (f"{x.exponent:.2f} ({x.low:.2f} to {x.high:.2f})" for x in (curve.measured, curve.without_logarithms))
        exponents = (f"{curve.claim:g}", f"{curve.planned.exponent:.2f}", *fits)
        rows.append((curve.operator, curve.method, curve.source, *exponents, curve.verdict))
    heads = ("operator", "method", "by", "claimed", "planned", "measured", "without logarithms", "verdict")
    print_table(heads, _once(rows), "Exponent of samples in one over the accuracy, with 95 % intervals")
    click.echo(f"\nPicture: {picture}")


def _once(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows, with an empty first cell where it would repeat the one above."""
    return [row if row[0] != before[0] else ("", *row[1:]) for before, row in pairwise([("",), *rows])]


def number(value: float) -> str:
    """Four digits, or one for numbers that are only rounding errors."""
    return f"{value:.0e}" if 0 < abs(value) < 1e-9 else f"{value:.4g}"
