"""`Run` and `Setting`, the best constant batches, and the best number of rounds where it determines their noise."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, inf, sqrt
from typing import Any, Self, TypeVar

import numpy as np

from dualanchor.core.types import Array
from dualanchor.theory.weights import weight_sum

T = TypeVar("T")
MAX_CANDIDATES = 200_000  # up to this many candidates, all of them are tried
_MAX_PRIVATE_ROUNDS = 10**9


@dataclass(frozen=True)
class Run:
    """A planned run: horizon N (1: stay at the start), its N - 1 batch sizes and their sum, or an upper bound for it.

    The root mean square residual at the end is at most `bound`. `exact`: the sum is exact, and all candidates were
    tried.
    """

    horizon: int
    batch_size: Any
    samples: int
    bound: float
    exact: bool = True


@dataclass(frozen=True)
class Setting:
    """The constants that a run is planned for, and what it costs.

    A round costs its samples and `round_cost`; `multiple` workers share a batch, so its size is a multiple of that.
    """

    step_size: float
    D: float
    sigma: float
    tau: float = 2.0
    bound: str = "sharp"  # or "affine", both Theorem A, or "paper", Theorem 4.1 for constant batches
    round_cost: float = 0.0
    multiple: int = 1

    @cached_property
    def unit(self) -> Self:
        """The same setting with batches counted in multiples of `multiple`."""
        return replace(self, sigma=self.sigma / sqrt(self.multiple), multiple=1)

    def A(self, N: Any) -> Any:
        """The part of the bound that vanishes with the horizon."""
        return self.D / (self.step_size * N)

    def room(self, eps: float, N: Any) -> Any:
        """How large the noise term may be at horizon N; negative if N is too short."""
        A = self.A(N)
        return eps * (eps - 2 * A) if self.bound == "sharp" else eps**2 - 4 * A**2

    def noise(self, N: Any) -> Any:
        """The noise term of one sample per round."""
        return (6.0 if self.bound == "paper" else 2 * weight_sum(N, self.tau)) * self.sigma**2

    def value(self, N: Any, W: Any) -> Any:
        """The bound for a noise term W."""
        A = self.A(N)
        return A + np.sqrt(A**2 + W) if self.bound == "sharp" else np.sqrt(4 * A**2 + W)

    def shortest(self, eps: float) -> float:
        """The horizon c = 2D/(alpha eps) that must be exceeded when there is noise."""
        return 2 * self.D / (self.step_size * eps)

    def shortest_whole(self, eps: float) -> int:
        """The smallest horizon of a run without noise."""
        return max(2, ceil(self.shortest(eps) * (1 - 1e-15)))

    def start_suffices(self, eps: float) -> bool:
        """Whether the bound at the start is at most eps."""
        return self.A(1) * 2 <= eps

    def start_run(self) -> Run:
        """The run that stays at the start."""
        return Run(1, 1, 0, 2 * self.A(1))

    def cost(self, N: Any, B: Any) -> Any:
        """The cost of constant batches."""
        return (N - 1) * (B + self.round_cost)


def constant_for_accuracy(eps: float, setting: Setting, thorough: bool = True) -> Run:
    """The cheapest horizon and constant batch size whose bound is at most eps; nearly so if not thorough."""
    unit, c = setting.unit, setting.shortest(eps)
    if unit.start_suffices(eps):
        return setting.start_run()
    if unit.sigma == 0:
        return _constant(eps, setting, unit.shortest_whole(eps), 1, True)
    N, B = _cheapest(eps, unit, np.unique(np.ceil(c * np.geomspace(1.02, 30, 400)) + 1))
    if not thorough:
        return _constant(eps, setting, int(N), int(B), False)
    # The optimum costs at most as much as this first candidate, which limits its horizon.
    smallest = max(1.0, float(unit.noise(max(2.0, floor(c)))) / eps**2)
    longest = 1 + unit.cost(N, B) / (smallest + unit.round_cost)
    exact = longest - c <= MAX_CANDIDATES
    if exact:
        horizons = np.arange(max(2, floor(c)), floor(longest) + 2, dtype=float)
    else:
        horizons = np.unique(np.round(N * np.geomspace(0.9, 1.12, 2001)))
    N, B = _cheapest(eps, unit, horizons, (N, B))
    return _constant(eps, setting, int(N), int(B), exact)


def constant_for_budget(budget: int, setting: Setting) -> Run:
    """The horizon and constant batch size of smallest bound with (N - 1) B within the budget."""
    unit, Q = setting.unit, budget // setting.multiple
    root = int(sqrt(Q))
    exact = root <= MAX_CANDIDATES // 2
    if exact:  # sizes up to the root of Q, and the largest one for each number of rounds up to the root
        B = np.union1d(np.arange(1, root + 1), Q // np.arange(1, root + 2)).astype(float)
        B = B[B >= 1]
    else:
        best = (unit.step_size**2 * unit.sigma**2 * float(Q) ** 2 / (4 * unit.D**2)) ** (1 / 3) if unit.D else Q
        B = np.unique(np.clip(np.round(max(1.0, best) * np.geomspace(0.05, 20, 20001)), 1, Q))
    if not B.size:
        return setting.start_run()
    N = 1 + np.floor(Q / B)
    values = unit.value(N, unit.noise(N) / B)
    if unit.A(1) * 2 <= values.min():
        return setting.start_run()
    i = int(np.argmin(values))
    size = int(B[i]) * setting.multiple
    return Run(int(N[i]), size, int(N[i] - 1) * size, float(values[i]), exact)


def best_horizon(round_variance: Callable[[int], float], setting: Setting) -> Run:
    """The horizon of smallest bound when the variance of each round depends on their number, as under privacy."""
    tried: dict[int, float] = {}

    def best_with(horizons: Array) -> int:
        for N in np.unique(horizons.astype(int)).tolist():
            if N >= 1 and N not in tried:
                W = 0.0 if N == 1 else float(weight_sum(N, setting.tau)) * 2 * round_variance(N - 1)
                tried[N] = float(setting.value(N, W))
        return min(tried, key=lambda N: tried[N])

    best = best_with(np.geomspace(1, _MAX_PRIVATE_ROUNDS, 200))
    for width in (0.1, 0.02, 0.004):
        best = best_with(best * np.linspace(1 - width, 1 + width, 21))
    best = best_with(np.arange(best - 50, best + 51))
    return Run(best, 1, best - 1, tried[best])


def for_smallest_accuracy(
    make: Callable[[float], T | None], samples: Callable[[T], float], budget: float, below: float, within: float = 1e-3
) -> T | None:
    """The result of `make(eps)` for the smallest eps below a number, up to a factor, that takes at most the budget.

    Samples are expected to grow like 1/eps^2, which gives the next eps to try; every fourth halves what is left.
    """
    low, high, eps, best, tries = below * 1e-14, below, below / 2, None, 0
    while high > low * (1 + within):
        made = make(eps)
        needed = inf if made is None else samples(made)
        low, high, best = (low, eps, made) if needed <= budget else (eps, high, best)
        tries += 1
        guess = eps * sqrt(max(needed, 1.0) / budget) if tries % 4 and needed < inf else sqrt(low * high)
        eps = min(max(guess, low * (1 + within)), high / (1 + within))
    return best


def _cheapest(eps: float, unit: Setting, N: Array, known: tuple[float, float] | None = None) -> tuple[float, float]:
    """The cheapest of horizons N with the smallest batch size for each, and of a pair that is known."""
    room = unit.room(eps, N)
    N, room = N[room > 0], room[room > 0]
    B = np.maximum(1, np.ceil(unit.noise(N) / room - 1e-12))
    if known is not None:
        N, B = np.append(N, known[0]), np.append(B, known[1])
    i = int(np.argmin(unit.cost(N, B)))
    return float(N[i]), float(B[i])


def _constant(eps: float, setting: Setting, N: int, B: int, exact: bool) -> Run:
    """The run, corrected for rounding errors of the search so that its computed bound is at most eps."""
    unit = setting.unit
    while (bound := float(unit.value(N, unit.noise(N) / B))) > eps:
        if unit.sigma > 0 and unit.room(eps, N) > 1e-9 * eps**2:
            B += max(1, B >> 50)
        else:
            N += max(1, N >> 50)
    samples = (N - 1) * B * setting.multiple
    return Run(N, B * setting.multiple, samples, bound, exact and samples < 2**53)
