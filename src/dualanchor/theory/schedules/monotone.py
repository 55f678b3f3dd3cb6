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
from dualanchor.theory.schedules.tapered import cost_of, tapered_for_accuracy, tapered_for_budget, tapered_totals
from dualanchor.theory.weights import root_sum

_NEARBY = np.geomspace(0.6, 1.7, 7)  # multiples of the best weight that are tried for short runs
_SHORT, _SHORTEST = 5000, 300  # rounds


@dataclass(frozen=True)
class MonotoneSetting:
    """What is known of a monotone operator: M, D, sigma, mu and, with a prox, that no factor damps the noise."""

    M: float
    D: float
    sigma: float
    mu: float = 0.0
    composite: bool = False
    round_cost: float = 0.0
    multiple: int = 1

    @property
    def unit(self) -> "MonotoneSetting":
        """The same with batches counted in multiples of as many samples."""
        return replace(self, sigma=self.sigma / sqrt(self.multiple), multiple=1)

    def setting(self, delta: float) -> Setting:
        """What Dual-OHM on F + delta(x - x0) is planned for."""
        step = 1 / bounds.regularised_cocoercivity(delta, self.M, self.mu) * 2
        tau = 2.0 if self.composite else min(2.0, step * (self.M + delta))
        D = sqrt(self.D**2 + (step * self.sigma) ** 2) if self.composite else self.D  # of z0, from one sample
        return Setting(step, D, self.sigma, tau, "sharp", self.round_cost, self.multiple)


class Regularised(NamedTuple):
    """A run of Dual-OHM on F + delta(x - x0); the bound of `run` is that of F."""

    delta: float
    step_size: float
    run: Run


def regularised_for_accuracy(
    eps: float, known: MonotoneSetting, tapered: bool = True, thorough: bool = True
) -> Regularised:
    """The cheapest weight, horizon and batches whose bound is at most eps."""

    def cost(delta: float) -> float:
        return cost_of(eps - delta * known.D, known.setting(delta), tapered)

    largest = min(known.M, eps / known.D * 0.9) if known.D else known.M
    delta = _best(cost, largest * 1e-4, largest) if known.mu == 0 else _best(cost, largest * 1e-4, largest, also=0.0)
    plan = tapered_for_accuracy if tapered else constant_for_accuracy

    def made(delta: float, thorough: bool) -> Regularised:
        setting = known.setting(delta)
        left = (eps - delta * known.D) * (1 - 1e-12)  # so that rounding does not lift the sum above eps
        return _regularised(delta, known, setting, plan(left, setting, thorough))

    def worth(one: Regularised) -> float:
        return one.run.samples + known.round_cost * one.run.horizon

    if not thorough:
        return made(delta, False)
    tried = [first := made(delta, False)]
    if delta and first.run.horizon <= _SHORT:  # rounding weighs in short runs
        near = min((made(min(delta * factor, largest), False) for factor in _NEARBY), key=worth)
        tried = [first, near] if first.run.horizon <= _SHORTEST else [min(first, near, key=worth)]
    return min((made(one.delta, True) for one in tried), key=worth)


def regularised_for_budget(budget: int, known: MonotoneSetting, tapered: bool = True) -> Regularised:
    """The weight, horizon and batches of the smallest bound within a budget of samples."""
    Q = budget // known.multiple

    def modelled(delta: float) -> float:
        one = known.setting(delta).unit
        N = np.geomspace(2, Q + 1.0, 60)
        noise = root_sum(N, one.tau) ** 2 / np.maximum(Q - 0.5 * N, 1e-3 * Q) if tapered else one.noise(N) * N / Q / 2
        return delta * known.D + float(np.min(one.value(N, 2 * one.sigma**2 * noise if tapered else 2 * noise)))

    delta = _best(modelled, known.M * 1e-6, known.M, also=0.0 if known.mu else None)
    setting = known.setting(delta)
    return _regularised(
        delta, known, setting, (tapered_for_budget if tapered else constant_for_budget)(budget, setting)
    )


def growing_noise(
    plan: Callable[[MonotoneSetting], Regularised], known: MonotoneSetting, growth: float
) -> tuple[Regularised, float] | None:
    """A plan for noise of at most sigma + growth |x - x0|, and the sigma that it may assume; None if there is none."""
    low = high = known.sigma + 2 * growth * known.D
    best: tuple[Regularised, float] | None = None
    for _ in range(24):
        chosen = plan(replace(known, sigma=high))
        needed = _needed_sigma(chosen, known, growth)
        if needed <= high:
            best = chosen, high
            break
        low, high = high, min(4 * high, needed * 1.001)
    for _ in range(12 if best and high > low else 0):
        middle = sqrt(low * high)
        chosen = plan(replace(known, sigma=middle))
        if _needed_sigma(chosen, known, growth) <= middle:
            best, high = (chosen, middle), middle
        else:
            low = middle
    return best


class AveragedExtragradient(NamedTuple):
    """Extragradient steps for affine operators; `batch_size` is Paired."""

    step_size: float
    steps: int
    batch_size: Any
    samples: int
    bound: float


def averaged_for_accuracy(eps: float, known: MonotoneSetting) -> AveragedExtragradient:
    """The cheapest mean of half-steps whose bound is at most eps."""
    theta, ahead, update = _averaged_grid()
    v = (4 / update + theta**2 / ahead) * known.unit.sigma**2
    q = 4 * (known.M * known.D / theta) ** 2
    n = np.maximum(1, np.ceil((v + np.sqrt(v**2 + 4 * eps**2 * q)) / (2 * eps**2) * (1 - 1e-12)))
    best = np.unravel_index(int(np.argmin(n * (ahead + update + known.round_cost))), n.shape)
    made = _averaged(best, int(n[best]), known)
    while made.bound > eps:  # rounding only
        made = _averaged(best, made.steps + max(1, made.steps >> 50), known)
    return made


def averaged_for_budget(budget: int, known: MonotoneSetting) -> AveragedExtragradient | None:
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


def _averaged(which: Any, steps: int, known: MonotoneSetting) -> AveragedExtragradient:
    i, j, k = which
    theta, ahead, update = (float(grid.ravel()[index]) for grid, index in zip(_averaged_grid(), (i, j, k), strict=True))
    step, b, c = theta / known.M, known.multiple * int(ahead), known.multiple * int(update)
    square = bounds.averaged_extragradient(steps, step, known.M, known.D, known.sigma, b, c)
    return AveragedExtragradient(step, steps, Paired(b, c), steps * (b + c), sqrt(float(square)))


def _needed_sigma(chosen: Regularised, known: MonotoneSetting, growth: float) -> float:
    run = chosen.run
    if run.horizon == 1:
        return known.sigma
    size = run.batch_size
    inverse = (
        tapered_totals(size.C, run.horizon, size.tau).inverse if isinstance(size, Tapered) else (run.horizon - 1) / size
    )
    return float(bounds.sigma_of_growing_noise(known.sigma, growth, known.D, chosen.step_size, [1 / inverse]))


def _regularised(delta: float, known: MonotoneSetting, setting: Setting, run: Run) -> Regularised:
    return Regularised(delta, setting.step_size, replace(run, bound=float(bounds.back_to_F(run.bound, delta, known.D))))


def _best(cost: Callable[[float], float], low: float, high: float, also: float | None = None) -> float:
    """The number between low and high of the smallest cost, on a grid that is made finer around the best."""
    tried: dict[float, float] = {} if also is None else {also: cost(also)}
    grid = np.geomspace(low, high, 25)
    for width in (1.25, 1.06, 1.015):
        tried.update((delta, cost(delta)) for delta in map(float, grid) if low <= delta <= high and delta not in tried)
        best = min(tried, key=tried.__getitem__)
        grid = best * np.geomspace(1 / width, width, 7) if best else grid[:0]
    return best
