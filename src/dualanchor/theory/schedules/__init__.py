"""The best horizon and batch sizes of Dual-OHM for an accuracy or for a budget, in whole numbers; loops of RAIN."""

from dualanchor.theory.schedules.constant import Run, Setting, best_horizon, constant_for_accuracy, constant_for_budget
from dualanchor.theory.schedules.powers import power_for_accuracy
from dualanchor.theory.schedules.rain import loops_for_accuracy, loops_for_budget, rain_samples
from dualanchor.theory.schedules.tapered import (
    private_variances,
    restarts_for_accuracy,
    restarts_for_budget,
    tapered_at,
    tapered_for_accuracy,
    tapered_for_budget,
)

__all__ = [
    "Run",
    "Setting",
    "best_horizon",
    "constant_for_accuracy",
    "constant_for_budget",
    "loops_for_accuracy",
    "loops_for_budget",
    "power_for_accuracy",
    "private_variances",
    "rain_samples",
    "restarts_for_accuracy",
    "restarts_for_budget",
    "tapered_at",
    "tapered_for_accuracy",
    "tapered_for_budget",
]
