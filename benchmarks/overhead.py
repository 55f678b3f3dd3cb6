"""Time per iteration of `solve` against a hand-inlined NumPy loop and scipy's `fixed_point`, side by side.

The inlined loop does the same arithmetic on the same noise and must end at the same point, bit for bit.
Prints a table, or with --json one object. Minima over interleaved repetitions: the machine may be noisy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from math import sqrt

import numpy as np
from scipy.optimize import fixed_point

import dualanchor as da
from dualanchor.core.streams import Kind, Purpose

D, SIGMA = 100, 0.1


def inlined(offset: np.ndarray, steps: int) -> np.ndarray:
    """S-Dual-OHM on the worst-case operator, everything written out, noise in the library's blocks."""
    N, alpha = steps + 1, 1.0
    x, z = np.zeros(D), np.zeros(D)
    scale, length = SIGMA / sqrt(D), 256
    for k in range(steps):
        i = k % length
        if i == 0:
            key = (Purpose.NOISE, 0, Kind.NORMALS, k // length)
            rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(0, spawn_key=key)))
            noise = rng.standard_normal((length, D))
        G = x - offset
        G[1:] -= x[:-1]
        G[0] += x[-1]
        G = G + scale * noise[i]
        z *= (N - k - 1) / (N - k)
        z -= alpha / (N - k) * G
        x -= alpha * G + z
    return x


def best(functions: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Least time of each, the functions taking turns."""
    times = {name: float("inf") for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    steps = arguments.steps

    problem = da.problems.worst_case_nonexpansive(dimension=D, sigma=SIGMA)
    method = da.DualOHM(step_size=1.0, horizon=steps + 1)
    shift = da.Streams(0, np.arange(1), Purpose.INSTANCE).generators()[0].standard_normal(D)
    offset = shift.copy()  # F(x) = x + H'x - offset
    offset[1:] -= shift[:-1]
    offset[0] += shift[-1]
    offset[0] += 2 / sqrt(D)
    result = da.solve(problem, method)
    assert np.array_equal(result.x, inlined(offset, steps)), "the two loops must do the same arithmetic"

    def T(x: np.ndarray) -> np.ndarray:
        G = x - offset
        G[1:] -= x[:-1]
        G[0] += x[-1]
        return x - G

    few = steps // 10

    def scipy_steps() -> None:
        try:
            fixed_point(T, np.zeros(D), method="iteration", maxiter=few, xtol=0.0)
        except RuntimeError:
            return  # it ends with "failed to converge after maxiter iterations", as asked

    times = best(
        {
            "solve": lambda: da.solve(problem, method),
            "solve, no recording": lambda: da.solve(problem, method, record=0),
            "inlined": lambda: inlined(offset, steps),
            "scipy": scipy_steps,
        },
        arguments.repeat,
    )
    micro = {name: 1e6 * seconds / (few if name == "scipy" else steps) for name, seconds in times.items()}
    rows = [
        ("solve / hand-inlined loop", micro["solve"] / micro["inlined"], "<= 1.6"),
        ("solve without recording / hand-inlined loop", micro["solve, no recording"] / micro["inlined"], ""),
        ("scipy fixed_point / solve", micro["scipy"] / micro["solve"], ""),
    ]
    if arguments.json:
        print(json.dumps({"microseconds": micro, "ratios": {name: ratio for name, ratio, _ in rows}}))
        return
    print(f"d = {D}, B = 1, {steps} iterations, least of {arguments.repeat}")
    for name, value in micro.items():
        print(f"  {name:45s} {value:8.2f} µs per iteration")
    for name, ratio, target in rows:
        print(f"  {name:45s} {ratio:8.2f} {'target ' + target if target else ''}")


if __name__ == "__main__":
    main()
