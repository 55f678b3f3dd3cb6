"""What an accuracy costs: samples of `da.root(eps=...)` over those of averaged SGDA with the best step.

The other side is told the best step and when to stop: the first n at which the root mean square residual is at most
eps. That is no method, but nothing that sees only samples can do much better.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_most, main

_STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 1.5)  # over L
_REPS = 32


class Case(NamedTuple):
    """F takes rows; the noise has the same variance in every coordinate."""

    F: Callable
    root: np.ndarray
    L: float
    sigma: float
    eps: float

    def sample(self, x, n, rng):
        return self.F(x[None])[0] + self.sigma / np.sqrt(len(x) * n) * rng.normal(size=len(x))

    def samples(self, seed: int, **known: float) -> int:
        """Evaluations of a front door, which must succeed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = da.root(self.sample, np.zeros(len(self.root)), eps=self.eps, seed=seed, **known)
        assert result.success
        return int(result.nfev)

    def best(self) -> int:
        """Samples of averaged SGDA with the best step."""
        fewest = 1 << 20
        for step in _STEPS:
            rng = np.random.default_rng(1)
            y = np.zeros((_REPS, len(self.root)))
            x, k, following = y.copy(), 0, 16
            while k < fewest:
                k += 1
                noise = self.sigma / np.sqrt(len(self.root)) * rng.normal(size=y.shape)
                y = y - step / self.L * (self.F(y) + noise)
                x += 2 / (k + 1) * (y - x)
                if k >= following:
                    following = int(1.05 * following) + 1
                    if np.sqrt((self.F(x) ** 2).sum(axis=1).mean()) <= self.eps:
                        fewest = k
        return fewest


def cases() -> dict[str, Case]:
    """Operators in 1 to 100 dimensions: curved, turning, ill-conditioned, bent, far away."""
    rng, turn = np.random.default_rng(7), np.kron(np.eye(10), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    points = {d: rng.normal(size=d) for d in (1, 2, 5, 10, 20, 30, 100)}
    map_ = rng.normal(size=(20, 20))
    map_ /= np.linalg.norm(map_, 2)

    def curved(d, least):
        h = np.geomspace(least, 1, d) if d > 1 else np.ones(1)
        return lambda x: h * (x - points[d])

    return {
        "d = 1": Case(curved(1, 1.0), points[1], 1.0, 1.0, 0.05),
        "d = 2": Case(curved(2, 0.2), points[2], 1.0, 1.0, 0.05),
        "d = 10": Case(curved(10, 0.2), points[10], 1.0, 1.0, 0.03),
        "d = 100": Case(curved(100, 0.2), points[100], 1.0, 1.0, 0.03),
        "ill-conditioned, d = 30": Case(curved(30, 0.01), points[30], 1.0, 1.0, 0.02),
        "turning, d = 20": Case(
            lambda x: 0.3 * (x - points[20]) + 0.5 * (x - points[20]) @ turn.T, points[20], 0.34 / 0.3, 1.0, 0.02
        ),
        "nonexpansive, d = 20": Case(
            lambda x: (x - points[20]) - (x - points[20]) @ map_.T, points[20], 2.0, 1.0, 0.03
        ),
        "tanh, d = 10": Case(lambda x: np.tanh(x - points[10]), points[10], 1.0, 0.5, 0.02),
        "Huber, d = 10": Case(lambda x: np.clip(x - points[10], -0.3, 0.3), points[10], 1.0, 0.3, 0.01),
        "far, d = 5": Case(lambda x: 0.5 * (x - 5 * points[5]), 5 * points[5], 0.5, 0.3, 0.01),
    }


def rows(quick: bool = False) -> list[Row]:
    """Median and worst ratio with no constants, and the samples with all constants over those with none."""
    ratios, knowing, table = [], [], []
    for name, case in list(cases().items())[: 3 if quick else None]:
        seeds, best = range(1 if quick else 5), case.best()
        known = {"L": case.L, "sigma": case.sigma, "D": float(np.linalg.norm(case.root))}
        none, everything = (np.mean([case.samples(seed, **given) for seed in seeds]) for given in ({}, known))
        table.append(at_most(f"eps = {case.eps}, {name}, samples against tuned averaging", none, best, 12.0))
        ratios.append(none / best)
        knowing.append(everything / none)
    table.append(at_most("eps, samples against tuned averaging, median", float(np.median(ratios)), 1.0, 6.0))
    table.append(at_most("eps, samples with all constants against none, median", float(np.median(knowing)), 1.0, 1.1))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
