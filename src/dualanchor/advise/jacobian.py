"""The inverse of a Jacobian from differences of samples, with steps that fit their noise."""

from abc import ABC, abstractmethod
from math import inf

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, OracleError
from dualanchor.core.session import Session
from dualanchor.core.types import Array

_FIRST_GROUPS = 8  # groups of the first attempt at the Jacobian; each further attempt doubles them
_PARTS = 32  # parts of the groups whose Jacobians show its error
_PRECISE, _SINGULAR = 0.03, 0.5  # errors of the Jacobian relative to itself: small enough; too large to invert it
_STEP_TRIES = 8  # attempts at a difference step that shows a change as large as the noise
_ROUGH = 0.2  # noise of a difference, in units of that of the mean, from which on longer steps are tried
_WIDENINGS = 12  # tenfold longer ones at most


class GroupedSamples(ABC):
    """Samples in groups that can be evaluated at any point, as NumPy arrays of doubles."""

    population: bool
    groups: int
    samples: int
    degrees_of_freedom: int  # of Student's t

    def __init__(self, F: Session, x: Array) -> None:
        self.F = F
        self._x = x
        self.eps = float(np.finfo(arrays.numpy_dtype(x.dtype)).eps)

    @abstractmethod
    def means(self, x: Array, groups: range) -> Array:
        """The means of some groups at x (d,): (groups, d)."""

    @abstractmethod
    def moments(self, x: Array) -> tuple[Array, Array]:
        """The mean of all samples at x (d,), and the covariance of one of them, (d, d)."""

    def _point(self, x: Array) -> Array:
        """The point x (d,) in the array library of the oracle, (1, d)."""
        return arrays.like(x.astype(arrays.numpy_dtype(self._x.dtype))[None], self._x)


def difference_steps(source: GroupedSamples, x: Array, noise: Array) -> tuple[Array, bool]:
    """For each coordinate a distance at which F changes about as much as the noise of its mean, (d,).

    Samples are rough, the second value, if the noise of these differences does not vanish with the distance, as where
    counts or branches depend on x. Distances are then longer.
    """
    smallest = np.cbrt(source.eps) * np.abs(x)
    typical = np.where(x == 0, np.abs(x).max() or 1.0, np.abs(x))
    steps = np.cbrt(source.eps) * typical
    rough = False
    for j, h in enumerate(steps):
        for _ in range(_STEP_TRIES):
            change, error = _change(source, x, j, h, noise, _FIRST_GROUPS)
            ratio = max(change, error)
            if not np.isfinite(ratio):
                h = h / 100
                continue
            if 0.3 <= ratio <= 3 or (ratio > 3 and h <= smallest[j]):
                steps[j] = max(h / ratio, smallest[j])
                break
            h = max(h * np.clip(1 / ratio if ratio else inf, 1e-4, 1e4), smallest[j])
        longer = _visible_step(source, x, j, steps[j], noise) if error > _ROUGH else None
        if longer is not None and longer > 2 * steps[j]:
            steps[j], rough = longer, True
    return steps, rough


def _visible_step(source: GroupedSamples, x: Array, j: int, h: float, noise: Array) -> float | None:
    """A distance from h on at which F changes by several times the noise of the difference, or None."""
    needed = max(5.0, 3 * x.size**0.5)
    for _ in range(_WIDENINGS):
        ratio, error = _change(source, x, j, h, noise, _PARTS)
        if not np.isfinite(ratio):
            return None
        if 0 < ratio >= needed * error:
            return h * max(needed * error, 1.0) / ratio
        h = 10 * h
    return None


def _change(source: GroupedSamples, x: Array, j: int, h: float, noise: Array, groups: int) -> tuple[float, float]:
    """The largest change of F at a distance h, and its root mean square error, in units of the noise of the mean."""
    differences = _differences(source, x, j, h, range(min(groups, source.groups)))
    scaled = differences[:, noise > 0] / noise[noise > 0]
    errors = scaled.std(axis=0, ddof=1) / len(scaled) ** 0.5
    return float(np.abs(scaled.mean(axis=0)).max()), float(np.sqrt(np.mean(errors**2)))


def _differences(source: GroupedSamples, x: Array, j: int, h: float, groups: range) -> Array:
    """(F(x + h e_j) - F(x - h e_j))/2 for some groups, (groups, d)."""
    e = np.zeros(x.size)
    e[j] = h
    return (source.means(x + e, groups) - source.means(x - e, groups)) / 2


def scaled_inverse(source: GroupedSamples, x: Array, steps: Array, S: Array) -> Array:
    r"""The inverse of J with rows in units of the steps, from as many groups as its precision needs.

    The error of J relative to itself is :math:`E_k = S^{-1/2} (J_k - J) J^{-1} S^{1/2}` for a part k of the groups,
    whatever the coordinates of x and of F. Of :math:`\sum_k E_k E_k^\top/k^2` the mean eigenvalue is to be small, and
    the largest must not be near 1: otherwise J may be singular.
    """
    d = x.size
    part_sums = np.zeros((_PARTS, d, d))
    used, worst, inverse = 0, inf, None
    while used < source.groups:
        last = source.groups if source.population else min(max(_FIRST_GROUPS, 2 * used), source.groups)
        groups = range(used, last)
        for j, h in enumerate(steps):
            differences = _differences(source, x, j, h, groups)
            if not np.isfinite(differences).all():
                rule = "infer: samples near x must be finite"
                received = f"infinite ones at a distance of {h:.3g} in coordinate {j}"
                raise OracleError(rule, received, "Fix the sampler for such points, or take more samples")
            np.add.at(part_sums[:, :, j], np.array(groups) % _PARTS, differences)
        used = last
        parts = min(used, _PARTS)
        J = part_sums.sum(axis=0) / used
        inverse = _inverse_or_none(J, source.eps)
        if inverse is None:
            continue
        root = _shrunk_root(S, np.abs(J).max(axis=1), d / (d + source.groups))
        E = np.linalg.solve(root, (part_sums[:parts] * (parts / used) - J) @ (inverse @ root))
        products = np.tensordot(E, E, axes=((0, 2), (0, 2))) / (parts * (parts - 1))
        worst = float(np.sqrt(np.linalg.eigvalsh(products)[-1]))
        if np.trace(products) <= d * _PRECISE**2 and worst <= _SINGULAR:
            break
    if worst > _SINGULAR:
        received = "no change of F in some direction" if worst == inf else f"an error of {100 * worst:.0f} % in J"
        rule = "infer: the Jacobian of F at x must be seen to be invertible"
        raise ArgumentError(rule, received, "Take more samples, or remove unknowns that F does not determine")
    return np.asarray(inverse)


def _shrunk_root(S: Array, scales: Array, shrinkage: float) -> Array:
    """A triangular root of S, shrunk towards its diagonal, in which zeros are replaced by squared scales."""
    diagonal = np.where(np.diag(S) > 0, np.diag(S), scales**2)
    shrunk = (1 - shrinkage) * S + np.diag(diagonal - (1 - shrinkage) * np.diag(S))
    return np.linalg.cholesky(shrunk)


def _inverse_or_none(J: Array, eps: float) -> Array | None:
    """The inverse, or None if J is singular up to rounding; independent of the units of rows and columns."""
    rows = np.abs(J).max(axis=1)
    columns = np.abs(J).max(axis=0) / (rows.max() or 1.0)
    if not (rows.all() and columns.all()):
        return None
    scaled = J / rows[:, None] / columns
    if not np.linalg.cond(scaled) < eps**-0.5:
        return None
    return np.asarray(np.linalg.inv(scaled) / columns[:, None] / rows)
