"""The paper's four panels, all grids and seeds: the library against one run at a time in plain NumPy, core for core.

The plain loops are written out below, one point and one seed at a time. They are timed on a sample (a stretch of steps
of every method on every panel) and extrapolated to the steps of all runs. A plain loop does not notice that it
diverges, so it is counted to its end; the column "alive" counts it only to where the library saw it leave. The library
runs everything in one process, without its store.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from math import sqrt

import numpy as np

import dualanchor as da
from dualanchor.core.streams import Purpose
from dualanchor.experiments.panel import PAPER, Panel, paper_panel
from dualanchor.experiments.study import run_study

Sample = Callable[[np.ndarray], np.ndarray]


def plain_oracle(panel: Panel) -> tuple[np.ndarray, Callable[[int], Sample]]:
    """The start of seed 0, and a function that draws B samples and gives their mean as a function of the point."""
    rng = np.random.default_rng(0)
    problem = panel.problem
    instance = problem.instance(da.Streams(0, np.arange(1), Purpose.INSTANCE))
    x0, d, n, sigma = instance.x0[0], problem.dimension, problem.components, problem.constants.sigma
    if n is not None:
        lines = instance.oracle._kernel._u[0]

        def draw(B: int) -> Sample:
            rows = lines[rng.integers(0, n, B)]
            return lambda x: (rows @ x) @ rows / B
    else:

        def draw(B: int) -> Sample:
            xi = sigma / sqrt(d * B) * rng.standard_normal(d)
            return lambda x: instance.oracle.operator(x[None])[0] + xi

    return x0, draw


def plain_step(method: da.Method, panel: Panel) -> Callable[[int], None]:
    """One step of a method for one point and one seed, as a researcher would write it down."""
    x0, draw = plain_oracle(panel)
    rng = np.random.default_rng(1)
    s = {"x": x0.copy(), "z": np.zeros_like(x0), "v": np.zeros_like(x0), "old": x0.copy(), "m": x0.copy()}
    a, p = method.step_size, method.parameters()

    def sample(x: np.ndarray, B: int) -> np.ndarray:
        return draw(B)(x)

    def dual_ohm(k: int) -> None:
        N, G = method.horizon, sample(s["x"], p["batch_size"])
        s["z"] = ((N - k - 1) * s["z"] - a * G) / (N - k)
        s["x"] = s["x"] - a * G - s["z"]

    def ohm(k: int) -> None:
        s["x"] = x0 / (k + 2) + (k + 1) / (k + 2) * (s["x"] - a * sample(s["x"], p["batch_size"]))

    def sgda(k: int) -> None:
        s["x"] = s["x"] - a * sample(s["x"], 1)

    def seg(k: int) -> None:
        half = s["x"] - a * sample(s["x"], 1)
        s["x"] = s["x"] - a * sample(half, 1)

    def rain(k: int) -> None:
        pull = p["anchor_weight"] * ((1 + p["growth"]) ** k - 1)
        half = s["x"] - a * (sample(s["x"], 1) + pull * (s["x"] - s["m"]))
        new = s["x"] - a * (sample(half, 1) + pull * (half - s["m"]))
        s["m"] = s["m"] + p["growth"] / (1 + p["growth"] - (1 + p["growth"]) ** -k) * (s["x"] - s["m"])
        s["x"] = new

    def page(k: int) -> None:
        if rng.random() < 2 / (k + 2):
            s["v"] = sample(s["x"], p["big_batch"])
        else:
            F = draw(p["small_batch"])
            s["v"] = s["v"] + F(s["x"]) - F(s["old"])
        s["old"] = s["x"]
        s["x"] = x0 / (k + 2) + (k + 1) / (k + 2) * (s["x"] - a * s["v"])

    steps = {"s-dual-ohm": dual_ohm, "s-ohm": ohm, "sgda": sgda, "seg": seg, "rain": rain, "halpern-page": page}
    return steps.get(type(method).id, sgda)  # Halpern-VR-Finite: two runs of sixty, taken as SGDA


def plain_seconds(panel: Panel, seeds: int) -> tuple[float, float]:
    """Extrapolated time of all runs of a panel one after another: to their ends, and only while they are finite."""
    full = alive = 0.0
    for entry in panel.entries:
        points = [{"batch_size": 1}] if entry.like else entry.points()
        methods = [panel.make(entry, point) for point in points]
        run = da.solve(panel.problem, methods, budget=panel.budget, reps=1, record=0, check=False)
        longest = {int(steps) for steps, end in zip(run.nit[:, 0], run.status[:, 0], strict=True) if end.ended_as_asked}
        for i, method in enumerate(methods):
            if i == 0 or entry.id != "rain":  # a step of RAIN costs the same at every point
                per_step = seconds_per_step(plain_step(method, panel))
            steps = int(run.nit[i, 0])
            alive += seeds * per_step * steps
            full += seeds * per_step * (steps if run.status[i, 0].ended_as_asked else max(longest))
    return full, alive


def seconds_per_step(step: Callable[[int], None], stretch: int = 150) -> float:
    """Least of three times for a stretch of steps."""
    times = []
    for _ in range(3):
        start = time.process_time()
        for k in range(stretch):
            step(k)
        times.append((time.process_time() - start) / stretch)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    for name in PAPER:
        panel = paper_panel(name)
        panel = panel.only([entry.id for entry in panel.entries if not entry.ours])
        start = time.process_time()
        run_study([panel], seeds=arguments.seeds, jobs=1)
        library = time.process_time() - start
        with np.errstate(all="ignore"):
            full, alive = plain_seconds(panel, arguments.seeds)
        rows[name] = {"library": library, "plain": full, "plain, alive": alive}
    rows["all"] = {key: sum(row[key] for row in rows.values()) for key in rows[PAPER[0]]}
    for row in rows.values():
        row |= {"ratio": row["plain"] / row["library"], "ratio, alive": row["plain, alive"] / row["library"]}
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{arguments.seeds} seeds, seconds of one core; the plain loops are extrapolated from a sample")
    for name, row in rows.items():
        print(f"  {name:10s}" + "".join(f"  {key} {value:8.1f}" for key, value in row.items()))
    print("  target: ratio of all at least 25")


if __name__ == "__main__":
    main()
