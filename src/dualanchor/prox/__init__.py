"""Constraints and penalties: resolvents `prox(z, step)`, for one point or for rows of points."""

from dualanchor.prox.check import check_prox
from dualanchor.prox.combine import from_function, l1, none, product
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
