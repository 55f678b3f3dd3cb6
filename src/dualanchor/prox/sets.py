"""Projections onto convex sets: G is the normal cone, and the step does not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.types import Array
from dualanchor.prox.resolvent import Resolvent, as_parameter, common_size, like, require_one

# They are called like functions, and named so.


@dataclass(frozen=True, eq=False, repr=False)
class box(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x : l \le x \le u\}`, coordinate by coordinate.

    Parameters
    ----------
    lower, upper : float or array of shape (d,)
        The bounds; infinite where there is none.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.box(0, 1)([-2.0, 0.5, 3.0])
    array([0. , 0.5, 1. ])
    """

    lower: Any
    upper: Any

    is_projection = True
    rowwise = True

    def __post_init__(self) -> None:
        lower, upper = as_parameter(self.lower, "box: lower"), as_parameter(self.upper, "box: upper")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "size", common_size("box: lower and upper", lower, upper))
        if not (np.all(lower <= upper) and np.all(lower < np.inf) and np.all(upper > -np.inf)):
            raise ArgumentError(
                "box: lower must be at most upper, with a number between them",
                f"lower = {self.lower}, upper = {self.upper}",
                "Use -inf and inf for bounds that do not exist",
            )

    def apply(self, z: Array, step: Any) -> Array:
        out: Array = np.maximum(z, like(self.lower, z))
        return np.minimum(out, like(self.upper, z), out=out)

    def diameter(self, dimension: int) -> float | None:
        width = float(np.linalg.norm(np.broadcast_to(np.subtract(self.upper, self.lower), (dimension,))))
        return width if np.isfinite(width) else None


@dataclass(frozen=True, eq=False, repr=False)
class nonnegative(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x : x \ge 0\}`: negative coordinates become 0.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.nonnegative()([-2.0, 0.5])
    array([0. , 0.5])
    """

    is_projection = True
    rowwise = True

    def apply(self, z: Array, step: Any) -> Array:
        return np.maximum(z, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class ball(Resolvent):  # noqa: N801
    r"""Projection onto the Euclidean ball :math:`\{x : \|x - c\| \le r\}`.

    Parameters
    ----------
    radius : float
        r; 0 leaves a single point.
    center : float or array of shape (d,)
        c.

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
        center = as_parameter(self.center, "ball: center")
        if not np.all(np.isfinite(center)):
            raise ArgumentError("ball: center must be finite", self.center, "Use a point")
        object.__setattr__(self, "radius", require_one(self.radius, "ball: radius"))
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "size", common_size("ball: center", center))

    def apply(self, z: Array, step: Any) -> Array:
        center = like(self.center, z)
        away = z - center
        norm = np.linalg.norm(away, axis=-1, keepdims=True)
        outside = norm > self.radius
        away *= np.divide(self.radius, norm, out=np.ones_like(norm), where=outside)
        return np.where(outside, center + away, z)

    def diameter(self, dimension: int) -> float | None:
        return 2.0 * float(self.radius)


@dataclass(frozen=True, eq=False, repr=False)
class simplex(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x \ge 0 : \sum_i x_i = s\}`, probability vectors for s = 1.

    Exact, by sorting: :math:`x_i = \max(z_i - \theta, 0)` with the :math:`\theta` for which the sum is right.

    Parameters
    ----------
    total : float
        s, positive.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.simplex()([0.5, 0.5, 2.0])
    array([0., 0., 1.])
    """

    total: Any = 1.0

    is_projection = True
    rowwise = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", require_one(self.total, "simplex: total", positive=True))

    def apply(self, z: Array, step: Any) -> Array:
        below = z - z.max(axis=-1, keepdims=True)  # adding a number to all coordinates changes nothing
        ordered = np.sort(below, axis=-1)[..., ::-1].astype(np.float64)
        count = np.arange(1, z.shape[-1] + 1)
        theta = (np.cumsum(ordered, axis=-1) - self.total) / count
        last = (
            np.count_nonzero(ordered > theta, axis=-1)[..., None] - 1
        )  # the coordinates that stay positive come first
        shift = np.take_along_axis(theta, np.maximum(last, 0), axis=-1)
        out: Array = below - shift.astype(z.dtype)
        return np.maximum(out, 0.0, out=out)

    def diameter(self, dimension: int) -> float | None:
        return float(np.sqrt(2.0) * self.total) if dimension > 1 else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class affine_subspace(Resolvent):  # noqa: N801
    r"""Projection onto :math:`\{x : Ax = b\}`.

    A is factored once; rows that depend on others do no harm as long as some x satisfies all of them.

    Parameters
    ----------
    A : array of shape (m, d)
        The equations' coefficients.
    b : float or array of shape (m,)
        Their right-hand sides.

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
        A = np.array(self.A)
        if A.dtype.kind not in "fiu":
            raise ArgumentTypeError("affine_subspace: A must be real numbers", f"dtype {A.dtype}", "Pass floats")
        if A.ndim != 2 or 0 in A.shape:
            raise ArgumentError("affine_subspace: A must have shape (m, d)", f"shape {A.shape}", "One row per equation")
        A = A.astype(np.float64)
        given = as_parameter(self.b, "affine_subspace: b")
        if np.ndim(given) and given.size != len(A):
            raise ArgumentError(
                f"affine_subspace: b must have length {len(A)}, one per row of A", given.size, "Check the sizes"
            )
        b = np.array(np.broadcast_to(given, (len(A),)), dtype=np.float64)
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ArgumentError("affine_subspace: A and b must be finite", "inf or nan", "Pass numbers")
        U, s, V = np.linalg.svd(A, full_matrices=False)
        rank = int(np.count_nonzero(s > s.max() * max(A.shape) * np.finfo(np.float64).eps))
        basis = V[:rank]  # orthonormal, of the rows of A
        offset = (U[:, :rank].T @ b) / s[:rank]
        left = float(np.linalg.norm(A @ (offset @ basis) - b))
        if left > 1e-9 * (np.linalg.norm(b) + s.max() * np.linalg.norm(offset)):
            raise ArgumentError(
                "affine_subspace: some x must satisfy A x = b",
                f"equations that contradict each other (the best x misses b by {left:.3g})",
                "Drop or mend equations; for least squares use A.T @ A and A.T @ b",
            )
        for array in (A, b, basis, offset):
            array.flags.writeable = False
        for name, value in {"A": A, "b": b, "size": A.shape[1], "_basis": basis, "_offset": offset}.items():
            object.__setattr__(self, name, value)

    def apply(self, z: Array, step: Any) -> Array:
        basis, offset = like(self._basis, z), like(self._offset, z)  # type: ignore[attr-defined]
        return z - (z @ basis.T - offset) @ basis

    def diameter(self, dimension: int) -> float | None:
        return 0.0 if len(self._basis) == self.size else None  # type: ignore[attr-defined]
