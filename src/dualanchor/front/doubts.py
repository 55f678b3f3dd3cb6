"""Constants that a user gave, against what samples show."""

from __future__ import annotations

import numpy as np

from dualanchor.advise.calibration import Calibration
from dualanchor.front.ask import Ask

_SLACK = 1.25  # by how much samples must exceed a constant before they are held against it


def contradicted(ask: Ask, seen: Calibration, plain: bool) -> list[str]:
    """Constants that samples speak against; D only for a `plain` problem, where it is the distance from a fixed x0.

    L is compared only where the same samples can be had at two points, and mu not at all: what noise leaves of their
    estimates would raise false alarms.
    """
    said = []
    lowest = [pair[0] for pair in (seen.local_L_interval, seen.local_L_mean_interval) if pair is not None]
    comparable = bool(lowest) and seen.replayable and not (seen.violations or seen.not_cocoercive)
    if ask.L is not None and comparable and np.isfinite(max(lowest)) and max(lowest) > _SLACK * ask.L:
        said.append(
            f"L = {ask.L:.4g} is too small: near x0 it is at least {max(lowest):.4g} (L is the cocoercivity constant, "
            "not the Lipschitz constant: M^2/mu)"
        )
    if ask.sigma is not None and seen.sigma_interval[0] > _SLACK * ask.sigma:
        said.append(f"sigma = {ask.sigma:.4g} is too small: at x0 it is at least {seen.sigma_interval[0]:.4g}")
    least = 0.0 if ask.L is None or not plain else seen.residual_interval[0] / ask.L
    if ask.D is not None and least > _SLACK * ask.D:
        said.append(f"D = {ask.D:.4g} is too small: |F(x0)|/L is at least {least:.4g}")
    return said
