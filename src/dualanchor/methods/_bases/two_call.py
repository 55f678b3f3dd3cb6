"""What the methods with two operator calls per step share: batches, and steps in units of 1/M."""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dualanchor.core.method import Cost, Method, State
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.schedule import Schedule, as_schedule


class TwoCall(Method):
    """Extragradient steps: two independent batches of the same size."""

    batch_size: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rounds(None)

    def check_rounds(self, rounds: int | None) -> None:
        as_schedule(self.batch_size, type(self).__name__, self.horizon, rounds)

    @cached_property
    def schedule(self) -> Schedule:
        """The rule behind `batch_size`."""
        return as_schedule(self.batch_size, type(self).__name__, self.horizon)

    def batch(self, k: int) -> Any:
        """Size of each of the two batches of step k; raises if there is no such step."""
        if self.steps is not None and k >= self.steps:
            raise self._past_horizon(k)
        size = self.schedule.size(k, self.horizon)
        return size if isinstance(size, int) else np.asarray(size)[:, 0]

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        size = self.schedule.size(k, self.horizon)
        return Cost(2 * size, 2 * size)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        steps = [] if problem.step_size is None else [problem.step_size]
        if problem.constants.M is not None:
            steps.append(1 / (2 * problem.constants.M))
        return {"step_size": min(steps, default=None)}


class Lipschitz(Method):
    """A method whose theorem admits steps up to 1/M, or a part of it; 1/L-cocoercive operators have M <= L."""

    divisor: ClassVar[int] = 1
    step_rule: ClassVar[str]

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        if (M := lipschitz(constants)) is None:
            return None
        formula = "1/M" if self.divisor == 1 else f"1/({self.divisor}M)"
        return 1 / (self.divisor * M), formula, f"{self.step_rule} with M = {M:.6g}"

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        M = lipschitz(problem.constants)
        return {"step_size": problem.step_size if M is None else 1 / (cls.divisor * M)}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        usual = cls.defaults(problem, None, {})["step_size"] or 1.0
        return {"step_size": [step for step in cls._steps_to_try(problem) if step <= usual * (1 + 1e-5)]}


def lipschitz(constants: Constants) -> float | None:
    """A Lipschitz constant, if one is known: M, or else L."""
    return constants.L if constants.M is None else constants.M
