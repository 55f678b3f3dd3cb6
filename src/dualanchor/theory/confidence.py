r"""Confidence bounds for the norm of a mean vector f, from independent means of K groups of samples.

:math:`\bar g` is the mean of the group means, S their covariance, :math:`\lambda` its largest eigenvalue. Each is a
bound on :math:`\|f\|` and fails with a probability of about (or at most) `delta`, by :math:`\|\bar g\| \ge \langle
f/\|f\|, \bar g\rangle`, a scalar, so that no dimension enters, or by the unbiased estimate :math:`U = \|\bar g\|^2 -
\mathrm{tr}\,S/K` of :math:`\|f\|^2`, which is sharper in high dimension near a root.
"""

from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.arrays import in_double, namespace, to_host
from dualanchor.core.types import Array

_COLUMNS = 4096  # coordinates that are turned into double precision at a time


class GroupMoments(NamedTuple):
    r"""K, and for each leading index :math:`\|\bar g\|`, tr S, :math:`\lambda` and tr :math:`S^2`."""

    groups: int
    norm: Array
    trace: Array
    largest: Array
    squares: Array

    @property
    def square(self) -> Array:
        r"""U, the unbiased estimate of :math:`\|f\|^2`; it may be negative."""
        return self.norm**2 - self.trace / self.groups


def group_moments(means: Array) -> GroupMoments:
    """The moments of K >= 2 group means of shape (..., K, d), centred first so that noise far below |f| is not lost.

    Examples
    --------
    >>> m = group_moments(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]))
    >>> print(m.norm**2, m.trace, m.largest, m.square)
    5.0 4.0 3.0 3.667
    """
    *lead, groups, dimension = means.shape
    xp = namespace(means)
    products = np.zeros((*lead, min(groups, dimension), min(groups, dimension)))
    norm = np.zeros(lead)
    for start in range(0, dimension, _COLUMNS):
        part = in_double(means[..., start : start + _COLUMNS])
        first = part[..., :1, :]
        part = part - first  # exact zeros where there is no noise
        shift = xp.mean(part, axis=-2, keepdims=True)
        part = part - shift
        norm += to_host(xp.sum((first + shift) ** 2, axis=(-2, -1)))
        turned = part.swapaxes(-2, -1)
        products += to_host(part @ turned if groups <= dimension else turned @ part)
    products /= groups - 1
    trace = np.trace(products, axis1=-2, axis2=-1)
    squares = (products**2).sum(axis=(-2, -1))
    largest = np.maximum(np.linalg.eigvalsh(products)[..., -1], 0.0)
    return GroupMoments(groups, np.sqrt(norm), trace, largest, squares)


def upper_by_projection(m: GroupMoments, delta: float) -> Array:
    r""":math:`\|\bar g\| + c\sqrt{\lambda/K}`, c the quantile of Student's t; asymptotic in the size of the groups."""
    return np.asarray(m.norm + student(m.groups, delta) * np.sqrt(m.largest / m.groups))


def upper_by_square(m: GroupMoments, delta: float) -> Array:
    r"""The largest :math:`\|f\|` with :math:`\|f\|^2 - U \le c\,\mathrm{sd}(U)`, asymptotic in the size of the groups.

    Its square is :math:`U + b + \sqrt{2bU + b^2 + 2c^2\mathrm{tr}\,S^2/(K(K-1))}`, :math:`b = 2c^2\lambda/K`. A
    negative U is taken as 0, so that noisy samples never earn a bound of 0.
    """
    return _by_square(m, delta, 1.0)


def lower_by_square(m: GroupMoments, delta: float) -> Array:
    r"""The smallest :math:`\|f\|` with :math:`U - \|f\|^2 \le c\,\mathrm{sd}(U)`: the counterpart."""
    return _by_square(m, delta, -1.0)


def _by_square(m: GroupMoments, delta: float, sign: float) -> Array:
    c, K = student(m.groups, delta), m.groups
    U, b = np.maximum(m.square, 0.0), 2 * c**2 * m.largest / K
    at_zero = 2 * c**2 * m.squares / (K * (K - 1))
    return np.asarray(np.sqrt(np.maximum(U + b + sign * np.sqrt(2 * b * U + b**2 + at_zero), 0.0)))


def upper_by_both(m: GroupMoments, delta: float) -> Array:
    """The smaller of `upper_by_projection` and `upper_by_square`, each at delta/2."""
    return np.minimum(upper_by_projection(m, delta / 2), upper_by_square(m, delta / 2))


def upper_any_distribution(norm: Any, variance: Any, delta: float) -> Array:
    r""":math:`\|\bar g\| + \sqrt{v(1-\delta)/\delta}`, v at least the variance of :math:`\bar g` in any direction."""
    return np.asarray(norm + np.sqrt((1 - delta) / delta * np.asarray(variance)))


def upper_sub_gaussian(norm: Any, variance: Any, delta: float) -> Array:
    r""":math:`\|\bar g\| + \sqrt{2v\ln(1/\delta)}`, :math:`\bar g` sub-Gaussian in any direction with proxy v."""
    return np.asarray(norm + np.sqrt(2 * np.log(1 / delta) * np.asarray(variance)))


def student(groups: int, delta: float) -> float:
    """The quantile 1 - delta, at least 0: below that lambda is no longer on the safe side."""
    from scipy.special import stdtrit  # here, because importing scipy takes longer than the bounds do

    return max(float(stdtrit(groups - 1, 1 - delta)), 0.0)
