"""The Session: the only way in which a method sees an oracle, and the only place where samples are counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import DualAnchorError, OracleError
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.streams import Purpose, Streams, per_row, selected
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array, Counts, Rows


class Mark(NamedTuple):
    """Counts and stream positions at one moment, shared or per row: enough to draw the same samples again."""

    draws: Counts
    evals: Counts
    position: Counts


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """Draws batches, evaluates them, and counts both.

    Attributes
    ----------
    oracle, streams : what is sampled, and where its randomness comes from
    draws, evals : int or array of int, fresh samples and operator evaluations so far, shared or per row
    checking : bool, whether each value is checked: no NaN at moderate points, and the oracle left the point unchanged
    largest : array (rows, 2) or None
        Squared norm and batch size of the largest value since the caller set it to None; recorded while `checking`,
        for oracles that do not know their operator.
    trail : Trail or None, accumulates the means of fresh batches

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: x, sigma=1.0, vectorized=True)
    >>> F = da.Session(oracle, da.Streams(0, np.arange(1), dimension=3))
    >>> G = F.fresh(np.ones((1, 3)), 16)
    >>> F.draws, F.evals, G.shape
    (16, 16, (1, 3))
    """

    oracle: Oracle
    streams: Streams
    draws: Counts = 0
    evals: Counts = 0
    checking: bool = True
    largest: Array | None = None
    trail: Trail | None = None

    def draw(self, size: Counts) -> Batch:
        """Draw `size` fresh samples for each row (an int, or one per row); counted as draws."""
        if not (isinstance(size, int) or self.oracle.mixed_sizes):
            sizes = np.asarray(size, dtype=np.int64)
            groups = [(one, np.flatnonzero(sizes == one)) for one in np.unique(sizes).tolist()]
            views = [(rows, _RowView(self, rows), one) for one, rows in groups]
            return Batch(sizes, _BySize([(rows, view, view.draw(one)) for rows, view, one in views]))
        try:
            batch = self.oracle.draw(self.streams, size)
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "drawing a batch") from error
        self.draws = self.draws + size
        return batch

    def full_batch(self) -> Batch:
        """All components of a finite sum: n evaluations, no draws."""
        return self.oracle.full_batch()

    def __call__(self, x: Array, batch: Batch) -> Array:
        """F_B(x) for x of shape (rows, d), counted as `batch.size` evaluations for each row."""
        if type(batch.data) is _BySize:
            return self._by_size(x, batch)
        self.evals = self.evals + batch.size
        before = arrays.snapshot(x) if self.checking else None
        try:
            value = self.oracle.mean(x, batch)
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "evaluating a batch") from error
        value = accepted(x, value)
        if before is not None:
            refuse_nan(x, value, self.oracle)
            if not arrays.unchanged_since(x, before):
                rule = "The oracle must not change the point that it is evaluated at"
                raise OracleError(rule, "a point that was different afterwards", "Work on a copy of x")
            if not self.oracle.knows_operator:
                self._note_largest(value, batch.size)
        return value

    def fresh(self, x: Array, size: Counts) -> Array:
        """F_B(x) with a fresh batch: what `F(x, F.draw(size))` gives, faster while nothing is checked."""
        if self.checking or type(size) is not int:
            value = self(x, self.draw(size))
            if self.trail is not None and type(size) is int:
                self.trail.add(x, value, size)
            return value
        oracle = self.oracle
        try:
            value = oracle.mean(x, oracle.draw(self.streams, size))
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "evaluating a batch") from error
        self.draws, self.evals = self.draws + size, self.evals + size
        if not (type(value) is type(x) is np.ndarray and value.dtype is x.dtype and value.shape == x.shape):
            value = accepted(x, value)
        if self.trail is not None:
            self.trail.add(x, value, size)
        return value

    def table(self, points: Sequence[Array], batches: Sequence[Batch]) -> Array | None:
        """`Oracle.table`, counted. None if each value must be evaluated on its own, as when one is not finite."""
        if not self.oracle.tables or any(batch.size != batches[0].size for batch in batches):
            return None
        values = self.oracle.table(points, batches)
        if values is None or not np.isfinite(values).all():
            return None
        self.evals = self.evals + len(points) * len(batches) * int(batches[0].size)
        return values

    def at(self, rows: Rows) -> "Session":
        """A view of some of the rows (a mask); what it draws and evaluates is counted here."""
        return self if rows.all() else _RowView(self, np.flatnonzero(rows))

    def take(self, rows: Rows) -> "Session":
        """An independent session of a selection of the rows, with the counts they have reached."""
        draws, evals = (selected(counts, rows) for counts in (self.draws, self.evals))
        return Session(self.oracle.take(rows), self.streams.take(rows), draws, evals, self.checking)

    def mark(self) -> Mark:
        """Counts and stream positions now, for `reset`."""
        return Mark(self.draws, self.evals, self.streams.position)

    def reset(self, mark: Mark) -> None:
        """Go back to a mark: the same samples follow again."""
        self.draws, self.evals, self.streams.position = mark

    def _note_largest(self, value: Array, size: Counts) -> None:
        latest = np.empty((len(value), 2))
        latest[:, 0], latest[:, 1] = arrays.to_host(arrays.row_squares(value)), size
        if self.largest is not None:
            latest = np.where(latest[:, :1] > self.largest[:, :1], latest, self.largest)
        self.largest = latest

    def _by_size(self, x: Array, batch: Batch) -> Array:
        value = np.empty_like(x)
        for rows, view, part in batch.data.groups:
            value[rows] = view(x[rows], part)
        if self.checking and not self.oracle.knows_operator:
            self._note_largest(value, batch.size)
        return value


class _BySize(NamedTuple):
    """The data of a batch with one size per row: rows of one size, a view of them, and their batch."""

    groups: list[tuple[Rows, Session, Batch]]


class _RowView(Session):
    """A view of some rows of another session, which does the counting."""

    __slots__ = ("_parent", "_rows")

    def __init__(self, parent: Session, rows: Rows) -> None:
        super().__init__(parent.oracle.take(rows), parent.streams.take(rows), checking=parent.checking)
        self._parent = parent
        self._rows = rows

    def draw(self, size: Counts) -> Batch:
        try:
            batch = super().draw(size)
        except OracleError as error:
            raise _renumbered(error, self._rows) from error
        self._parent.streams.put(self._rows, self.streams.position)
        self._parent.draws = self._add(self._parent.draws, size)
        return batch

    def __call__(self, x: Array, batch: Batch) -> Array:
        self._parent.evals = self._add(self._parent.evals, batch.size)
        try:
            return super().__call__(x, batch)
        except OracleError as error:
            raise _renumbered(error, self._rows) from error

    def fresh(self, x: Array, size: Counts) -> Array:
        return self(x, self.draw(size))

    def table(self, points: Sequence[Array], batches: Sequence[Batch]) -> Array | None:
        before, values = self.evals, super().table(points, batches)
        self._parent.evals = self._add(self._parent.evals, self.evals - before)
        return values

    def _add(self, counts: Counts, amount: Counts) -> Counts:
        total = per_row(counts, self._parent.streams.rows)
        total[self._rows] += amount
        return total


def _renumbered(error: OracleError, rows: Rows) -> OracleError:
    """The same error with its row, which counts within `rows`, as a row of the whole session."""
    return OracleError(*error.parts, row=None if error.row is None else int(rows[error.row]))


def raised(error: BaseException, doing: str) -> OracleError:
    """The OracleError for an exception that a user's oracle raised."""
    remedy = "Fix the oracle; the error it raised is shown above, the result so far, if any, is in .result of this one"
    return OracleError(f"The oracle must not raise when {doing}", f"{type(error).__name__}: {error}", remedy)


def resolved(prox: Callable[[Array, Any], Any], z: Array, step: Any) -> Array:
    """A user's `prox(z, step)` for z of shape (rows, d), checked: an array of the same shape and library."""
    try:
        x = prox(z, step)
    except DualAnchorError:
        raise
    except Exception as error:
        received = f"{type(error).__name__}: {error}"
        raise OracleError("The prox must not raise", received, "Fix it for such points") from error
    if (shape := getattr(x, "shape", None)) != z.shape:
        rule = "The prox must return points with the shape of z, one row per point"
        remedy = "Wrap a function of one point in dualanchor.prox.from_function"
        raise OracleError(rule, f"shape {shape} for z of shape {z.shape}", remedy)
    if not arrays.alike(x, z):
        rule, remedy = "The prox must return an array of the library of z", "Compute with that library"
        raise OracleError(rule, f"{type(x).__name__} for z of type {type(z).__name__}", remedy)
    return x


def one_sample(oracle: Oracle, x0: Array, seed: int, times: int) -> Array | None:
    """One sample at x0, (d,), from a fixed stream, evaluated several times; None if it fails or the values differ."""
    if oracle.replayable is False:
        return None
    F = Session(oracle.take(np.arange(1)), Streams(seed, np.zeros(1, int), Purpose.PILOT, x0.shape[0], x0.dtype))
    try:
        with arrays.quiet():
            batch = F.draw(1)
            values = [arrays.to_host(F(x0[None], batch))[0] for _ in range(times)]
    except Exception:  # the run will fail in the same way, and say where
        return None
    return values[0] if all(np.array_equal(values[0], value, equal_nan=True) for value in values) else None


def accepted(x: Array, value: Any) -> Array:
    """What an oracle returned at x, checked: an array of the same library, shape and precision as x."""
    if type(value) is type(x) is np.ndarray and value.dtype is x.dtype and value.shape == x.shape:
        return value
    value = arrays.as_library_of(value, x)
    if getattr(value, "shape", None) != x.shape:
        rule, received = "The oracle must return F_B(x) with the shape of x", arrays.form(value)
        remedy = "Return one vector per row, of the same length"
        raise OracleError(rule, f"{received} for x of shape {tuple(x.shape)}", remedy)
    if type(value) is type(x) and value.dtype == x.dtype:
        return value
    if not arrays.alike(value, x):
        rule, received = "The oracle must return an array of the library of x", type(value).__name__
        remedy = "Compute with the library of x0, or start from an array of the other one"
        raise OracleError(rule, f"{received} for x of type {type(x).__name__}", remedy)
    if not arrays.is_real(value):
        rule = "The oracle must return real floating-point numbers"
        raise OracleError(rule, f"dtype {value.dtype}", "Return a float array")
    # Convert to the precision of x, as a row evaluated by itself would be.
    return value.astype(x.dtype, copy=False) if isinstance(x, np.ndarray) else value


def refuse_nan(x: Array, value: Array, oracle: Oracle) -> None:
    """Raise for NaN at a moderate point: a defect of the oracle. Infinities, and NaN far out, count as divergence."""
    if not arrays.has_nan(value):
        return
    xp = arrays.namespace(x)
    extent = arrays.to_host(xp.maximum(xp.max(x, axis=1), -xp.min(x, axis=1)))
    has_nan = arrays.to_host(xp.any(xp.isnan(value), axis=1))
    require_numbers(has_nan & (extent < moderate(x.dtype)), arrays.row_norms(x), oracle)


def moderate(dtype: Any) -> float:
    """The size up to which a coordinate is moderate: low powers of it do not overflow."""
    return min(1e6, float(np.finfo(arrays.numpy_dtype(dtype)).max) ** 0.125)


def require_numbers(failed: Array, norms: Array, oracle: Oracle) -> None:
    """Raise if a row has failed (a mask): its value was NaN at a moderate point, of the norm given."""
    if failed.any():
        oracle.trace_nan()
        row = int(np.flatnonzero(failed)[0])
        rule = "The oracle must return numbers at every finite point"
        remedy = "Fix the oracle for this point, draw a sample that failed again, or start elsewhere"
        raise OracleError(rule, f"NaN for a point of norm {norms[row]:.3g}", remedy, row)
