"""`NamedProblem`: options, declared constants, and instances drawn from streams."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from dualanchor.core import check
from dualanchor.core.problem import Constants, Instance, Problem
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array
from dualanchor.oracles.additive import AdditiveNoise

_COUNTS = ("dimension", "components", "rank")


class NamedProblem(Problem):
    """A problem with a name and options; a subclass is a frozen dataclass in a file of its own.

    Options called `dimension`, `components` or `rank` are positive integers, all others non-negative numbers.
    """

    id: ClassVar[str]
    numpy_only: ClassVar[bool] = True
    dimension: Any
    components: Any = None

    def __post_init__(self) -> None:
        for name, value in self.options().items():
            validate: Callable[..., float] = check.count if name in _COUNTS else check.number
            valid = validate(value, f"{self.id}: {name}", remedy=f"Use such a number for {name}")
            object.__setattr__(self, name, valid)

    @property
    @abstractmethod
    def constants(self) -> Constants:
        """The declared constants of F, its noise and the start."""

    @property
    def step_size(self) -> float | None:
        return None if self.constants.L is None else 1 / self.constants.L

    @abstractmethod
    def instance(self, streams: Streams) -> Instance:
        """Oracle, start and root for each row of the streams, with random parts drawn from them."""

    def options(self) -> dict[str, Any]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def option_names(cls) -> list[str]:
        """Names of the options."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **self.options()}


def gaussian(operator: Callable[[Array], Array], sigma: float) -> AdditiveNoise:
    """Gaussian noise added to an operator that maps all rows at once, independently, and returns a new array."""
    oracle = AdditiveNoise(operator, sigma, vectorized=True)
    oracle.rowwise = True
    return oracle
