"""Constraints and penalties: resolvents `prox(z, step)`, for one point or for rows of points.

Examples
--------
>>> import numpy as np, dualanchor as da
>>> da.prox.box(0.0, 1.0)(np.array([-1.0, 0.5, 2.0]), 1.0)
array([0. , 0.5, 1. ])
"""

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
