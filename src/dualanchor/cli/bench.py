"""`dualanchor bench`."""

import subprocess
import sys
from pathlib import Path

import click

from dualanchor.cli.options import json_option
from dualanchor.core.errors import CapabilityError, unknown_name

CHECKOUT = Path(__file__).resolve().parents[3]
_HELPERS = ("__init__", "common", "gather")
NAMES = sorted(path.stem for path in (CHECKOUT / "benchmarks").glob("*.py") if path.stem not in _HELPERS)
_ONLY = "Run this one of the scripts only; may be repeated." + (f" NAME is one of {', '.join(NAMES)}." if NAMES else "")


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help=_ONLY)
@click.option("--quick", is_flag=True, help="Smaller and rougher: about a minute.")
@json_option()
def bench(only: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Measure what things cost, each beside something else: the scripts in benchmarks/ of a source checkout.

    A row has what was measured, what it is compared with, their ratio, and the target. `make bench` also saves it.

    \b
    Examples:
      dualanchor bench --quick
      dualanchor bench --only update --only memory
    """
    if not NAMES:
        rule = "dualanchor bench runs the scripts in benchmarks/ of a source checkout"
        remedy = "Install from a checkout: pip install --editable '.[cli]'"
        raise CapabilityError(rule, "an installed package without them", remedy)
    if unknown := [name for name in only if name not in NAMES]:
        raise unknown_name("bench: --only", unknown[0], NAMES)
    words = [word for name in only for word in ("--only", name)] + ["--quick"] * quick + ["--json"] * as_json
    command = [sys.executable, "-m", "benchmarks.gather", *words]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    click.echo(done.stdout, nl=False)
    raise click.exceptions.Exit(done.returncode)
