"""One step of `dual_anchor` and `ohm` against `optax.sgd` with momentum, under jit with donated buffers.

A million parameters, side by side in turns, least times over repetitions. Prints a table, or with --json one list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.common import Row, at_most, main
from dualanchor.integrations.jax import dual_anchor, ohm

PARAMETERS, RATE, TARGET = 1_000_000, 0.01, 1.3


def steps_of(optimizer: optax.GradientTransformation) -> Callable[[int], float]:
    """A function that takes a number of steps and returns the microseconds of each."""

    def step(params: Any, state: Any, gradient: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    compiled = jax.jit(step, donate_argnums=(0, 1))
    gradient = jax.block_until_ready(jnp.full(PARAMETERS, 0.5))
    params = jnp.ones(PARAMETERS)
    now = params, optimizer.init(params)

    def take(count: int) -> float:
        nonlocal now
        start = time.perf_counter()
        for _ in range(count):
            now = jax.block_until_ready(compiled(*now, gradient))
        return 1e6 * (time.perf_counter() - start) / count

    take(3)  # compiles
    return take


def rows(quick: bool = False) -> list[Row]:
    """Microseconds per step, ours and that of SGD with momentum, and their ratio."""
    repeats, count = (20, 10) if quick else (100, 20)
    ours = {"dual_anchor": steps_of(dual_anchor(RATE, 1_000_000)), "ohm": steps_of(ohm(RATE))}
    momentum = steps_of(optax.sgd(RATE, momentum=0.9))
    times: dict[str, list[float]] = {name: [] for name in (*ours, "sgd")}
    for _ in range(repeats):
        for name, take in (*ours.items(), ("sgd", momentum)):
            times[name].append(take(count))
    against = min(times["sgd"])
    table = []
    for name in ours:
        title = f"optax {name}, {PARAMETERS:,} parameters, against sgd with momentum, µs"
        table.append(at_most(title, min(times[name]), against, TARGET))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
