"""How often the intervals of `da.infer` contain the root, on four estimating equations.

Writes a table into docs/inference.md, between the markers. Takes about a quarter of an hour on one core.

    python tools/inference_table.py            # print the table and write it
    python tools/inference_table.py --print    # print only
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dualanchor as da

PAGE = Path(__file__).resolve().parents[1] / "docs" / "inference.md"
REPS = 2000
DISCOUNT = 0.9

Rows = Callable[[int, np.random.Generator], tuple[Any, ...]]


class Equation(NamedTuple):
    """Samples `component(x, *rows)` of n rows of data, the root, and a contrast."""

    rows: Rows
    component: Callable[..., Any]
    root: Any
    contrast: Any

    def sample(self, x: Any, n: int, rng: np.random.Generator) -> Any:
        return self.component(x, *self.rows(n, rng))


def regression() -> Equation:
    """Least squares with noise that grows with a regressor."""
    root = np.array([1.0, -2.0, 0.5])

    def rows(n: int, rng: np.random.Generator) -> tuple[Any, ...]:
        a = np.column_stack([np.ones(n), rng.normal(size=n), rng.exponential(size=n)])
        return a, a @ root + (0.5 + np.abs(a[:, 1])) * rng.standard_normal(n)

    return Equation(rows, lambda x, a, b: a * (a @ x - b)[:, None], root, np.array([0.0, 1.0, 1.0]))


def logistic() -> Equation:
    """The likelihood equations of logistic regression."""
    root = np.array([0.5, 1.0, -1.0, 0.0])

    def rows(n: int, rng: np.random.Generator) -> tuple[Any, ...]:
        a = np.column_stack([np.ones(n), rng.normal(size=(n, 3))])
        return a, (rng.random(n) < 1 / (1 + np.exp(-a @ root))).astype(float)

    def component(x: Any, a: Any, b: Any) -> Any:
        return a * (1 / (1 + np.exp(-a @ x)) - b)[:, None]

    return Equation(rows, component, root, np.array([1.0, 1.0, 0.0, 0.0]))


def policy_evaluation() -> Equation:
    """Values of five states on a ring, walked mostly in one direction: an affine F that is not symmetric."""
    moves, rewards = np.array([0, 1, 2]), np.arange(5.0)
    P = sum(p * np.roll(np.eye(5), move, axis=1) for move, p in zip(moves, (0.2, 0.7, 0.1), strict=True))
    root = np.linalg.solve(np.eye(5) - DISCOUNT * P, rewards)

    def rows(n: int, rng: np.random.Generator) -> tuple[Any, ...]:
        state = rng.integers(5, size=n)
        after = (state + rng.choice(moves, size=n, p=[0.2, 0.7, 0.1])) % 5
        return state, after, rewards[state] + rng.standard_normal(n)

    def component(x: Any, state: Any, after: Any, reward: Any) -> Any:
        return np.eye(5)[state] * (x[state] - DISCOUNT * x[after] - reward)[:, None]

    return Equation(rows, component, root, np.array([1.0, -1.0, 0.0, 0.0, 0.0]))


def cournot() -> Equation:
    """Four firms choose quantities; the slope and the level of the price and the costs are random."""
    costs, bend = np.array([1.0, 1.5, 2.0, 2.5]), 0.3

    def rows(n: int, rng: np.random.Generator) -> tuple[Any, ...]:
        return 10 + rng.exponential(size=n), rng.uniform(0.5, 1.5, size=n), costs + rng.normal(size=(n, 4))

    def component(x: Any, level: Any, slope: Any, cost: Any) -> Any:
        price = level[:, None] - slope[:, None] * (x.sum() + x)
        return cost + bend * x**2 - price

    def mean(x: Any) -> Any:
        return costs + bend * x**2 - 11 + x.sum() + x

    root = np.ones(4)
    for _ in range(50):
        root = root - np.linalg.solve(np.eye(4) + 1 + np.diag(2 * bend * root), mean(root))
    return Equation(rows, component, root, np.ones(4))


EQUATIONS = {
    "linear regression": regression,
    "logistic regression": logistic,
    "policy evaluation": policy_evaluation,
    "Cournot game": cournot,
}


def misses(equation: Equation, samples: int, reps: int, *, data: bool, first: int = 0) -> Iterator[Any]:
    """For each run whether the interval of each coordinate, and at last of the contrast, misses: below -1, above 1."""
    for seed in range(first, first + reps):
        rng = np.random.default_rng([seed, 1])
        near = equation.root + 0.1 * rng.standard_normal(equation.root.size)
        if data:
            oracle = da.FiniteSum.from_data(equation.rows(samples, rng), equation.component)
            found = da.infer(oracle, near)
        else:
            found = da.infer(equation.sample, near, samples=samples, seed=seed)
        a = np.vstack([np.eye(near.size), equation.contrast])
        (lower, upper), truth = found.interval(a).T, a @ equation.root
        yield (lower > truth).astype(int) - (upper < truth)


def lines(reps: int) -> Iterator[str]:
    yield "| equation | samples | n | coverage of coordinates | of the contrast |"
    yield "|---|---|--:|--:|--:|"
    for name, equation in EQUATIONS.items():
        for data, samples in ((False, 1024), (True, 512)):
            missed = np.array(list(misses(equation(), samples, reps, data=data))) != 0
            covered = 100 * (1 - missed.mean(axis=0))
            kind = "data rows" if data else "fresh"
            cells = f"{covered[:-1].min():.1f} to {covered[:-1].max():.1f} % | {covered[-1]:.1f} %"
            yield f"| {name} | {kind} | {samples:,} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--print", action="store_true", dest="only_print", help="leave docs/inference.md alone")
    parser.add_argument("--reps", type=int, default=REPS)
    options = parser.parse_args()
    rows = []
    for line in lines(options.reps):
        print(line, flush=True)
        rows.append(line)
    if not options.only_print:
        before, marker, rest = PAGE.read_text(encoding="utf-8").partition("<!-- inference -->")
        table = "\n".join(rows)
        PAGE.write_text(
            f"{before}{marker}\n\n{table}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
