"""What recording and a certificate add to a run, against the same run without.

Recording is as by default, 64 points. A certificate takes as many samples as the front doors set aside, a tenth; the
run without one spends the rest alone, and neither calibrates first.
"""

from __future__ import annotations

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_most, least, main
from dualanchor.front.request import certificate_share

TARGET = 1.1


def recording(d: int, steps: int, repeat: int) -> Row:
    """Experiment 3 at dimension d, with and without its 64 points."""
    problem = da.problems.huber_minimax(dimension=d)
    method = da.DualOHM(step_size=problem.step_size, horizon=steps + 1)
    runs = {points: lambda points=points: da.solve(problem, method, record=points) for points in (None, 0)}
    runs[0]()  # imports
    times = least(runs, repeat)
    return at_most(f"recording, d = {d:,}, {steps:,} steps, against none, s", times[None], times[0], TARGET)


def certificate(name: str, sample: da.Oracle, d: int, budget: int, repeat: int) -> Row:
    """`root` with a certificate against `root` with what is left of the budget and none."""
    left = budget - certificate_share(budget)
    given = {"L": 1.0, "sigma": 1.0, "D": float(np.sqrt(d)), "check": False, "guarantee": True}
    times = least(
        {
            "with": lambda: da.root(sample, np.zeros(d), budget=budget, **given),
            "without": lambda: da.root(sample, np.zeros(d), budget=left, certificate=False, **given),
        },
        repeat,
    )
    title = f"certificate, {name}, d = {d:,}, budget {budget:,}, against none, s"
    return at_most(title, times["with"], times["without"], TARGET)


def sampler(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return x - 1 + rng.standard_normal((n, x.size)).mean(axis=0) / np.sqrt(x.size)


def rows(quick: bool = False) -> list[Row]:
    """Recording at two dimensions, certificates of two oracles."""
    repeat, share = (2, 2) if quick else (30, 1)
    additive = da.AdditiveNoise(lambda x: x - 1, sigma=1.0)
    return [
        recording(100, 20_000 // share, repeat),
        recording(10_000, 2_000 // share, min(repeat, 15)),
        certificate("additive noise", additive, 100, 100_000, repeat),
        certificate("a sampler", da.Sampler(sampler), 100, 100_000, repeat),
    ]


if __name__ == "__main__":
    main(rows, __doc__)
