"""A check, at a few points, whether a function can be a prox."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dualanchor.core import check
from dualanchor.core.arrays import to_host
from dualanchor.core.errors import ArgumentError, DualAnchorError
from dualanchor.core.problem import as_point
from dualanchor.core.types import Array

_AROUND = 8  # points generated far from a single given point, and as many close to it


def check_prox(prox: Callable[[Any, Any], Any], points: Any, step: float = 1.0, *, tol: float = 1e-5) -> None:
    r"""Raise if a prox cannot be a resolvent :math:`J_\alpha = (I + \alpha G)^{-1}` of a monotone G.

    Checked: firm nonexpansiveness, :math:`\|Jz - Jz'\|^2 \le \langle Jz - Jz', z - z'\rangle`, for all pairs of points;
    :math:`J_\alpha z = J_{\alpha/2}((z + J_\alpha z)/2)`; for projections :math:`J J z = J z`. Passing proves nothing.

    Parameters
    ----------
    prox : callable, `prox(z, step)` for z of shape (m, d)
    points : array of shape (d,) or (m, d); around a single point others are generated, always the same ones
    step : float, the step :math:`\alpha` that will be used
    tol : float, relative to the size of the points

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> da.prox.check_prox(da.prox.l1(1.0), np.ones(3), step=0.5)
    >>> da.prox.check_prox(lambda z, step: z - step * 5 * z, np.ones(3), step=0.5)
    Traceback (most recent call last):
        ...
    dualanchor.core.errors.ArgumentError: the prox given is not firmly nonexpansive: ...
    """
    step = check.number(step, "check_prox: step", positive=True)
    tol = check.number(tol, "check_prox: tol")
    z = _points(points)
    before = z.copy()
    J = _value(prox, z, step)
    if not np.array_equal(z, before):
        raise _wrong("changes the point that it is given", "a point that was different afterwards", "Work on a copy")
    scale = 1 + np.linalg.norm(z, axis=1) + np.linalg.norm(J, axis=1)
    first, second = np.triu_indices(len(z), 1)
    dJ, dz = J[first] - J[second], z[first] - z[second]
    squares, inner = np.einsum("ij,ij->i", dJ, dJ), np.einsum("ij,ij->i", dJ, dz)
    excess = (squares - inner) / (scale[first] + scale[second]) ** 2
    if excess.max() > tol:
        worst = int(np.argmax(excess))
        raise _wrong(
            "is not firmly nonexpansive: |Jz - Jz'|^2 <= <Jz - Jz', z - z'> must hold for all points z, z'",
            f"{squares[worst]:.4g} > {inner[worst]:.4g} for two points, with step {step:.4g}",
            "Return (I + step G)^-1 z for a monotone G, such as the projection onto a convex set; a gradient step"
            " is none, nor is the prox of a nonconvex function",
        )

    def require(value: Array, rule: str, remedy: str) -> None:
        error = float((np.linalg.norm(value - J, axis=1) / scale).max())
        if error > tol:
            received = f"points that differ by {error:.3g}, relative to their size, with step {step:.4g}"
            raise _wrong(rule, received, remedy)

    if getattr(prox, "is_projection", False):
        rule = "is not a projection: J(Jz) = Jz must hold, whatever the step"
        for value in (_value(prox, J, step), _value(prox, z, 2 * step)):
            require(value, rule, "Do not declare it as a projection, or fix it")
    require(
        _value(prox, 0.5 * (z + J), 0.5 * step),
        "does not depend on its step as it must: J(z, step) = J((z + J(z, step))/2, step/2) must hold for all z",
        "Scale G by the step that is passed: the prox of a penalty w|x| has the threshold step * w",
    )


def _points(points: Any) -> Array:
    """The points at which a prox is checked, (m, d)."""
    rows, width = np.shape(points) if np.ndim(points) == 2 else (None, None)
    z = as_point(points, "check_prox: points", width, rows)
    if z.ndim == 1 or len(z) == 1:
        z = z.reshape(1, -1)
        far = (1 + np.abs(z).max()) * np.random.default_rng(0).normal(size=(_AROUND, z.shape[1]))
        z = z + np.concatenate([np.zeros_like(z), far, 0.1 * far[::-1]]).astype(z.dtype)
    return z


def _value(prox: Callable[[Any, Any], Any], z: Array, step: float) -> Array:
    """What the prox returned for z (m, d), checked: finite points of the same shape."""
    try:
        value = to_host(prox(z, step))
    except DualAnchorError:
        raise
    except Exception as error:
        raise _wrong("raises an error", f"{type(error).__name__}: {error}", "Fix it for such points") from error
    if value.shape != z.shape or value.dtype.kind != "f":
        rule = "does not return points: prox(z, step) must have the shape of z, one row per point"
        received = f"shape {value.shape}, dtype {value.dtype} for z of shape {z.shape}"
        raise _wrong(rule, received, "Wrap a function of one point in dualanchor.prox.from_function")
    if not np.isfinite(value).all():
        raise _wrong("does not return numbers at every finite point", "nan or inf", "Fix it for such points")
    return value


def _wrong(rule: str, received: str, remedy: str) -> ArgumentError:
    """The error for a prox that breaks a rule."""
    return ArgumentError(f"the prox given {rule}", received, remedy)
