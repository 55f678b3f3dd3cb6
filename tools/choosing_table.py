"""Print the measured numbers of docs/choosing.md: root mean square residuals, 20 replications, seed 100.

python tools/choosing_table.py
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import dualanchor as da
from dualanchor.methods.auto import Auto
from dualanchor.methods.averaged import AveragedSGDA

METHODS = ("averaged", "dual-ohm", "auto", "s-dual-ohm", "sgda")


def bent() -> da.Problem:
    """F(x) = x below 0 and x/10 above, in four coordinates, from (1, 1, 1, 1)."""
    oracle = da.AdditiveNoise(lambda x: np.where(x < 0, x, x / 10), 1.0, vectorized=True)
    constants = da.Constants(L=1.0, mu=0.1, sigma=1.0, D=2.0)
    return da.Problem(oracle, x0=np.ones(4), root=np.zeros(4), constants=constants, name="bent")


def skew() -> da.Problem:
    """A quarter turn of the plane, from (1, 0): monotone and Lipschitz, not cocoercive."""
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    oracle = da.AdditiveNoise(lambda x: x @ turn, 0.1, vectorized=True)
    constants = da.Constants(M=1.0, sigma=0.1, D=1.0)
    return da.Problem(oracle, x0=np.array([1.0, 0.0]), root=np.zeros(2), constants=constants, name="skew")


def least_squares() -> da.Problem:
    """500 rows of norm 1 in ten dimensions, so that L = 1, and noise 0.3 in the targets."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 10))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    targets = rows @ np.ones(10) + 0.3 * rng.normal(size=500)
    root = np.linalg.lstsq(rows, targets, rcond=None)[0]
    oracle = da.FiniteSum.rank_one(rows, targets=targets)
    return da.Problem(oracle, x0=np.zeros(10), root=root, constants=da.Constants(L=1.0), name="least squares")


def residual(problem: da.Problem, method: Any, reps: int = 20, **limits: Any) -> str:
    """Root mean square residual, and the rounds."""
    result = da.solve(problem, method, reps=reps, seed=100, record=0, check=False, **limits)
    return f"{np.sqrt(np.mean(np.square(result.residual))):.2g} ({np.max(result.nit)} rounds)"


def main() -> None:
    turning = da.problems.affine(rotation=1.0, sigma=1.0)
    print("20,000 samples:", *METHODS)
    for problem in (
        da.problems.affine(rotation=0.0, sigma=1.0),
        turning,
        da.problems.worst_case_nonexpansive(dimension=201),
        da.problems.huber_minimax(sigma=1.5),
        da.problems.finite_sum_cocoercive(),
        bent(),
    ):
        print(problem.name, *(residual(problem, name, budget=20_000) for name in METHODS), sep=" | ")

    print("\nnot cocoercive, 20,000 samples")
    dual = da.DualOHM(0.5, horizon=61, batch_size=300)
    print("dual-ohm, step 0.5, 60 rounds of 300:", residual(skew(), dual))
    for name in ("seg", "rain-double-loop", "rain", da.averaged(da.SEG(0.25))):
        print(f"{name}:", residual(skew(), name, budget=20_000))

    print("\naffine, 60 rounds of 300")
    for step in (2.0, 2 / 0.9, 1.0, 1 / 0.5):
        print(f"step {step:.3g}:", residual(turning, da.DualOHM(step, horizon=61, batch_size=300)))

    print("\nleast squares, 5,000 samples")
    for a in (1.0, 2.0):
        tapered = da.DualOHM(a, horizon=300, batch_size=da.Tapered(900.0))
        for method in (AveragedSGDA(a), da.SGDA(a), da.DualOHM(a, horizon=5001), tapered):
            limits = {} if method.horizon else {"budget": 5000}
            print(f"{method}:", residual(least_squares(), method, **limits))

    print("\nL larger than it is")
    for L in (1.0, 5.0, 100.0):
        samples = da.plan(eps=0.05, L=L, D=1.0, sigma=1.0).samples
        print(f"L = {L:g}: {samples:,} samples planned; auto, 2,000:", residual(turning, Auto(1 / L, 2000)))

    print("\nplans, 50 replications")
    for problem, eps in ((turning, 0.05), (da.problems.huber_minimax(dimension=20, sigma=0.5), 0.1)):
        k = problem.constants
        plan = da.plan(eps=eps, L=k.L, D=k.D, sigma=k.sigma, mu=k.mu)
        found = residual(problem, plan.method(), reps=50, stop=da.Steps(plan.stop))
        print(f"{problem.name}, eps = {eps:g}, {plan.samples:,} samples:", found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
