"""Print what scipy.optimize.root does with noisy functions, beside da.root with the same samples (in README.md).

Three operators with a known root at which nobody looks before the end; 20 seeds each. SciPy's function is the mean of
BATCH samples, which it may call as often as BUDGET allows; then it is stopped.
"""

from collections.abc import Callable

import numpy as np
from scipy import optimize

import dualanchor as da

BUDGET, BATCH, SEEDS = 5000, 25, 20
METHODS = {"hybr": {}, "lm": {}, "hybr, eps=1e-2": {"eps": 1e-2}, "hybr, eps=1": {"eps": 1.0}}  # eps: difference steps
Operator = Callable[[np.ndarray], np.ndarray]


def operators() -> dict[str, tuple[Operator, int]]:
    rng = np.random.default_rng(2)
    C = rng.normal(size=(10, 10))
    turn, b = (C - C.T) / 4, rng.normal(size=10)
    A, c = np.array([[1.0, 2.0], [-2.0, 1.0]]), np.array([5.0, 0.0])
    prices = rng.uniform(0.5, 1.5, size=5)

    def market(x: np.ndarray) -> np.ndarray:  # log shares of a logit demand against given shares
        utility = np.exp(x - prices)
        return np.log(utility / (1 + utility.sum())) - np.log(np.full(5, 0.15))

    return {
        "affine, rotating": (lambda x: A @ x - c, 2),
        "x + tanh(Cx), C skew": (lambda x: x + np.tanh(turn @ x) - b, 10),
        "market shares, logit": (market, 5),
    }


class Spent(Exception):  # noqa: N818
    """The budget is spent; carries the last point."""


def by_scipy(F: Operator, d: int, method: str, seed: int) -> tuple[bool, float, float]:
    """Whether SciPy says success, the true residual, and how large SciPy says that it is."""
    rng, left, last = np.random.default_rng(seed), [BUDGET // BATCH], [np.zeros(d)]

    def fun(x: np.ndarray) -> np.ndarray:
        if left[0] == 0:
            raise Spent
        left[0] -= 1
        last[0] = np.array(x)
        return F(x) + rng.normal(size=(BATCH, d)).mean(axis=0)

    try:
        found = optimize.root(fun, np.zeros(d), method=method.split(",")[0], options=METHODS[method])
    except Spent:
        return False, float(np.linalg.norm(F(last[0]))), np.nan
    return bool(found.success), float(np.linalg.norm(F(found.x))), float(np.linalg.norm(found.fun))


def by_dualanchor(F: Operator, d: int, seed: int) -> tuple[bool, float, float]:
    def sample(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        return F(x) + rng.normal(size=(n, d)).mean(axis=0)

    result = da.root(sample, np.zeros(d), budget=BUDGET, seed=seed)
    assert result.certificate is not None
    return bool(result.success), float(np.linalg.norm(F(result.x))), float(result.certificate.upper)


def main() -> None:
    print("| problem | method | says success | true residual, median | of those with success, largest |")
    print("|---|---|---|---|---|")
    for name, (F, d) in operators().items():
        runs = {f"SciPy `{one}`": [by_scipy(F, d, one, seed) for seed in range(SEEDS)] for one in METHODS}
        runs["`da.root`"] = [by_dualanchor(F, d, seed) for seed in range(SEEDS)]
        for method, found in runs.items():
            success, residual, _ = (np.array(column) for column in zip(*found, strict=True))
            largest = f"{residual[success].max():.2g}" if success.any() else "none"
            count = f"{np.count_nonzero(success)} of {SEEDS}"
            print(f"| {name} | {method} | {count} | {np.median(residual):.2g} | {largest} |")
            if "root" in method:
                upper = np.array([one[2] for one in found])
                print(f"<!-- bounds that hold: {np.count_nonzero(upper >= residual)} of {SEEDS} -->")


if __name__ == "__main__":
    main()
