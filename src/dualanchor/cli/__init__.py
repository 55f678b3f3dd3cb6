"""The command line; nothing heavy is imported before it is needed."""


def main() -> None:
    """Entry point of `dualanchor`."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        from dualanchor.core.errors import install_command

        needed = "The command line needs the packages click and rich. Install them with: "
        raise SystemExit(needed + install_command("cli")) from None
    from dualanchor.cli.app import app

    app(prog_name="dualanchor")
