"""A front door on a sampler written in JAX: microseconds of a round, after compiling.

`da.root` with `auto`, calibration and certificate included, in 2 and 1,000 dimensions: as it is, against a loop by hand
that is compiled as a whole (averaged steps, the same samples), and against the same call in NumPy.
Side by side in turns, least times over repetitions. Prints a table, or with --json one list.
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

BUDGET, MICROSECONDS, TARGET = 20_000, 20.0, 1.0


def in_jax(x: Any, n: Any, key: Any) -> Any:
    return x - 1 + jax.random.normal(key, x.shape) / jnp.sqrt(n)


def in_numpy(x: Any, n: int, rng: np.random.Generator) -> Any:
    return x - 1 + rng.standard_normal(x.shape, x.dtype) / np.float32(n**0.5)


@jax.jit
def by_hand(x: Any, key: Any) -> Any:
    """Steps and their mean, without a look at anything."""

    def step(k: Any, now: Any) -> Any:
        x, mean = now
        return x - 0.1 * in_jax(x, 1.0, jax.random.fold_in(key, k)), mean + (x - mean) / (k + 1)

    return jax.lax.fori_loop(0, BUDGET, step, (x, x))


def per_round_by_hand(x0: Any) -> float:
    """Microseconds of a round of the loop by hand."""
    start = time.perf_counter()
    jax.block_until_ready(by_hand(x0, jax.random.key(1)))
    return 1e6 * (time.perf_counter() - start) / BUDGET


def per_round(sample: Callable[..., Any], x0: Any) -> float:
    """Microseconds of a round of one call."""
    start = time.perf_counter()
    result = da.root(sample, x0, budget=BUDGET, L=1.0, seed=1)
    return 1e6 * (time.perf_counter() - start) / result.nit


def rows(quick: bool = False) -> list[Row]:
    """Microseconds per round, also against a loop by hand and against NumPy."""
    table = []
    for d in (2, 1000):
        x0, start = jnp.zeros(d), np.zeros(d, np.float32)
        per_round(in_jax, x0), per_round_by_hand(x0)  # compiles
        times = [
            (per_round(in_jax, x0), per_round_by_hand(x0), per_round(in_numpy, start)) for _ in range(2 if quick else 8)
        ]
        measured, floor, against = np.min(times, axis=0).tolist()
        title = f"da.root on a JAX sampler, d = {d:,}, a round"
        table.append(at_most(f"{title}, µs", measured, None, MICROSECONDS))
        table.append(at_most(f"{title}, against a loop by hand, µs", measured, floor, None))
        table.append(at_most(f"{title}, against NumPy, µs", measured, against, TARGET))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
