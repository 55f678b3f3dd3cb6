"""The algorithms, one file each. A file put here is found, listed, tested and documented."""

from __future__ import annotations

from typing import Any

from dualanchor.core.errors import ArgumentError, UnknownNameError, explain, unknown_name
from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.core.registry import Entry, Registry

registry: Registry[Method] = Registry("method", __name__, Method)


def list_methods() -> list[Entry]:
    """All registered methods: id, title and class of each."""
    return registry.entries()


def make(name: str, problem: Problem, budget: int | None, parameters: dict[str, Any]) -> Method:
    """The method with this id; what is not given follows the source's choice for the problem and the budget."""
    cls = registry.get(name)
    for key in parameters:
        if key not in cls.parameter_names():
            error: UnknownNameError = unknown_name(f"{name}: parameter", key, cls.parameter_names())
            raise error
    missing = {
        key: value for key, value in cls.defaults(problem, budget, dict(parameters)).items() if key not in parameters
    }
    unset = [key for key, value in missing.items() if value is None]
    if unset:
        raise ArgumentError(
            explain(
                f"{name}: {unset[0]} must be given where the problem and the budget do not imply it",
                f"problem {problem.name!r} and budget {budget}",
                f"Pass {unset[0]}=..." + (", or a budget" if unset[0] == "horizon" else ", or Constants(L=...)"),
            )
        )
    return cls(**{**missing, **parameters})
