"""The best tapered batches, and restarts of the best runs."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from math import ceil, inf, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.schedule import Tapered
from dualanchor.core.types import Array
from dualanchor.theory.schedules.constant import (
    Run,
    Setting,
    constant_for_accuracy,
    constant_for_budget,
    for_smallest_accuracy,
)
from dualanchor.theory.weights import damping, first_undamped, root_sum, weight_sum

_COARSE, _FINE = np.geomspace(1.1, 40, 20), np.geomspace(1.02, 40, 60)  # multiples of the shortest horizon to try
_HEAD = 1024  # rounds at the end that are added up one by one
_SIZES = 1024  # batch sizes that are counted one by one before that


class Totals(NamedTuple):
    """Sums over the rounds of Tapered(C), of kappa/(m(m-1)B), of B and of 1/B: exact, or upper bounds."""

    C: float
    weight: float
    samples: float
    inverse: float
    exact: bool


@lru_cache(maxsize=8)
def _head(tau: float) -> tuple[Array, Array]:
    m = np.arange(2, _HEAD + 1, dtype=float)
    return np.sqrt(m * (m - 1) / damping(m, tau)), damping(m, tau) / (m * (m - 1))


def tapered_totals(C: float, N: int, tau: float = 2.0) -> Totals:
    """Weighted and plain sums over the batches max(1, ceil(C sqrt(kappa/(m(m-1))))), m = 2 .. N."""
    roots, weights = _head(tau)
    last = min(N, _HEAD) - 1
    sizes = np.maximum(1, np.ceil(C / roots[:last]))
    sums = np.array([(weights[:last] / sizes).sum(), sizes.sum(), (1 / sizes).sum()])
    if N <= _HEAD:
        return Totals(C, float(sums[0]), float(sums[1]), float(sums[2]), bool(sums[1] < 2**53))
    # Before the last rounds: runs of rounds that share a batch size b.
    most = C / sqrt(_HEAD * (_HEAD + 1.0) / damping(_HEAD + 1.0, tau))
    b = np.arange(1.0, min(_SIZES, max(1, ceil(most))) + 1)
    ends = np.clip(_last_above(b / C, tau), _HEAD, N)
    starts = np.concatenate([[float(N)], ends[:-1]])
    passed = weight_sum(np.append(starts, ends[-1]), tau)
    count = starts - ends
    sums += [((passed[:-1] - passed[1:]) / b).sum(), (count * b).sum(), (count / b).sum()]
    rest = float(ends[-1])
    if rest > _HEAD:  # batches too large to tell their sizes apart: at least C sqrt(kappa/(m(m-1))), less than one more
        between = float(root_sum(rest, tau) - root_sum(_HEAD, tau))
        sums += [between / C, C * between + (rest - _HEAD), (rest - _HEAD) / b[-1]]
    return Totals(C, float(sums[0]), float(sums[1]), float(sums[2]), bool(rest <= _HEAD and sums[1] < 2**53))


def _last_above(root: Array, tau: float) -> Array:
    """The largest m with sqrt(kappa/(m(m-1))) > root, for numbers `root`; 1 if there is none."""
    free = np.ceil(0.5 + np.sqrt(0.25 + root**-2.0)) - 1
    if (first := first_undamped(tau)) == 2:
        return free
    q = 6 / tau * root**2  # (2m-1)/(m(m-1)) > q
    damped = np.ceil(0.5 + (1 + np.sqrt(1 + q**2 / 4)) / q) - 1
    return np.where(free >= first, free, np.minimum(damped, first - 1))


def tapered_for_accuracy(eps: float, setting: Setting, thorough: bool = True) -> Run:
    """The cheapest horizon and tapered batches whose bound is at most eps; constant batches where they are cheaper."""
    one, damped = (
        setting.unit,
        first_undamped(setting.tau) > 2,
    )  # with damped noise constant batches are hardly ever best
    constant = constant_for_accuracy(eps, setting, thorough and not damped)
    if constant.horizon == 1 or one.sigma == 0:
        return constant

    def attempt(N: int, tolerance: float) -> tuple[float, Totals]:
        totals = _smallest_scale(N, one, eps, tolerance)
        return totals.samples + one.round_cost * (N - 1), totals

    longest = 60 * one.shortest(eps) + 8
    N, cost, totals = _search(attempt, one.at_least(eps), longest, lambda N: modelled_cost(N, eps, one), thorough)
    if cost >= one.cost(constant.horizon, constant.batch_size / setting.multiple):
        return constant
    return _tapered(setting, N, totals)


def tapered_for_budget(budget: int, setting: Setting) -> Run:
    """The horizon and tapered batches of smallest bound within a budget of samples; constant where that is smaller."""
    one, Q, constant = setting.unit, budget // setting.multiple, constant_for_budget(budget, setting)
    if one.sigma == 0 or Q < 2:
        return constant

    def attempt(N: int, tolerance: float) -> tuple[float, Totals]:
        totals = tapered_at(N, budget, setting, tolerance)
        return _bound(one, N, totals), totals

    def modelled(N: Array) -> Array:
        available = np.maximum(Q - 0.5 * N, 1e-3 * Q)
        return np.asarray(one.value(N, 2 * one.sigma**2 * root_sum(N, one.tau) ** 2 / available))

    N, bound, totals = _search(attempt, 2, Q + 1.0, modelled)
    return constant if bound >= constant.bound else _tapered(setting, N, totals)


def tapered_at(N: int, budget: int, setting: Setting, tolerance: float = 1e-9) -> Totals:
    """The largest tapered batches of a given horizon within a budget of samples."""
    Q, tau = budget // setting.multiple, setting.tau
    least, most = 1e-6, max(1.0, Q / max(1e-300, float(root_sum(N, tau)))) * 1.001

    def fits(totals: Totals) -> bool:
        return totals.samples <= Q

    def guess(i: int, good: Totals, bad: Totals) -> float:  # nearly proportional, until one fits
        return bad.C * Q / bad.samples * (1 - tolerance / 2) if i < 4 and least == good.C else nan

    good, bad = (tapered_totals(C, N, tau) for C in (least, most))
    return bad if fits(bad) else _narrowed(N, tau, good, bad, fits, guess, tolerance)


def private_variances(N: int, total: float) -> Array:
    r"""Best variances of rounds under :math:`\rho`-zCDP; `total` is :math:`d\Delta^2/(2\rho)`, sensitivity Delta."""
    m = np.arange(N, 1, -1, dtype=float)
    return total * root_sum(N) * np.sqrt(m * (m - 1))


def modelled_cost(N: Array, eps: float, one: Setting) -> Array:
    """About what tapered batches cost at horizon N, for finding the region to search closely."""
    room = np.maximum(one.room(eps, N), 1e-9 * eps**2)
    return np.asarray((0.5 + one.round_cost) * N + 2 * one.sigma**2 * root_sum(N, one.tau) ** 2 / room)


def cost_of(eps: float, setting: Setting, tapered: bool, multiples: Array = _FINE) -> float:
    """About what a run for eps costs, with its best horizon among multiples of the shortest; infinite without one."""
    one = setting.unit
    if eps <= 0:
        return inf
    if one.stays(eps):
        return 0.0
    if one.sigma == 0:
        return one.at_least(eps) * (1 + one.round_cost)
    N = one.shortest(eps) * multiples + 1
    if tapered:
        return float(modelled_cost(N, eps, one).min())
    return float(one.cost(N, np.maximum(1, one.noise(N) / one.room(eps, N))).min())


def restarts_for_accuracy(
    eps: float, setting: Setting, mu: float, tapered: bool = True, thorough: bool = True
) -> list[Run]:
    """Stages whose last bound is at most eps; from a point of residual r, D = r/mu. The targets fall geometrically."""

    def stage_cost(D: float, target: float) -> float:
        return cost_of(target, replace(setting, D=D), tapered, _COARSE)

    first = 2 * setting.D / setting.step_size
    best: tuple[float, list[tuple[float, float]]] = (inf, [])
    for factor in np.geomspace(0.2, 0.7, 8):
        stages: list[tuple[float, float]] = []  # (D, target) from the last stage to the first
        target, later = eps, 0.0
        for _ in range(400):
            total = later + stage_cost(setting.D, target)
            if total < best[0]:
                best = (total, [*stages, (setting.D, target)])
            start = target / factor
            if start >= first or later >= best[0]:
                break
            stages.append((start / mu, target))
            later += stage_cost(start / mu, target)
            target = start
    make = tapered_for_accuracy if tapered else constant_for_accuracy
    runs = [make(target, replace(setting, D=D), thorough=thorough and i < 2) for i, (D, target) in enumerate(best[1])]
    return [run for run in reversed(runs) if run.horizon > 1] or [make(eps, setting)]  # the last two decide the cost


def restarts_for_budget(budget: int, setting: Setting, mu: float) -> list[Run] | None:
    """The same within a budget of samples, for the smallest accuracy; None if it does not pay for a first stage."""

    def affordable(eps: float) -> list[Run] | None:
        runs = restarts_for_accuracy(eps, setting, mu)
        return runs if sum(run.samples for run in runs) <= budget else None

    return for_smallest_accuracy(affordable, 2 * setting.D / setting.step_size)


def _bound(one: Setting, N: int, totals: Totals) -> float:
    return float(one.value(N, 2 * one.sigma**2 * totals.weight))


def _tapered(setting: Setting, N: int, totals: Totals) -> Run:
    P, tau = setting.multiple, 2.0 if first_undamped(setting.tau) == 2 else setting.tau
    samples = ceil(totals.samples * (1 if totals.exact else 1 + 1e-12)) * P
    return Run(N, Tapered(totals.C * P, P, tau), samples, _bound(setting.unit, N, totals), totals.exact)


def _search(
    attempt: Callable[[int, float], tuple[float, Totals]], low: int, high: float, model: Any, thorough: bool = True
) -> tuple[int, float, Totals]:
    """The best of the horizons between low and high: all if they are few, else those around the model's best."""
    tried: dict[int, float] = {}

    def best_with(candidates: Iterable[float]) -> int:
        for N in candidates:
            if (n := max(low, int(min(N, high)))) not in tried:
                tried[n], _ = attempt(n, 1e-9 if n <= 256 else 1e-4)
        return min(tried, key=tried.__getitem__)

    grid = np.unique(np.floor(np.geomspace(float(low), high, 400)))
    centre = float(grid[np.argmin(model(grid))])
    if not thorough:
        return int(centre), *attempt(int(centre), 1e-4)
    if high - low <= 64:
        best = best_with(range(low, int(high) + 1))
    else:
        best = best_with([low, *centre * np.geomspace(0.35, 2.5, 11)])
        for width in (0.16, 0.05, 0.016):
            best = best_with(best * np.geomspace(1 - width, 1 + width, 5))
        if best <= 256:
            best = best_with(range(best - 4, best + 5))
    return best, *attempt(best, 1e-9)


def _smallest_scale(N: int, one: Setting, eps: float, tolerance: float) -> Totals:
    """The smallest C for which the noise term of horizon N is within its room."""
    room = float(one.room(eps, N)) / (2 * one.sigma**2)
    if room <= 0:
        return Totals(inf, inf, inf, 0.0, True)

    def fits(totals: Totals) -> bool:
        return totals.weight <= room and _bound(one, N, totals) <= eps

    def guess(i: int, good: Totals, bad: Totals) -> float:  # the weight is nearly linear in 1/C
        if not bad.C:
            return good.C * good.weight / room * (1 - tolerance / 3)
        part = (good.weight - room) / (good.weight - bad.weight)
        C = 1 / ((1 - part) / good.C + part / bad.C) if i % 4 else nan
        return C * (1 + (tolerance if C * (1 + tolerance / 2) < good.C else -tolerance) / 3)

    if weight_sum(N, one.tau) <= room * (1 + 1e-9) and fits(ones := tapered_totals(1.0, N, one.tau)):
        return ones
    C, more = float(root_sum(N, one.tau)) / room, 1e-12  # enough, since B >= C sqrt(kappa/(m(m-1)))
    while not fits(good := tapered_totals(C, N, one.tau)):  # rounding only, which weighs more the less room there is
        C, more = C * (1 + more), 4 * more
    return _narrowed(N, one.tau, good, Totals(0.0, inf, 0.0, inf, True), fits, guess, tolerance)


def _narrowed(N: int, tau: float, good: Totals, bad: Totals, fits: Any, guess: Any, tolerance: float) -> Totals:
    """The last that fits between one that does and one that does not: C is first guessed, then halved."""
    for i in range(60):
        low, high = sorted((good.C, bad.C))
        if high - low <= tolerance * high:
            break
        C = guess(i, good, bad)
        tried = tapered_totals(C if low < C < high else (low + high) / 2, N, tau)
        good, bad = (tried, bad) if fits(tried) else (good, tried)
    return good
