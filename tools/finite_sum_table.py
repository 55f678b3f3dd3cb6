"""Print the measured tables of docs/finite_sums.md: residuals by passes, and what calls at the front door take.

python tools/finite_sum_table.py

The data are synthetic, of the sizes of well-known data sets, so that nothing has to be downloaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dualanchor as da

PASSES = (3, 10, 30, 100, 300)
SEEDS = range(3)


class Sum:
    """A finite sum of n components from x0, with L, the largest constant of a component, where it is cocoercive."""

    def __init__(self, component: Callable[..., Any], n: int, x0: Any, L: float | None) -> None:
        self.component, self.n, self.x0, self.L = component, n, x0, L

    def at(self, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.component(x, np.arange(self.n)).mean(axis=0)

    @property
    def oracle(self) -> da.FiniteSum:
        return da.FiniteSum(self.component, self.n)

    @property
    def problem(self) -> da.Problem:
        return da.Problem(self.oracle, self.x0, constants=da.Constants(L=self.L))


def features(rng: Any, n: int, d: int, factors: int) -> Any:
    """Standardised columns that depend on few factors, as measurements do, and a column of ones."""
    columns = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, d)) + 0.3 * rng.normal(size=(n, d))
    return np.hstack([(columns - columns.mean(axis=0)) / columns.std(axis=0), np.ones((n, 1))])


def logistic(penalty: float) -> Sum:
    """569 rows, 30 columns."""
    rng = np.random.default_rng(0)
    A = features(rng, 569, 30, 6)
    y = np.where(rng.uniform(size=569) < 1 / (1 + np.exp(-A @ (0.5 * rng.normal(size=31)))), 1.0, -1.0)

    def component(x: Any, i: Any) -> Any:
        return A[i] * (-y[i] / (1 + np.exp(y[i] * (A[i] @ x))))[:, None] + penalty * x

    return Sum(component, 569, np.zeros(31), (A**2).sum(axis=1).max() / 4 + penalty)


def poisson() -> Sum:
    """442 rows, 10 columns, counts of about 150, log link: the slope at x0 = 0 is far below that at the root."""
    rng = np.random.default_rng(0)
    A = features(rng, 442, 10, 4)
    y = rng.poisson(np.exp(5 + A[:, :-1] @ (0.2 * rng.normal(size=10)))).astype(float)
    return Sum(lambda x, i: A[i] * (np.exp(A[i] @ x) - y[i])[:, None], 442, np.zeros(11), None)


def least_squares() -> Sum:
    """500 rows, 20 columns, condition number about 10,000."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(500, 20)) * np.logspace(0, -2, 20)
    t = A @ rng.normal(size=20) + 0.3 * rng.normal(size=500)
    return Sum(lambda x, i: A[i] * (A[i] @ x - t[i])[:, None], 500, np.zeros(20), (A**2).sum(axis=1).max())


def game(mu: float) -> Sum:
    """200 bilinear games of 10 and 10 unknowns, with curvature mu."""
    rng = np.random.default_rng(0)
    K, b = rng.normal(size=(200, 10, 10)) + np.eye(10), rng.normal(size=(200, 20))

    def component(x: Any, i: Any) -> Any:
        u, v = x[:10], x[10:]
        return np.hstack([K[i] @ v, -np.einsum("nij,i->nj", K[i], u)]) + b[i] + mu * x

    largest = max(np.linalg.norm(one, 2) for one in K)
    return Sum(component, 200, np.zeros(20), (largest**2 + mu**2) / mu if mu else None)


def projections() -> Sum:
    """`finite-sum-cocoercive`, one instance."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(200, 199))
    q = np.hstack([q / np.linalg.norm(q, axis=1, keepdims=True), np.zeros((200, 1))])
    return Sum(lambda x, i: q[i] * (q[i] @ x)[:, None], 200, 10 * rng.normal(size=200), 1.0)


SUMS = {
    "logistic, penalty 0.01": logistic(0.01),
    "logistic, no penalty": logistic(0.0),
    "least squares": least_squares(),
    "`finite-sum-cocoercive`": projections(),
    "game with mu = 0.3": game(0.3),
    "bilinear game": game(0.0),
    "Poisson": poisson(),
}


def by_name(name: str) -> Callable[[Sum, int, int], float]:
    def residual(one: Sum, evaluations: int, seed: int) -> float:
        method: Any = da.SVRG(components=one.n, budget=evaluations) if name == "svrg" else name
        return float(da.solve(one.problem, method, budget=evaluations, seed=seed, record=0, check=False).residual)

    return residual


def saga(one: Sum, evaluations: int, seed: int) -> float:
    """SAGA with a table of all components and steps of 1/(3L)."""
    rng, x, step = np.random.default_rng(seed), one.x0, 1 / (3 * one.L)  # type: ignore[operator]
    table = one.component(x, np.arange(one.n))
    mean = table.mean(axis=0)
    for i in rng.integers(one.n, size=evaluations - one.n):
        value = one.component(x, np.array([i]))[0]
        x, mean, table[i] = x - step * (value - table[i] + mean), mean + (value - table[i]) / one.n, value
    return float(np.linalg.norm(one.at(x)))


def extragradient(one: Sum, evaluations: int, seed: int) -> float:
    """Extragradient steps with full passes and backtracking."""
    x, passes, step = one.x0, evaluations // one.n - 1, 1.0
    here = one.at(x)
    best = float(np.linalg.norm(here))
    while passes >= 2:
        half = x - step * here
        there, passes = one.at(half), passes - 1
        change = np.linalg.norm(there - here)
        if not change <= 0.9 * np.linalg.norm(here):
            step /= 2 if np.isfinite(change) else 10
            continue
        x, step = x - step * there, step * (1.5 if change < 0.6 * np.linalg.norm(here) else 1)
        here, passes = one.at(x), passes - 1
        best = min(best, float(np.linalg.norm(here)))
    return best


METHODS: dict[str, tuple[Callable[[Sum, int, int], float], bool]] = {  # and whether it needs L
    "`svrg`": (by_name("svrg"), False),
    "extragradient, full passes": (extragradient, False),
    "SAGA, 1/(3L)": (saga, True),
    "`averaged`": (by_name("averaged"), True),
    "`halpern-vr-finite`": (by_name("halpern-vr-finite"), True),
}


def rows() -> Iterator[list[str]]:
    """Residuals over that at x0, geometric means."""
    for name, one in SUMS.items():
        start = np.linalg.norm(one.at(one.x0))
        for method, (residual, needs_L) in METHODS.items():
            if needs_L and one.L is None:
                continue
            logs = [[np.log(max(1e-16, residual(one, p * one.n, s) / start)) for s in SEEDS] for p in PASSES]
            yield [name, method, *(f"{np.exp(np.mean(each)):.1g}" for each in logs)]


def calls() -> Iterator[list[str]]:
    for name, given in (
        ("logistic, penalty 0.01", {"eps": 0.001}),
        ("logistic, no penalty", {"eps": 0.001}),
        ("Poisson", {"budget": 50_000}),
        ("bilinear game", {"eps": 0.001}),
    ):
        one = SUMS[name]
        result = da.root(one.oracle, one.x0, **given)  # type: ignore[arg-type]
        start, (key, value) = np.linalg.norm(one.at(one.x0)), next(iter(given.items()))
        shown = [f"`{key}={value}`", f"{start:.3g}", f"{result.residual:.2g}", f"{result.nfev:,}", str(result.success)]
        yield [name, *shown]


def main() -> None:
    for header, lines in (
        (["sum", "method", *(f"{p} passes" for p in PASSES)], rows()),
        (["sum", "call", "residual at x0", "at x", "evaluations", "success"], calls()),
    ):
        print("|", " | ".join(header), "|\n|", " | ".join(["---"] * len(header)), "|")
        for line in lines:
            print("|", " | ".join(line), "|", flush=True)
        print()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
