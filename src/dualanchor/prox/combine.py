"""The l1 penalty, products of proxes, a user's own function, and the identity."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.types import Array
from dualanchor.prox.resolvent import Resolvent, like, name_of


@dataclass(frozen=True, eq=False, repr=False)
class none(Resolvent):  # noqa: N801
    """The identity: no constraint and no penalty, G = 0."""

    is_projection = rowwise = True

    def apply(self, z: Array, step: Any) -> Array:
        return z.copy()


@dataclass(frozen=True, eq=False, repr=False)
class l1(Resolvent):  # noqa: N801
    r"""Proximal map of :math:`\sum_i w_i |x_i|`: every coordinate moves towards 0 by at most :math:`\alpha w_i`.

    Parameters
    ----------
    weight : float or array of shape (d,), w, not negative

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.l1(2.0)([3.0, -0.5, -4.0], 0.5)
    array([ 2.,  0., -3.])
    """

    weight: Any

    rowwise = True

    def __post_init__(self) -> None:
        self._set_parameters("weight", finite=True)
        if np.min(self.weight) < 0:
            raise ArgumentError("l1: weight must be non-negative", self.weight, "Use 0 where nothing is penalised")

    def apply(self, z: Array, step: Any) -> Array:
        threshold = like(self.weight, z) * step
        out: Array = np.minimum(np.maximum(z, -threshold), threshold)
        return np.subtract(z, out, out=out)


@dataclass(frozen=True, eq=False, repr=False)
class product(Resolvent):  # noqa: N801
    """A prox for each of several consecutive blocks of the vector.

    Parameters
    ----------
    blocks : list of (size, prox), one per block; the sizes add up to d

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.product([(2, da.prox.simplex()), (3, da.prox.box(0, 1))])([2.0, 0.0, -1.0, 0.5, 7.0])
    array([1. , 0. , 0. , 0.5, 1. ])
    """

    blocks: Any

    def __post_init__(self) -> None:
        blocks = tuple(map(_block, self.blocks)) if isinstance(self.blocks, Iterable) else ()
        if not blocks:
            rule = "product: blocks must be a list of pairs (size, prox)"
            raise ArgumentTypeError(rule, repr(self.blocks), "Use [(2, box(0, 1)), ...]")
        flags = {name: all(getattr(prox, name, False) for _, prox in blocks) for name in ("is_projection", "rowwise")}
        self._set(blocks=blocks, size=sum(size for size, _ in blocks), **flags)

    @cached_property
    def parts(self) -> list[tuple[slice, Any]]:
        """The coordinates of each block, and its prox."""
        ends = pairwise(accumulate((size for size, _ in self.blocks), initial=0))
        return [(slice(*pair), prox) for pair, (_, prox) in zip(ends, self.blocks, strict=True)]

    def apply(self, z: Array, step: Any) -> Array:
        out = np.empty_like(z)
        for part, prox in self.parts:
            function = prox.apply if isinstance(prox, Resolvent) else prox  # z is checked already
            out[..., part] = function(z[..., part], step)
        return out

    def diameter(self, dimension: int) -> float | None:
        diameters = [prox.diameter(size) if isinstance(prox, Resolvent) else None for size, prox in self.blocks]
        return None if None in diameters else float(np.linalg.norm(np.array(diameters, float)))

    def support(self, y: Any) -> Any:
        if not all(isinstance(prox, Resolvent) for _, prox in self.blocks):
            return super().support(y)
        return sum(prox.support(np.asarray(y)[..., part]) for part, prox in self.parts)

    def blocks_of(self, dimension: int) -> list[tuple[slice, Any]]:
        blocks = list[tuple[slice, Any]]()
        for part, prox in self.parts:
            if not isinstance(prox, Resolvent):
                blocks.append((part, prox))
                continue
            for inner, inner_prox in prox.blocks_of(part.stop - part.start):
                blocks.append((slice(part.start + inner.start, part.start + inner.stop), inner_prox))
        return blocks


@dataclass(frozen=True, eq=False, repr=False)
class from_function(Resolvent):  # noqa: N801
    """A prox given by a function.

    Parameters
    ----------
    function : callable, for one point z of shape (d,) the point J(z), a new array; `check_prox` checks it
    is_projection : bool, whether it is the projection onto a convex set
    vectorized : bool, whether `function` takes all rows at once, (..., d) to (..., d)

    Examples
    --------
    >>> import dualanchor as da
    >>> da.prox.from_function(lambda z, step: z / (1 + step))([2.0, 4.0], 1.0)
    array([1., 2.])
    """

    function: Callable[[Array, Any], Any]
    is_projection: bool = False
    vectorized: bool = False

    def __post_init__(self) -> None:
        check.function(self.function, "from_function: function", "(z, step)")
        self._set(rowwise=not self.vectorized)

    def apply(self, z: Array, step: Any) -> Array:
        if self.vectorized:
            return self._checked(z, step).astype(z.dtype, copy=False)
        points = z.reshape(-1, z.shape[-1])
        steps = np.broadcast_to(step, (*z.shape[:-1], 1)).reshape(-1).tolist()
        values = [self._checked(point, steps[row], row) for row, point in enumerate(points)]
        return np.array(values, z.dtype).reshape(z.shape)

    def _checked(self, z: Array, step: Any, row: int | None = None) -> Array:
        """What the function returned, with its shape and dtype checked."""
        value = np.asarray(self.function(z.copy(), step))
        if value.shape != z.shape or value.dtype.kind not in "fiu":
            rule = f"from_function: {name_of(self.function)} must return real numbers with the shape of z"
            received = f"shape {value.shape}, dtype {value.dtype} for z of shape {z.shape}"
            raise OracleError(rule, received, "Return the point J(z)", row)
        return value


def _block(pair: Any) -> tuple[int, Callable[[Any, Any], Array]]:
    """A pair (size, prox), checked."""
    size, prox = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
    if not callable(prox):
        rule = "product: each block must be a pair (size, prox)"
        raise ArgumentTypeError(rule, repr(pair), "Use for example (2, box(0, 1))")
    size = check.count(size, "product: the size of a block")
    if getattr(prox, "size", None) not in (None, size):
        rule = "product: the size of a block must be that of its prox"
        raise ArgumentError(rule, f"size {size} for {prox}", "Check the sizes")
    return size, prox
