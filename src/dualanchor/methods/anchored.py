"""What the methods with an anchor share: admissible steps, batch schedules, the horizon for a budget."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import BATCH_SIZES, Estimator, Method
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.schedule import Constant, as_schedule
from dualanchor.estimators.minibatch import Minibatch


class Anchored(Method):
    """A method whose theorem admits steps up to 2/L."""

    step_rule: ClassVar[str]

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        return None if constants.L is None else (2.0 / constants.L, "2/L", self.step_rule)


class Scheduled(Anchored):
    """OHM and Dual-OHM: fresh batches by any schedule, or any estimator in their place."""

    batch_size: Any
    estimator: Estimator | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator is None:
            as_schedule(self.batch_size, type(self).__name__, self.horizon)
        elif not isinstance(self.estimator, Estimator):
            raise ArgumentTypeError(
                f"{type(self).__name__}: estimator must be an Estimator",
                repr(self.estimator),
                "Use PAGE(big_batch, small_batch), or leave it out",
            )

    @cached_property
    def estimator_in_use(self) -> Estimator:
        """The estimator given, or else the mean of a fresh batch."""
        return self.estimator or Minibatch(self.batch_size)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        horizon = given.get("horizon")
        if horizon is None and budget is not None and given.get("estimator") is None:
            horizon = longest_horizon(given.get("batch_size", 1), budget, cls.__name__)
        return {"step_size": problem.step_size, "horizon": horizon}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        return {"batch_size": [size for size in BATCH_SIZES if size * 2 <= budget] or [1]}


def longest_horizon(batch_size: Any, budget: int, owner: str) -> int:
    """The paper's N = Q/B for a constant batch, else the largest N whose N - 1 batches fit into the budget."""
    schedule = as_schedule(batch_size, owner, horizon=1)
    if isinstance(schedule, Constant):
        if schedule.value > budget:
            raise ArgumentError(
                f"{owner}: batch_size must not be larger than the budget, {budget} evaluations",
                schedule.value,
                "Use a smaller batch or a larger budget",
            )
        return budget // schedule.value
    fits, too_long = 1, budget + 2
    if not isinstance(batch_size, (list, tuple)):
        while too_long - fits > 1:
            horizon = (fits + too_long) // 2
            total = int(np.sum(schedule.size(np.arange(horizon - 1), horizon)))
            fits, too_long = (horizon, too_long) if total <= budget else (fits, horizon)
        return fits
    return 1 + int(np.count_nonzero(np.cumsum(batch_size) <= budget))
