"""Run the benchmarks one after another, each in a process of its own, and gather their rows into one table.

`make bench` writes the table with a description of the machine to benchmarks/RESULTS.md and benchmarks/results.json;
`make bench-guard` compares with what is stored there and fails if a ratio got worse by more than 30 %.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.common import Row, caches, is_lower_limit, limit, not_measured, number, print_rows, verdict

HERE = Path(__file__).resolve().parent
RESULTS, STORED = HERE / "RESULTS.md", HERE / "results.json"
FIGURES = {"growth": HERE.parent / "docs/figures/growth.png"}
HELPERS = ("__init__", "common", "gather")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PACKAGES = (
    "dualanchor",
    "numpy",
    "scipy",
    "torch",
    "jax",
    "optax",
    "jaxopt",
    "optimistix",
    "mpi4py",
    "ray",
)
LOSS = 1.3

Table = dict[str, Any]


def names() -> list[str]:
    """The benchmarks there are: every script here but the helpers."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in HELPERS)


def run(name: str, quick: bool, figure: Path | None = None) -> tuple[list[Row], list[Table], bool]:
    """Rows and tables of one script, and whether it went well. One without its package says so in a row."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
    command += ["--quick"] if quick else []
    command += [] if figure is None else ["--figure", str(figure)]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    found = printed(done.stdout)
    if done.returncode or found is None:
        lines = done.stderr.strip().splitlines() or ["it printed no rows"]
        missing = re.search(r"No module named '(\w+)|needs the package (\w+)", lines[-1])
        note = f"{missing[1] or missing[2]} is not installed" if missing else f"failed: {lines[-1]}"
        return [{"benchmark": name, **not_measured(name, None, note)}], [], missing is not None
    found = {"rows": found, "tables": []} if isinstance(found, list) else found
    return (
        [{"benchmark": name, **row} for row in found["rows"]],
        [{"benchmark": name, **table} for table in found["tables"]],
        True,
    )


def printed(text: str) -> Any:
    """The first JSON value that begins a line, behind what libraries may have said; None if there is none."""
    for start in re.finditer(r"^[\[{]", text, flags=re.MULTILINE):
        try:
            return json.JSONDecoder().raw_decode(text, start.start())[0]
        except ValueError:
            continue
    return None


def gather(chosen: Sequence[str], quick: bool, write: bool = False) -> tuple[dict[str, Any], bool]:
    """Everything in one dict, and whether all went well; progress on standard error."""
    gathered: dict[str, Any] = {"quick": quick, "machine": machine(), "rows": [], "tables": []}
    well = True
    compileall.compile_dir(HERE.parent / "src", quiet=2)  # as it is installed, even where Python writes no bytecode
    for i, name in enumerate(chosen):
        start = time.perf_counter()
        print(f"[{i + 1}/{len(chosen)}] {name} ...", end=" ", file=sys.stderr, flush=True)
        rows, tables, fine = run(name, quick, FIGURES.get(name) if write else None)
        gathered["rows"] += rows
        gathered["tables"] += tables
        well &= fine
        print(f"{time.perf_counter() - start:.0f} s{'' if fine else ', failed'}", file=sys.stderr, flush=True)
    return gathered, well


# -- the machine -------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Processor, caches and versions; nothing that names the machine."""
    described: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "caches": ", ".join(f"{name} {size >> 10}K" for name, size in caches().items()) or "unknown",
        "system": f"{platform.system()}, {platform.machine()}",
        "load before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "Python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            described[package] = version(package)
        except PackageNotFoundError:
            described[package] = "not installed"
    return described


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    found = re.search(r"model name\s*: (.*)", text)
    return found[1].strip() if found else platform.processor() or "unknown"


# -- what is written ---------------------------------------------------------------------------------------------


def markdown(gathered: dict[str, Any]) -> str:
    """The table for people, a section for each benchmark."""
    judged = [row for row in gathered["rows"] if row["met"] is not None]
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Each row compares two things that ran side by side on the same data. The ratio is",
        "measured / against where the target is an upper limit (≤), and against / measured, the speed-up,",
        "where it is a lower one (≥). Times are in seconds where the name does not say otherwise.",
        "",
        f"{sum(row['met'] for row in judged)} of {len(judged)} targets are met"
        + (", in a quick and rough run." if gathered["quick"] else "."),
        "",
        _grid(["machine", ""], [[name, str(value)] for name, value in gathered["machine"].items()]),
    ]
    for name in _in_order(entry["benchmark"] for entry in (*gathered["rows"], *gathered["tables"])):
        lines += ["", f"## {name}", "", _summary(name)]
        if rows := [row for row in gathered["rows"] if row["benchmark"] == name]:
            cells = [
                [row["name"], *(number(row[key]) for key in ("measured", "against", "ratio")), limit(row), verdict(row)]
                for row in rows
            ]
            lines += ["", _grid(["", "measured", "against", "ratio", "target", ""], cells)]
        for table in gathered["tables"]:
            if table["benchmark"] == name:
                lines += ["", f"**{table['title']}**", "", _grid(table["columns"], table["lines"])]
    return "\n".join(lines) + "\n"


def _grid(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("--:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *lines))


def _summary(name: str) -> str:
    """The first sentence of a script's description."""
    text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def _in_order(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def write(gathered: dict[str, Any]) -> None:
    """RESULTS.md and results.json; what was not run this time keeps its stored rows."""
    if STORED.exists():
        stored = json.loads(STORED.read_text(encoding="utf-8"))
        ran = {entry["benchmark"] for part in ("rows", "tables") for entry in gathered[part]}
        rest = set(names()) - ran if stored["quick"] == gathered["quick"] else set()
        for part in ("rows", "tables"):
            others = [entry for entry in stored[part] if entry["benchmark"] in rest]
            gathered[part] = sorted(gathered[part] + others, key=lambda entry: entry["benchmark"])
    STORED.write_text(json.dumps(gathered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    RESULTS.write_text(markdown(gathered), encoding="utf-8")


# -- the guard ---------------------------------------------------------------------------------------------------


def loss(stored: Row, found: Row) -> float:
    """How many times worse a ratio got; below 1 it got better."""
    change = found["ratio"] / stored["ratio"]
    return 1 / change if is_lower_limit(stored) else change


def compare(stored: Sequence[Row], found: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Losses, and remarks that are none. Plain seconds are those of a machine, so they are not compared."""
    now = {(row["benchmark"], row["name"]): row for row in found}
    before = {(row["benchmark"], row["name"]) for row in stored}
    losses, remarks = [], [f"{row['name']}: new" for row in found if (row["benchmark"], row["name"]) not in before]
    for row in stored:
        name, new = row["name"], now.get((row["benchmark"], row["name"]))
        if row["ratio"] is None or row["against"] is None:
            continue
        if new is None:
            benchmark = now.get((row["benchmark"], row["benchmark"]), {})  # a script without its package
            (remarks if "is not installed" in benchmark.get("note", "") else losses).append(f"{name}: missing")
        elif new["ratio"] is None:
            remarks.append(f"{name}: {new['note']}")
        elif (worse := loss(row, new)) > LOSS:
            losses.append(f"{name}: {row['ratio']:.3g} before, {new['ratio']:.3g} now, {worse:.2f} times worse")
    return losses, remarks


def better(one: Row, other: Row) -> Row:
    """Of two measurements of a row the better."""
    if one["ratio"] is None or other["ratio"] is None:
        return other if one["ratio"] is None else one
    return max(one, other, key=lambda row: row["ratio"] if is_lower_limit(row) else -row["ratio"])


def guard(chosen: Sequence[str]) -> int:
    """Run what is stored, in the same way, and compare; what seems to have lost is measured once more."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    rows = [row for row in stored["rows"] if row["benchmark"] in chosen]
    chosen = _in_order(row["benchmark"] for row in rows if row["benchmark"] in names())
    gathered, well = gather(chosen, stored["quick"])
    found = gathered["rows"]
    suspects = [
        name for name in chosen if compare(*([r for r in part if r["benchmark"] == name] for part in (rows, found)))[0]
    ]
    if suspects:
        again = {(row["benchmark"], row["name"]): row for row in gather(suspects, stored["quick"])[0]["rows"]}
        found = [better(row, again.get((row["benchmark"], row["name"]), row)) for row in found]
    losses, remarks = compare(rows, found)
    print("\n".join([*remarks, *(f"LOSS  {text}" for text in losses)]))
    print(f"{len(losses)} of {len(rows)} rows lost more than {LOSS - 1:.0%}")
    return 1 if losses or not well else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.gather", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=names(), metavar="NAME", help="run this one; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="smaller and rougher")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md, results.json and the figure")
    parser.add_argument("--guard", action="store_true", help="compare with results.json instead; 1 on a loss")
    arguments = parser.parse_args()
    chosen = arguments.only or names()
    if arguments.guard:
        return guard(chosen)
    gathered, well = gather(chosen, arguments.quick, arguments.write)
    if arguments.write:
        write(gathered)
    if arguments.json:
        print(json.dumps(gathered))
    else:
        print_rows(gathered["rows"])
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
