"""Seconds until `dualanchor --help` has answered and until `import dualanchor` is done, in fresh processes."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.common import Row, at_most, least, main

HELP, IMPORT = 0.25, 0.35


def rows(quick: bool = False) -> list[Row]:
    """Least wall seconds; looking up `solve` is what brings NumPy in."""

    def fresh(*words: str) -> float:
        return lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True)

    times = least(
        {
            "help": fresh("-m", "dualanchor", "--help"),
            "import": fresh("-c", "import dualanchor"),
            "solve": fresh("-c", "from dualanchor import solve"),
            "numpy": fresh("-c", "import numpy"),
        },
        3 if quick else 9,
    )
    return [
        at_most("dualanchor --help, s", times["help"], None, HELP),
        at_most("import dualanchor, s", times["import"], None, IMPORT),
        at_most("from dualanchor import solve, against import numpy, s", times["solve"], times["numpy"], None),
    ]


if __name__ == "__main__":
    main(rows, __doc__)
