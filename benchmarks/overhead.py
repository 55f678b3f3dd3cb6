"""Time per iteration of `solve` against a hand-inlined NumPy loop and scipy's `fixed_point`, side by side.

S-Dual-OHM with one sample per step at d = 100, on the operators of experiments 3 (d = 100 there, too) and 1.
The inlined loops do the same arithmetic on the same noise and must end at the same point, bit for bit.
Prints a table, or with --json one object. Least times over interleaved repetitions: the machine may be noisy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from math import sqrt

import numpy as np
from scipy.optimize import fixed_point

import dualanchor as da
from dualanchor.core.streams import Handle, Kind, Purpose

D, BLOCK, TARGET = 100, 128, 1.6


def noise_vectors(steps: int) -> Iterator[np.ndarray]:
    """The library's noise of replication 0 for seed 0, drawn in the same blocks: 2, 2, 4, .. 128, 128, .. vectors."""
    source, number, length = Handle(0, Purpose.NOISE, 0, Kind.NORMALS), 0, 2
    while steps > 0:
        yield from source.generator(number).standard_normal((length, D))
        steps -= length
        length = min(BLOCK, 2 * length) if number else length
        number += 1


def inlined_huber(x0: np.ndarray, steps: int, alpha: float, sigma: float) -> np.ndarray:
    """Experiment 3 with everything written out."""
    N, mu, delta, nu, half = steps + 1, 0.1, 1e-2, 5e-5, D // 2
    x, z, scale = x0.copy(), np.zeros(D), sigma / sqrt(D)
    for k, xi in zip(range(steps), noise_vectors(steps), strict=False):
        G = np.clip(x, -nu, nu)
        G *= 1 - delta
        G += mu * x
        G[:half] += delta * x[half:]
        G[half:] -= delta * x[:half]
        G = G + scale * xi
        z *= (N - k - 1) / (N - k)
        z -= alpha / (N - k) * G
        x -= alpha * G + z
    return x


def inlined_worst_case(offset: np.ndarray, steps: int, alpha: float, sigma: float) -> np.ndarray:
    """Experiment 1 with everything written out; F(x) = x + H'x - offset with H' the linear part of H."""
    N = steps + 1
    x, z, scale = np.zeros(D), np.zeros(D), sigma / sqrt(D)
    for k, xi in zip(range(steps), noise_vectors(steps), strict=False):
        G = x - offset
        G[0] += x[-1]
        G[1:] -= x[:-1]
        G = G + scale * xi
        z *= (N - k - 1) / (N - k)
        z -= alpha / (N - k) * G
        x -= alpha * G + z
    return x


def start_of_huber() -> np.ndarray:
    """The random unit vector of replication 0 for seed 0."""
    start = da.Streams(0, np.arange(1), Purpose.START).generators()[0].standard_normal(D)
    return start / np.linalg.norm(start)


def offset_of_worst_case() -> np.ndarray:
    """(I + H')s plus the constant of H, for the shift s of replication 0 and seed 0."""
    shift = da.Streams(0, np.arange(1), Purpose.INSTANCE).generators()[0].standard_normal(D)
    offset = shift.copy()
    offset[0] += shift[-1]
    offset[1:] -= shift[:-1]
    offset[0] += 2 / sqrt(D)
    return offset


def best(functions: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Least time of each, the functions taking turns."""
    times = {name: float("inf") for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def scipy_iteration(problem: da.Problem, steps: int) -> None:
    """The same operator without noise in scipy's loop; its last words, that it did not converge, are expected."""
    instance = problem.instance(da.Streams(0, np.arange(1), Purpose.INSTANCE))
    alpha, F = problem.step_size, instance.oracle.operator
    try:
        fixed_point(lambda x: x - alpha * F(x), instance.x0, method="iteration", maxiter=steps, xtol=0.0)
    except RuntimeError:
        return


def measure(
    problem: da.Problem, inlined: Callable[..., np.ndarray], start: np.ndarray, steps: int, repeat: int
) -> dict:
    """Microseconds per iteration and their ratios on one problem."""
    method = da.DualOHM(step_size=problem.step_size, horizon=steps + 1)
    arguments = (start, steps, problem.step_size, problem.constants.sigma)
    if not np.array_equal(da.solve(problem, method).x, inlined(*arguments)):
        raise SystemExit(f"{problem.name}: the two loops must do the same arithmetic")
    few = steps // 10
    times = best(
        {
            "solve": lambda: da.solve(problem, method),
            "solve, not recording": lambda: da.solve(problem, method, record=0),
            "hand-inlined": lambda: inlined(*arguments),
            "scipy fixed_point": lambda: scipy_iteration(problem, few),
        },
        repeat,
    )
    micro = {name: 1e6 * t / (few if name.startswith("scipy") else steps) for name, t in times.items()}
    return {
        "microseconds": micro,
        "solve / hand-inlined": micro["solve"] / micro["hand-inlined"],
        "scipy fixed_point / solve": micro["scipy fixed_point"] / micro["solve"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    size = (arguments.steps, arguments.repeat)
    report = {
        "huber-minimax": measure(da.problems.huber_minimax(), inlined_huber, start_of_huber(), *size),
        "worst-case-nonexpansive": measure(
            da.problems.worst_case_nonexpansive(dimension=D), inlined_worst_case, offset_of_worst_case(), *size
        ),
    }
    if arguments.json:
        print(json.dumps(report))
        return
    print(f"d = {D}, B = 1, {arguments.steps} iterations, least of {arguments.repeat}")
    for name, row in report.items():
        print(f"\n{name}")
        for what, value in row["microseconds"].items():
            print(f"  {what:28s} {value:8.2f} µs per iteration")
        print(f"  {'solve / hand-inlined':28s} {row['solve / hand-inlined']:8.2f}   target at most {TARGET}")
        print(f"  {'scipy fixed_point / solve':28s} {row['scipy fixed_point / solve']:8.2f}")


if __name__ == "__main__":
    main()
