"""What a run is planned for, the best constant batches, and the best number of rounds whose noise depends on it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, inf, sqrt
from typing import Any, Self, TypeVar

import numpy as np

from dualanchor.core.types import Array
from dualanchor.theory.weights import weight_sum

T = TypeVar("T")
SCAN = 200_000  # up to this many candidates all of them are tried


@dataclass(frozen=True)
class Run:
    """A planned run: horizon N (1: stay at the start), its N - 1 batch sizes and their sum, or an upper bound for it.

    The root mean square residual at the end is at most `bound`; `exact`: sums are exact, all candidates were tried.
    """

    horizon: int
    batch_size: Any
    samples: int
    bound: float
    exact: bool = True


@dataclass(frozen=True)
class Setting:
    """What a run is planned for. A round costs its samples and `round_cost`; P = `multiple` workers share a batch."""

    step_size: float
    D: float
    sigma: float
    tau: float = 2.0
    bound: str = "sharp"  # or "affine", both Theorem A, or "paper", Theorem 4.1 for constant batches
    round_cost: float = 0.0
    multiple: int = 1

    @cached_property
    def unit(self) -> Self:
        """The same with batches counted in multiples of P."""
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
        A = self.A(N)
        return A + np.sqrt(A**2 + W) if self.bound == "sharp" else np.sqrt(4 * A**2 + W)

    def shortest(self, eps: float) -> float:
        """The horizon c = 2D/(alpha eps) that must be exceeded when there is noise."""
        return 2 * self.D / (self.step_size * eps)

    def at_least(self, eps: float) -> int:
        return max(2, ceil(self.shortest(eps) * (1 - 1e-15)))

    def stays(self, eps: float) -> bool:
        return self.A(1) * 2 <= eps

    def staying(self) -> Run:
        return Run(1, 1, 0, 2 * self.A(1))

    def cost(self, N: Any, B: Any) -> Any:
        return (N - 1) * (B + self.round_cost)


def constant_for_accuracy(eps: float, setting: Setting, thorough: bool = True) -> Run:
    """The cheapest horizon and constant batch size whose bound is at most eps; nearly so if not thorough."""
    one, c = setting.unit, setting.shortest(eps)
    if one.stays(eps):
        return setting.staying()
    if one.sigma == 0:
        return _constant(eps, setting, one.at_least(eps), 1, True)
    N, B = _cheapest(eps, one, np.unique(np.ceil(c * np.geomspace(1.02, 30, 400)) + 1))
    if not thorough:
        return _constant(eps, setting, int(N), int(B), False)
    most, smallest = one.cost(N, B), floor(one.noise(inf) / eps**2)
    longest = 1 + most / (max(1.0, float(one.noise(max(2.0, floor(c)))) / eps**2) + one.round_cost)
    largest = most / max(1.0, floor(c)) - one.round_cost
    exact = longest - c <= SCAN or largest - smallest <= SCAN
    if longest - c <= SCAN:
        N, B = _cheapest(eps, one, np.arange(max(2, floor(c)), floor(longest) + 2, dtype=float), (N, B))
    elif exact:
        sizes = np.arange(max(1, smallest), max(2.0, largest + 2), dtype=float)
        N, B = _cheapest(eps, one, _shortest_for(eps, one, sizes), (N, B))
    else:
        near = np.unique(np.round(N * np.geomspace(0.9, 1.12, 2001)))
        N, B = _cheapest(eps, one, near[near > c], (N, B))
    return _constant(eps, setting, int(N), int(B), exact)


def constant_for_budget(budget: int, setting: Setting) -> Run:
    """The horizon and constant batch size of smallest bound with (N - 1) B within the budget."""
    one, Q = setting.unit, budget // setting.multiple
    root = int(sqrt(Q))
    if exact := root <= SCAN // 2:
        B = np.union1d(np.arange(1, root + 1), Q // np.arange(1, root + 2)).astype(float)
        B = B[B >= 1]
    else:
        best = max(1.0, (one.step_size**2 * one.sigma**2 * float(Q) ** 2 / (4 * one.D**2)) ** (1 / 3) if one.D else Q)
        B = np.unique(np.clip(np.round(best * np.geomspace(0.05, 20, 20001)), 1, Q))
    N = 1 + np.floor(Q / B) if B.size else np.ones(0)
    values = one.value(N, one.noise(N) / B)
    if not B.size or one.A(1) * 2 <= values.min():
        return setting.staying()
    i = int(np.argmin(values))
    size = int(B[i]) * setting.multiple
    return Run(int(N[i]), size, int(N[i] - 1) * size, float(values[i]), exact)


def best_horizon(round_variance: Callable[[int], float], setting: Setting, longest: int = 10**9) -> Run:
    """The horizon of smallest bound when the variance of each round depends on their number, as under privacy."""
    tried: dict[int, float] = {}

    def best_with(horizons: Array) -> int:
        for N in np.unique(horizons.astype(int)).tolist():
            if N >= 1 and N not in tried:
                W = 0.0 if N == 1 else float(weight_sum(N, setting.tau)) * 2 * round_variance(N - 1)
                tried[N] = float(setting.value(N, W))
        return min(tried, key=lambda N: tried[N])

    best = best_with(np.geomspace(1, longest, 200))
    for width in (0.1, 0.02, 0.004):
        best = best_with(best * np.linspace(1 - width, 1 + width, 21))
    best = best_with(np.arange(best - 50, best + 51))
    return Run(best, 1, best - 1, tried[best])


def for_smallest_accuracy(make: Callable[[float], T | None], start: float, within: float = 1e-6) -> T | None:
    """What `make` gives for the smallest accuracy, below that of the start, at which it does not give None."""
    low, high, best = start * 1e-12, start, None
    while high > low * (1 + within):
        made = make(eps := sqrt(low * high))
        best, low, high = (best, eps, high) if made is None else (made, low, eps)
    return best


def _cheapest(eps: float, one: Setting, N: Array, known: tuple[float, float] | None = None) -> tuple[float, float]:
    room = one.room(eps, N)
    N, room = N[room > 0], room[room > 0]
    B = np.maximum(1, np.ceil(one.noise(N) / room - 1e-12))
    if known is not None:
        N, B = np.append(N, known[0]), np.append(B, known[1])
    i = int(np.argmin(one.cost(N, B)))
    return float(N[i]), float(B[i])


def _shortest_for(eps: float, one: Setting, B: Array) -> Array:
    """The smallest horizon that each batch size admits; past c the noise that is left falls with N."""
    if one.bound == "sharp" and one.tau > 2 - 1e-9:  # in closed form, and the neighbours for what rounding may do
        v = 2 * one.sigma**2 / B
        N = np.ceil((2 * eps * one.A(1.0) - v[v < eps**2]) / (eps**2 - v[v < eps**2]))
        return np.concatenate([np.maximum(2, N + i) for i in (-1, 0, 1)])
    low = np.full(B.size, max(1.0, floor(one.shortest(eps))))
    high = low * 2 + 2
    while (missing := (one.noise(high) / B > one.room(eps, high)) & (high < 1e18)).any():
        high[missing] *= 2
    for _ in range(70):
        if (high - low <= 1).all():
            break
        middle = np.floor((low + high) / 2)
        good = one.noise(middle) / B <= one.room(eps, middle)
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    return high[high < 1e18]


def _constant(eps: float, setting: Setting, N: int, B: int, exact: bool) -> Run:
    """The run, corrected for rounding errors of the search: its computed bound is at most eps."""
    one = setting.unit
    while (bound := float(one.value(N, one.noise(N) / B))) > eps:
        if one.sigma > 0 and one.room(eps, N) > 1e-9 * eps**2:
            B += max(1, B >> 50)
        else:
            N += max(1, N >> 50)
    samples = (N - 1) * B * setting.multiple
    return Run(N, B * setting.multiple, samples, bound, exact and samples < 2**53)
