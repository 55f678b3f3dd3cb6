r"""Confidence bounds for the norm of a mean vector f, from independent means of K groups of samples.

:math:`\bar g` is the mean of the group means, S their covariance, :math:`\lambda` its largest eigenvalue. Each bound on
:math:`\|f\|` fails with a probability of about (or at most) `delta`. It uses either :math:`\|\bar g\| \ge \langle
f/\|f\|, \bar g\rangle`, a scalar, so that the dimension does not matter, or the unbiased estimate :math:`U = \|\bar
g\|^2 - \mathrm{tr}\,S/K` of :math:`\|f\|^2`, which is sharper in high dimension near a root.
"""

from math import ceil, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.arrays import in_double, namespace, to_host
from dualanchor.core.types import Array

_COLUMNS = 4096  # coordinates converted to double precision at a time
_RARE = 4.0  # factor on the skewness correction by the largest group mean; chosen in docs/certificates.md
RAREST = 1 / 200  # probability of events below which `enough_for_rare` does not guard against them
_CURVATURE = 0.0982  # log(1 + y + y^2/2) >= y - this y^2 for all y


class GroupMoments(NamedTuple):
    r"""K, and for each leading index :math:`\|\bar g\|`, tr S, :math:`\lambda`, tr :math:`S^2` and `outlier`.

    The outlier is the distance, in the direction of :math:`\bar g`, of the outermost group mean beyond
    :math:`\sqrt{2\ln K}` standard deviations, where that of normal ones is expected; 0 if it lies below.
    """

    groups: int
    norm: Array
    trace: Array
    largest: Array
    squares: Array
    outlier: Array

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
    norm, along = np.zeros(lead), np.zeros((*lead, groups))
    for start in range(0, dimension, _COLUMNS):
        part = in_double(means[..., start : start + _COLUMNS])
        first = in_double(part[..., :1, :])
        part -= first  # exact zeros where there is no noise
        shift = xp.mean(part, axis=-2, keepdims=True)
        part -= shift
        mean = first + shift
        norm += to_host(xp.sum(mean**2, axis=(-2, -1)))
        along += to_host(xp.sum(part * mean, axis=-1))
        transposed = part.swapaxes(-2, -1)
        products += to_host(part @ transposed if groups <= dimension else transposed @ part)
    products /= groups - 1
    trace = np.trace(products, axis1=-2, axis2=-1)
    squares = (products**2).sum(axis=(-2, -1))
    largest = np.maximum(np.linalg.eigvalsh(products)[..., -1], 0.0)
    norm = np.sqrt(norm)
    along /= np.where(norm > 0, norm, 1.0)[..., None]
    expected = sqrt(2 * log(groups) / (groups - 1)) * np.sqrt((along**2).sum(axis=-1))
    outlier = np.maximum(along.max(axis=-1) - expected, 0.0)
    return GroupMoments(groups, norm, trace, largest, squares, outlier)


def upper_by_projection(m: GroupMoments, delta: float) -> Array:
    r""":math:`\|\bar g\| + c\sqrt{\lambda/K}`, c the quantile of Student's t; asymptotic in the size of the groups."""
    return np.asarray(m.norm + student(m.groups, delta) * np.sqrt(m.largest / m.groups))


def upper_by_square(m: GroupMoments, delta: float) -> Array:
    r"""The largest :math:`\|f\|` with :math:`\|f\|^2 - U \le c\,\mathrm{sd}(U)`, asymptotic in the size of the groups.

    Its square is :math:`U + b + \sqrt{2bU + b^2 + 2c^2\mathrm{tr}\,S^2/(K(K-1))}`, :math:`b = 2c^2\lambda/K`. A
    negative U is replaced by 0, so that noisy samples never give a bound of 0.
    """
    return _by_square(m, delta, 1.0)


def lower_by_square(m: GroupMoments, delta: float) -> Array:
    r"""The smallest :math:`\|f\|` with :math:`U - \|f\|^2 \le c\,\mathrm{sd}(U)`, as in `upper_by_square`."""
    return _by_square(m, delta, -1.0)


def _by_square(m: GroupMoments, delta: float, sign: float) -> Array:
    c, K = student(m.groups, delta), m.groups
    U, b = np.maximum(m.square, 0.0), 2 * c**2 * m.largest / K
    at_zero = 2 * c**2 * m.squares / (K * (K - 1))
    return np.asarray(np.sqrt(np.maximum(U + b + sign * np.sqrt(2 * b * U + b**2 + at_zero), 0.0)))


def upper_by_both(m: GroupMoments, delta: float) -> Array:
    r"""The smaller of `upper_by_projection` and `upper_by_square`, each at delta/2, corrected for rare samples.

    The quantile of the mean of skewed noise exceeds Student's by :math:`(2c^2 + 1)\,\mu_3/(6\lambda K)` (Johnson). For
    noise that shows in few samples the third moment :math:`\mu_3` is near :math:`\lambda` times the largest of them. As
    few samples determine it badly, the correction uses four times the outlier for :math:`\mu_3/\lambda`.
    """
    smaller = np.minimum(upper_by_projection(m, delta / 2), upper_by_square(m, delta / 2))
    c = student(m.groups, delta / 2)
    return np.asarray(smaller + _RARE * (2 * c**2 + 1) / (6 * m.groups) * m.outlier)


class Deviation(NamedTuple):
    """The error of the mean of K group means, for each leading index: its covariance C, and rare samples.

    `trace` is tr C, `root` the root of tr C^2, and `rare` the distance of the outermost group mean beyond where that of
    normal ones is expected, over K.
    """

    trace: Array
    root: Array
    rare: Array

    def radius(self, groups: int, delta: float) -> Array:
        r"""A bound on the norm of the error, asymptotic in the size of the groups; fails with probability delta.

        Its square is modelled as :math:`a\chi^2_\nu` with the same mean and variance as that of a normal vector,
        :math:`a = \mathrm{tr}\,C^2/\mathrm{tr}\,C`, :math:`\nu = (\mathrm{tr}\,C)^2/\mathrm{tr}\,C^2`. Few groups and
        rare samples are allowed for as in `upper_by_both`.
        """
        few_groups = student(groups, delta / 2) / student(1 << 30, delta / 2)
        rare = _RARE * (2 * student(groups, delta) ** 2 + 1) / 6 * self.rare
        return np.asarray(few_groups * _chi_square_root(self.trace, self.root, delta) + rare)


def deviation(means: Array) -> Deviation:
    """The error of the mean of K >= 2 group means of shape (..., K, d)."""
    groups, m, xp = means.shape[-2], group_moments(means), namespace(means)
    centred = means - xp.mean(means, axis=-2, keepdims=True)
    farthest = np.sqrt(to_host(xp.max(xp.sum(centred * centred, axis=-1), axis=-1)).astype(np.float64))
    expected = _chi_square_root(m.trace, np.sqrt(m.squares), 1 / groups)
    rare = np.maximum(farthest - expected, 0.0) / groups
    return Deviation(m.trace / groups, np.sqrt(m.squares) / groups, rare)


def _chi_square_root(trace: Array, root: Array, delta: float) -> Array:
    """The quantile 1 - delta of the norm of a normal vector with covariance C: tr C, and the root of tr C^2."""
    from scipy.special import gammainccinv

    noisy = trace > 0
    trace, root = np.where(noisy, trace, 1.0), np.where(noisy, root, 1.0)
    a, nu = root**2 / trace, (trace / root) ** 2
    return np.where(noisy, np.sqrt(2 * a * gammainccinv(nu / 2, delta)), 0.0)


def upper_any_distribution(m: GroupMoments, variance: float, delta: float) -> Array:
    r""":math:`\|\bar g\| + D` for group means of any distribution with a variance of at most v in each direction.

    D is Cantelli's :math:`\sqrt{v(1-\delta)/(\delta K)}` for few groups, else Catoni's. In the direction u of f let
    :math:`y_k = \alpha\langle u, f - g_k\rangle`. By Markov's inequality :math:`\sum_k \ln(1 + y_k + y_k^2/2) \le
    K\alpha^2 v/2 + \ln(1/\delta)` except with probability :math:`\delta`. The logarithm is at least :math:`y -
    0.0982\,y^2`, and beyond the maximum of that at least the maximum, so D is the smaller root of :math:`D -
    0.0982\,\alpha(D^2 + \lambda) = \alpha v/2 + \ln(1/\delta)/(K\alpha)`: about :math:`\sqrt{2v\ln(1/\delta)/K}`, and
    a tenth more if one direction has all the noise.
    """
    K, L = m.groups, log(1 / delta)
    cantelli = sqrt((1 - delta) / delta * variance / K)
    if not variance or _catoni(K, L, variance, variance) >= cantelli:  # no sample influences this choice
        return np.asarray(m.norm + cantelli)
    return np.asarray(m.norm + _catoni(K, L, variance, m.largest * (K - 1) / K))


def _catoni(K: int, L: float, variance: float, largest: Any) -> Array:
    """The smaller root D, with L = ln(1/delta); infinite if there is none."""
    alpha = sqrt(2 * L / (K * variance * (1 + 2 * _CURVATURE)))
    bend = _CURVATURE * alpha
    target = alpha * variance / 2 + L / (K * alpha) + bend * np.asarray(largest)
    discriminant = 1 - 4 * bend * target
    return np.where(discriminant >= 0, 2 * target / (1 + np.sqrt(np.maximum(discriminant, 0.0))), inf)


def upper_by_kurtosis(m: GroupMoments, kurtosis: float, delta: float) -> Array:
    r""":math:`\|\bar g\| + \sqrt{C\,\mathrm{tr}\,S(1-\delta_2)/(\delta_2 K)}` for group means of bounded kurtosis.

    For any distribution with :math:`E\|g - f\|^4 \le \kappa (E\|g - f\|^2)^2`, whatever its variance, as in guaranteed
    Monte Carlo (Hickernell et al.). The relative variance of tr S is at most :math:`V = (\kappa - 1)/K + 2/(K(K-1))`,
    so by Cantelli's inequality tr S is at least 1/C of its mean, :math:`1/C = 1 - \sqrt{V(1-\delta_1)/\delta_1}`,
    except with probability :math:`\delta_1`. The inequality is used again for the mean, and :math:`\delta_1 + \delta_2
    = \delta` are chosen for the smallest bound. It is infinite if there are too few groups.
    """
    K = m.groups
    first = delta * np.linspace(0.02, 0.98, 97)
    shrunk = 1 - np.sqrt(((kurtosis - 1) / K + 2 / (K * (K - 1))) * (1 - first) / first)
    second = delta - first
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.min(np.where(shrunk > 0, (1 - second) / (second * shrunk * K), inf))
    return np.asarray(m.norm + np.sqrt(factor * m.trace)) if factor < inf else np.full_like(m.norm, inf)


def upper_sub_gaussian(norm: Any, variance: Any, delta: float) -> Array:
    r""":math:`\|\bar g\| + \sqrt{2v\ln(1/\delta)}`, :math:`\bar g` sub-Gaussian in any direction with proxy v."""
    return np.asarray(norm + np.sqrt(2 * np.log(1 / delta) * np.asarray(variance)))


def enough_for_rare(delta: float) -> int:
    """Samples that show an event of probability `RAREST` at least once, except with probability delta."""
    return ceil(log(1 / delta) / RAREST)


def student(groups: int, delta: float) -> float:
    """The quantile 1 - delta of Student's t, at least 0: with a negative one, lambda would not be an upper bound."""
    from scipy.special import stdtrit  # imported here because it is slow to import

    return max(float(stdtrit(groups - 1, 1 - delta)), 0.0)
