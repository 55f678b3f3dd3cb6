"""`python -m dualanchor`: the command line."""

from dualanchor.cli import main

main()
