"""What the methods with an anchor share: admissible steps, batch schedules, the horizon for a budget."""

from bisect import bisect_right
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import BATCH_SIZES, Estimator, Method, State
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.schedule import Constant, as_schedule
from dualanchor.core.types import Array
from dualanchor.estimators.minibatch import Minibatch


class RemembersStart(Method):
    """A method whose state has the start as `anchor`."""

    def init(self, x0: Array) -> State:
        return State(**vars(super().init(x0)), anchor=arrays.copy(x0))


class Anchored(Method):
    """A method whose theorem admits steps up to 2/L, or another multiple of 1/L."""

    step_rule: ClassVar[str]
    longest: ClassVar[tuple[float, str]] = (2.0, "2/L")

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        (factor, formula), L = self.longest, constants.L
        return None if L is None else (factor / L, formula, f"{self.step_rule} with L = {L:.6g}")

    @classmethod
    def step_for(cls, problem: Problem, given: dict[str, Any]) -> Any:
        """The step given, or else the largest one; None if L is not known."""
        L = problem.constants.L
        return given.get("step_size", None if L is None else cls.longest[0] / L)


class Scheduled(Anchored):
    """OHM and Dual-OHM: fresh batches by any schedule, or any estimator in their place."""

    batch_size: Any
    estimator: Estimator | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator is None:
            as_schedule(self.batch_size, type(self).__name__, self.horizon)
        elif not isinstance(self.estimator, Estimator):
            rule = f"{type(self).__name__}: estimator must be an Estimator"
            raise ArgumentTypeError(rule, repr(self.estimator), "Use PAGE(big_batch, small_batch), or leave it out")

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
        return {"batch_size": batch_sizes_within(budget)}


def batch_sizes_within(budget: int) -> list[int]:
    """The batch sizes that a comparison tries, as far as the budget pays for two of them."""
    return [size for size in BATCH_SIZES if size * 2 <= budget] or [1]


def longest_horizon(batch_size: Any, budget: int, owner: str) -> int:
    """The paper's N = Q/B for a constant batch, else the largest N whose N - 1 batches fit into the budget."""
    schedule = as_schedule(batch_size, owner, horizon=1)
    if isinstance(schedule, Constant):
        if schedule.value > budget:
            rule = f"{owner}: batch_size must not be larger than the budget, {budget} evaluations"
            raise ArgumentError(rule, schedule.value, "Use a smaller batch or a larger budget")
        return budget // schedule.value
    if isinstance(batch_size, (list, tuple)):
        return 1 + int(np.count_nonzero(np.cumsum(batch_size) <= budget))
    return bisect_right(range(1, budget + 2), budget, key=lambda N: np.sum(schedule.size(np.arange(N - 1), N)))
