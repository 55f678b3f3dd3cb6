"""What is sampled.

An oracle is pure: it holds no generator and no counter. `draw` turns a position in the streams into a batch,
a value that can be evaluated at several points; `mean` evaluates it. Counting lives in the Session only.
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
    size : int or array of int, what one evaluation of the batch costs, for all rows or per row
    data : object, private to the oracle that made it: component indices, positions in the streams

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

    A subclass gives `draw` and `mean`, both for all rows at once: x is (rows, d). One that keeps data of its
    own per row also gives `take`. What it can do it declares:

    Attributes
    ----------
    knows_operator : bool, whether `operator` gives the true F(x); residuals can then be recorded
    replayable : bool or None, whether one batch can be evaluated at two points (None: not known yet)
    components : int or None, the number n of components of a finite sum, which makes full passes possible
    dimension : int or None, the number d of coordinates, where only points of this dimension can be evaluated
    operator_price : float, how many evaluations computing the true operator is worth; recording is in proportion to it
    mixed_sizes : bool, whether `draw` takes one batch size per row; if not, the Session draws rows of one size together
    rowwise : bool
        Whether a row's value is the same to the last bit whatever the other rows are, in a newly allocated array.
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
    mixed_sizes: bool = False
    rowwise: bool = False
    traceable: bool = False
    tables: bool = False
    inner: Oracle | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "operator" in vars(cls) and "knows_operator" not in vars(cls):
            cls.knows_operator = True  # whoever gives the operator knows it, unless declared otherwise

    @abstractmethod
    def draw(self, streams: Streams, size: Any) -> Batch:
        """Draw `size` fresh samples for each row of the streams."""

    @abstractmethod
    def mean(self, x: Array, batch: Batch) -> Array:
        """F_B(x) for each row, shaped like x."""

    def table(self, points: Sequence[Array], batches: Sequence[Batch], outer: Oracle | None = None) -> Array | None:
        """F_B(x) at every point (rows, d) for every batch, all of one size, on the host: (points, batches, rows, d).

        By `outer`, which wraps this oracle, if given; None where one call for all would not be faster.
        """
        return self.inner.table(points, batches, outer or self) if self.inner is not None and self.tables else None

    def take(self, rows: Rows) -> Self:
        """The oracle of a selection of its rows."""
        return self

    def with_inner(self, inner: Oracle) -> Self:
        """The same oracle built on another one, such as its `inner` on an engine."""
        outer = copy(self)
        outer.inner, outer.replayable, outer.mixed_sizes, outer.rowwise = inner, inner.replayable, False, False
        return outer

    def full_batch(self) -> Batch:
        """All n components of a finite sum, as a batch of size n that costs no draws."""
        raise no_full_pass(f"an oracle of type {type(self).__name__}")

    def component_values(self, x: Array, indices: IntArray) -> Array:
        """The values F_i(x) of some components of a finite sum at one point (d,): (indices, d). Not counted."""
        rule, received = (
            "Single components need a finite sum in this process",
            f"an oracle of type {type(self).__name__}",
        )
        raise CapabilityError(rule, received, "Use FiniteSum, or say how many samples to draw")

    def operator(self, x: Array) -> Array | None:
        """The true F(x) where the oracle knows it. For recording and for checks, never seen by a method."""
        return None

    def describe(self) -> dict[str, Any]:
        """What tells this oracle from another, as far as it can be seen; a function's inside cannot."""
        return {"type": type(self).__name__}

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        """Whether one batch can be evaluated at two points; finds out at x if that is not declared."""
        return bool(self.replayable)

    def is_noiseless(self, x: Array, streams: Streams) -> bool:
        """Whether samples at x cannot differ; if not, noise may be there that samples which agree do not show."""
        return self.inner is not None and self.inner.is_noiseless(x, streams)

    def trace_nan(self) -> None:
        """Called when the last value was NaN: raise what is known of where that came from, beyond the point."""
        if self.inner is not None:
            self.inner.trace_nan()


class WrappedOracle(Oracle):
    """An oracle that wraps another one: its batches and capabilities are those of `inner`, its values are its own."""

    pure: bool = False  # whether `mean` does nothing but compute with those of `inner`
    inner: Oracle

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        for name in ("knows_operator", "replayable", "components", "dimension", "operator_price", "mixed_sizes"):
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
        found = self.inner.is_replayable(x, streams)
        self.replayable = self.inner.replayable
        return found


def require_dimension(oracle: Oracle, size: int, owner: str) -> None:
    """Raise unless an oracle that tells its dimension takes points of this size."""
    own = oracle.dimension
    if own is not None and size != own:
        rule = f"{owner} must have {own} {'coordinate' if own == 1 else 'coordinates'}, as the oracle does"
        raise ArgumentError(rule, size, f"Pass a point of length {own}, or check the oracle's data")


def no_full_pass(received: str) -> CapabilityError:
    """The error for a full pass over what is not a finite sum."""
    remedy = "Use FiniteSum, or a method that needs no full pass, such as s-dual-ohm"
    return CapabilityError("A full pass needs a finite sum", received, remedy)
