"""What methods for monotone Lipschitz operators share: step sizes in units of 1/M."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Method
from dualanchor.core.problem import Constants, Problem


class Lipschitz(Method):
    """A method whose theorem admits steps up to 1/M, or a part of it; 1/L-cocoercive operators have M <= L."""

    divisor: ClassVar[int] = 1
    step_rule: ClassVar[str]

    def check(self, constants: Constants) -> None:
        if (M := lipschitz(constants)) is None:
            return
        largest, rule = 1 / (self.divisor * M), "1/M" if self.divisor == 1 else f"1/({self.divisor}M)"
        if np.max(self.step_size) > largest * (1 + 1e-12):
            raise ArgumentError(
                f"{type(self).__name__}: step_size must satisfy 0 < step_size <= {rule} = {largest:.6g}"
                f" ({self.step_rule} with M = {M:.6g})",
                f"{np.max(self.step_size):.6g}",
                f"Use {largest:.6g}, or pass check=False to run outside the theorem",
            )

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
