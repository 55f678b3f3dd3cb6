"""Proximal maps of penalties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.types import Array
from dualanchor.prox.resolvent import Resolvent, as_parameter, common_size, like


@dataclass(frozen=True, eq=False, repr=False)
class l1(Resolvent):  # noqa: N801  called like a function, and named so
    r"""Proximal map of :math:`\sum_i w_i |x_i|`: every coordinate moves towards 0 by at most :math:`\alpha w_i`.

    Parameters
    ----------
    weight : float or array of shape (d,)
        w, not negative; one for all coordinates or one for each.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.l1(2.0)([3.0, -0.5, -4.0], 0.5)
    array([ 2.,  0., -3.])
    """

    weight: Any

    rowwise = True

    def __post_init__(self) -> None:
        weight = as_parameter(self.weight, "l1: weight")
        if not (np.all(np.isfinite(weight)) and np.all(np.greater_equal(weight, 0))):
            raise ArgumentError(
                "l1: weight must be non-negative and finite", self.weight, "Use 0 where nothing is penalised"
            )
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "size", common_size("l1: weight", weight))

    def apply(self, z: Array, step: Any) -> Array:
        threshold = like(self.weight, z) * step
        out: Array = np.minimum(np.maximum(z, -threshold), threshold)
        return np.subtract(z, out, out=out)
