"""The best runs for monotone, Lipschitz operators: regularised Dual-OHM, and averaged extragradient steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.schedule import Paired, Tapered
from dualanchor.core.types import Array
from dualanchor.theory import monotone as bounds
from dualanchor.theory.schedules.constant import Run, Setting, constant_for_accuracy, constant_for_budget
from dualanchor.theory.schedules.tapered import (
    approximate_cost,
    tapered_for_accuracy,
    tapered_for_budget,
    tapered_totals,
)
from dualanchor.theory.weights import root_sum

_NEARBY = np.geomspace(0.6, 1.7, 7)  # multiples of the best weight that are tried for short runs
_SHORT = 5000  # rounds, up to which nearby weights are tried: rounding to whole batches matters there
_SHORTEST = 300  # rounds, up to which also the two best are compared thoroughly


@dataclass(frozen=True)
class MonotoneSetting:
    """The constants of a monotone operator that a run is planned for; costs as in `Setting`.

    `composite` is for operators with a prox, for which short steps do not damp the noise.
    """

    M: float
    D: float
    sigma: float
    mu: float = 0.0
    composite: bool = False
    round_cost: float = 0.0
    multiple: int = 1

    @property
    def unit(self) -> "MonotoneSetting":
        """The same setting with batches counted in multiples of `multiple`."""
        return replace(self, sigma=self.sigma / sqrt(self.multiple), multiple=1)

    def setting(self, delta: float) -> Setting:
        """The setting of Dual-OHM on F + delta(x - x0)."""
        step = 1 / bounds.regularised_cocoercivity(delta, self.M, self.mu) * 2
        tau = 2.0 if self.composite else min(2.0, step * (self.M + delta))
        D = sqrt(self.D**2 + (step * self.sigma) ** 2) if self.composite else self.D  # of z0, from one sample
        return Setting(step, D, self.sigma, tau, "sharp", self.round_cost, self.multiple)


class MonotonePlan(NamedTuple):
    """A run of Dual-OHM or of extragradient steps on F + delta(x - centre); the bound of `run` is that of F."""

    delta: float
    step_size: float
    run: Run


def regularised_for_accuracy(eps: float, known: MonotoneSetting, tapered: bool = True) -> MonotonePlan:
    """The cheapest weight, horizon and batches whose bound is at most eps."""

    def cost(delta: float) -> float:
        return approximate_cost(eps - delta * known.D, known.setting(delta), tapered)

    largest = min(known.M, eps / known.D * 0.9) if known.D else known.M
    delta = _minimise(cost, largest * 1e-4, largest, zero=known.mu > 0)
    schedule = tapered_for_accuracy if tapered else constant_for_accuracy

    def plan(delta: float, thorough: bool) -> MonotonePlan:
        setting = known.setting(delta)
        target = (eps - delta * known.D) * (1 - 1e-12)  # so that rounding does not lift the sum above eps
        return _regularised(delta, known, setting, schedule(target, setting, thorough))

    def cost_of(plan: MonotonePlan) -> float:
        return plan.run.samples + known.round_cost * plan.run.horizon

    first = plan(delta, thorough=False)
    best = [first]
    if delta and first.run.horizon <= _SHORT:
        nearby = min((plan(min(delta * factor, largest), False) for factor in _NEARBY), key=cost_of)
        best = [first, nearby] if first.run.horizon <= _SHORTEST else [min(first, nearby, key=cost_of)]
    return min((plan(candidate.delta, True) for candidate in best), key=cost_of)


def regularised_for_budget(budget: int, known: MonotoneSetting, tapered: bool = True) -> MonotonePlan:
    """The weight, horizon and batches of the smallest bound within a budget of samples."""
    Q = budget // known.multiple
    N = np.geomspace(2, Q + 1.0, 60)

    def modelled_bound(delta: float) -> float:
        unit = known.setting(delta).unit
        if tapered:
            W = 2 * unit.sigma**2 * (root_sum(N, unit.tau) ** 2 / np.maximum(Q - 0.5 * N, 1e-3 * Q))
        else:
            W = 2 * (unit.noise(N) * N / Q / 2)
        return delta * known.D + float(np.min(unit.value(N, W)))

    delta = _minimise(modelled_bound, known.M * 1e-6, known.M, zero=known.mu > 0)
    setting = known.setting(delta)
    schedule = tapered_for_budget if tapered else constant_for_budget
    return _regularised(delta, known, setting, schedule(budget, setting))


def _regularised(delta: float, known: MonotoneSetting, setting: Setting, run: Run) -> MonotonePlan:
    bound = float(bounds.back_to_F(run.bound, delta, known.D))
    return MonotonePlan(delta, setting.step_size, replace(run, bound=bound))


def _minimise(cost: Callable[[float], float], low: float, high: float, zero: bool) -> float:
    """The number between low and high, or 0 if `zero`, of the smallest cost, on a grid refined around the best."""
    tried: dict[float, float] = {0.0: cost(0.0)} if zero else {}
    grid = np.geomspace(low, high, 25)
    for width in (1.25, 1.06, 1.015):
        tried.update((delta, cost(delta)) for delta in map(float, grid) if low <= delta <= high and delta not in tried)
        best = min(tried, key=tried.__getitem__)
        grid = best * np.geomspace(1 / width, width, 7) if best else grid[:0]
    return best


def growing_noise(
    schedule: Callable[[MonotoneSetting], MonotonePlan], known: MonotoneSetting, growth: float
) -> tuple[MonotonePlan, float] | None:
    """A plan for noise of at most sigma + growth |x - x0|, and the sigma that it assumes; None if there is none.

    More noise needs larger batches, with which the iterates stay nearer to x0: sigma is increased until the plan for it
    keeps the noise below it, and then decreased by bisection.
    """
    low = high = known.sigma + 2 * growth * known.D
    best: tuple[MonotonePlan, float] | None = None
    for _ in range(24):
        plan = schedule(replace(known, sigma=high))
        needed = _needed_sigma(plan, known, growth)
        if needed <= high:
            best = plan, high
            break
        low, high = high, min(4 * high, needed * 1.001)
    for _ in range(12 if best and high > low else 0):
        middle = sqrt(low * high)
        plan = schedule(replace(known, sigma=middle))
        if _needed_sigma(plan, known, growth) <= middle:
            best, high = (plan, middle), middle
        else:
            low = middle
    return best


def _needed_sigma(plan: MonotonePlan, known: MonotoneSetting, growth: float) -> float:
    """A bound on the noise along the run of a plan."""
    run, size = plan.run, plan.run.batch_size
    if run.horizon == 1:
        return known.sigma
    if isinstance(size, Tapered):
        inverse_sum = tapered_totals(size.C, run.horizon, size.tau).inverse
    else:
        inverse_sum = (run.horizon - 1) / size
    return float(bounds.sigma_of_growing_noise(known.sigma, growth, known.D, plan.step_size, [1 / inverse_sum]))


def averaged_for_accuracy(eps: float, known: MonotoneSetting) -> MonotonePlan:
    """The cheapest mean of half-steps, for affine operators, whose bound is at most eps; batches are Paired."""
    theta, ahead, update = _averaged_grid()
    v = (4 / update + theta**2 / ahead) * known.unit.sigma**2
    q = 4 * (known.M * known.D / theta) ** 2
    n = np.maximum(1, np.ceil((v + np.sqrt(v**2 + 4 * eps**2 * q)) / (2 * eps**2) * (1 - 1e-12)))
    best = np.unravel_index(int(np.argmin(n * (ahead + update + known.round_cost))), n.shape)
    plan = _averaged(best, int(n[best]), known)
    while plan.run.bound > eps:  # rounding only
        steps = plan.run.horizon - 1
        plan = _averaged(best, steps + max(1, steps >> 50), known)
    return plan


def averaged_for_budget(budget: int, known: MonotoneSetting) -> MonotonePlan | None:
    """The mean of half-steps of the smallest bound within a budget of samples; None if that pays for no step."""
    theta, ahead, update = _averaged_grid()
    n = np.floor(budget / (known.multiple * (ahead + update))) + 0 * theta
    with np.errstate(divide="ignore"):
        squares = bounds.averaged_extragradient(n, theta / known.M, known.M, known.D, known.unit.sigma, ahead, update)
    best = np.unravel_index(int(np.argmin(squares)), squares.shape)
    return _averaged(best, int(n[best]), known) if n[best] >= 1 else None


def _averaged_grid() -> tuple[Array, Array, Array]:
    """Values of theta, ahead and update to try, for broadcasting."""
    sizes = np.unique(np.round(np.geomspace(1, 4096, 60)))
    return np.linspace(0.01, 1.0, 100)[:, None, None], np.arange(1.0, 5.0)[:, None], sizes


def _averaged(index: Any, steps: int, known: MonotoneSetting) -> MonotonePlan:
    """The plan with the values at an index of the grid."""
    theta, ahead, update = (float(values.ravel()[i]) for values, i in zip(_averaged_grid(), index, strict=True))
    step, b, c = theta / known.M, known.multiple * int(ahead), known.multiple * int(update)
    square = bounds.averaged_extragradient(steps, step, known.M, known.D, known.sigma, b, c)
    return MonotonePlan(0.0, step, Run(steps + 1, Paired(b, c), steps * (b + c), sqrt(float(square)), False))
