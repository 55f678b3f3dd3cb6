"""The best batches of Dual-OHM where samples are not cocoercive in expectation (Theorem N)."""

from math import ceil, inf, sqrt

import numpy as np

from dualanchor.core.schedule import PowerTapered
from dualanchor.core.types import Array
from dualanchor.theory.monotone import noise_term_n, theorem_n
from dualanchor.theory.schedules.constant import Run, Setting

_LONGEST = 300_000  # shortest horizon for which runs are looked for
_POWERS = np.linspace(0.3, 0.9, 7)
_MULTIPLES = np.geomspace(1.1, 12, 12)  # of the shortest horizon


def power_for_accuracy(eps: float, setting: Setting) -> Run | None:
    """A cheap horizon and batches ceil(C/m^p) whose bound is at most eps; None if it would be too long."""
    if setting.stays(eps):
        return setting.staying()
    shortest = setting.shortest(eps)
    if shortest > _LONGEST or setting.sigma == 0 or setting.multiple > 1:
        return None
    least: tuple[float, int, float, float] = (inf, 0, 0.0, 0.0)
    for N in np.unique(np.ceil(shortest * _MULTIPLES) + 1).astype(int).tolist():
        for p in _POWERS.tolist():
            unrounded = noise_term_n(np.arange(N, 1, -1, dtype=float) ** p)
            C = setting.sigma**2 * float(unrounded) / float(setting.room(eps, N))
            cost = float(_sizes(N, C, p).sum()) + setting.round_cost * N
            least = min(least, (cost, N, C, p))
    _, N, high, p = least
    low = 0.0
    for _ in range(40):  # rounding up leaves some room
        C = (low + high) / 2
        fits = theorem_n(setting.step_size, setting.D, setting.sigma, _sizes(N, C, p)) <= eps**2
        low, high = (low, C) if fits else (C, high)
    for i in range(60):  # rounding only
        if (square := float(theorem_n(setting.step_size, setting.D, setting.sigma, _sizes(N, high, p)))) <= eps**2:
            break
        high *= 1 + 1e-12 * 2**i
    else:
        return None
    return Run(N, PowerTapered(high, p), ceil(_sizes(N, high, p).sum()), sqrt(square), False)


def _sizes(N: int, C: float, p: float) -> Array:
    return np.maximum(1.0, np.ceil(C / np.arange(N, 1, -1, dtype=float) ** p))
