"""Certified plans on the three families and `affine`: what is promised, what is measured, what the paper's plan needs.

For each problem eps is chosen so that the plan, made from L, D and sigma alone, needs about the samples asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_least, at_most, main

PROBLEMS = {
    "worst-case-nonexpansive": da.problems.worst_case_nonexpansive(dimension=101, sigma=0.5),
    "finite-sum-cocoercive": da.problems.finite_sum_cocoercive(components=40, dimension=20, rank=15),
    "huber-minimax": da.problems.huber_minimax(dimension=20, sigma=0.5),
    "affine": da.problems.affine(dimension=20, sigma=1.0, rotation=1.0),
}


def plan_for(problem: da.Problem, eps: float, **options: Any) -> da.Plan:
    """The plan from (L, D, sigma) alone."""
    known = problem.constants
    return da.plan(eps=eps, L=known.L, D=known.D, sigma=known.sigma, **options)


def accuracy_for(problem: da.Problem, samples: float) -> float:
    """The eps whose plan needs about this number of samples."""
    high = problem.constants.L * problem.constants.D
    low = 1e-6 * high
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if plan_for(problem, middle).samples <= samples else (middle, high)
    return high


def measure(problem: da.Problem, eps: float, reps: int, seed: int = 0) -> dict[str, float]:
    """Promise, measured mean square with its standard error, and samples of all three plans."""
    plan = plan_for(problem, eps)
    squares = da.solve(problem, plan.method(), reps=reps, seed=seed, record=0).residual ** 2
    return {
        "eps": eps,
        "samples": plan.samples,
        "rounds": plan.rounds,
        "mean square": float(squares.mean()),
        "standard error": float(squares.std(ddof=1) / np.sqrt(reps)),
        "constant": plan_for(problem, eps, batches="constant").samples,
        "paper": plan_for(problem, eps, bound="paper").samples,
    }


def rows(quick: bool = False) -> list[Row]:
    """The root mean square residual against eps, and the samples against those of the two other plans."""
    samples, reps = (1e4, 50) if quick else (1e5, 100)
    table = []
    for name, problem in PROBLEMS.items():
        row = measure(problem, accuracy_for(problem, samples), reps)
        title = f"certified plan, {name}"
        table.append(at_most(f"{title}, rms residual against eps", row["mean square"] ** 0.5, row["eps"], 1.0))
        for other, plan in (("constant batches", "constant"), ("the paper's plan", "paper")):
            table.append(at_least(f"{title}, samples against {other}", row["samples"], row[plan], 1.0))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
