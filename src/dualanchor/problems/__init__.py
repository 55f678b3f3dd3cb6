"""Named problems, one file each. A file put here is found, listed, tested and documented.

Examples
--------
>>> import dualanchor as da
>>> da.problems.affine(dimension=4).dimension
4
"""

from typing import Any

from dualanchor.core.errors import unknown_name
from dualanchor.core.problem import Problem
from dualanchor.core.registry import Registered, Registry
from dualanchor.problems.affine import Affine
from dualanchor.problems.finite_sum_cocoercive import FiniteSumCocoercive
from dualanchor.problems.huber_minimax import HuberMinimax
from dualanchor.problems.named import NamedProblem
from dualanchor.problems.worst_case_nonexpansive import WorstCaseNonexpansive

registry: Registry[NamedProblem] = Registry("problem", __name__, NamedProblem)  # type: ignore[type-abstract]

affine = Affine
finite_sum_cocoercive = FiniteSumCocoercive
huber_minimax = HuberMinimax
worst_case_nonexpansive = WorstCaseNonexpansive


def list_problems() -> list[Registered]:
    """All named problems: id, title and class of each.

    Examples
    --------
    >>> import dualanchor as da
    >>> "affine" in [problem.id for problem in da.list_problems()]
    True
    """
    return registry.entries()


def make(name: str, options: dict[str, Any]) -> Problem:
    """The named problem with these options."""
    cls = registry.get(name)
    for key in options:
        if key not in cls.option_names():
            raise unknown_name(f"{name}: option", key, cls.option_names())
    return cls(**options)


__all__ = [
    "affine",
    "finite_sum_cocoercive",
    "huber_minimax",
    "list_problems",
    "make",
    "registry",
    "worst_case_nonexpansive",
]
