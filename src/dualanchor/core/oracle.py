"""What is sampled.

An oracle has no generator and no counter. `draw` turns a position in the streams into a batch, a value that can be
evaluated at several points; `mean` evaluates it. Only the Session counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

from dualanchor.core.errors import ArgumentError, CapabilityError
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, Counts, IntArray, Rows


@dataclass(slots=True)
class Batch:
    """Samples drawn once: xi_1 .. xi_B, to be evaluated at one point or several.

    Attributes
    ----------
    size : int or array of int, samples in the batch, shared or per row: what one evaluation costs
    data : object, private to the oracle that drew it, such as component indices or positions in the streams

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: 2 * x, sigma=1.0, vectorized=True)
    >>> batch = oracle.draw(da.Streams(0, np.arange(1), dimension=3), 8)
    >>> one, two = (oracle.mean(np.full((1, 3), value), batch) for value in (1.0, 2.0))  # the same samples
    >>> batch.size, (two - one).round(6).tolist()
    (8, [[2.0, 2.0, 2.0]])
    """

    size: Counts
    data: Any


class Oracle(ABC):
    """An operator that can only be sampled: F(x) = E[F̂(x; xi)].

    A subclass defines `draw` and `mean`, both for all rows at once: x is (rows, d). One that has data per row also
    defines `take`; the front doors refuse it, `solve` takes it. It declares its capabilities:

    Attributes
    ----------
    knows_operator : bool, whether `operator` gives the true F(x); residuals can then be recorded
    replayable : bool or None, whether one batch can be evaluated at two points (None: not known yet)
    components : int or None, the number n of components of a finite sum, for which full passes are possible
    dimension : int or None, the number d of coordinates if it is fixed
    operator_price : float, the cost of `operator` in evaluations; a higher price means fewer recorded points
    independent_samples : bool, whether means are those of independent samples by construction, so calibration does not
        test them
    mixed_sizes : bool, whether `draw` takes one batch size per row; if not, the Session groups rows by size
    rowwise : bool, whether `mean` is newly allocated and a row's value has the same bits whatever the other rows are
    traceable : bool, whether `draw` and `mean` can be traced by JAX, so that steps are compiled
    tables : bool, whether `table` evaluates many batches in one call
    inner : Oracle or None, the oracle that a wrapper evaluates

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> class Shifted(da.Oracle):  # F(x) = x - 1, with standard normal noise
    ...     def draw(self, streams, size):
    ...         return da.Batch(size, streams.normals() / size**0.5)
    ...
    ...     def mean(self, x, batch):
    ...         return x - 1 + batch.data
    >>> bool(da.root(Shifted(), np.zeros(2), budget=2000).success)
    True
    """

    knows_operator: bool = False
    replayable: bool | None = True
    components: int | None = None
    dimension: int | None = None
    operator_price: float = 1.0
    independent_samples: bool = False
    mixed_sizes: bool = False
    rowwise: bool = False
    traceable: bool = False
    tables: bool = False
    inner: Oracle | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "operator" in vars(cls) and "knows_operator" not in vars(cls):
            cls.knows_operator = True  # by default, a subclass that defines `operator` knows it

    @abstractmethod
    def draw(self, streams: Streams, size: Any) -> Batch:
        """Draw `size` fresh samples for each row of the streams."""

    @abstractmethod
    def mean(self, x: Array, batch: Batch) -> Array:
        """F_B(x) for each row of x (rows, d), in the shape of x."""

    def table(self, points: Sequence[Array], batches: Sequence[Batch], outer: Oracle | None = None) -> Array | None:
        """F_B(x) for all points (rows, d) and batches of one size, on the host: (points, batches, rows, d).

        With `outer`, an oracle that wraps this one, its values. None if one call for all would not be faster.
        """
        return self.inner.table(points, batches, outer or self) if self.inner is not None and self.tables else None

    def take(self, rows: Rows) -> Self:
        """The oracle of a selection of its rows."""
        return self

    def with_inner(self, inner: Oracle) -> Self:
        """The same wrapper around another oracle, such as its `inner` on an engine."""
        outer = copy(self)
        outer.inner, outer.replayable, outer.mixed_sizes, outer.rowwise = inner, inner.replayable, False, False
        return outer

    def full_batch(self) -> Batch:
        """All n components of a finite sum: a batch of size n that needs no draws."""
        raise no_full_pass(f"an oracle of type {type(self).__name__}")

    def component_values(self, x: Array, indices: IntArray) -> Array:
        """The values F_i(x) of some components of a finite sum at one point (d,): (indices, d). Not counted."""
        received = f"an oracle of type {type(self).__name__}"
        remedy = "Use FiniteSum, or say how many samples to draw"
        raise CapabilityError("Single components need a finite sum in this process", received, remedy)

    def operator(self, x: Array) -> Array | None:
        """The true F(x), if the oracle knows it: for recording and checks only, methods do not see it."""
        return None

    def describe(self) -> dict[str, Any]:
        """What distinguishes this oracle from others, as plain values; the code of functions is not part of it."""
        return {"type": type(self).__name__}

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        """Whether one batch can be evaluated at two points; if that is not declared, it is tried at x."""
        return bool(self.replayable)

    def is_noiseless(self, x: Array, streams: Streams) -> bool:
        """Whether samples at x cannot differ. If False, equal samples do not prove that there is no noise."""
        return self.inner is not None and self.inner.is_noiseless(x, streams)

    def trace_nan(self) -> None:
        """Called when the last value was NaN: raise an error that says where it came from, if that is known."""
        if self.inner is not None:
            self.inner.trace_nan()


_INHERITED = (
    "knows_operator", "replayable", "components", "dimension", "operator_price", "independent_samples", "mixed_sizes",
)  # fmt: skip


class WrappedOracle(Oracle):
    """An oracle that wraps another one: batches and capabilities are those of `inner`, `mean` is its own."""

    pure: bool = False  # whether `mean` is a pure function of x and the mean of `inner`, so that JAX can trace it
    inner: Oracle

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        for name in _INHERITED:
            setattr(self, name, getattr(inner, name))
        self.traceable = self.tables = self.pure and inner.traceable

    def draw(self, streams: Streams, size: Any) -> Batch:
        return self.inner.draw(streams, size)

    def full_batch(self) -> Batch:
        return self.inner.full_batch()

    def take(self, rows: Rows) -> Self:
        inner = self.inner.take(rows)
        if inner is self.inner:
            return self
        part = copy(self)
        part.inner = inner
        return part

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        replayable = self.inner.is_replayable(x, streams)
        self.replayable = self.inner.replayable
        return replayable


def require_dimension(oracle: Oracle, size: int, owner: str) -> None:
    """Raise if the oracle has a fixed dimension other than `size`."""
    d = oracle.dimension
    if d is not None and size != d:
        rule = f"{owner} must have {d} {'coordinate' if d == 1 else 'coordinates'}, as the oracle does"
        raise ArgumentError(rule, size, f"Pass a point of length {d}, or check the oracle's data")


def no_full_pass(received: str) -> CapabilityError:
    """The error for a full pass over an oracle that is not a finite sum."""
    remedy = "Use FiniteSum, or a method that needs no full pass, such as s-dual-ohm"
    return CapabilityError("A full pass needs a finite sum", received, remedy)
