r"""F at a point near another one where it was estimated well: pairs of samples carry the estimate over.

Let :math:`\hat f` be the mean of n samples at w, and x any point, which may depend on them. Then

.. math:: \|F(x)\| \le \|\hat f + \hat\Delta\| + \|F(w) - \hat f\| + \|F(x) - F(w) - \hat\Delta\|

for the mean :math:`\hat\Delta` of differences :math:`\hat F(x; \xi) - \hat F(w; \xi)` on fresh samples. The second term
does not depend on x, so a bound that holds with high probability holds for every x at once; the third is small where x
is near w. A point with :math:`\hat f + \hat\Delta \approx 0` has a bound of little more than the error of
:math:`\hat f`, which is the least that n samples can give.
"""

from math import log
from typing import NamedTuple

import numpy as np

from dualanchor.advise.certify import group_means, group_sizes
from dualanchor.core import arrays
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows
from dualanchor.theory.confidence import Deviation, deviation


class Estimate(NamedTuple):
    """Means of samples, of shape (rows, d), and how far they may lie from what they estimate."""

    value: Array
    deviation: Deviation
    samples: int
    groups: int

    def radius(self, delta: float) -> Array:
        """How far, one number per row, but with probability delta."""
        return self.deviation.radius(self.groups, delta)

    def take(self, rows: Rows) -> "Estimate":
        """Those of some rows."""
        spread = Deviation(*(values[rows] for values in self.deviation))
        return self._replace(value=arrays.take(self.value, rows), deviation=spread)

    def pooled(self, other: "Estimate") -> "Estimate":
        """Both together."""
        samples = self.samples + other.samples
        a, b = self.samples / samples, other.samples / samples
        parts = zip(self.deviation, other.deviation, strict=True)
        spread = Deviation(*(a**2 * one + b**2 * two for one, two in parts))
        return Estimate(a * self.value + b * other.value, spread, samples, min(self.groups, other.groups))


def estimate(F: Session, x: Array, samples: int, beside: Array | None = None) -> Estimate:
    """F at points (rows, d), or how much it changes from the points `beside` to x, from fresh samples."""
    groups, size = group_sizes(samples, x.shape[1])
    means = group_means(F, x, groups, size, beside)
    return Estimate(arrays.namespace(x).mean(means, axis=1), deviation(means), groups * size, groups)


def bound(at: Estimate, change: Estimate, delta_at: float, delta_change: float) -> tuple[Array, Array]:
    """The size of the estimate of F at x, and the upper bound, one number per row.

    A difference as large as the mean one may have been missed as often as no sample shows it. Where all samples of the
    estimate agree, there may be noise that none has shown: no bound.
    """
    size = arrays.row_norms(at.value + change.value)
    missed = log(1 / delta_change) / change.samples * arrays.row_norms(change.value)
    error = np.where(at.deviation.trace > 0, at.radius(delta_at), np.inf)
    return size, size + error + change.radius(delta_change) + missed
