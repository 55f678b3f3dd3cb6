"""Most memory that a solve holds at any time at d = 1e7, in vectors: x, z and the value of F are three.

Counted by tracemalloc from before `solve` is called, to a hundredth of a vector, with recording as by default; the
start belongs to the user. The sampler returns a new vector, as any sampler must, and makes no other.
"""

from __future__ import annotations

import tracemalloc

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_most, main

STEPS, TARGET = 4, 4.0


def half(x: np.ndarray) -> np.ndarray:
    return 0.5 * x


def sample(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    value = rng.standard_normal(x.size)
    value *= 2 / np.sqrt(n * x.size)
    value += x
    value *= 0.5
    return value


ORACLES = {
    "AdditiveNoise": da.AdditiveNoise(half, sigma=1.0),
    "AdditiveNoise, vectorized": da.AdditiveNoise(half, sigma=1.0, vectorized=True),
    "Sampler": da.Sampler(sample),
}


def most_vectors(oracle: da.Oracle, d: int) -> float:
    """The peak of one solve, in vectors of d doubles."""
    problem = da.Problem(oracle, np.ones(d), constants=da.Constants(L=0.5, sigma=1.0))
    method = da.DualOHM(step_size=1.0, horizon=STEPS + 1)
    tracemalloc.start()
    try:
        da.solve(problem, method)
        return round(tracemalloc.get_traced_memory()[1] / (8 * d), 2)
    finally:
        tracemalloc.stop()


def rows(quick: bool = False) -> list[Row]:
    """Vectors at the peak, against one."""
    d = 2_500_000 if quick else 10_000_000
    table = []
    for name, oracle in ORACLES.items():
        most_vectors(oracle, 1 << 17)  # imports
        table.append(at_most(f"memory of solve, {name}, d = {d:,}, vectors", most_vectors(oracle, d), 1.0, TARGET))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
