"""The Session: the only way in which a method sees an oracle, and the only place where samples are counted."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import DualAnchorError, OracleError
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.streams import Streams, per_row, shared
from dualanchor.core.trail import Trail
from dualanchor.core.types import Array, Counts, Rows


class Mark(NamedTuple):
    """Counts and stream positions at one moment, for all rows or per row: enough to draw the same samples again."""

    draws: Counts
    evals: Counts
    position: Counts

    def take(self, rows: Rows) -> "Mark":
        return Mark(*(count if isinstance(count, int) else shared(count[rows]) for count in self))


class Session:
    """Draw a batch, evaluate it, and have both counted.

    Attributes
    ----------
    oracle, streams : what is sampled, and where its randomness comes from
    draws, evals : int or array of int, fresh samples and operator evaluations so far, for all rows or per row
    checking : bool, whether each value is examined: real, finite at moderate points, and the point left unchanged
    seen : array (rows, 2), squared norm and batch size of the largest value examined since it was None
    trail : Trail or None, where means of fresh batches are added up

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: x, sigma=1.0, vectorized=True)
    >>> F = da.Session(oracle, da.Streams(0, np.arange(1), dimension=3))
    >>> G = F.fresh(np.ones((1, 3)), 16)
    >>> F.draws, F.evals, G.shape
    (16, 16, (1, 3))
    """

    __slots__ = ("checking", "draws", "evals", "oracle", "seen", "streams", "trail")

    def __init__(self, oracle: Oracle, streams: Streams, draws: Counts = 0, evals: Counts = 0) -> None:
        self.oracle, self.streams = oracle, streams
        self.draws, self.evals = draws, evals
        self.checking = True
        self.seen: Array | None = None
        self.trail: Trail | None = None

    def draw(self, size: Counts) -> Batch:
        """Draw `size` fresh samples for each row (an int, or one per row); counted as draws."""
        try:
            if isinstance(size, int) or self.oracle.mixed_sizes:
                batch = self.oracle.draw(self.streams, size)
            else:
                batch = self._draw_mixed(size)
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
        self.evals = self.evals + batch.size
        before = arrays.snapshot(x) if self.checking else None
        try:
            value = self._mean_mixed(x, batch) if type(batch.data) is _Mixed else self.oracle.mean(x, batch)
        except DualAnchorError:
            raise
        except Exception as error:
            raise raised(error, "evaluating a batch") from error
        fine = type(value) is type(x) is np.ndarray and value.dtype is x.dtype and value.shape == x.shape
        value = value if fine else accepted(x, value)
        if before is not None:
            _require_numbers(x, value, self.oracle)
            _require_unchanged(x, before)
            if not self.oracle.knows_operator:
                squares = arrays.to_host(arrays.row_squares(value))
                seen = np.stack(np.broadcast_arrays(squares, batch.size), axis=1).astype(float)
                self.seen = seen if self.seen is None else np.where(seen[:, :1] > self.seen[:, :1], seen, self.seen)
        return value

    def fresh(self, x: Array, size: Counts) -> Array:
        """F_B(x) with a fresh batch: what `F(x, F.draw(size))` gives, in one call."""
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
        """`Oracle.table`, counted; None where each is to be evaluated by itself: so are values that are no numbers."""
        if not self.oracle.tables or any(batch.size != batches[0].size for batch in batches):
            return None
        values = self.oracle.table(points, batches)
        if values is None or not np.isfinite(values).all():
            return None
        self.evals = self.evals + len(points) * len(batches) * int(batches[0].size)
        return values

    def at(self, rows: Rows) -> "Session":
        """A view of some of the rows (a mask); what it draws and evaluates is counted here."""
        return self if rows.all() else _Part(self, np.flatnonzero(rows))

    def take(self, rows: Rows) -> "Session":
        """A session of its own for a selection of the rows, with the counts they have reached."""
        draws, evals, _ = self.mark().take(rows)
        part = Session(self.oracle.take(rows), self.streams.take(rows), draws, evals)
        part.checking = self.checking
        return part

    def mark(self) -> Mark:
        """Counts and positions, to be handed to `reset`."""
        return Mark(self.draws, self.evals, self.streams.position)

    def reset(self, mark: Mark) -> None:
        """Go back to counts and positions marked before: the same samples follow again."""
        self.draws, self.evals, self.streams.position = mark

    def _draw_mixed(self, size: Any) -> Batch:
        # Rows of one batch size are drawn together; the pieces are evaluated one after another.
        sizes = np.asarray(size, dtype=np.int64)
        pieces = []
        for value in np.unique(sizes):
            rows = np.flatnonzero(sizes == value)
            oracle, streams = self.oracle.take(rows), self.streams.take(rows)
            try:
                pieces.append((rows, oracle, oracle.draw(streams, int(value))))
            except OracleError as error:
                raise _of_rows(error, rows) from error
            self.streams.put(rows, streams.position)
        return Batch(sizes, _Mixed(pieces))

    def _mean_mixed(self, x: Array, batch: Batch) -> Array:
        value = np.empty_like(x)
        for rows, oracle, piece in batch.data.pieces:
            try:
                value[rows] = accepted(x[rows], oracle.mean(x[rows], piece))
            except OracleError as error:
                raise _of_rows(error, rows) from error
        return value


class _Mixed(NamedTuple):
    pieces: list[tuple[Rows, Oracle, Batch]]


class _Part(Session):
    """A view of some rows of another session, which does the counting."""

    __slots__ = ("_parent", "_rows")

    def __init__(self, parent: Session, rows: Rows) -> None:
        super().__init__(parent.oracle.take(rows), parent.streams.take(rows))
        self._parent, self._rows = parent, rows
        self.checking = parent.checking

    def draw(self, size: Counts) -> Batch:
        try:
            batch = super().draw(size)
        except OracleError as error:
            raise _of_rows(error, self._rows) from error
        self._parent.streams.put(self._rows, self.streams.position)
        self._parent.draws = self._add(self._parent.draws, size)
        return batch

    def __call__(self, x: Array, batch: Batch) -> Array:
        self._parent.evals = self._add(self._parent.evals, batch.size)
        try:
            return super().__call__(x, batch)
        except OracleError as error:
            raise _of_rows(error, self._rows) from error

    def fresh(self, x: Array, size: Counts) -> Array:
        return self(x, self.draw(size))

    def table(self, points: Sequence[Array], batches: Sequence[Batch]) -> Array | None:
        before, values = self.evals, super().table(points, batches)
        self._parent.evals = self._add(self._parent.evals, self.evals - before)
        return values

    def _add(self, counts: Counts, amount: Counts) -> Counts:
        total = per_row(counts, self._parent.streams.rows).copy()
        total[self._rows] += amount
        return total


def _of_rows(error: OracleError, rows: Rows) -> OracleError:
    return OracleError(*error.parts, row=None if error.row is None else int(rows[error.row]))


def raised(error: BaseException, doing: str) -> OracleError:
    """What is said of an error that a user's oracle raised."""
    remedy = "Fix the oracle; the error it raised is shown above, the result so far is in .result of this one"
    return OracleError(f"The oracle must not raise when {doing}", f"{type(error).__name__}: {error}", remedy)


def resolved(prox: Callable[[Array, Any], Any], z: Array, step: Any) -> Array:
    """A user's prox(z, step) for rows z: points like z, or an OracleError."""
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


def accepted(x: Array, value: Any) -> Array:
    """What an oracle returned as an array like x: of its library, shape and precision."""
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
    # In the precision of x: whether rows are evaluated together must not matter.
    return value.astype(x.dtype, copy=False) if isinstance(x, np.ndarray) else value


def _require_unchanged(x: Array, before: Array) -> None:
    if not arrays.unchanged_since(x, before):
        rule = "The oracle must not change the point that it is evaluated at"
        raise OracleError(rule, "a point that was different afterwards", "Work on a copy of x")


def _require_numbers(x: Array, value: Array, oracle: Oracle) -> None:
    """Raise where a moderate point has NaN: a defect. What is infinite, or far out, the run calls divergence."""
    if not arrays.has_nan(value):
        return
    xp = arrays.namespace(x)
    extent = arrays.to_host(xp.maximum(xp.max(x, axis=1), -xp.min(x, axis=1)))
    require_numbers(
        arrays.to_host(xp.any(xp.isnan(value), axis=1)) & (extent < moderate(x.dtype)), arrays.row_norms(x), oracle
    )


def moderate(dtype: Any) -> float:
    """How large coordinates may be without exp(x) and powers of x overflowing."""
    return min(1e12, float(np.finfo(arrays.numpy_dtype(dtype)).max) ** 0.125)


def require_numbers(broken: Array, norms: Array, oracle: Oracle) -> None:
    """Raise if one of the rows is broken (a mask): NaN at a point of moderate norm."""
    if broken.any():
        oracle.trace_nan()
        row = int(np.flatnonzero(broken)[0])
        rule, remedy = "The oracle must return numbers at every finite point", "Fix the oracle for this point"
        received = f"NaN for a point of norm {norms[row]:.3g}"
        raise OracleError(rule, received, f"{remedy}, or start elsewhere", row)
