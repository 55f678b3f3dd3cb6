"""How long `plan` takes to answer, over constants on wide logarithmic ranges; no answer should take 50 ms."""

from __future__ import annotations

import time

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_most, main

TARGET = 50.0


def rows(quick: bool = False) -> list[Row]:
    """The largest of the least milliseconds of many questions of each kind, each asked twice."""
    rng, questions, asked = np.random.default_rng(0), 20 if quick else 50, 2
    da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0)
    table = []
    for name, spread, mu, target in (
        ("eps", 3, False, "eps"),
        ("eps, numbers up to 1e15 and beyond", 8, False, "eps"),
        ("eps, mu > 0", 3, True, "eps"),
        ("budget", 3, False, "budget"),
        ("budget of 1e15", 3, False, "large"),
    ):
        times = []
        for _ in range(questions):
            L, D, sigma = (float(x) for x in 10 ** rng.uniform(-spread, spread, 3))
            options: dict[str, float] = {"L": L, "D": D, "sigma": sigma}
            options |= {"mu": L * float(10 ** rng.uniform(-4, 0))} if mu else {}
            goal = {
                "eps": {"eps": L * D * float(10 ** rng.uniform(-spread, 0))},
                "budget": {"budget": int(10 ** rng.uniform(1, 7))},
                "large": {"budget": 10**15},
            }[target]
            times.append(1e3 * min(_seconds(options, goal) for _ in range(asked)))
        table.append(at_most(f"plan, {name}, slowest of {questions}, ms", max(times), None, TARGET))
    return table


def _seconds(options: dict[str, float], goal: dict[str, float]) -> float:
    start = time.perf_counter()
    da.plan(**options, **goal)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(rows, __doc__)
