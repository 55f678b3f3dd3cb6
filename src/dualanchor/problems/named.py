"""What a named problem gives: options, declared constants, and an instance drawn from streams."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from dualanchor.core import check
from dualanchor.core.problem import Constants, Instance, Problem
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array
from dualanchor.oracles.additive import AdditiveNoise


class NamedProblem(Problem):
    """A problem with a name and options; a subclass is a frozen dataclass in a file of its own.

    Options called `dimension`, `components` or `rank` are whole numbers from 1 on, all others numbers from 0 on.
    """

    id: ClassVar[str]
    numpy_only: ClassVar[bool] = True
    dimension: Any
    components: Any = None

    def __post_init__(self) -> None:
        for name, value in self.options().items():
            whole = name in ("dimension", "components", "rank")
            valid: Callable[..., float] = check.count if whole else check.number
            object.__setattr__(self, name, valid(value, f"{self.id}: {name}", remedy=f"Use such a number for {name}"))

    @property
    @abstractmethod
    def constants(self) -> Constants:
        """What is declared about F, its noise and the start."""

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
    """Gaussian noise around an operator that takes all rows at once, each by itself, and returns a new array."""
    oracle = AdditiveNoise(operator, sigma, vectorized=True)
    oracle.rowwise = True
    return oracle
