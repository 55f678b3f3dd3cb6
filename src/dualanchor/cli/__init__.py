"""The command line; nothing heavy is imported before it is needed."""

from __future__ import annotations


def main() -> None:
    """Entry point of `dualanchor`."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        from dualanchor.core.errors import install_command

        raise SystemExit(
            f"The command line needs the packages click and rich. Install them with: {install_command('cli')}"
        ) from None
    from dualanchor.cli.app import app

    app(prog_name="dualanchor")
