"""What a named problem gives: options, declared constants, and an instance drawn from streams."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.problem import Constants, Instance, Problem
from dualanchor.core.streams import Streams


class NamedProblem(Problem):
    """A problem with a name and options; a subclass is a frozen dataclass in a file of its own.

    Options called `dimension`, `components` or `rank` must be whole numbers of at least 1, all others numbers of
    at least 0.
    """

    id: ClassVar[str]
    numpy_only: ClassVar[bool] = True
    dimension: Any
    components: Any = None

    def __init__(self) -> None:  # the dataclass of a subclass brings its own
        raise TypeError("NamedProblem is abstract")

    def __post_init__(self) -> None:
        for name, value in self.options().items():
            whole = name in ("dimension", "components", "rank")
            number = np.asarray(value)
            if number.ndim != 0 or number.dtype.kind not in ("iu" if whole else "iuf"):
                kind = "a whole number" if whole else "a number"
                raise ArgumentTypeError(f"{self.id}: {name} must be {kind}", repr(value), "Pass a number")
            if not np.isfinite(value) or value < (1 if whole else 0):
                least = "at least 1" if whole else "at least 0 and finite"
                raise ArgumentError(f"{self.id}: {name} must be {least}", value, f"Use a valid {name}")

    @property
    @abstractmethod
    def constants(self) -> Constants:
        """What is declared about F, its noise and the start."""

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

    __repr__ = Problem.__repr__
