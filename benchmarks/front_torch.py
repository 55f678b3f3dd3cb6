"""Time of `da.saddle(phi, ...)` on tensors against a loop by hand with the same calls of phi, d = 100,000.

Both take the steps of S-Dual-OHM with batches of one sample; the loop is what one would write with torch.autograd.grad.
Prints a row, or with --json a list of rows. Least times over interleaved repetitions: the machine may be noisy.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import dualanchor as da
from benchmarks.common import Row, at_most, main

DIMENSION, TARGET, STEP = 100_000, 1.5, 0.5


def phi(u: Any, v: Any, n: int, rng: Any) -> Any:
    noise = torch.randn(u.shape, generator=rng) / n**0.5
    return u @ u / 2 + u @ (v + noise) - v @ v / 2


def by_hand(rounds: int) -> None:
    """The recurrence of S-Dual-OHM, one vector for both players, one generator."""
    half, N = DIMENSION // 2, rounds + 1
    x, rng = torch.ones(DIMENSION), torch.Generator().manual_seed(0)
    z = torch.zeros_like(x)
    for k in range(rounds):
        flat = x.clone().requires_grad_()
        (G,) = torch.autograd.grad(phi(flat[:half], flat[half:], 1, rng), flat)
        G[half:].neg_()
        z.mul_((N - k - 1) / (N - k)).sub_(G, alpha=STEP / (N - k))
        x.sub_(G, alpha=STEP).sub_(z)


def at_the_door(rounds: int) -> None:
    start = (torch.ones(DIMENSION // 2), torch.ones(DIMENSION // 2))
    method = da.DualOHM(step_size=STEP, horizon=rounds + 1)
    da.saddle(phi, start, budget=rounds, method=method, L=2.0, check=False, certificate=False)


def rows(quick: bool = False) -> list[Row]:
    """Microseconds per round of both, and their ratio."""
    repeat, rounds = (2, 50) if quick else (10, 300)
    best = {by_hand: float("inf"), at_the_door: float("inf")}
    for turn in range(repeat + 1):
        for run in best:
            start = time.perf_counter()
            run(rounds)
            if turn:  # the first warms up
                best[run] = min(best[run], 1e6 * (time.perf_counter() - start) / rounds)
    measured, against = best[at_the_door], best[by_hand]
    name = f"da.saddle(phi, ...) on tensors against a loop by hand, d = {DIMENSION:,}, µs per round"
    return [at_most(name, measured, against, TARGET)]


if __name__ == "__main__":
    main(rows, __doc__)
