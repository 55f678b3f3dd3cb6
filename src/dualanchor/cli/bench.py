"""`dualanchor bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from dualanchor.cli.arguments import named_errors

HELPERS = ("__init__", "common", "gather")
"""What in benchmarks/ is no benchmark."""


def names(root: Path) -> list[str]:
    """The benchmarks of a checkout; none where there is no such folder."""
    return sorted(path.stem for path in (root / "benchmarks").glob("*.py") if path.stem not in HELPERS)


def _only_help() -> str:
    known = ", ".join(names(_root(Path(__file__))))
    return "Run this one of the scripts only; may be repeated." + (f" NAME is one of {known}." if known else "")


def _root(file: Path) -> Path:
    return file.resolve().parents[3]


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help=_only_help())
@click.option("--quick", is_flag=True, help="Smaller and rougher: about a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@named_errors
def bench(only: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Measure what things cost, each beside something else: the scripts in benchmarks/ of a source checkout.

    Each script runs in a process of its own. A row has what was measured, what it is compared with, their ratio, and
    the target. `make bench` also writes the table down.

    \b
    Examples:
      dualanchor bench --quick
      dualanchor bench --only update --only memory
    """
    from dualanchor.core.errors import unknown_name

    root = checkout(Path(__file__))
    known = names(root)
    for name in only:
        if name not in known:
            raise unknown_name("bench: --only", name, known)
    words = [word for name in only for word in ("--only", name)]
    words += ["--quick"] * quick + ["--json"] * as_json
    command = [sys.executable, "-m", "benchmarks.gather", *words]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    click.echo(done.stdout, nl=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def checkout(file: Path) -> Path:
    """The source checkout that this file of the package lies in."""
    from dualanchor.core.errors import CapabilityError

    root = _root(file)
    if not (root / "benchmarks" / "gather.py").is_file():
        raise CapabilityError(
            "dualanchor bench runs the scripts in benchmarks/ of a source checkout",
            "an installed package without them",
            "Install from a checkout: pip install --editable '.[cli]'",
        )
    return root
