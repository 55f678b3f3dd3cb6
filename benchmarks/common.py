"""What the scripts share: sides that take turns, rows of the one table, and a command line.

A row is a dict with name, measured, against, ratio, target and met. The ratio is measured / against where the target is
an upper limit, and against / measured (a speed-up) where it is a lower one. A row without `against` is
compared with its target as it is. A row that could not be measured has nothing but its name, its target and a `note`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def at_most(name: str, measured: float, against: float | None, target: float | None) -> Row:
    """A row whose measured / against should be small; without a target it is for information."""
    ratio = measured if against is None else measured / against
    return _row(name, measured, against, ratio, target, None if target is None else bool(ratio <= target))


def at_least(name: str, measured: float, against: float, target: float | None) -> Row:
    """A row whose speed-up, against / measured, should be large."""
    ratio = against / measured
    return _row(name, measured, against, ratio, target, None if target is None else bool(ratio >= target))


def not_measured(name: str, target: float | None, note: str) -> Row:
    """A row that says why it is empty."""
    return {**_row(name, None, None, None, target, None), "note": note}


def _row(name: str, measured: Any, against: Any, ratio: Any, target: Any, met: bool | None) -> Row:
    return {"name": name, "measured": measured, "against": against, "ratio": ratio, "target": target, "met": met}


def is_lower_limit(row: Row) -> bool:
    """Whether the target is to be exceeded, which shows in the side on which it is met."""
    return row["met"] is not None and (row["ratio"] <= row["target"]) != row["met"]


def least(
    functions: dict[str, Callable[[], object]],
    repeat: int,
    each: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Least seconds of a call of each; they take turns, with `each` calls in a row."""
    times = {name: float("inf") for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            start = clock()
            for _ in range(each):
                function()
            times[name] = min(times[name], (clock() - start) / each)
    return times


def caches() -> dict[str, int]:
    """Bytes of the processor's caches for data, by name, where the system tells."""
    found = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((cache / part).read_text().strip() for part in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = int(size.removesuffix("K")) << 10
    return found


def number(value: Any) -> str:
    """Three digits, or a dash where there is nothing."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def verdict(row: Row) -> str:
    """What came of a row, in a word or a note."""
    if row["met"] is None:
        return row.get("note", "")
    return "met" if row["met"] else "not met"


def limit(row: Row) -> str:
    """The target with its direction, which only a measured row has."""
    if row["target"] is None or row["met"] is None:
        return number(row["target"])
    return f"{'≥' if is_lower_limit(row) else '≤'} {row['target']:g}"


def print_rows(rows: list[Row]) -> None:
    """A table for people."""
    width = max((len(row["name"]) for row in rows), default=0)
    print(f"{'':{width}s} {'measured':>9s} {'against':>9s} {'ratio':>7s} {'target':>7s}")
    for row in rows:
        numbers = f"{number(row['measured']):>9s} {number(row['against']):>9s} {number(row['ratio']):>7s}"
        print(f"{row['name']:{width}s} {numbers} {limit(row):>7s} {verdict(row)}")


def main(rows: Callable[[bool], list[Row]], description: str | None) -> None:
    """The command line of a script: --quick, --json."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller and rougher")
    parser.add_argument("--json", action="store_true", help="print one list of rows")
    arguments = parser.parse_args()
    found = rows(arguments.quick)
    print(json.dumps(found)) if arguments.json else print_rows(found)
    sys.stdout.flush()
