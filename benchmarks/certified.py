"""Certified plans on the three families and `affine`: what is promised, what is measured, what the paper's plan needs.

For each problem eps is chosen so that the plan, made from L, D and sigma alone, needs about the samples asked for.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import dualanchor as da

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
    """The eps whose plan needs about so many samples."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=float, default=3e5)
    parser.add_argument("--reps", type=int, default=200)
    arguments = parser.parse_args()
    print("problem                  eps       samples   rounds  measured rms / eps  constant batches  paper's plan")
    for name, problem in PROBLEMS.items():
        row = measure(problem, accuracy_for(problem, arguments.samples), arguments.reps)
        rms = row["mean square"] ** 0.5 / row["eps"]
        times = (f"{row[key] / row['samples']:13.1f} x" for key in ("constant", "paper"))
        print(f"{name:24s} {row['eps']:<9.3g} {row['samples']:<9,} {row['rounds']:<7,} {rms:18.3f}  {'  '.join(times)}")


if __name__ == "__main__":
    main()
