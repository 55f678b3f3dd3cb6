"""The best horizon and batch sizes of Dual-OHM for an accuracy or for a budget, in whole numbers."""

from dualanchor.theory.schedules.constant import best_horizon, constant_for_accuracy, constant_for_budget
from dualanchor.theory.schedules.setting import Run, Setting
from dualanchor.theory.schedules.tapered import (
    private_variances,
    restarts_for_accuracy,
    tapered_at,
    tapered_for_accuracy,
    tapered_for_budget,
    tapered_totals,
)

__all__ = [
    "Run",
    "Setting",
    "best_horizon",
    "constant_for_accuracy",
    "constant_for_budget",
    "private_variances",
    "restarts_for_accuracy",
    "tapered_at",
    "tapered_for_accuracy",
    "tapered_for_budget",
    "tapered_totals",
]
