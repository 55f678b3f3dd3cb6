"""The best batches of Dual-OHM where samples are not cocoercive in expectation (Theorem N)."""

from math import ceil, sqrt

import numpy as np

from dualanchor.core.schedule import PowerTapered
from dualanchor.core.types import Array
from dualanchor.theory.monotone import noise_term_n, theorem_n
from dualanchor.theory.schedules.constant import Run, Setting

_MAX_SHORTEST = 300_000  # no run is planned if the shortest horizon is longer
_POWERS = np.linspace(0.3, 0.9, 7)  # exponents p to try
_MULTIPLES = np.geomspace(1.1, 12, 12)  # horizons to try, in multiples of the shortest


def power_for_accuracy(eps: float, setting: Setting) -> Run | None:
    """A cheap horizon and batches ceil(C/m^p) whose bound is at most eps; None if it would be too long."""
    if setting.start_suffices(eps):
        return setting.start_run()
    shortest = setting.shortest(eps)
    if shortest > _MAX_SHORTEST or setting.sigma == 0 or setting.multiple > 1:
        return None

    def square(C: float) -> float:
        return float(theorem_n(setting.step_size, setting.D, setting.sigma, _sizes(N, C, p)))

    candidates: list[tuple[float, int, float, float]] = []  # cost, N, C, p
    for horizon in np.unique(np.ceil(shortest * _MULTIPLES) + 1).astype(int).tolist():
        for power in _POWERS.tolist():
            unrounded = noise_term_n(np.arange(horizon, 1, -1, dtype=float) ** power)
            C = setting.sigma**2 * float(unrounded) / float(setting.room(eps, horizon))
            cost = float(_sizes(horizon, C, power).sum()) + setting.round_cost * horizon
            candidates.append((cost, horizon, C, power))
    _, N, high, p = min(candidates)
    low = 0.0
    for _ in range(40):  # sizes are rounded up, so a smaller C is enough
        C = (low + high) / 2
        low, high = (low, C) if square(C) <= eps**2 else (C, high)
    for i in range(60):  # rounding only
        if square(high) <= eps**2:
            sizes = _sizes(N, high, p)
            return Run(N, PowerTapered(high, p), ceil(sizes.sum()), sqrt(square(high)), False)
        high *= 1 + 1e-12 * 2**i
    return None


def _sizes(N: int, C: float, p: float) -> Array:
    return np.maximum(1.0, np.ceil(C / np.arange(N, 1, -1, dtype=float) ** p))
