"""The algorithms, one file each. A file put here is found, listed, tested and documented."""

from typing import Any

from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.core.registry import Registered, Registry

registry: Registry[Method] = Registry("method", __name__, Method)


def list_methods() -> list[Registered]:
    """All registered methods: id, title and class of each.

    Examples
    --------
    >>> import dualanchor as da
    >>> "dual-ohm" in [method.id for method in da.list_methods()]
    True
    """
    return registry.entries()


def make(name: str, problem: Problem, budget: int | None, parameters: dict[str, Any]) -> Method:
    """The method with this id; what is not given follows the source's choice for the problem and the budget."""
    return registry.get(name).for_problem(problem, budget, **parameters)
