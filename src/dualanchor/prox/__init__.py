"""Constraints and penalties: resolvents `prox(z, step)`, for one point or for rows of points.

Any function `prox(z, step)` can be used in their place; `check_prox` looks whether it can be one.
"""

from dualanchor.prox.check import check_prox
from dualanchor.prox.combine import from_function, none, product
from dualanchor.prox.penalties import l1
from dualanchor.prox.resolvent import Resolvent
from dualanchor.prox.sets import affine_subspace, ball, box, nonnegative, simplex

__all__ = [
    "Resolvent",
    "affine_subspace",
    "ball",
    "box",
    "check_prox",
    "from_function",
    "l1",
    "none",
    "nonnegative",
    "product",
    "simplex",
]
