"""The residual at a point from fresh samples, without the upward bias of the norm of a mean."""

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.session import Session
from dualanchor.core.types import Array

GROUPS = 32


def debiased_squared_residual(F: Session, x: Array, samples: int) -> Array:
    r"""An unbiased estimate of :math:`\|F(x)\|^2` for each row, from fresh samples.

    With means of K groups and their covariance S, it is :math:`\|\bar g\|^2 - \mathrm{tr}(S)/K`. It may be negative.

    Parameters
    ----------
    F : Session, whose samples must be independent of x
    x : array of shape (rows, d)
    samples : int, at least 64, in 32 groups of equal size
    """
    size = max(2, samples // GROUPS)
    mean, squares = arrays.zeros_like(x), np.zeros(x.shape[0])
    for count in range(1, GROUPS + 1):  # Welford: no group is stored
        change = F(x, F.draw(size)) - mean
        mean = mean + change / count
        squares += (1 - 1 / count) * arrays.to_host(arrays.row_squares(change))
    trace = squares / (GROUPS - 1)
    return np.asarray(arrays.to_host(arrays.row_squares(mean)) - trace / GROUPS)
