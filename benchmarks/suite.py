"""The paper's four panels, all grids and 10 seeds: the library against one run at a time in plain NumPy, core for core.

The plain loops are written out below, one point and one seed at a time. They are timed on a sample (many steps of every
method on every panel; library and sample take turns, each with all panels, and the least of three turns counts for
both) and extrapolated to the steps of all runs, in seconds of one core. A plain loop does not notice that it diverges,
so it is counted to its end; "alive" counts it only to the step at which the library saw it diverge. The library runs
everything in a fresh process, without its store, and is charged for all of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_least, at_most, main, not_measured
from dualanchor.core.streams import Purpose
from dualanchor.paper.panels import PAPER, paper_panel
from dualanchor.studies.panel import Panel
from dualanchor.studies.study import run_study

FASTER, WALL = 15.0, 25.0

TIMED = 1000  # steps of a plain loop that are timed, at most

Sample = Callable[[np.ndarray], np.ndarray]


def panels(names: Sequence[str]) -> list[Panel]:
    """The paper's panels with the paper's methods."""
    found = [paper_panel(name) for name in names]
    return [panel.only([entry.id for entry in panel.entries if not entry.ours]) for panel in found]


def plain_oracle(panel: Panel) -> tuple[np.ndarray, Callable[[int], Sample]]:
    """The start of seed 0, and a function that draws B samples and gives their mean as a function of the point.

    The operators are the paper's formulas for one point; nothing of the library runs inside.
    """
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
        F = turned(instance.root[0] - 1 / sqrt(d)) if problem.name == "worst-case-nonexpansive" else huber(problem)
        np.testing.assert_allclose(F(x0), instance.oracle.operator(x0[None])[0], rtol=1e-12, atol=1e-12)

        def draw(B: int) -> Sample:
            xi = sigma / sqrt(d * B) * rng.standard_normal(d)
            return lambda x: F(x) + xi

    return x0, draw


def turned(shift: np.ndarray) -> Sample:
    """Experiment 1."""

    def F(x: np.ndarray) -> np.ndarray:
        y = x - shift
        H = np.empty_like(y)
        H[0] = y[-1] - 2 / sqrt(y.size)
        H[1:] = -y[:-1]
        return H + y

    return F


def huber(problem: Any) -> Sample:
    """Experiment 3."""
    half, mu, delta, nu = problem.dimension // 2, problem.mu, problem.delta, problem.nu

    def F(z: np.ndarray) -> np.ndarray:
        value = (1 - delta) * np.clip(z, -nu, nu) + mu * z
        value[:half] += delta * z[half:]
        value[half:] -= delta * z[:half]
        return value

    return F


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
            steps = int(run.nit[i, 0])
            if entry.id != "rain" or i % 8 == 0:  # a step of RAIN costs the same at every point
                per_step = seconds_per_step(plain_step(method, panel), min(TIMED, max(longest)))
            alive += seeds * per_step * steps
            full += seeds * per_step * (steps if run.status[i, 0].ended_as_asked else max(longest))
    return full, alive


def seconds_per_step(step: Callable[[int], None], count: int) -> float:
    """Mean over the first steps."""
    start = time.process_time()
    for k in range(count):
        step(k)
    return (time.process_time() - start) / count


class Took(NamedTuple):
    """Seconds of a fresh process."""

    wall: float
    cores: float


def fresh_study(names: Sequence[str], seeds: int, jobs: int) -> Took:
    """Run the panels in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.suite", "--study", ",".join(names), str(seeds), str(jobs)]
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True)
    wall, after = time.perf_counter() - start, os.times()
    return Took(wall, sum(after[i] - before[i] for i in (2, 3)))


def rows(quick: bool = False) -> list[Row]:
    """Core for core, library and plain loops taking turns, and on two cores by the clock."""
    names, seeds, turns = (("exp1",), 1, 1) if quick else (tuple(PAPER), 10, 3)
    what = f"{'panel exp1' if quick else 'the four panels'}, {seeds} seed{'' if quick else 's'}"
    cores, plain = float("inf"), (float("inf"), float("inf"))
    for _ in range(turns):
        cores = min(cores, fresh_study(names, seeds, 1).cores)
        with np.errstate(all="ignore"):
            full, alive = zip(*(plain_seconds(panel, seeds) for panel in panels(names)), strict=True)
        plain = min(plain, (sum(full), sum(alive)))
    table = [
        at_least(f"{what}, against one run at a time, core s", cores, plain[0], FASTER),
        at_least(f"{what}, against one run at a time, while alive, core s", cores, plain[1], None),
    ]
    clock = f"{what}, on 2 cores, s"
    if quick:
        return [*table, not_measured(clock, WALL, "left out with --quick")]
    return [*table, at_most(clock, min(fresh_study(names, seeds, 2).wall for _ in range(turns)), None, WALL)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--study"]:
        run_study(panels(sys.argv[2].split(",")), seeds=int(sys.argv[3]), jobs=int(sys.argv[4]))
    else:
        main(rows, __doc__)
