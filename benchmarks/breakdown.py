"""Where the time of the suite goes, with and without compiled steps, by the profiler, one panel at a time.

Random numbers: NumPy's generators and the streams that keep what they gave. Gather: lines of a finite sum picked by
index. Arithmetic: methods, operators and compiled steps, with what it takes to call NumPy from them. Python: everything
else, the loop, records, tables and the study around them. The profiler makes short calls look longer than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
from pathlib import Path
from typing import Any

import dualanchor
from benchmarks.suite import panels
from dualanchor.fast import available
from dualanchor.studies.study import run_study

KINDS = ("random numbers", "gather", "arithmetic", "Python")
HOME = Path(dualanchor.__file__).parent


def kind_of(file: str, function: str) -> str:
    """Which part a function's own time belongs to."""
    if file == "~":  # not written in Python
        if "numpy.random" in function:
            return "random numbers"
        if "'take' of 'numpy.ndarray'" in function:
            return "gather"
        return "arithmetic" if "numpy" in function or "ufunc" in function else "Python"
    path = Path(file)
    if not path.is_relative_to(HOME):
        return "arithmetic" if "numpy" in path.parts else "Python"
    folder, name = path.relative_to(HOME).parts[0], path.name
    if name == "streams.py":
        return "random numbers"
    if folder == "oracles" and name in ("finite_sum.py", "gather.py"):
        return "gather"
    return "arithmetic" if folder in ("methods", "problems", "oracles", "estimators", "fast") else "Python"


def shares(name: str, seeds: int) -> dict[str, float]:
    """Seconds of each part while a panel runs."""
    profiler = cProfile.Profile()
    profiler.runcall(run_study, panels([name]), seeds=seeds, jobs=1)
    found = dict.fromkeys(KINDS, 0.0)
    for (file, _, function), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():
        found[kind_of(file, function)] += own
    return found


def table(quick: bool) -> dict[str, Any]:
    """Seconds of each part of each panel, not compiled and compiled."""
    names, seeds = (("exp1",), 1) if quick else (("exp1", "exp2"), 5)
    ways = {"not compiled": "0", "compiled": "1"} if available() else {"not compiled": "0"}
    if available():
        for name in names:
            run_study(panels([name]), seeds=1, jobs=1)  # loads compiled steps
    body = []
    for name in names:
        for way, switch in ways.items():
            os.environ["DUALANCHOR_FAST"] = switch
            found = shares(name, seeds)
            total = sum(found.values())
            parts = (f"{seconds:.2f} ({seconds / total:.0%})" for seconds in found.values())
            body.append([f"{name}, {way}", *parts, f"{total:.2f}"])
    return {
        "title": f"Where the time goes: seconds and shares, seeds: {seeds}",
        "columns": ["panel", *KINDS, "all"],
        "lines": body,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one panel, one seed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    shown = table(arguments.quick)
    if arguments.json:
        print(json.dumps({"rows": [], "tables": [shown]}))
        return
    print(shown["title"])
    for line in [shown["columns"], *shown["lines"]]:
        print(f"{line[0]:32s}" + "".join(f"{cell:>16s}" for cell in line[1:]))


if __name__ == "__main__":
    main()
