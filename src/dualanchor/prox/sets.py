"""Projections onto convex sets: G is the normal cone of the set, and the step has no influence."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.types import Array
from dualanchor.prox.resolvent import Resolvent, as_parameter, like, read_only


@dataclass(frozen=True, eq=False, repr=False)
class box(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x : l \le x \le u\}`, coordinate by coordinate.

    Parameters
    ----------
    lower, upper : float or array of shape (d,); infinite where there is no bound

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.box(0, 1)([-2.0, 0.5, 3.0])
    array([0. , 0.5, 1. ])
    """

    lower: Any
    upper: Any

    is_projection = rowwise = True

    def __post_init__(self) -> None:
        self._set_parameters("lower", "upper")
        if np.any(self.lower > self.upper) or np.max(self.lower) == np.inf or np.min(self.upper) == -np.inf:
            rule, received = "box: lower must be at most upper", f"lower = {self.lower}, upper = {self.upper}"
            raise ArgumentError(rule, received, "Use -inf and inf for bounds that do not exist, with a number between")

    def apply(self, z: Array, step: Any) -> Array:
        out: Array = np.maximum(z, like(self.lower, z))
        return np.minimum(out, like(self.upper, z), out=out)

    def diameter(self, dimension: int) -> float | None:
        width = float(np.linalg.norm(np.broadcast_to(np.subtract(self.upper, self.lower), (dimension,))))
        return width if np.isfinite(width) else None

    def support(self, y: Any) -> Any:
        if self.diameter(np.shape(y)[-1]) is None:
            return super().support(y)
        return (np.asarray(y) * np.where(np.greater(y, 0), self.upper, self.lower)).sum(axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class nonnegative(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x : x \ge 0\}`: negative coordinates become 0."""

    is_projection = rowwise = True

    def apply(self, z: Array, step: Any) -> Array:
        return np.maximum(z, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class ball(Resolvent):  # noqa: N801
    r"""Projection onto the Euclidean ball :math:`\{x : \|x - c\| \le r\}`.

    Parameters
    ----------
    radius : float, r; 0 leaves a single point
    center : float or array of shape (d,), c

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.ball(1.0)([3.0, 4.0])
    array([0.6, 0.8])
    """

    radius: Any
    center: Any = 0.0

    is_projection = True

    def __post_init__(self) -> None:
        self._set_parameters("center", finite=True)
        self._set(radius=check.number(self.radius, "ball: radius"))

    def apply(self, z: Array, step: Any) -> Array:
        center = like(self.center, z)
        offset = z - center
        norm = np.linalg.norm(offset, axis=-1, keepdims=True)
        is_outside = norm > self.radius
        offset *= np.divide(self.radius, norm, out=np.ones_like(norm), where=is_outside)
        return np.where(is_outside, center + offset, z)

    def diameter(self, dimension: int) -> float | None:
        return 2.0 * float(self.radius)

    def support(self, y: Any) -> Any:
        return (np.asarray(y) * self.center).sum(axis=-1) + self.radius * np.linalg.norm(y, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class simplex(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x \ge 0 : \sum_i x_i = s\}`, probability vectors for s = 1; exact, by sorting.

    Parameters
    ----------
    total : float, s, positive

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.simplex()([0.5, 0.5, 2.0])
    array([0., 0., 1.])
    """

    total: Any = 1.0

    is_projection = rowwise = True

    def __post_init__(self) -> None:
        self._set(total=check.number(self.total, "simplex: total", positive=True))

    def apply(self, z: Array, step: Any) -> Array:
        # The projection is max(z - theta, 0), with theta the largest of (sum of the k largest z - total) / k. Adding a
        # number to all of z does not change it: subtracting the maximum avoids rounding errors.
        out: Array = z - np.maximum.reduce(z, axis=-1, keepdims=True)
        theta = np.sort(out, axis=-1)[..., ::-1].cumsum(axis=-1, dtype=np.float64)
        theta -= self.total
        theta /= np.arange(1, z.shape[-1] + 1)
        out -= np.maximum.reduce(theta, axis=-1, keepdims=True)
        return np.maximum(out, 0.0, out=out)

    def diameter(self, dimension: int) -> float | None:
        return float(np.sqrt(2.0) * self.total) if dimension > 1 else 0.0

    def support(self, y: Any) -> Any:
        return self.total * np.max(y, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class affine_subspace(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x : Ax = b\}`; A is factored once, and its rows may be linearly dependent.

    Parameters
    ----------
    A : array of shape (m, d), the coefficients of the equations
    b : float or array of shape (m,), their right-hand sides

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.affine_subspace([[1.0, 1.0]], [2.0])([3.0, 1.0])
    array([2., 0.])
    """

    A: Any
    b: Any = 0.0

    is_projection = True

    def __post_init__(self) -> None:
        A = as_parameter(self.A, "affine_subspace: A", finite=True, shape="(m, d)")
        b = as_parameter(self.b, "affine_subspace: b", finite=True)
        if np.size(b) not in (1, len(A)):
            rule = f"affine_subspace: b must have length {len(A)}, one per row of A"
            raise ArgumentError(rule, np.size(b), "Check the sizes")
        b = read_only(np.broadcast_to(b, (len(A),)))
        U, s, V = np.linalg.svd(A, full_matrices=False)
        rank = int(np.count_nonzero(s > s.max() * max(A.shape) * np.finfo(np.float64).eps))
        basis = V[:rank]  # orthonormal rows
        offset = (U[:, :rank].T @ b) / s[:rank]  # the solution of least norm, in this basis
        error = float(np.linalg.norm(A @ (offset @ basis) - b))
        if error > 1e-9 * (np.linalg.norm(b) + s.max() * np.linalg.norm(offset)):
            received = f"equations that contradict each other (the best x misses b by {error:.3g})"
            remedy = "Drop or correct equations; for least squares use A.T @ A and A.T @ b"
            raise ArgumentError("affine_subspace: some x must satisfy A x = b", received, remedy)
        self._set(A=A, b=b, size=A.shape[1], _basis=basis, _offset=offset)

    def apply(self, z: Array, step: Any) -> Array:
        basis, offset = like(self._basis, z), like(self._offset, z)  # type: ignore[attr-defined]
        return z - (z @ basis.T - offset) @ basis

    def diameter(self, dimension: int) -> float | None:
        return 0.0 if len(self._basis) == self.size else None  # type: ignore[attr-defined]

    def support(self, y: Any) -> Any:
        if self.diameter(np.shape(y)[-1]) is None:
            return super().support(y)
        return np.asarray(y) @ (self._offset @ self._basis)  # type: ignore[attr-defined]
