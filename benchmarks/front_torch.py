"""Time of `da.saddle(phi, ...)` on tensors against a loop by hand with the same calls of phi, d = 100,000.

Both take the steps of S-Dual-OHM with batches of one sample; the loop is what one would write with torch.autograd.grad.
Prints a row, or with --json a list of rows. Least times over interleaved repetitions: the machine may be noisy.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

import dualanchor as da

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


def rows(quick: bool = False) -> list[dict[str, Any]]:
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
    ratio = measured / against
    row = {"name": name, "measured": measured, "against": against, "ratio": ratio, "target": TARGET}
    return [{**row, "met": ratio <= TARGET}]


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
        met = "met" if row["met"] else "missed"
        print(
            f"{row['name']} {row['measured']:.0f} / {row['against']:.0f} = {row['ratio']:.2f} ({met}), at most {TARGET}"
        )


if __name__ == "__main__":
    main()
