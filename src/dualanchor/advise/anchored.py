r"""Bound F at a point x by a good estimate at a nearby point w and the change of F between them.

Let :math:`\hat f` be the mean of n samples at w, and x any point, which may depend on them. Then

.. math:: \|F(x)\| \le \|\hat f + \hat\Delta\| + \|F(w) - \hat f\| + \|F(x) - F(w) - \hat\Delta\|

for the mean :math:`\hat\Delta` of differences :math:`\hat F(x; \xi) - \hat F(w; \xi)` on fresh samples. The second term
does not depend on x, so its bound holds for every x at once; the third is small where x is near w. At a point with
:math:`\hat f + \hat\Delta \approx 0` the bound is hardly larger than the error of :math:`\hat f`, which is the
smallest that n samples can give.
"""

from math import log
from typing import NamedTuple

import numpy as np

from dualanchor.advise.certify import finite_means, group_means, group_sizes
from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows
from dualanchor.theory.confidence import Deviation, deviation


class MeanEstimate(NamedTuple):
    """Means of samples, (rows, d), with the distribution of their errors."""

    value: Array
    deviation: Deviation
    samples: int
    groups: int

    def radius(self, delta: float) -> Array:
        """A bound on the norm of the error, (rows,), that fails with probability delta."""
        return self.deviation.radius(self.groups, delta)

    def take(self, rows: Rows) -> "MeanEstimate":
        """The estimates of some rows."""
        deviation = Deviation(*(values[rows] for values in self.deviation))
        return self._replace(value=arrays.take(self.value, rows), deviation=deviation)

    def pooled(self, other: "MeanEstimate") -> "MeanEstimate":
        """The estimate from the samples of both."""
        samples = self.samples + other.samples
        a, b = self.samples / samples, other.samples / samples
        parts = zip(self.deviation, other.deviation, strict=True)
        deviation = Deviation(*(a**2 * mine + b**2 * theirs for mine, theirs in parts))
        return MeanEstimate(a * self.value + b * other.value, deviation, samples, min(self.groups, other.groups))


def estimate(F: Session, x: Array, samples: int, minus: Array | None = None) -> MeanEstimate:
    """F at points x (rows, d), or its change from the points `minus` to x, from fresh samples."""
    groups, size = group_sizes(samples, x.shape[1])
    means = group_means(F, x, groups, size, minus)
    if not finite_means(means).all():
        rule = "Samples near a root must be finite and small enough to be squared"
        raise OracleError(rule, "infinite ones, or NaN", "Fix the sampler, or start elsewhere")
    return MeanEstimate(arrays.namespace(x).mean(means, axis=1), deviation(means), groups * size, groups)


def bound(at: MeanEstimate, change: MeanEstimate, delta_at: float, delta_change: float) -> tuple[Array, Array]:
    """The norm of the estimate of F at x and the upper bound on the norm of F there, each (rows,).

    The bound allows for differences as large as the mean one that no sample showed. It is infinite where all samples of
    the estimate `at` w agree: there may be noise that none of them showed.
    """
    norm = arrays.row_norms(at.value + change.value)
    missed = log(1 / delta_change) / change.samples * arrays.row_norms(change.value)
    error = np.where(at.deviation.trace > 0, at.radius(delta_at), np.inf)
    return norm, norm + error + change.radius(delta_change) + missed
