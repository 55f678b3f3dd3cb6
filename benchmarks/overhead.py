"""What the library adds to a user's own sampler: `solve` and `root` against a hand-written NumPy loop around it.

The sampler takes about 3 or 50 µs. `solve` runs S-Dual-OHM with one sample per step; the loop does the same arithmetic.
`root` spends a budget with its default method, calibration and certificate included; the loop beside it is averaged
SGDA with as many samples, as many in each round. Processor time, the least of several runs that take turns. With the
paper's operators and additive noise, scipy's fixed-point iteration stands beside it, step by step, as an operator
needs that is sampled anew at each of them.
"""

from __future__ import annotations

import time
import timeit
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import fixed_point

import dualanchor as da
from benchmarks.common import Row, at_least, at_most, least, main
from dualanchor.core.streams import Purpose

BUDGET = 20_000
SOLVE, ROOT = {3: 2.0, 50: 1.2}, {3: 3.0, 50: 1.3}


Sample = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def sampler(d: int, micros: float) -> Sample:
    """Samples of a diagonal operator that take about `micros` microseconds of processor time."""
    slopes, idle = np.linspace(0.5, 1.0, d), np.zeros(64)
    repeats = 0

    def sample(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        value = slopes * x + rng.standard_normal(d) / n**0.5
        for _ in range(repeats):
            idle.fill(0.0)
        return value

    x, rng = np.ones(d), np.random.default_rng(0)
    while (seconds := min(timeit.repeat(lambda: sample(x, 1, rng), number=300, repeat=7)) / 300) < 1e-6 * micros:
        repeats += max(1, int((1e-6 * micros - seconds) / 4e-7))
    return sample


def dual_ohm_loop(sample: Sample, d: int, steps: int) -> np.ndarray:
    """S-Dual-OHM with one sample per step, written out."""
    rng, N, alpha = np.random.default_rng(0), steps + 1, 1.0
    x, z = np.ones(d), np.zeros(d)
    for k in range(steps):
        G = sample(x, 1, rng)
        z *= (N - k - 1) / (N - k)
        z -= alpha / (N - k) * G
        x -= alpha * G + z
    return x


def averaged_loop(sample: Sample, d: int, samples: int, each: int) -> np.ndarray:
    """Averaged SGDA with `each` samples per round, written out."""
    rng, alpha = np.random.default_rng(0), 0.5
    y, mean = np.ones(d), np.zeros(d)
    for k in range(samples // each):
        y -= alpha * sample(y, each, rng)
        mean += 2 / (k + 2) * (y - mean)
    return mean


def of_a_sampler(d: int, micros: int, steps: int, repeat: int) -> list[Row]:
    """Rows for one sampler."""
    sample, x0 = sampler(d, micros), np.ones(d)
    problem = da.Problem(da.Sampler(sample), x0, constants=da.Constants(L=1.0))
    method = da.DualOHM(1.0, steps + 1)
    each = max(1, (BUDGET - BUDGET // 10 - BUDGET // 20) // 10_000)  # as the default method does
    sides: dict[str, Callable[[], Any]] = {
        "solve": lambda: da.solve(problem, method),
        "loop": lambda: dual_ohm_loop(sample, d, steps),
        "root": lambda: da.root(sample, x0, budget=BUDGET),
        "root, L": lambda: da.root(sample, x0, budget=BUDGET, L=1.0),
        "averaged": lambda: averaged_loop(sample, d, BUDGET, each),
    }
    for side in ("solve", "root"):
        sides[side]()  # imports
    times = least(sides, repeat, clock=time.process_time)
    micro = {name: 1e6 * t / (steps if name in ("solve", "loop") else BUDGET) for name, t in times.items()}
    title = f"d = {d}, sampler of {micros} µs, against a hand-written loop, µs per sample"
    return [
        at_most(f"solve with a Sampler, {title}", micro["solve"], micro["loop"], SOLVE[micros]),
        at_most(f"root(budget={BUDGET:_}), {title}", micro["root"], micro["averaged"], ROOT[micros]),
        at_most(f"root(budget={BUDGET:_}, L=...), {title}", micro["root, L"], micro["averaged"], ROOT[micros]),
    ]


def of_a_known_operator(problem: da.Problem, steps: int, repeat: int) -> Row:
    """Additive noise on one of the paper's operators, beside scipy's iteration without noise, one step per call."""
    instance = problem.instance(da.Streams(0, np.arange(1), Purpose.INSTANCE))
    alpha, few = problem.step_size, steps // 10

    def scipy_steps() -> None:
        x = instance.x0
        for _ in range(few):
            x = fixed_point(
                lambda x: x - alpha * instance.oracle.operator(x), x, method="iteration", maxiter=1, xtol=np.inf
            )

    method = da.DualOHM(alpha, steps + 1)
    times = least({"ours": lambda: da.solve(problem, method), "scipy": scipy_steps}, repeat, clock=time.process_time)
    title = f"solve, {problem.name}, d = {problem.dimension}, against scipy, step by step, µs per iteration"
    return at_least(title, 1e6 * times["ours"] / steps, 1e6 * times["scipy"] / few, None)


def rows(quick: bool = False) -> list[Row]:
    """Samplers of two speeds in two dimensions; then the paper's operators."""
    warnings.simplefilter("ignore", da.errors.AssumptionWarning)
    table = []
    for d in (2, 100):
        table += of_a_sampler(d, 3, 2_000 if quick else 20_000, 3 if quick else 9)
        table += of_a_sampler(d, 50, 500 if quick else 4_000, 2 if quick else 5)
    for problem in (da.problems.huber_minimax(), da.problems.worst_case_nonexpansive(dimension=100)):
        table.append(of_a_known_operator(problem, 2_000 if quick else 20_000, 3 if quick else 9))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
