r"""The best horizon and batch sizes for an accuracy or for a budget, in whole numbers.

A run of Dual-OHM costs :math:`\sum_k (B_k + r)`: its samples, and r for each round where rounds cost something
themselves. The functions here minimise that under a bound, or a bound under that. They know three bounds, by name:

- "sharp", Theorem A: :math:`A + \sqrt{A^2 + W} \le \epsilon`, that is :math:`W \le \epsilon(\epsilon - 2A)`;
- "affine", Theorem A for affine operators: :math:`4A^2 + W \le \epsilon^2`;
- "paper", Theorem 4.1: :math:`4A^2 + 6\sigma^2/B \le \epsilon^2`, constant batches only.

:math:`A = D/(\alpha N)`. Numbers of any size are answered at once: sums over rounds are added up where they are short,
taken in closed form over rounds of equal batch size where they are long, and bounded from above beyond that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil, floor, inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.schedule import Tapered
from dualanchor.core.types import Array
from dualanchor.theory.weights import damping, root_sum, weight_sum

SCAN = 200_000
"""Optima over so many candidates are found by looking at all of them."""

_HEAD = 1024  # rounds at the end that are added up one by one
_SIZES = 1024  # batch sizes that are told apart before that
_MULTIPLES = np.geomspace(1.1, 40, 20)  # of the shortest horizon, at which the cost of a stage is looked at


@dataclass(frozen=True)
class Run:
    """One run of Dual-OHM, as planned.

    Attributes
    ----------
    horizon : int
        N; 1 stands for staying at the start.
    batch_size : int or Tapered
        The sizes of its N - 1 batches.
    samples : int
        Their sum, or an upper bound for it.
    bound : float
        Root mean square of the residual at the end, at most.
    exact : bool
        Whether the sums were added up exactly, and the optimum found by looking at all candidates.
    """

    horizon: int
    batch_size: Any
    samples: int
    bound: float
    exact: bool = True


@dataclass(frozen=True)
class Setting:
    """What a run is planned for: step, distance, noise of one sample, the bound and what a round costs in samples.

    With `multiple` P every batch is a multiple of P, of which each costs as much as one sample: P workers share it.
    """

    step_size: float
    D: float
    sigma: float
    tau: float = 2.0
    bound: str = "sharp"
    round_cost: float = 0.0
    multiple: int = 1

    @cached_property
    def unit(self) -> Setting:
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
        """The bound itself, as a root mean square."""
        A = self.A(N)
        return A + np.sqrt(A**2 + W) if self.bound == "sharp" else np.sqrt(4 * A**2 + W)

    def shortest(self, eps: float) -> float:
        """The horizon c = 2D/(alpha eps) that must be exceeded when there is noise."""
        return 2 * self.D / (self.step_size * eps)

    def stays(self, eps: float) -> bool:
        """Whether the start is good enough as it is."""
        return self.A(1) * 2 <= eps


# -- constant batches --------------------------------------------------------------------------------------------


def constant_for_accuracy(eps: float, setting: Setting, thorough: bool = True) -> Run:
    """The cheapest horizon and constant batch size whose bound is at most eps; nearly so if not thorough."""
    one = setting.unit
    if one.stays(eps):
        return _staying(setting)
    c = one.shortest(eps)
    if one.sigma == 0:
        return _constant(eps, setting, _least(c), 1, True)
    start = np.unique(np.ceil(c * np.geomspace(1.02, 30, 400)) + 1)
    N, B = _cheapest(eps, one, start, None)
    if not thorough:
        return _constant(eps, setting, int(N), int(B), False)
    most = _cost(one, N, B)
    least_size = max(1.0, float(one.noise(max(2.0, floor(c)))) / eps**2)
    longest = 1 + most / (least_size + one.round_cost)
    largest = most / max(1.0, floor(c)) - one.round_cost
    smallest = floor(one.noise(inf) / eps**2)
    exact = True
    if longest - c <= SCAN:
        N, B = _cheapest(eps, one, np.arange(max(2, floor(c)), floor(longest) + 2, dtype=float), (N, B))
    elif largest - smallest <= SCAN:
        sizes = np.arange(max(1, smallest), max(2.0, largest + 2), dtype=float)
        N, B = _cheapest(eps, one, _shortest_for(eps, one, sizes), (N, B))
    else:
        exact = False
        near = np.unique(np.round(N * np.geomspace(0.9, 1.12, 2001)))
        N, B = _cheapest(eps, one, near[near > c], (N, B))
    return _constant(eps, setting, int(N), int(B), exact)


def constant_for_budget(budget: int, setting: Setting) -> Run:
    """The horizon and constant batch size of smallest bound with (N - 1) B within the budget."""
    one = setting.unit
    Q = budget // setting.multiple
    root = int(sqrt(Q))
    if exact := root <= SCAN // 2:
        sizes = np.arange(1, root + 1)
        B = np.unique(np.concatenate([sizes, Q // np.arange(1, root + 2)])).astype(float)
        B = B[B >= 1]
    else:
        best = max(1.0, (one.step_size**2 * one.sigma**2 * float(Q) ** 2 / (4 * one.D**2)) ** (1 / 3) if one.D else Q)
        B = np.unique(np.clip(np.round(best * np.geomspace(0.05, 20, 20001)), 1, Q))
    N = 1 + np.floor(Q / B) if B.size else np.ones(0)
    values = one.value(N, one.noise(N) / B)
    if not B.size or one.A(1) * 2 <= values.min():
        return _staying(setting)
    i = int(np.argmin(values))
    size = int(B[i]) * setting.multiple
    return Run(int(N[i]), size, int(N[i] - 1) * size, float(values[i]), exact)


def _cheapest(eps: float, one: Setting, N: Array, known: tuple[float, float] | None) -> tuple[float, float]:
    room = one.room(eps, N)
    N, room = N[room > 0], room[room > 0]
    B = np.maximum(1, np.ceil(one.noise(N) / room - 1e-12))
    if known is not None:
        N, B = np.append(N, known[0]), np.append(B, known[1])
    i = int(np.argmin(_cost(one, N, B)))
    return float(N[i]), float(B[i])


def _cost(one: Setting, N: Any, B: Any) -> Any:
    return (N - 1) * (B + one.round_cost)


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
    """The run, with rounding errors of the search made good: its bound is at most eps as it is computed."""
    one = setting.unit
    while (bound := float(one.value(N, one.noise(N) / B))) > eps:
        if one.sigma > 0 and one.room(eps, N) > 1e-9 * eps**2:
            B += max(1, B >> 50)
        else:
            N += max(1, N >> 50)
    samples = (N - 1) * B * setting.multiple
    return Run(N, B * setting.multiple, samples, bound, exact and samples < 2**53)


# -- tapered batches ---------------------------------------------------------------------------------------------


class Totals(NamedTuple):
    """Sums over the rounds of a tapered schedule: of kappa/(m(m-1)B), and of B; exact, or upper bounds."""

    weight: float
    samples: float
    exact: bool


@lru_cache(maxsize=8)
def _head(tau: float) -> tuple[Array, Array]:
    m = np.arange(2, _HEAD + 1, dtype=float)
    return np.sqrt(m * (m - 1)), damping(m, tau) / (m * (m - 1))


def tapered_totals(C: float, N: int, tau: float = 2.0) -> Totals:
    """Weighted and plain sum over the batches max(1, ceil(C / sqrt(m(m-1)))), m = 2 .. N."""
    roots, weights = _head(tau)
    last = min(N, _HEAD) - 1
    sizes = np.maximum(1, np.ceil(C / roots[:last]))
    weight, samples = float((weights[:last] / sizes).sum()), float(sizes.sum())
    if N <= _HEAD:
        return Totals(weight, samples, samples < 2**53)
    # Before the last rounds: runs of rounds that share a batch size b, which ends where sqrt(m(m-1)) reaches C/b.
    largest = C / sqrt(_HEAD * (_HEAD + 1.0))
    b = np.arange(1.0, min(_SIZES, max(1, ceil(largest))) + 1)
    ends = np.clip(np.ceil(0.5 + np.sqrt(0.25 + (C / b) ** 2)) - 1, _HEAD, N)  # B_m > b up to here
    starts = np.concatenate([[float(N)], ends[:-1]])
    weight += float(((1 / ends - 1 / starts) / b).sum())
    samples += float(((starts - ends) * b).sum())
    rest = float(ends[-1])
    if rest > _HEAD:  # batches too large to tell their sizes apart: at least C/root, less than one more
        sums = float(root_sum(rest) - root_sum(_HEAD))
        weight, samples = weight + sums / C, samples + C * sums + (rest - _HEAD)
    return Totals(weight, samples, rest <= _HEAD and samples < 2**53)


def tapered_for_accuracy(eps: float, setting: Setting, thorough: bool = True) -> Run:
    """The cheapest horizon and tapered batches whose bound is at most eps; constant batches where they are cheaper."""
    one = setting.unit
    constant = constant_for_accuracy(eps, setting, thorough)
    if constant.horizon == 1 or one.sigma == 0:
        return constant

    def attempt(N: int, closely: bool) -> Attempt:
        C, totals = _smallest_scale(N, one, eps, 1e-9 if closely else 1e-4)
        return Attempt(totals.samples + one.round_cost * (N - 1), C, totals)

    c = one.shortest(eps)
    N, (_, C, totals) = _search(attempt, _least(c), 60 * c + 8, lambda N: _modelled(N, eps, one), thorough)
    if (N - 1) * one.round_cost + totals.samples >= _cost(
        one, constant.horizon, constant.batch_size / setting.multiple
    ):
        return constant
    bound = float(one.value(N, 2 * one.sigma**2 * totals.weight))
    return _tapered(setting, N, C, totals, bound)


def tapered_for_budget(budget: int, setting: Setting) -> Run:
    """The horizon and tapered batches of smallest bound within a budget of samples; constant where that is smaller."""
    one = setting.unit
    constant = constant_for_budget(budget, setting)
    Q = budget // setting.multiple
    if one.sigma == 0 or Q < 2:
        return constant

    def attempt(N: int, closely: bool) -> Attempt:
        C, totals = _largest_scale(N, one, Q, 1e-9 if closely else 1e-4)
        return Attempt(float(one.value(N, 2 * one.sigma**2 * totals.weight)), C, totals)

    def modelled(N: Array) -> Array:
        room = np.maximum(Q - 0.5 * N, 1e-3 * Q)
        return np.asarray(one.value(N, 2 * one.sigma**2 * root_sum(N) ** 2 / room))

    N, (bound, C, totals) = _search(attempt, 2, Q + 1.0, modelled)
    return constant if bound >= constant.bound else _tapered(setting, N, C, totals, bound)


class Scale(NamedTuple):
    """The scale C of tapered batches, and their sums."""

    C: float
    totals: Totals


def tapered_at(N: int, budget: int, setting: Setting) -> Scale:
    """The largest tapered batches of a given horizon within a budget of samples."""
    return Scale(*_largest_scale(N, setting.unit, budget // setting.multiple, 1e-9))


def _tapered(setting: Setting, N: int, C: float, totals: Totals, bound: float) -> Run:
    P = setting.multiple
    schedule = Tapered(C) if P == 1 else Tapered(C * P, multiple=P)
    rounding = 0.0 if totals.exact else 1e-12
    return Run(N, schedule, ceil(totals.samples * (1 + rounding)) * P, bound, totals.exact)


def _modelled(N: Array, eps: float, one: Setting) -> Array:
    """About what tapered batches cost at horizon N, for finding the region in which to look closely."""
    room = np.maximum(one.room(eps, N), 1e-9 * eps**2)
    return np.asarray((0.5 + one.round_cost) * N + 2 * one.sigma**2 * root_sum(N) ** 2 / room)


class Attempt(NamedTuple):
    """A horizon tried: what is to be minimised, the scale C found for it, and its sums."""

    value: float
    C: float
    totals: Totals


def _search(
    attempt: Callable[[int, bool], Attempt],
    low: int,
    high: float,
    model: Callable[[Array], Array],
    thorough: bool = True,
) -> tuple[int, Attempt]:
    """The best of the horizons between low and high: all if they are few, else those around the model's best."""
    tried: dict[int, Attempt] = {}

    def look(candidates: Any) -> int:
        for N in candidates:
            if (n := max(low, int(min(N, high)))) not in tried:
                tried[n] = attempt(n, n <= 256)
        return min(tried, key=lambda n: tried[n].value)

    grid = np.unique(np.floor(np.geomspace(float(low), high, 400)))
    centre = float(grid[np.argmin(model(grid))])
    if not thorough:
        return int(centre), attempt(int(centre), False)
    if high - low <= 64:
        best = look(range(low, int(high) + 1))
    else:
        best = look([low, *centre * np.geomspace(0.35, 2.5, 11)])
        for width in (0.16, 0.05, 0.016):
            best = look(best * np.geomspace(1 - width, 1 + width, 5))
        if best <= 256:
            best = look(range(best - 4, best + 5))
    return best, attempt(best, True)


def _smallest_scale(N: int, one: Setting, eps: float, tolerance: float) -> tuple[float, Totals]:
    """The smallest C for which the noise term of horizon N is within its room."""
    room = float(one.room(eps, N)) / (2 * one.sigma**2)
    if room <= 0:
        return inf, Totals(inf, inf, True)

    def fits(totals: Totals) -> bool:
        return totals.weight <= room and float(one.value(N, 2 * one.sigma**2 * totals.weight)) <= eps

    if fits(ones := tapered_totals(1.0, N, one.tau)):
        return 1.0, ones
    high = float(root_sum(N)) / room  # enough: B >= C/sqrt(m(m-1))

    best = tapered_totals(high, N, one.tau)
    more = 1e-12
    while not fits(best):  # rounding only, which weighs more the less room there is
        high, more = high * (1 + more), 4 * more
        best = tapered_totals(high, N, one.tau)
    low = 0.0
    for i in range(40):  # first by proportion, then by halves
        if high - low <= tolerance * high:
            break
        guess = high * best.weight / room * (1 - tolerance / 2)
        middle = guess if i < 5 and low < guess < high else (low + high) / 2
        totals = tapered_totals(middle, N, one.tau)
        if fits(totals):
            high, best = middle, totals
        else:
            low = middle
    return high, best


def _largest_scale(N: int, one: Setting, Q: int, tolerance: float) -> tuple[float, Totals]:
    """The largest C with which N - 1 tapered batches are within a budget."""
    low = 1e-6
    best = tapered_totals(low, N, one.tau)
    high = max(1.0, Q / max(0.5, float(root_sum(N)))) * 1.001
    bad = tapered_totals(high, N, one.tau)
    if bad.samples <= Q:
        return high, bad
    for _ in range(4):  # about proportional: a few steps narrow it down before the halving
        middle = high * Q / bad.samples * (1 - tolerance / 2)
        totals = tapered_totals(middle, N, one.tau)
        if totals.samples <= Q:
            low, best = middle, totals
            break
        high, bad = middle, totals
    for _ in range(40):
        if high - low <= tolerance * high:
            break
        middle = (low + high) / 2
        totals = tapered_totals(middle, N, one.tau)
        if totals.samples <= Q:
            low, best = middle, totals
        else:
            high = middle
    return low, best


# -- noise that grows with the number of rounds ------------------------------------------------------------------


def best_horizon(round_variance: Callable[[int], float], setting: Setting, longest: int = 10**9) -> Run:
    """The horizon of smallest bound when the variance of each round depends on their number, as under privacy."""

    def value(N: int) -> float:
        W = 0.0 if N == 1 else float(weight_sum(N, setting.tau)) * 2 * round_variance(N - 1)
        return float(setting.value(N, W))

    tried = {N: value(N) for N in {1, *np.unique(np.geomspace(1, longest, 200).astype(int)).tolist()}}
    for width in (0.1, 0.02, 0.004):
        best = min(tried, key=tried.__getitem__)
        tried |= {
            n: value(n) for n in np.unique((best * np.linspace(1 - width, 1 + width, 21)).astype(int)).tolist() if n
        }
    best = min(tried, key=tried.__getitem__)
    tried |= {n: value(n) for n in range(max(1, best - 50), best + 51)}
    best = min(tried, key=tried.__getitem__)
    return Run(best, 1, best - 1, tried[best])


def private_variances(N: int, total: float) -> Array:
    r"""Variances of rounds 0 .. N - 2 that use up a privacy budget best: :math:`v_k = c\,H_N\sqrt{m(m-1)}`.

    `total` c is :math:`d\Delta^2/(2\rho)` for sensitivity :math:`\Delta` and :math:`\rho`-zCDP: the budget asks for
    :math:`\sum_k c/v_k \le 1`. The noise term of Theorem A is then :math:`2cH_N^2`; equal variances have about 2cN.
    """
    m = np.arange(N, 1, -1, dtype=float)
    return total * root_sum(N) * np.sqrt(m * (m - 1))


# -- restarts ----------------------------------------------------------------------------------------------------


def restarts_for_accuracy(
    eps: float, setting: Setting, mu: float, tapered: bool = True, thorough: bool = True
) -> list[Run]:
    """Stages of Dual-OHM, each started where the one before ended, whose last bound is at most eps.

    A stage that starts with root mean square residual r is at most r/mu away from the roots: it is a run of its own
    with D = r/mu. The targets fall by a constant factor; number of stages and factor are chosen for the least cost.
    """
    first = min(2 * setting.D / setting.step_size, inf)
    best: tuple[float, list[tuple[float, float]]] = (inf, [])
    for factor in np.geomspace(0.2, 0.7, 8):
        stages: list[tuple[float, float]] = []  # (D, target) from the last stage to the first
        target, later = eps, 0.0
        for _ in range(400):
            total = later + _stage_cost(setting, setting.D, target, tapered)
            if total < best[0]:
                best = (total, [*stages, (setting.D, target)])
            start = target / factor
            if start >= first or later >= best[0]:
                break
            stages.append((start / mu, target))
            later += _stage_cost(setting, start / mu, target, tapered)
            target = start
    make = tapered_for_accuracy if tapered else constant_for_accuracy
    runs = [make(target, replace(setting, D=D), thorough=thorough and i < 2) for i, (D, target) in enumerate(best[1])]
    return [run for run in reversed(runs) if run.horizon > 1] or [make(eps, setting)]  # the last two decide the cost


def _stage_cost(setting: Setting, D: float, target: float, tapered: bool) -> float:
    one = replace(setting.unit, D=D)
    if one.stays(target):
        return 0.0
    c = one.shortest(target)
    if one.sigma == 0:
        return _least(c) * (1 + one.round_cost)
    grid = c * _MULTIPLES + 1
    if tapered:
        return float(_modelled(grid, target, one).min())
    return float(_cost(one, grid, np.maximum(1, one.noise(grid) / one.room(target, grid))).min())


def _least(c: float) -> int:
    """The smallest whole horizon that is at least c."""
    return max(2, ceil(c * (1 - 1e-15)))


def _staying(setting: Setting) -> Run:
    return Run(1, 1, 0, 2 * setting.A(1))
