"""Constraints and penalties of the front doors: proxes of arrays of any shape, and bounds, as one prox of flat rows."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core import check as require
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.problem import as_reals
from dualanchor.core.types import Array
from dualanchor.oracles.layout import Layout
from dualanchor.prox import Resolvent, box, none, product

Prox = Callable[..., Any]
_OF_ARRAYS = "scipy.optimize.Bounds(lower, upper) for arrays of lower and upper bounds"


def flat_prox(door: str, layout: Layout, x0: Array, proxes: dict[str, Any], bounds: Any) -> Prox | None:
    """The prox for rows of flat vectors like x0: from `proxes`, one by name for each block, or from bounds, or None."""
    given = [name for name, prox in proxes.items() if prox is not None]
    for name in given:
        require.function(proxes[name], f"{door}: {name}", "prox(z, step)", 2)
    foreign = arrays.is_foreign(x0)
    of_players = len(proxes) == 2
    shapes = [part.shape for part in (layout.players if of_players else (layout,))]
    sizes = [prod(shape) for shape in shapes]
    if bounds is not None:
        if given:
            rule = f"{door}: bounds are a prox themselves"
            raise ArgumentError(rule, f"bounds and {given[0]}", "Pass one of them; prox.product combines several")
        pairs = bounds if of_players else (bounds,)
        if of_players and not (isinstance(pairs, (tuple, list)) and len(pairs) == 2 and not any(map(_is_end, pairs))):
            rule = (
                f"{door}: bounds must have one entry per player, (bounds of u, bounds of v), None where there are none"
            )
            raise ArgumentTypeError(rule, repr(bounds)[:80], "Use ((lo, hi), (lo, hi)) or ((lo, hi), None)")
        boxes = [None if pair is None else _box(door, pair, size) for pair, size in zip(pairs, sizes, strict=True)]
        blocks: list[Any] = [_foreign_box(one) if foreign and one is not None else one for one in boxes]
    elif given:
        blocks = [_for_rows(prox, shape) for prox, shape in zip(proxes.values(), shapes, strict=True)]
    else:
        return None
    if len(blocks) == 1:
        only: Prox = blocks[0]
        return only
    if not foreign:
        return product([(size, none() if prox is None else prox) for size, prox in zip(sizes, blocks, strict=True)])
    size_u = sizes[0]

    def joint(z: Array, step: Any) -> Array:
        parts = zip((z[:, :size_u], z[:, size_u:]), blocks, strict=True)
        return arrays.namespace(z).concat([part if prox is None else prox(part, step) for part, prox in parts], axis=1)

    return joint


def _box(door: str, bounds: Any, size: int) -> box:
    """The box from SciPy's Bounds, from a pair for all coordinates, or from a pair for each; None is no bound.

    Two arrays, or a tuple of two lists, are refused in two dimensions: they could be lower and upper bounds, or a pair
    for each coordinate.
    """
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        ends: Any = (bounds.lb, bounds.ub)
    else:
        pairs = np.array(bounds, dtype=object)
        if pairs.shape not in ((2,), (size, 2)):
            rule = f"{door}: bounds must be a pair, {size} pairs (lower, upper), or scipy.optimize.Bounds"
            raise ArgumentTypeError(rule, repr(bounds)[:80], f"Use for example (0, None), or {_OF_ARRAYS}")
        lists = isinstance(bounds, tuple) and all(isinstance(part, list) for part in bounds)
        of_arrays = isinstance(bounds, (tuple, list)) and any(map(_is_array, bounds))
        if pairs.shape == (2, 2) and (lists or of_arrays):
            rule = f"{door}: bounds must not be two arrays or lists in two dimensions, which could be read in two ways"
            remedy = f"Use {_OF_ARRAYS}, or a list of pairs, [(lower, upper), (lower, upper)]"
            raise ArgumentTypeError(rule, repr(bounds)[:80], remedy)
        ends = ([-np.inf if end is None else end for end in np.atleast_1d(pairs[..., 0])],
                [np.inf if end is None else end for end in np.atleast_1d(pairs[..., 1])])  # fmt: skip
    values = [as_reals(end) for end in ends]
    if any(end is None or end.size not in (1, size) for end in values):
        rule = f"{door}: bounds must be real numbers, one or {size} for each side"
        raise ArgumentTypeError(rule, repr(bounds)[:80], "Check the lengths")
    lower, upper = (float(end.ravel()[0]) if end.size == 1 else end.ravel() for end in values if end is not None)
    return box(lower, upper)


def _is_end(value: Any) -> bool:
    """Whether a value is a single number, so one end of bounds rather than bounds."""
    return value is not None and np.ndim(value) == 0 and not hasattr(value, "lb")


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or arrays.is_foreign(value)


def _foreign_box(bounds: box) -> Prox:
    """The projection onto a box for arrays of other libraries than NumPy."""

    def clipped(z: Array, step: Any) -> Array:
        xp = arrays.namespace(z)
        lower, upper = (
            arrays.like(np.broadcast_to(end, z.shape[1:]).copy(), z) for end in (bounds.lower, bounds.upper)
        )
        return xp.minimum(xp.maximum(z, lower), upper)

    return clipped


def _for_rows(prox: Any, shape: tuple[int, ...]) -> Any:
    """A prox of one point of this shape as a prox of rows of flat points."""
    if prox is None or (isinstance(prox, Resolvent) and len(shape) <= 1):  # it takes a number as a vector of length 1
        return prox

    def of_row(row: Array, step: Any, z: Array) -> Array:
        point = row.reshape(shape)[()]
        value = prox(point, step)
        if isinstance(z, np.ndarray):
            value = arrays.to_host(value)
            fits = value.dtype.kind in "fiu" and value.size == row.size
        else:
            fits = getattr(value, "shape", None) == point.shape
        if not fits:
            remedy = "Return an array in the shape of the start"
            kind = f", dtype {value.dtype}" if hasattr(value, "dtype") else ""
            received = f"{arrays.form(value)}{kind} for a point of shape {tuple(np.shape(point))}"
            raise OracleError("The prox must return real numbers in the shape of the point", received, remedy)
        return arrays.like(value, z).reshape(row.shape)

    def rows(z: Array, step: Any) -> Array:
        steps: Sequence[Any] = [step] * len(z) if np.ndim(step) == 0 else step[:, 0]
        return arrays.namespace(z).stack([of_row(row, step, z) for row, step in zip(z, steps, strict=True)])

    return rows
