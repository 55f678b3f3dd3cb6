"""Between the user's arrays and functions, of any shape, and the flat vectors that everything else works with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.oracle import Batch, Oracle, require_dimension
from dualanchor.core.problem import Problem, as_reals
from dualanchor.core.result import Result
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array
from dualanchor.oracles.sampler import Sampler


@dataclass(frozen=True)
class Layout:
    """How one array, or several blocks, lie in a flat vector."""

    shapes: tuple[tuple[int, ...], ...]
    blocks: bool

    @classmethod
    def of(cls, x0: Any, owner: str, blocks: int | None = None) -> tuple[Layout, Array]:
        """The layout of a start and its flat form; with `blocks`, a tuple of so many arrays is expected."""
        x0 = x0.x if isinstance(x0, Result) else x0
        if blocks is not None and (not isinstance(x0, (tuple, list)) or len(x0) != blocks):
            raise ArgumentTypeError(
                f"{owner}: the start must be a tuple of {blocks} arrays", repr(x0)[:80], "Pass (u0, v0)"
            )
        parts = [_numbers(part, owner) for part in (x0 if blocks is not None else [x0])]
        if not all(arrays.alike(part, parts[0]) for part in parts):
            kinds = " and ".join(type(part).__name__ for part in parts)
            raise ArgumentTypeError(f"{owner}: the start must be of one library", kinds, "Convert one of them")
        flat = arrays.concatenate([part.reshape(-1) for part in parts])
        return cls(tuple(tuple(part.shape) for part in parts), blocks is not None), flat

    def split(self, flat: Array) -> Any:
        """The array or the tuple of blocks that a flat vector (or (reps, d)) stands for."""
        lead = flat.shape[:-1]
        if not self.blocks:
            return flat.reshape((*lead, *self.shapes[0]))[()]
        ends = list(accumulate(prod(shape) for shape in self.shapes))
        parts = [flat[..., start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return tuple(part.reshape((*lead, *shape))[()] for part, shape in zip(parts, self.shapes, strict=True))


def _numbers(value: Any, owner: str) -> Array:
    array = as_reals(value)
    if array is None:
        raise ArgumentTypeError(f"{owner}: the start must be made of real numbers", repr(value)[:80], "Pass floats")
    empty = 0 in array.shape
    if empty or not arrays.finite_rows(array.reshape(1, -1)).all():
        what = "an empty array" if empty else "a start with NaN or infinity"
        raise ArgumentError(f"{owner}: the start must be finite numbers", what, "Start from numbers")
    return array


def fitting(sample: Any, x0: Any, owner: str) -> Any:
    """The start; for an oracle that takes vectors like its own `x0` alone, anything else is turned down."""
    own = sample.x0 if getattr(sample, "takes_vectors", False) else None
    given = x0.x if isinstance(x0, Result) else x0
    if own is None or (isinstance(given, (np.ndarray, list)) and np.shape(given) == np.shape(own)):
        return x0
    shape = f" of shape {tuple(given.shape)}" if hasattr(given, "shape") else ""
    raise ArgumentTypeError(
        f"{owner}: this oracle takes a NumPy vector of shape {np.shape(own)}, with all unknowns in it",
        f"a {type(given).__name__}{shape}",
        "Start from oracle.x0",
    )


def require_arguments(function: Any, count: int, form: str, owner: str) -> None:
    """Raise unless a function can be called with so many positional arguments, as far as that can be seen."""
    if not callable(function):
        remedy = "Pass a function"
        if isinstance(function, Problem):
            remedy = "Use dualanchor.solve for a Problem, or pass its oracle and a start"
        raise ArgumentTypeError(f"{owner} must be a function {form}", repr(type(function).__name__), remedy)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions need not tell
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        raise ArgumentTypeError(
            f"{owner} must accept {form}", f"one with {signature}", "Add the missing arguments"
        ) from error


def _require_tuple(args: Any, door: str) -> None:
    if not isinstance(args, (tuple, list)):
        raise ArgumentTypeError(
            f"{door}: args must be a tuple", repr(args)[:80], "Write args=(value,) for a single value"
        )


def as_oracle(sample: Any, layout: Layout, args: Sequence[Any], owner: str, minus_identity: bool = False) -> Oracle:
    """The oracle of a user's function `sample(x, n, rng, *args)`, or an Oracle as it is."""
    door = owner.partition(":")[0]
    if isinstance(sample, Oracle):
        require_dimension(sample, sum(prod(shape) for shape in layout.shapes), f"{door}: the start")
        return FixedPoint(sample) if minus_identity else sample
    _require_tuple(args, door)
    form = "sample(x, n, rng, *args)" if args else "sample(x, n, rng)"
    require_arguments(sample, 3 + len(args), form, owner)

    def mean(x: Array, n: int, rng: Any) -> Array:
        value = _flat(sample(layout.split(x), n, rng, *args), layout, owner, x)
        return x - value if minus_identity else value

    return Sampler(mean)


def saddle_oracle(
    sample_u: Callable[..., Any], sample_v: Callable[..., Any], layout: Layout, args: Sequence[Any]
) -> Oracle:
    """The oracle of (gradient in u, minus gradient in v)."""
    _require_tuple(args, "saddle")
    for name, function in (("sample_u", sample_u), ("sample_v", sample_v)):
        more = ", *args" if args else ""
        require_arguments(function, 4 + len(args), f"{name}(u, v, n, rng{more})", f"saddle: {name}")
    first, second = Layout(layout.shapes[:1], False), Layout(layout.shapes[1:], False)

    def mean(x: Array, n: int, rng: Any) -> Array:
        u, v = layout.split(x)
        down = _flat(sample_u(u, v, n, rng, *args), first, "saddle: sample_u", x)
        up = _flat(sample_v(u, v, n, rng, *args), second, "saddle: sample_v", x)
        return arrays.concatenate([down, -up])

    return Sampler(mean)


class FixedPoint(Oracle):
    """F = I - T for an oracle of T."""

    def __init__(self, inner: Oracle) -> None:
        self._inner = inner
        self.replayable, self.components = inner.replayable, inner.components
        self.operator_price, self.mixed_sizes = inner.operator_price, inner.mixed_sizes

    def draw(self, streams: Streams, size: Any) -> Batch:
        return self._inner.draw(streams, size)

    def mean(self, x: Array, batch: Batch) -> Array:
        return x - self._inner.mean(x, batch)

    def take(self, rows: Any) -> FixedPoint:
        return FixedPoint(self._inner.take(rows))

    def full_batch(self) -> Batch:
        return self._inner.full_batch()

    def operator(self, x: Array) -> Array | None:
        value = self._inner.operator(x)
        return None if value is None else x - value

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "of": self._inner.describe()}

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        return self._inner.is_replayable(x, streams)


def _flat(value: Any, layout: Layout, owner: str, x: Array) -> Array:
    """A value in the shape of the point as a flat vector of the library of x."""
    array = arrays.settled(value, x) if arrays.is_foreign(x) else arrays.to_host(value)
    (shape,) = layout.shapes
    if not arrays.alike(array, x):
        raise OracleError(
            f"{owner} must return an array of the library of the point",
            f"{type(array).__name__} for a point of type {type(x).__name__}",
            "Compute with that library; its asarray, with dtype and device of the point, takes numbers from rng",
        )
    if tuple(array.shape) != shape:
        raise OracleError(
            f"{owner} must return an array with the shape of the point",
            f"{arrays.form(array)} for a point of shape {shape}",
            "Return the mean over the n samples",
        )
    return array.reshape(-1)
