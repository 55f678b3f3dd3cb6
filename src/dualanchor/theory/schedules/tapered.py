"""The best tapered batches (Theorem B), and restarts of the best runs."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from math import ceil, inf, nan, sqrt
from typing import NamedTuple

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
_LAST_ROUNDS = 1024  # rounds at the end of a run whose terms are added one by one
_SIZES = 1024  # before them, rounds of the same batch size are added together, for sizes up to this one


class Totals(NamedTuple):
    """Sums over the rounds of Tapered(C): of kappa/(m(m-1)B), of B and of 1/B; exact, or upper bounds."""

    C: float
    weight: float
    samples: float
    inverse: float
    exact: bool


Fits = Callable[[Totals], bool]
Guess = Callable[[int, Totals, Totals], float]  # of C, from the number of tries, totals that fit and totals that do not
Attempt = Callable[[int, float], tuple[float, Totals]]  # value and totals for a horizon and a relative tolerance of C


@lru_cache(maxsize=8)
def _last_rounds(tau: float) -> tuple[Array, Array]:
    """The roots of m(m-1)/kappa and kappa/(m(m-1)) for the last rounds, m = 2, 3, ..."""
    m = np.arange(2, _LAST_ROUNDS + 1, dtype=float)
    return np.sqrt(m * (m - 1) / damping(m, tau)), damping(m, tau) / (m * (m - 1))


def tapered_totals(C: float, N: int, tau: float = 2.0) -> Totals:
    """The sums over the batches max(1, ceil(C sqrt(kappa/(m(m-1))))), m = 2 .. N."""
    roots, weights = _last_rounds(tau)
    count = min(N, _LAST_ROUNDS) - 1
    sizes = np.maximum(1, np.ceil(C / roots[:count]))
    sums = np.array([(weights[:count] / sizes).sum(), sizes.sum(), (1 / sizes).sum()])
    exact = True
    if N > _LAST_ROUNDS:
        parts, exact = _earlier_rounds(C, N, tau)
        for part in parts:
            sums += part
    weight, samples, inverse = sums.tolist()
    return Totals(C, weight, samples, inverse, exact and samples < 2**53)


def _earlier_rounds(C: float, N: int, tau: float) -> tuple[Array, bool]:
    """The sums over m = _LAST_ROUNDS + 1 .. N, (1, 3), or (2, 3) if there are large batches; whether they are exact."""
    largest = C / sqrt(_LAST_ROUNDS * (_LAST_ROUNDS + 1.0) / damping(_LAST_ROUNDS + 1.0, tau))
    b = np.arange(1.0, min(_SIZES, max(1, ceil(largest))) + 1)
    ends = np.clip(_last_above(b / C, tau), _LAST_ROUNDS, N)  # rounds with batches of b: m = ends + 1 .. starts
    starts = np.concatenate([[float(N)], ends[:-1]])
    cumulative = weight_sum(np.append(starts, ends[-1]), tau)
    counts = starts - ends
    small = [((cumulative[:-1] - cumulative[1:]) / b).sum(), (counts * b).sum(), (counts / b).sum()]
    last = float(ends[-1])
    if last <= _LAST_ROUNDS:
        return np.array([small]), True
    # Larger batches are not distinguished: each is at least C sqrt(kappa/(m(m-1))), and less than one more.
    root_weights = float(root_sum(last, tau) - root_sum(_LAST_ROUNDS, tau))
    count = last - _LAST_ROUNDS
    return np.array([small, [root_weights / C, C * root_weights + count, count / b[-1]]]), False


def _last_above(root: Array, tau: float) -> Array:
    """The largest m with sqrt(kappa/(m(m-1))) > root, for each number in `root`; 1 if there is none."""
    undamped = np.ceil(0.5 + np.sqrt(0.25 + root**-2.0)) - 1
    if (first := first_undamped(tau)) == 2:
        return undamped
    q = 6 / tau * root**2  # (2m-1)/(m(m-1)) > q
    damped = np.ceil(0.5 + (1 + np.sqrt(1 + q**2 / 4)) / q) - 1
    return np.where(undamped >= first, undamped, np.minimum(damped, first - 1))


def tapered_for_accuracy(eps: float, setting: Setting, thorough: bool = True) -> Run:
    """The cheapest horizon and tapered batches whose bound is at most eps; constant batches where they are cheaper."""
    unit = setting.unit
    is_damped = first_undamped(setting.tau) > 2  # then constant batches are hardly ever best
    constant = constant_for_accuracy(eps, setting, thorough and not is_damped)
    if constant.horizon == 1 or unit.sigma == 0:
        return constant

    def attempt(N: int, tolerance: float) -> tuple[float, Totals]:
        totals = _smallest_scale(N, unit, eps, tolerance)
        return totals.samples + unit.round_cost * (N - 1), totals

    longest = 60 * unit.shortest(eps) + 8
    shortest = unit.shortest_whole(eps)
    N, cost, totals = _search(attempt, shortest, longest, lambda N: modelled_cost(N, eps, unit), thorough)
    if cost >= unit.cost(constant.horizon, constant.batch_size / setting.multiple):
        return constant
    return _tapered(setting, N, totals)


def tapered_for_budget(budget: int, setting: Setting) -> Run:
    """The horizon and tapered batches of smallest bound within a budget of samples; constant where that is smaller."""
    unit, Q, constant = setting.unit, budget // setting.multiple, constant_for_budget(budget, setting)
    if unit.sigma == 0 or Q < 2:
        return constant

    def attempt(N: int, tolerance: float) -> tuple[float, Totals]:
        totals = tapered_at(N, budget, setting, tolerance)
        return _bound(unit, N, totals), totals

    def modelled_bound(N: Array) -> Array:
        available = np.maximum(Q - 0.5 * N, 1e-3 * Q)
        return np.asarray(unit.value(N, 2 * unit.sigma**2 * root_sum(N, unit.tau) ** 2 / available))

    N, bound, totals = _search(attempt, 2, Q + 1.0, modelled_bound)
    return constant if bound >= constant.bound else _tapered(setting, N, totals)


def tapered_at(N: int, budget: int, setting: Setting, tolerance: float = 1e-9) -> Totals:
    """The largest tapered batches of a given horizon within a budget of samples."""
    Q, tau = budget // setting.multiple, setting.tau
    smallest, largest = 1e-6, max(1.0, Q / max(1e-300, float(root_sum(N, tau)))) * 1.001

    def fits(totals: Totals) -> bool:
        return totals.samples <= Q

    def guess(i: int, good: Totals, bad: Totals) -> float:  # samples are nearly proportional to C
        return bad.C * Q / bad.samples * (1 - tolerance / 2) if i < 4 and smallest == good.C else nan

    good, bad = (tapered_totals(C, N, tau) for C in (smallest, largest))
    return bad if fits(bad) else _narrowed(N, tau, good, bad, fits, guess, tolerance)


def private_variances(N: int, total: float) -> Array:
    r"""Best variances of rounds under :math:`\rho`-zCDP; `total` is :math:`d\Delta^2/(2\rho)`, sensitivity Delta."""
    m = np.arange(N, 1, -1, dtype=float)
    return total * root_sum(N) * np.sqrt(m * (m - 1))


def modelled_cost(N: Array, eps: float, unit: Setting) -> Array:
    """The approximate cost of tapered batches at horizon N, to find the region of the optimum."""
    room = np.maximum(unit.room(eps, N), 1e-9 * eps**2)
    return np.asarray((0.5 + unit.round_cost) * N + 2 * unit.sigma**2 * root_sum(N, unit.tau) ** 2 / room)


def approximate_cost(eps: float, setting: Setting, tapered: bool, multiples: Array = _FINE) -> float:
    """The approximate cost of the best run for eps, of horizons that are multiples of the shortest; inf if eps <= 0."""
    unit = setting.unit
    if eps <= 0:
        return inf
    if unit.start_suffices(eps):
        return 0.0
    if unit.sigma == 0:
        return unit.shortest_whole(eps) * (1 + unit.round_cost)
    N = unit.shortest(eps) * multiples + 1
    if tapered:
        return float(modelled_cost(N, eps, unit).min())
    return float(unit.cost(N, np.maximum(1, unit.noise(N) / unit.room(eps, N))).min())


def restarts_for_accuracy(
    eps: float, setting: Setting, mu: float, tapered: bool = True, thorough: bool = True
) -> list[Run]:
    """Stages whose last bound is at most eps; a stage that starts with residual r has D = r/mu.

    The targets of the stages fall geometrically; they are found from the last stage to the first.
    """

    def stage_cost(D: float, target: float) -> float:
        return approximate_cost(target, replace(setting, D=D), tapered, _COARSE)

    bound_at_start = 2 * setting.D / setting.step_size
    least: float = inf
    best: list[tuple[float, float]] = []  # (D, target) of each stage, the last one first
    for factor in np.geomspace(0.2, 0.7, 8):
        stages: list[tuple[float, float]] = []
        target, later_cost = eps, 0.0
        for _ in range(400):
            total = later_cost + stage_cost(setting.D, target)
            if total < least:
                least, best = total, [*stages, (setting.D, target)]
            residual = target / factor
            if residual >= bound_at_start or later_cost >= least:
                break
            stages.append((residual / mu, target))
            later_cost += stage_cost(residual / mu, target)
            target = residual
    make = tapered_for_accuracy if tapered else constant_for_accuracy
    # The last two stages determine the cost; only they are optimised thoroughly.
    runs = [make(target, replace(setting, D=D), thorough and i < 2) for i, (D, target) in enumerate(best)]
    return [run for run in reversed(runs) if run.horizon > 1] or [make(eps, setting)]


def restarts_for_budget(budget: int, setting: Setting, mu: float) -> list[Run] | None:
    """The stages of the smallest accuracy within a budget of samples; None if it does not pay for a first stage."""
    return for_smallest_accuracy(
        lambda eps: restarts_for_accuracy(eps, setting, mu),
        lambda runs: sum(run.samples for run in runs),
        budget,
        below=2 * setting.D / setting.step_size,
        within=1e-6,
    )


def _bound(unit: Setting, N: int, totals: Totals) -> float:
    return float(unit.value(N, 2 * unit.sigma**2 * totals.weight))


def _tapered(setting: Setting, N: int, totals: Totals) -> Run:
    P, tau = setting.multiple, 2.0 if first_undamped(setting.tau) == 2 else setting.tau
    samples = ceil(totals.samples * (1 if totals.exact else 1 + 1e-12)) * P
    return Run(N, Tapered(totals.C * P, P, tau), samples, _bound(setting.unit, N, totals), totals.exact)


def _search(
    attempt: Attempt, low: int, high: float, model: Callable[[Array], Array], thorough: bool = True
) -> tuple[int, float, Totals]:
    """The horizon from low to high of the smallest value: of all if they are few, else around the best of the model."""
    tried: dict[int, float] = {}

    def best_with(candidates: Iterable[float]) -> int:
        for candidate in candidates:
            N = max(low, int(min(candidate, high)))
            if N not in tried:
                tried[N], _ = attempt(N, 1e-9 if N <= 256 else 1e-4)
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


def _smallest_scale(N: int, unit: Setting, eps: float, tolerance: float) -> Totals:
    """The smallest C for which the noise term of horizon N is within its room."""
    room = float(unit.room(eps, N)) / (2 * unit.sigma**2)
    if room <= 0:
        return Totals(inf, inf, inf, 0.0, True)

    def fits(totals: Totals) -> bool:
        return totals.weight <= room and _bound(unit, N, totals) <= eps

    def guess(i: int, good: Totals, bad: Totals) -> float:  # the weight is nearly linear in 1/C
        if not bad.C:
            return good.C * good.weight / room * (1 - tolerance / 3)
        part = (good.weight - room) / (good.weight - bad.weight)
        C = 1 / ((1 - part) / good.C + part / bad.C) if i % 4 else nan
        return C * (1 + (tolerance if C * (1 + tolerance / 2) < good.C else -tolerance) / 3)

    if weight_sum(N, unit.tau) <= room * (1 + 1e-9) and fits(single_samples := tapered_totals(1.0, N, unit.tau)):
        return single_samples
    C, increase = float(root_sum(N, unit.tau)) / room, 1e-12  # enough, since B >= C sqrt(kappa/(m(m-1)))
    while not fits(good := tapered_totals(C, N, unit.tau)):  # rounding only, which weighs more the less room there is
        C, increase = C * (1 + increase), 4 * increase
    return _narrowed(N, unit.tau, good, Totals(0.0, inf, 0.0, inf, True), fits, guess, tolerance)


def _narrowed(N: int, tau: float, good: Totals, bad: Totals, fits: Fits, guess: Guess, tolerance: float) -> Totals:
    """The last totals that fit, between some that do (good) and some that do not (bad): by guesses of C, or halving."""
    for i in range(60):
        low, high = sorted((good.C, bad.C))
        if high - low <= tolerance * high:
            break
        C = guess(i, good, bad)
        tried = tapered_totals(C if low < C < high else (low + high) / 2, N, tau)
        good, bad = (tried, bad) if fits(tried) else (good, tried)
    return good
