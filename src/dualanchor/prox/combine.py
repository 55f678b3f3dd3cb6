"""A prox made of others, of a function, or of nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.types import Array
from dualanchor.prox.resolvent import Resolvent, name_of

# They are called like functions, and named so.


@dataclass(frozen=True, eq=False, repr=False)
class none(Resolvent):  # noqa: N801
    """The identity: no constraint and no penalty, G = 0.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.none()([1.0, -2.0])
    array([ 1., -2.])
    """

    is_projection = True
    rowwise = True

    def apply(self, z: Array, step: Any) -> Array:
        return z.copy()


@dataclass(frozen=True, eq=False, repr=False)
class product(Resolvent):  # noqa: N801
    """Another prox for each of consecutive blocks of the vector.

    Parameters
    ----------
    blocks : list of (int, callable)
        Size and prox of each block; the sizes add up to d.

    Examples
    --------
    >>> import dualanchor as da
    >>> strategies = da.prox.product([(2, da.prox.simplex()), (3, da.prox.box(0, 1))])
    >>> strategies([2.0, 0.0, -1.0, 0.5, 7.0])
    array([1. , 0. , 0. , 0.5, 1. ])
    """

    blocks: Any

    def __post_init__(self) -> None:
        blocks = tuple(_block(one) for one in _listed(self.blocks))
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "size", sum(size for size, _ in blocks))
        for name in ("is_projection", "rowwise"):
            object.__setattr__(self, name, all(getattr(prox, name, False) for _, prox in blocks))

    def apply(self, z: Array, step: Any) -> Array:
        out, start = np.empty_like(z), 0
        for size, prox in self.blocks:
            out[..., start : start + size] = prox(z[..., start : start + size], step)
            start += size
        return out

    def diameter(self, dimension: int) -> float | None:
        each = [prox.diameter(size) if isinstance(prox, Resolvent) else None for size, prox in self.blocks]
        known = [width for width in each if width is not None]
        return float(np.linalg.norm(known)) if len(known) == len(each) else None


@dataclass(frozen=True, eq=False, repr=False)
class from_function(Resolvent):  # noqa: N801
    """A prox of one's own, `function(z, step)`.

    Parameters
    ----------
    function : callable
        For one point z of shape (d,) the point J(z), a new array; `check_prox` tells whether it can be one.
    is_projection : bool
        Whether it is the projection onto a convex set.
    vectorized : bool
        Whether `function` takes all rows at once, (..., d) to (..., d).

    Examples
    --------
    >>> import dualanchor as da
    >>> ridge = da.prox.from_function(lambda z, step: z / (1 + step))
    >>> ridge([2.0, 4.0], 1.0)
    array([1., 2.])
    """

    function: Callable[[Array, Any], Any]
    is_projection: bool = False
    vectorized: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentTypeError(
                "from_function: function must be a function (z, step)", repr(self.function), "Pass a function"
            )
        object.__setattr__(self, "rowwise", not self.vectorized)

    def apply(self, z: Array, step: Any) -> Array:
        if self.vectorized:
            return self._checked(self.function(z.copy(), step), z.shape).astype(z.dtype, copy=False)
        points = z.reshape(-1, z.shape[-1])
        out = np.empty_like(points)
        for row, point in enumerate(points):
            out[row] = self._checked(self.function(point.copy(), step), point.shape, row)
        return out.reshape(z.shape)

    def _checked(self, value: Any, shape: tuple[int, ...], row: int | None = None) -> Array:
        value = np.asarray(value)
        if value.shape != shape or value.dtype.kind not in "fiu":
            raise OracleError(
                f"from_function: {name_of(self.function)} must return real numbers with the shape of z",
                f"shape {value.shape}, dtype {value.dtype} for z of shape {shape}",
                "Return the point J(z)",
                row,
            )
        return value


def _listed(blocks: Any) -> list[Any]:
    listed = list(blocks) if isinstance(blocks, Iterable) else []
    if not listed:
        raise ArgumentTypeError(
            "product: blocks must be a list of pairs (size, prox)", repr(blocks), "Use [(2, box(0, 1)), ...]"
        )
    return listed


def _block(pair: Any) -> tuple[int, Callable[[Any, Any], Array]]:
    size, prox = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not callable(prox):
        raise ArgumentTypeError(
            "product: each block must be a pair (size, prox)", repr(pair), "Use for example (2, box(0, 1))"
        )
    needed = getattr(prox, "size", None)
    if size < 1 or (needed is not None and needed != size):
        raise ArgumentError(
            "product: the size of a block must be at least 1 and that of its prox",
            f"size {size} for {prox}",
            "Check the sizes",
        )
    return int(size), prox
