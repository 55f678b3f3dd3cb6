"""Time per sample as the dimension, the batch and the number of rows grow, one at a time from d = 100, B = 1, one row.

S-Dual-OHM on the operator of experiment 3; batches also on a finite sum as in experiment 2, where a sample is work of
its own. Times of a run with many steps less those of a run with few, so that making the problem is not counted. With
--figure FILE a log-log picture is drawn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import dualanchor as da
from benchmarks.common import caches, least

Line = dict[str, Any]
COMPONENTS = 2000
NUMBERS = 2e6  # about as many numbers are worked on in one measurement


def seconds_per_sample(problem: da.Problem, batch: int, rows: int, repeat: int) -> float:
    """Of a step, divided by its samples over all rows."""
    width = problem.dimension * (batch if problem.components else 1) * rows
    few, many = 2, int(np.clip(NUMBERS / width, 6 if rows == 1 else 64, 10_000))

    def run(steps: int) -> object:
        method = da.DualOHM(step_size=problem.step_size, horizon=steps + 1, batch_size=batch)
        return lambda: da.solve(problem, method, reps=rows, record=0)

    if width < 1e6:
        run(few)()  # imports
    times = least({"few": run(few), "many": run(many)}, repeat if width < 1e6 else 5)
    return max(times["many"] - times["few"], 1e-9) / ((many - few) * batch * rows)


def steps(first: int, last: int) -> list[int]:
    """1, 3, 10, 30, .. from one power of ten to another."""
    return [*(factor * 10**power for power in range(first, last) for factor in (1, 3)), 10**last]


def lines(quick: bool) -> list[Line]:
    """Curves: what grows, on what, its values and seconds per sample."""
    most = 2 if quick else 0
    repeat = 2 if quick else 3
    huber = da.problems.huber_minimax
    sums = da.problems.finite_sum_cocoercive(components=COMPONENTS, dimension=100, rank=20)
    found = []
    dimensions, batches, many = steps(2, 7 - most), steps(0, 5 - most), steps(0, 4 - most)
    curves = {
        ("d", "experiment 3"): [(d, huber(dimension=d), 1, 1) for d in dimensions],
        ("B", "experiment 3"): [(B, huber(), B, 1) for B in batches],
        ("B", "a finite sum"): [(B, sums, B, 1) for B in batches],
        ("rows", "experiment 3"): [(rows, huber(), 1, rows) for rows in many],
    }
    for (grows, where), points in curves.items():
        times = [seconds_per_sample(problem, B, rows, repeat) for _, problem, B, rows in points]
        found.append({"grows": grows, "on": where, "values": [point[0] for point in points], "seconds": times})
    return found


def table(found: list[Line]) -> dict[str, Any]:
    """Microseconds per sample, a line for each curve."""
    powers = range(max(len(str(line["values"][-1])) for line in found))
    body = []
    for line in found:
        cells = {value: f"{1e6 * t:.3g}" for value, t in zip(line["values"], line["seconds"], strict=True)}
        body.append([f"{line['grows']}, {line['on']}", *(cells.get(10**power, "") for power in powers)])
    return {
        "title": "Growth: microseconds per sample",
        "columns": ["what grows", *(f"1e{power}" for power in powers)],
        "lines": body,
    }


def draw(found: list[Line], path: Path) -> None:
    """Three panels on logarithmic axes, each with a straight line, and marks where a knee is expected."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    slopes = {
        "d": (1, "proportional to d"),
        "B": (-1, "one call whatever B"),
        "rows": (-1, "one call whatever the rows"),
    }
    # x, z, G and the noise are 32 bytes per coordinate
    marks = {
        "d": {f"{name} full": size / 32 for name, size in caches().items()},
        "B": {"B = components": COMPONENTS},
        "rows": {},
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    for ax, (grows, (slope, text)) in zip(axes, slopes.items(), strict=True):
        mine = [line for line in found if line["grows"] == grows]
        for line in mine:
            colour = "C0" if line["on"] == "experiment 3" else "C1"
            ax.loglog(line["values"], 1e6 * np.array(line["seconds"]), "o-", color=colour, markersize=4)
            ax.lines[-1].set_label(line["on"])
        x = np.array(mine[0]["values"], float)
        end = -1 if slope > 0 else 0  # through the last point of a growing line, the first of a falling one
        ax.loglog(x, 1e6 * mine[0]["seconds"][end] * (x / x[end]) ** slope, ":", color="grey", label=text)
        for name, where in marks[grows].items():
            ax.axvline(where, color="grey", linewidth=0.8, alpha=0.6)
            ax.text(where, 0.02, f" {name}", transform=ax.get_xaxis_transform(), fontsize=7, rotation=90, va="bottom")
        ax.set_xlabel(grows)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=7)
    axes[0].set_ylabel("microseconds per sample")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the largest sizes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", type=Path, help="draw a picture here")
    arguments = parser.parse_args()
    found = lines(arguments.quick)
    if arguments.figure is not None:
        draw(found, arguments.figure)
    shown = table(found)
    if arguments.json:
        print(json.dumps({"rows": [], "tables": [shown]}))
        return
    print(shown["title"])
    for line in [shown["columns"], *shown["lines"]]:
        print(f"{line[0]:36s}" + "".join(f"{cell:>10s}" for cell in line[1:]))


if __name__ == "__main__":
    main()
