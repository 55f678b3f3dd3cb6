"""A front door on a sampler written in JAX against the same call in NumPy: microseconds of a round, after compiling.

`da.root` with `auto`, calibration and certificate included, in 2 and 1,000 dimensions, side by side in turns, least
times over repetitions. Prints a table, or with --json one list.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dualanchor as da

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


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """Microseconds per round in JAX and in NumPy, and their ratio."""
    table = []
    for d in (2, 1000):
        calls = (in_jax, jnp.zeros(d)), (in_numpy, np.zeros(d, np.float32))
        per_round(*calls[0])  # compiles
        times = [[per_round(*call) for call in calls] for _ in range(2 if quick else 8)]
        measured, against = np.min(times, axis=0).tolist()
        title = f"da.root on a JAX sampler, d = {d:,}, a round, against NumPy, µs"
        row = {"name": title, "measured": measured, "against": against, "ratio": measured / against}
        table.append({**row, "target": TARGET, "met": row["ratio"] <= TARGET})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = rows(arguments.quick)
    if arguments.json:
        print(json.dumps(table))
        return
    for row in table:
        numbers = f"{row['measured']:7.1f} µs against {row['against']:7.1f} µs: {row['ratio']:.2f}"
        print(f"{row['name']:70s} {numbers} (target {row['target']}, {'met' if row['met'] else 'missed'})")


if __name__ == "__main__":
    main()
