"""The command line; nothing heavy is imported before it is needed."""

import os
import sys


def main() -> None:
    """Entry point of `dualanchor`."""
    if sys.stderr is None:  # it was closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print(
            "Error: The output needs somewhere to go. Got a closed standard output. Use > /dev/null.", file=sys.stderr
        )
        raise SystemExit(2)
    try:
        _run()
    except KeyboardInterrupt:  # before a command began
        raise SystemExit(130) from None


def _run() -> None:
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        from dualanchor.core.errors import install_command

        needed = "The command line needs the packages click and rich. Install them with: "
        raise SystemExit(needed + install_command("cli")) from None
    from dualanchor.cli.app import app

    app(prog_name="dualanchor")
