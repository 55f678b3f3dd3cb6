"""The best staged extragradient runs for monotone operators, alone or with regularised Dual-OHM as the last stage."""

from dataclasses import replace
from math import ceil, inf, log, log2, sqrt
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from dualanchor.core.schedule import Geometric, Paired
from dualanchor.core.types import Array
from dualanchor.theory import monotone as bounds
from dualanchor.theory.schedules.constant import Run, for_smallest_accuracy
from dualanchor.theory.schedules.monotone import MonotonePlan, MonotoneSetting
from dualanchor.theory.schedules.tapered import approximate_cost, tapered_for_accuracy

_THETAS = np.geomspace(0.01, 0.9, 48)  # values of theta = step size times Lipschitz constant to try
_MAX_LISTED = 100_000  # rounds up to which batch sizes are added one by one


def extragradient_stage(
    start: float, end: float, nu: float, known: MonotoneSetting, bound: float = inf
) -> MonotonePlan:
    """The cheapest stage from a root mean square distance `start` to one of `end`, with fixed batch sizes (Lemma E).

    `bound` is that of the residual at the end of the last stage.
    """
    _, theta = _stage_cost(np.array(start), np.array(end), np.array(nu), known)
    mu, M, sigma, P = known.mu + nu, known.M + nu, known.unit.sigma, known.multiple
    step = float(theta) / M
    rho, c = float(bounds.contraction_rate(step, M, mu)), float(bounds.ahead_noise(step, M, mu))
    factor = 1 - rho + (step * mu if sigma else 0.0)
    steps = max(1, ceil(2 * log(start / end) / -log(factor) * (1 + 1e-12)))
    total = step * (1 + sqrt(c)) ** 2 * sigma**2 / (mu * start**2)  # samples of round 0; they grow by 1/factor
    share = sqrt(c) / (1 + sqrt(c))
    sizes = Paired(*(Geometric(part * total * P or 1e-300, 1 / factor, P) for part in (share, 1 - share)))
    if steps <= _MAX_LISTED:
        samples = int(sizes.size(np.arange(steps), None).sum())
    else:
        samples = P * (ceil(total * (factor**-steps - 1) / (1 / factor - 1) * (1 + 1e-9)) + 2 * steps)
    return MonotonePlan(nu, step, Run(steps + 1, sizes, samples, bound, False))


class Recursive(NamedTuple):
    """Extragradient stages with growing weights; the last one of a hybrid is regularised Dual-OHM."""

    stages: tuple[MonotonePlan, ...]
    is_hybrid: bool
    bound: float

    @property
    def samples(self) -> int:
        return sum(stage.run.samples for stage in self.stages)


def recursive_for_accuracy(eps: float, known: MonotoneSetting) -> Recursive | None:
    """The cheapest recursive extragradient run whose bound is at most eps (Theorem R); None if none was found."""
    least, best = inf, None
    phi = np.geomspace(0.01, 0.6, 24)  # the part of eps that the first weight takes
    if known.mu > 0:
        phi = np.concatenate([[0.0], np.geomspace(0.01, 0.6, 12)])
    for S in range(1 + max(0, ceil(log2(max(2.0, 20 * known.M * known.D / eps))))):
        nu = phi * eps / known.D * 2.0 ** np.arange(S + 1)[:, None]  # (S+1, phi)
        parts = _error_shares(nu, known)
        with np.errstate(all="ignore"):  # weights of 0 are for a single stage only
            ends = eps * (1 - phi) * parts / parts.sum(axis=0) / np.concatenate([nu[:-1], known.M + nu[-1:]])
            starts = np.concatenate([np.full((1, phi.size), known.D), ends[:-1]])
            total = np.where((ends > 0) & (ends < inf), _stage_cost(starts, ends, nu, known)[0], inf).sum(axis=0)
        if S and known.mu:
            total = np.where(phi == 0, inf, total)
        i = int(np.argmin(total))
        if total[i] < least:
            least, best = float(total[i]), (nu[:, i], starts[:, i], ends[:, i])
    if best is None:
        return None
    nu, starts, ends = best
    ends = ends * (1 - 1e-12)
    bound = sqrt(float(bounds.theorem_r(nu, ends, known.M, known.D)))
    return Recursive(_stages(starts, ends, nu, known, bound), False, bound)


def recursive_for_budget(budget: int, known: MonotoneSetting) -> Recursive | None:
    """The recursive run of about the smallest accuracy within a budget of samples; None if that pays for no stage."""
    return for_smallest_accuracy(
        lambda eps: recursive_for_accuracy(eps, known), attrgetter("samples"), budget, below=known.M * known.D
    )


class _Hybrid(NamedTuple):
    """A hybrid before rounding: approximate cost, weights, distances at the starts and ends of the first stages.

    MonotonePlan Dual-OHM is then planned for the setting `last` and the accuracy `eps`.
    """

    cost: float
    nu: Array
    starts: Array
    ends: Array
    last: MonotoneSetting
    eps: float


def _hybrid(eps: float, known: MonotoneSetting) -> _Hybrid | None:
    best: _Hybrid | None = None
    for S in range(1, 1 + max(1, ceil(log2(max(2.0, 12 * known.M * known.D / eps))))):
        for phi in np.geomspace(0.02, 0.3, 6):
            nu = phi * eps / known.D * 2.0 ** np.arange(S + 1)
            if nu[-1] > known.M:
                continue
            for share in (0.35, 0.5, 0.65, 0.8):
                ends = eps * (1 - phi) * (1 - share) / S / nu[:-1]
                starts = np.append(known.D, ends[:-1])
                last, last_eps = replace(known, D=float(ends[-1])), eps * (1 - phi) * share
                cost = float(_stage_cost(starts, ends, nu[:-1], known)[0].sum())
                cost += approximate_cost(last_eps, last.setting(float(nu[-1])), True)
                if best is None or cost < best.cost:
                    best = _Hybrid(cost, nu, starts, ends, last, last_eps)
    return best


def hybrid_for_accuracy(eps: float, known: MonotoneSetting) -> Recursive | None:
    """The cheapest run of extragradient stages and then regularised Dual-OHM (Theorem H); None if none was found."""
    if (best := _hybrid(eps, known)) is None:
        return None
    nu, ends = best.nu, best.ends
    delta = float(nu[-1])
    setting = best.last.setting(delta)
    run = tapered_for_accuracy(best.eps * (1 - 1e-12), setting)
    bound = float(nu[0] * known.D + (np.diff(nu) * ends).sum() + run.bound)
    last = MonotonePlan(delta, setting.step_size, replace(run, bound=bound, exact=False))
    return Recursive((*_stages(best.starts, ends, nu[:-1], known, bound), last), True, bound)


def hybrid_for_budget(budget: int, known: MonotoneSetting, below: float) -> Recursive | None:
    """The hybrid of about the smallest accuracy within a budget of samples; None if that accuracy is not `below`."""
    return for_smallest_accuracy(
        lambda eps: hybrid_for_accuracy(eps, known), attrgetter("samples"), budget, below, within=3e-3
    )


def _stages(starts: Array, ends: Array, nu: Array, known: MonotoneSetting, bound: float) -> tuple[MonotonePlan, ...]:
    """The stages that reduce the distance."""
    stages = zip(starts.tolist(), ends.tolist(), nu.tolist(), strict=True)
    return tuple(extragradient_stage(start, end, weight, known, bound) for start, end, weight in stages if end < start)


def _error_shares(nu: Array, known: MonotoneSetting) -> Array:
    """The best division of the error among the stages, up to a factor: like the cube roots of their costs."""
    weight = np.concatenate([nu[:-1] / (known.mu + nu[:-1]), (known.M + nu[-1:]) / (known.mu + nu[-1:])])
    return np.asarray(weight ** (2 / 3))


def _stage_cost(start: Array, end: Array, nu: Array, known: MonotoneSetting) -> tuple[Array, Array]:
    """The approximate cost of stages, 0 where one has nothing to do, and the best theta of each."""
    known = known.unit
    mu, M = (known.mu + nu)[..., None], (known.M + nu)[..., None]
    a = _THETAS / M
    rho, c = bounds.contraction_rate(a, M, mu), np.maximum(bounds.ahead_noise(a, M, mu), 0.0)
    factor = 1 - rho + (a * mu if known.sigma else 0.0)
    valid = (factor > 0) & (factor < 1) & (2 * a * mu < 1 - _THETAS**2)
    factor = np.where(valid, factor, 0.5)
    ratio = np.maximum(1.0, start / end)[..., None]
    steps = np.maximum(1.0, 2 * np.log(ratio) / -np.log(factor))
    noise = a * (1 + np.sqrt(c)) ** 2 * known.sigma**2 / (mu * end[..., None] ** 2)
    cost = noise * (1 - ratio**-2.0) / (1 - factor) * factor + 1.2 * steps * (1 + known.round_cost)
    cost = np.where(valid, cost, inf)
    best = np.argmin(cost, axis=-1)
    least = np.take_along_axis(cost, best[..., None], -1)[..., 0]
    return np.where(start <= end, 0.0, least), _THETAS[best]
