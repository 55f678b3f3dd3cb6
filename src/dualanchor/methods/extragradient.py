"""What the methods with two operator calls per step share."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core.method import Cost, Method
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Schedule, as_schedule


class TwoCall(Method):
    """Extragradient steps: two independent batches of the same size."""

    batch_size: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        as_schedule(self.batch_size, type(self).__name__)

    @cached_property
    def schedule(self) -> Schedule:
        """The rule behind `batch_size`."""
        return as_schedule(self.batch_size, type(self).__name__)

    def check_rounds(self, rounds: int | None) -> None:
        as_schedule(self.batch_size, type(self).__name__, rounds=rounds)

    def batch(self, k: int) -> Any:
        """Size of each of the two batches of step k."""
        size = self.schedule.size(k, None)
        return size if isinstance(size, int) else np.asarray(size)[:, 0]

    def twice(self, k: Any) -> Cost:
        """Cost of a step of two operator calls."""
        size = self.schedule.size(k, None)
        return Cost(2 * size, 2 * size)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        steps = [] if problem.step_size is None else [problem.step_size]
        if problem.constants.M is not None:
            steps.append(1 / (2 * problem.constants.M))
        return {"step_size": min(steps, default=None)}
