"""What is sampled, and the Session through which a method sees it.

An oracle is pure: it holds no generator and no counter. `draw` turns a position in the streams into a batch,
a value that can be evaluated at several points; `mean` evaluates it. Counting lives in the Session only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, CapabilityError, DualAnchorError, OracleError
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, Counts, IntArray, Rows


@dataclass(slots=True)
class Batch:
    """Samples drawn once: xi_1 .. xi_B, to be evaluated at one point or several.

    Attributes
    ----------
    size : int or array of int
        What one evaluation of the batch costs, for all rows or per row.
    data : object
        Private to the oracle that made it: a mean noise vector, component indices, positions, ...
    """

    size: Counts
    data: Any


class Recipe(NamedTuple):
    """What compiled steps need to know of an oracle.

    Attributes
    ----------
    operator : str
        The name of its compiled operator.
    data : array, (instances, m, d)
        Vectors that the operator uses.
    which : array of int
        The instance that each row uses.
    constants : tuple of float
        Numbers that the operator uses.
    sigma : float
        Root mean square norm of additive Gaussian noise.
    components : int or None
        Below which number indices are drawn, where a batch is a list of these.
    """

    operator: str
    data: Array
    which: IntArray
    constants: tuple[float, ...] = ()
    sigma: float = 0.0
    components: int | None = None


class Oracle(ABC):
    """An operator that can only be sampled: F(x) = E[F̂(x; xi)].

    A subclass gives `draw` and `mean`, both for all rows at once: x is (rows, d). One that keeps data of its
    own per row also gives `take`.

    Attributes
    ----------
    knows_operator : bool
        Whether `operator` gives the true F(x); residuals can then be recorded.
    replayable : bool or None
        Whether one batch can be evaluated at two points (None: not known yet).
    components : int or None
        The number n of components of a finite sum, which makes full passes possible.
    dimension : int or None
        The number d of coordinates, where only points with so many can be asked about.
    operator_price : float
        How many evaluations computing the true operator is worth; recording is kept in proportion to it.
    mixed_sizes : bool
        Whether `draw` takes one batch size per row; if not, the Session draws rows of one size together.
    rowwise : bool
        Whether a row's value is the same to the last bit whatever rows are beside it, and in an array that nobody else
        keeps; a run then works on blocks of rows that fit the cache.
    """

    knows_operator: bool = False
    replayable: bool | None = True
    components: int | None = None
    dimension: int | None = None
    operator_price: float = 1.0
    mixed_sizes: bool = False
    rowwise: bool = False

    @abstractmethod
    def draw(self, streams: Streams, size: Any) -> Batch:
        """Draw `size` fresh samples for each row of the streams."""

    @abstractmethod
    def mean(self, x: Array, batch: Batch) -> Array:
        """F_B(x) for each row, shaped like x."""

    def draw_many(self, streams: Streams, size: int, count: int) -> Iterator[Batch] | None:
        """The batches that the next `count` calls of `draw` would give; None where that is no quicker.

        Each may be the same object, and is to be used before the next one is asked for.
        """
        return None

    def take(self, rows: Rows) -> Self:
        """The oracle of a selection of its rows."""
        return self

    def full_batch(self) -> Batch:
        """All n components of a finite sum, as a batch of size n that costs no draws."""
        raise no_full_pass(f"an oracle of type {type(self).__name__}")

    def operator(self, x: Array) -> Array | None:
        """The true F(x) where the oracle knows it. For recording and for checks, never seen by a method."""
        return None

    def recipe(self, rows: int) -> Recipe | None:
        """How compiled steps evaluate this oracle for so many rows, where they can."""
        return None

    def describe(self) -> dict[str, Any]:
        """What tells this oracle from another, as far as it can be seen; a function's inside cannot."""
        return {"type": type(self).__name__}

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        """Whether one batch can be evaluated at two points; finds out at x if that is not declared."""
        return bool(self.replayable)

    def trace_nan(self) -> None:
        """Called when the last value was NaN: raise what is known of where that came from, beyond the point."""
        inner = getattr(self, "_inner", None)
        if isinstance(inner, Oracle):
            inner.trace_nan()


def in_precision_of(x: Array, value: Array) -> Array:
    """What an oracle returned, in the precision of x: whether rows are evaluated together must not matter."""
    real = value.dtype.kind == "f" and isinstance(x, np.ndarray)
    return value.astype(x.dtype) if real and value.dtype != x.dtype else value


class Session:
    """The only way in which a method sees F: draw a batch, evaluate it, and have both counted.

    Attributes
    ----------
    draws, evals : int or array of int
        Fresh samples and operator evaluations so far, for all rows or per row.
    """

    __slots__ = ("_oracle", "_streams", "checking", "draws", "evals")

    def __init__(self, oracle: Oracle, streams: Streams, draws: Counts = 0, evals: Counts = 0) -> None:
        self._oracle, self._streams = oracle, streams
        self.draws, self.evals = draws, evals
        self.checking = True

    def draw(self, size: Counts) -> Batch:
        """Draw fresh samples, as many for each row as asked; counted as draws."""
        try:
            if isinstance(size, int) or self._oracle.mixed_sizes:
                batch = self._oracle.draw(self._streams, size)
            else:
                batch = self._draw_mixed(size)
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "drawing a batch") from error
        self.draws = self.draws + size
        return batch

    def draw_many(self, size: int, count: int) -> Iterator[Batch] | None:
        """So many batches in advance, all counted, where the oracle has a quick way to draw them."""
        batches = self._oracle.draw_many(self._streams, size, count)
        if batches is not None:
            self.draws = self.draws + size * count
        return batches

    def full_batch(self) -> Batch:
        """All components of a finite sum: n evaluations, no draws."""
        return self._oracle.full_batch()

    def __call__(self, x: Array, batch: Batch) -> Array:
        """F_B(x), counted as `batch.size` evaluations for each row."""
        self.evals = self.evals + batch.size
        untouched = arrays.imprint(x) if self.checking else None
        try:
            value = self._mean_mixed(x, batch) if type(batch.data) is _Mixed else self._oracle.mean(x, batch)
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "evaluating a batch") from error
        if type(value) is not np.ndarray:
            value = arrays.settled(value, x)
        elif value.dtype is not x.dtype:
            value = in_precision_of(x, value)
        other = type(value) is not type(x) and not arrays.alike(value, x)
        if self.checking or other or value.shape != x.shape:
            _check(x, value, self._oracle)
        if untouched is not None and not arrays.restored(x, untouched):
            raise OracleError(
                "The oracle must not change the point that it is asked about",
                "a point that was different afterwards",
                "Work on a copy of x",
            )
        return value

    def at(self, rows: Rows) -> Session:
        """A view of some of the rows (a mask); what it draws and evaluates is counted here."""
        return self if rows.all() else _Part(self, np.flatnonzero(rows))

    def take(self, rows: Rows) -> Session:
        """A session of its own for a selection of the rows, with the counts they have reached."""
        part = Session(self._oracle.take(rows), self._streams.take(rows))
        part.draws = self.draws if isinstance(self.draws, int) else self.draws[rows]
        part.evals = self.evals if isinstance(self.evals, int) else self.evals[rows]
        part.checking = self.checking
        return part

    @property
    def oracle(self) -> Oracle:
        """What is sampled."""
        return self._oracle

    @property
    def streams(self) -> Streams:
        """Where the samples come from."""
        return self._streams

    @property
    def recipe(self) -> Recipe | None:
        """How compiled steps evaluate the oracle, where they can."""
        return self._oracle.recipe(self._streams.rows)

    def count(self, draws: Counts, evals: Counts) -> None:
        """Count samples that were drawn and evaluated elsewhere."""
        self.draws, self.evals = self.draws + draws, self.evals + evals

    def mark(self) -> tuple[Counts, Counts, Counts]:
        """Counts and positions, to be handed to `reset`."""
        return self.draws, self.evals, self._streams.position

    def reset(self, mark: tuple[Counts, Counts, Counts]) -> None:
        """Go back to counts and positions marked before: the same samples follow again."""
        self.draws, self.evals, self._streams.position = mark

    def _draw_mixed(self, size: Any) -> Batch:
        # Rows of one batch size are drawn together; the pieces are evaluated one after another.
        sizes = np.asarray(size, dtype=np.int64)
        pieces = []
        for value in np.unique(sizes):
            rows = np.flatnonzero(sizes == value)
            oracle, streams = self._oracle.take(rows), self._streams.take(rows)
            try:
                pieces.append((rows, oracle, oracle.draw(streams, int(value))))
            except OracleError as error:
                raise _moved(error, rows) from error
            self._streams.put(rows, streams.position)
        return Batch(sizes, _Mixed(pieces))

    def _mean_mixed(self, x: Array, batch: Batch) -> Array:
        value = np.empty_like(x)
        for rows, oracle, piece in batch.data.pieces:
            try:
                part = oracle.mean(x[rows], piece)
                if self.checking or part.shape != x[rows].shape:
                    _check(x[rows], part, oracle)
                value[rows] = part
            except OracleError as error:
                raise _moved(error, rows) from error
        return value


class _Mixed(NamedTuple):
    pieces: list[tuple[Rows, Oracle, Batch]]


class _Part(Session):
    """A view of some rows of another session, which does the counting."""

    __slots__ = ("_parent", "_rows")

    def __init__(self, parent: Session, rows: Rows) -> None:
        super().__init__(parent._oracle.take(rows), parent._streams.take(rows))
        self._parent, self._rows = parent, rows
        self.checking = parent.checking

    def draw(self, size: Counts) -> Batch:
        try:
            batch = super().draw(size)
        except OracleError as error:
            raise _moved(error, self._rows) from error
        self._parent._streams.put(self._rows, self._streams.position)
        self._parent.draws = _add(self._parent, self._parent.draws, self._rows, size)
        return batch

    def __call__(self, x: Array, batch: Batch) -> Array:
        self._parent.evals = _add(self._parent, self._parent.evals, self._rows, batch.size)
        try:
            return super().__call__(x, batch)
        except OracleError as error:
            raise _moved(error, self._rows) from error


def _add(session: Session, counts: Counts, rows: Rows, amount: Counts) -> Counts:
    total = np.broadcast_to(np.asarray(counts, dtype=np.int64), (session._streams.rows,)).copy()
    total[rows] += amount
    return total


def _moved(error: OracleError, rows: Rows) -> OracleError:
    return OracleError(*error.parts, row=None if error.row is None else int(rows[error.row]))


def raised(error: Exception, doing: str) -> OracleError:
    """What is said of an error that a user's oracle raised."""
    return OracleError(
        f"The oracle must not raise when {doing}",
        f"{type(error).__name__}: {error}",
        "Mend the oracle; the error it raised is shown above, the result so far is in .result of this one",
    )


def _check(x: Array, value: Any, oracle: Oracle) -> None:
    if getattr(value, "shape", None) != x.shape:
        raise OracleError(
            "The oracle must return F_B(x) with the shape of x",
            f"{arrays.form(value)} for x of shape {tuple(x.shape)}",
            "Return one vector per row, of the same length",
        )
    if not arrays.alike(value, x):
        raise OracleError(
            "The oracle must return an array of the library of x",
            f"{type(value).__name__} for x of type {type(x).__name__}",
            "Compute with the library of x0, or start from an array of the other one",
        )
    if not arrays.is_real(value):
        raise OracleError(
            "The oracle must return real floating-point numbers",
            f"dtype {value.dtype}",
            "Return a float array",
        )
    # Infinite values are left to the run, which calls them divergence, and so is NaN far out, where powers of x
    # overflow; NaN at a moderate point is a defect.
    if not arrays.has_nan(value):
        return
    xp = arrays.namespace(x)
    extent = arrays.to_host(xp.maximum(xp.max(x, axis=1), -xp.min(x, axis=1)))
    moderate = extent < np.finfo(arrays.numpy_dtype(x.dtype)).max ** 0.125
    broken = arrays.to_host(xp.any(xp.isnan(value), axis=1)) & moderate
    if broken.any():
        oracle.trace_nan()
        row = int(np.flatnonzero(broken)[0])
        raise OracleError(
            "The oracle must return numbers at every finite point",
            f"NaN for a point of norm {arrays.row_norms(x)[row]:.3g}",
            "Mend the oracle for this point, or start elsewhere",
            row,
        )


def require_dimension(oracle: Oracle, size: int, owner: str) -> None:
    """Raise unless an oracle that tells its dimension takes points of this size."""
    own = oracle.dimension
    if own is not None and size != own:
        raise ArgumentError(
            f"{owner} must have {own} {'coordinate' if own == 1 else 'coordinates'}, as the oracle does",
            size,
            f"Pass a point of length {own}, or check the oracle's data",
        )


def no_full_pass(received: str) -> CapabilityError:
    """The error for a full pass over what is not a finite sum."""
    return CapabilityError(
        "A full pass needs a finite sum",
        received,
        "Use FiniteSum, or a method that needs no full pass, such as s-dual-ohm",
    )
