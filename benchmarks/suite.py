"""The paper's four panels, all grids and seeds: the library against one run at a time in plain NumPy, core for core.

The plain loops are written out below, one point and one seed at a time. They are timed on a sample (a stretch of steps of
every method on every panel) and extrapolated to all runs; rows that diverge are counted up to where the library saw them
leave, so that neither side works on infinities. The library runs everything, in one process, without its store.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

import dualanchor as da
from dualanchor.core.streams import Purpose
from dualanchor.experiments.panel import PAPER, Panel, paper_panel
from dualanchor.experiments.study import run_study

Step = Callable[[int], None]


def plain_operator(
    panel: Panel,
) -> tuple[np.ndarray, Callable[[np.ndarray, int], np.ndarray], Callable[[np.ndarray], Any]]:
    """Start, F_B(x) with fresh noise, and a pair (draw, evaluate) hidden in one function, for seed 0."""
    rng = np.random.default_rng(0)
    problem = panel.problem
    instance = problem.instance(da.Streams(0, np.arange(1), Purpose.INSTANCE))
    x0, d = instance.x0[0], problem.dimension
    if problem.components is not None:
        lines = instance.oracle._kernel._u[0]

        def evaluate(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return rows.T @ (rows @ x) / len(rows)

        return (
            x0,
            lambda x, B: evaluate(x, lines[rng.integers(0, len(lines), B)]),
            lambda B: (lambda rows: lambda x: evaluate(x, rows))(lines[rng.integers(0, len(lines), B)]),
        )

    def F(x: np.ndarray) -> np.ndarray:
        return instance.oracle.operator(x[None])[0]

    sigma = problem.constants.sigma
    return (
        x0,
        lambda x, B: F(x) + sigma / sqrt(d * B) * rng.standard_normal(d),
        lambda B: (lambda xi: lambda x: F(x) + xi)(sigma / sqrt(d * B) * rng.standard_normal(d)),
    )


def plain_step(method: da.Method, panel: Panel) -> Step:
    """One step of a method for one point and one seed, as a researcher would write it down."""
    x0, sample, batch = plain_operator(panel)
    rng = np.random.default_rng(1)
    s = {"x": x0.copy(), "z": np.zeros_like(x0), "v": np.zeros_like(x0), "old": x0.copy(), "m": x0.copy()}
    a, p = method.step_size, method.parameters()

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
            F = batch(p["small_batch"])
            s["v"] = s["v"] + F(s["x"]) - F(s["old"])
        s["old"] = s["x"]
        s["x"] = x0 / (k + 2) + (k + 1) / (k + 2) * (s["x"] - a * s["v"])

    steps = {"s-dual-ohm": dual_ohm, "s-ohm": ohm, "sgda": sgda, "seg": seg, "rain": rain, "halpern-page": page}
    return steps.get(type(method).id, sgda)  # Halpern-VR-Finite: two runs of sixty, taken as SGDA


def plain_seconds(panel: Panel, nit: dict[str, np.ndarray]) -> float:
    """Extrapolated time of all runs of a panel, one after another."""
    total = 0.0
    for entry in panel.entries:
        points = [{"batch_size": 1}] if entry.like else entry.points()
        for point, steps in zip(points, nit[entry.id].sum(axis=1), strict=True):
            method = panel.make(entry, point)
            if entry.id == "rain" and point != points[0]:  # its steps cost the same at every point
                total += per_step * steps
                continue
            step = plain_step(method, panel)
            stretch = min(300, int(steps))
            best = np.inf
            for _ in range(3):
                start = time.perf_counter()
                for k in range(stretch):
                    step(k)
                best = min(best, (time.perf_counter() - start) / stretch)
            per_step = best
            total += per_step * steps
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = {}
    for name in PAPER:
        panel = paper_panel(name)
        start = time.process_time()
        run_study([panel], seeds=arguments.seeds, jobs=1)
        ours = time.process_time() - start
        nit = {}
        for entry in panel.entries:
            points = [{"batch_size": 1}] if entry.like else entry.points()
            methods = [panel.make(entry, point) for point in points]
            few = da.solve(panel.problem, methods, budget=panel.budget, reps=1, record=0, check=False)
            nit[entry.id] = np.repeat(few.nit, arguments.seeds, axis=1)
        with np.errstate(all="ignore"):
            plain = plain_seconds(panel, nit)
        rows[name] = {"library": ours, "plain": plain, "ratio": plain / ours}
    library, plain = (sum(row[key] for row in rows.values()) for key in ("library", "plain"))
    rows["all"] = {"library": library, "plain": plain, "ratio": plain / library}
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{arguments.seeds} seeds, seconds of one core; the plain loops are extrapolated from a sample")
    for name, row in rows.items():
        print(f"  {name:10s} library {row['library']:8.2f}   plain {row['plain']:9.1f}   ratio {row['ratio']:6.1f}")
    print("  target: ratio of all at least 25")


if __name__ == "__main__":
    main()
