"""A front door on a sampler written in JAX against the same call in NumPy: microseconds of a round, after compiling.

`da.root` with `auto`, calibration and certificate included, in 2 and 1,000 dimensions, side by side in turns, least
times over repetitions. Prints a table, or with --json one list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_most, main

BUDGET, TARGET = 20_000, 1.0


def in_jax(x: Any, n: Any, key: Any) -> Any:
    return x - 1 + jax.random.normal(key, x.shape) / jnp.sqrt(n)


def in_numpy(x: Any, n: int, rng: np.random.Generator) -> Any:
    return x - 1 + rng.standard_normal(x.shape, x.dtype) / np.float32(n**0.5)


def per_round(sample: Callable[..., Any], x0: Any) -> float:
    """Microseconds of a round of one call."""
    start = time.perf_counter()
    result = da.root(sample, x0, budget=BUDGET, L=1.0, seed=1)
    return 1e6 * (time.perf_counter() - start) / result.nit


def rows(quick: bool = False) -> list[Row]:
    """Microseconds per round in JAX and in NumPy, and their ratio."""
    table = []
    for d in (2, 1000):
        calls = (in_jax, jnp.zeros(d)), (in_numpy, np.zeros(d, np.float32))
        per_round(*calls[0])  # compiles
        times = [[per_round(*call) for call in calls] for _ in range(2 if quick else 8)]
        measured, against = np.min(times, axis=0).tolist()
        title = f"da.root on a JAX sampler, d = {d:,}, a round, against NumPy, µs"
        table.append(at_most(title, measured, against, TARGET))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
