"""A mean of n component operators, sampled by index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError, explain
from dualanchor.core.oracle import Batch, Oracle, Recipe
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.each_row import each_row, require_callable
from dualanchor.oracles.gather import row_bytes, rows_at, scattered, spans, tile_rows, windows

_BLOCK = 256  # rows that are drawn together, if rows are drawn in blocks
_MATRIX = 1000  # coordinates up to which a mean matrix is kept
_GROUP = 64  # values that are added in their own precision


class _Counts(NamedTuple):
    """How often each component is in the batch, per row: (rows, n), for batches larger than n."""

    counts: IntArray


class _Blocks(NamedTuple):
    """Rows that are drawn together, and the seed by which they were shuffled (None: not at all)."""

    block: int
    shuffle: int | None


class _Starts(NamedTuple):
    """Where the blocks of the batch begin, per row: (rows, number of blocks), and how many rows each has."""

    starts: IntArray
    block: int


_FULL = object()


class FiniteSum(Oracle):
    r"""A finite sum :math:`F(x) = \frac1n \sum_i F_i(x)`, sampled by component with replacement.

    A batch is a list of indices, so it can be evaluated at two points; a batch larger than n is drawn as
    multinomial counts; a full pass is a batch of size n that costs no draws.

    Parameters
    ----------
    component : callable
        `component(x, i)` for one point x of shape (d,) and an array i of B indices: the B values
        :math:`F_i(x)`, shape (B, d).
    n : int
        Number of components.

    See Also
    --------
    FiniteSum.rank_one : :math:`F_i(x) = u_i (v_i^\top x - t_i)`, no (B, d) array is made.
    FiniteSum.linear : :math:`F_i(x) = A_i x - b_i`.
    FiniteSum.from_data : a function of data rows.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> centers = np.random.default_rng(0).normal(size=(50, 3))
    >>> oracle = da.FiniteSum(lambda x, i: x - centers[i], n=50)
    >>> problem = da.Problem(oracle, x0=np.zeros(3), constants=da.Constants(L=1.0), root=centers.mean(axis=0))
    >>> method = da.DualOHM.for_problem(problem, budget=5000, batch_size=100)
    >>> bool(da.solve(problem, method).residual < 0.3)
    True
    """

    rowwise = True  # what is multiplied is multiplied row by row
    _blocks: _Blocks | None = None  # None: rows are drawn one by one

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        require_callable(component, "FiniteSum: component", "component(x, i)")
        self._set_size(n)
        self._kernel: _Kernel = _Components(component, self._n)
        self.operator_price = float(self._n)

    @classmethod
    def from_data(
        cls,
        data: Any,
        component: Callable[..., Any],
        *,
        sampling: str = "rows",
        block: int | None = None,
        shuffle: int | None = 0,
    ) -> FiniteSum:
        r"""A finite sum over the rows of a data set.

        Parameters
        ----------
        data : array or tuple of arrays
            Arrays with the same number n of rows.
        component : callable
            `component(x, rows)`, or `component(x, rows_1, rows_2, ...)` for a tuple: the values for m data rows,
            shape (m, d). A large batch is handed over in tiles; rows are lent for the call.
        sampling : {"rows", "blocks"}
            Rows one by one, or blocks of neighbouring rows, which are read much faster.
        block : int, optional
            Rows of a block, at most n; 256 if left out.
        shuffle : int or None
            For blocks: the seed by which rows are shuffled once, into a copy. None leaves them as they are: for
            data in random order only.

        Notes
        -----
        A block is `block` rows from a uniform start on, the first row following the last; a batch of B is as many
        blocks as it takes, the last one cut, so every row is as likely as any other, whatever B, n and block. Over
        the shuffles, the variance of a mean of B rows is :math:`\frac{\sigma^2}{B} \frac{n - b}{n - 1}` for blocks of
        b (B a multiple of b), against :math:`\sigma^2/B` for single rows. One shuffle has a variance of its own, off
        by a factor of about :math:`1 \pm \sqrt{4b/3n}`: keep n above 100 blocks. Without a shuffle it can be b times
        as large as for single rows.

        Examples
        --------
        >>> import numpy as np, dualanchor as da
        >>> A, b = np.eye(4), np.arange(4.0)
        >>> least_squares = lambda x, a, t: a * (a @ x - t)[:, None]
        >>> da.FiniteSum.from_data((A, b), least_squares).operator(np.zeros((1, 4)))
        array([[ 0.  , -0.25, -0.5 , -0.75]])
        """
        require_callable(component, "FiniteSum.from_data: component", "component(x, rows)")
        arrays = tuple(np.asarray(array) for array in (data if isinstance(data, tuple) else (data,)))
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise ArgumentError(
                explain(
                    "FiniteSum.from_data: all arrays must have the same number of rows",
                    f"{sorted(lengths)} rows",
                    "Pass arrays of the same length",
                )
            )
        oracle = cls._from_kernel(_Data(component, arrays), lengths.pop())
        oracle.operator_price = float(oracle._n)
        oracle._blocks = _checked_blocks(sampling, block, shuffle, oracle._n)
        if oracle._blocks is not None and shuffle is not None:
            order = np.random.default_rng(shuffle).permutation(oracle._n)
            oracle._kernel = _Data(component, tuple(array[order] for array in arrays))
        return oracle

    @classmethod
    def rank_one(cls, u: Any, v: Any = None, targets: Any = None, *, instance: Any = None) -> FiniteSum:
        r"""The sum of :math:`F_i(x) = u_i (v_i^\top x - t_i)`, as in least squares (v = u, the default).

        Parameters
        ----------
        u, v : arrays of shape (n, d) or (instances, n, d)
            One row per component; with a leading axis, one set per instance.
        targets : array of shape (n,) or (instances, n), optional
            The t_i; zero if left out.
        instance : array of int, optional
            Which instance each row of a run uses; one each, in order, if left out.
        """
        u = _stacked(u, 2, "u")
        v = u if v is None else _stacked(v, 2, "v")
        targets = None if targets is None else _stacked(targets, 1, "targets")
        _same_shape(u=u, v=v)
        if targets is not None:
            _same_shape(u=u[..., 0], targets=targets)
        return cls._from_kernel(_RankOne(u, v, targets, _instances(u, instance)), u.shape[1])

    @classmethod
    def linear(cls, matrices: Any, offsets: Any = None, *, instance: Any = None) -> FiniteSum:
        r"""The sum of :math:`F_i(x) = A_i x - b_i`.

        Parameters
        ----------
        matrices : array of shape (n, d, d) or (instances, n, d, d)
            The A_i; with a leading axis, one set per instance.
        offsets : array of shape (n, d) or (instances, n, d), optional
            The b_i; zero if left out.
        instance : array of int, optional
            Which instance each row of a run uses; one each, in order, if left out.
        """
        matrices = _stacked(matrices, 3, "matrices")
        offsets = None if offsets is None else _stacked(offsets, 2, "offsets")
        if offsets is not None:
            _same_shape(matrices=matrices[..., 0], offsets=offsets)
        return cls._from_kernel(_Linear(matrices, offsets, _instances(matrices, instance)), matrices.shape[1])

    @classmethod
    def _from_kernel(cls, kernel: _Kernel, n: int) -> FiniteSum:
        oracle = cls.__new__(cls)
        oracle._set_size(n)
        oracle._kernel = kernel
        return oracle

    def _set_size(self, n: int) -> None:
        if not _is_int(n) or n < 1:
            raise ArgumentError(explain("FiniteSum: n must be an int >= 1", repr(n), "Pass the number of components"))
        self._n = self.components = int(n)

    def draw(self, streams: Streams, size: int) -> Batch:
        block = 1 if self._blocks is None else self._blocks.block
        if size > self._n:
            return Batch(size, _Counts(np.stack([_counts(rng, self._n, size, block) for rng in streams.generators()])))
        drawn = streams.integers(self._n, -(-size // block))
        return Batch(size, drawn if self._blocks is None else _Starts(drawn, block))

    def full_batch(self) -> Batch:
        return Batch(self._n, _FULL)

    def mean(self, x: Array, batch: Batch) -> Array:
        if batch.data is _FULL:
            return self._kernel.full(x)
        if isinstance(batch.data, _Counts):
            return self._kernel.weighted(x, batch.data.counts / batch.size)
        if isinstance(batch.data, _Starts):
            return self._kernel.mean_of_blocks(x, *batch.data, int(batch.size))
        return self._kernel.mean(x, batch.data)

    def operator(self, x: Array) -> Array:
        return self._kernel.whole(x)

    def recipe(self, rows: int) -> Recipe | None:
        return None if self._blocks is not None else self._kernel.recipe(rows)

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, value in sorted(vars(self._kernel).items()):
            if isinstance(value, np.ndarray):
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        blocks = {} if self._blocks is None else self._blocks._asdict()
        return {**super().describe(), "n": self._n, "data": digest.hexdigest()[:16], **blocks}

    def take(self, rows: Rows) -> Self:
        kernel = self._kernel.take(rows)
        if kernel is self._kernel:
            return self
        part = copy(self)
        part._kernel = kernel
        return part


class _Kernel:
    """How components are summed: over a list of indices, or over all n with weights."""

    n: int

    def mean(self, x: Array, indices: IntArray) -> Array:
        raise NotImplementedError

    def weighted(self, x: Array, weights: Array) -> Array:
        raise NotImplementedError

    def mean_of_blocks(self, x: Array, starts: IntArray, block: int, size: int) -> Array:
        """The mean over `size` components in blocks that begin at these starts."""
        raise NotImplementedError

    def full(self, x: Array) -> Array:
        """All with the same weight."""
        return self.weighted(x, np.full((x.shape[0], self.n), 1.0 / self.n))

    def whole(self, x: Array) -> Array:
        """The same for recording: here rows may be multiplied together."""
        return self.full(x)

    def recipe(self, rows: int) -> Recipe | None:
        return None

    def take(self, rows: Rows) -> _Kernel:
        return self


class _Components(_Kernel):
    """A user's component function, called for each row, with so many indices at a time that their values fit a tile."""

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        self._component, self.n = component, n

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = tile_rows(8 * x.shape[1])

        def mean(row: int) -> Array:
            parts = ((indices[row, span],) for span in spans(indices.shape[1], length))
            return _mean(self._component, x[row], parts, indices.shape[1])

        return each_row(mean, x, "FiniteSum: component")

    def weighted(self, x: Array, weights: Array) -> Array:
        length = tile_rows(8 * x.shape[1])

        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            parts = ((used[span],) for span in spans(used.size, length))
            return _weighted(self._component, x[row], parts, weights[row, used])

        return each_row(total, x, "FiniteSum: component")


class _Data(_Kernel):
    """A user's function of data rows, called for each row of a run with a tile of them at a time."""

    def __init__(self, component: Callable[..., Any], tables: tuple[Array, ...]) -> None:
        self._component, self._tables = component, tables
        self.n, self._bytes = len(tables[0]), row_bytes(*tables)

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = self._tile(x)

        def mean(row: int) -> Array:
            if indices.shape[1] <= length:
                tile = tuple(rows_at(table, indices[row]) for table in self._tables)
                return _mean(self._component, x[row], (tile,), indices.shape[1])
            tiles = scattered(self._tables, np.sort(indices[row]), length)  # neighbours are read faster
            return _mean(self._component, x[row], tiles, indices.shape[1])

        return each_row(mean, x, "FiniteSum: component")

    def mean_of_blocks(self, x: Array, starts: IntArray, block: int, size: int) -> Array:
        length = self._tile(x)

        def mean(row: int) -> Array:
            return _mean(self._component, x[row], windows(self._tables, starts[row], size, block, length), size)

        return each_row(mean, x, "FiniteSum: component")

    def weighted(self, x: Array, weights: Array) -> Array:
        length = self._tile(x)

        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            return _weighted(self._component, x[row], scattered(self._tables, used, length), weights[row, used])

        return each_row(total, x, "FiniteSum: component")

    def full(self, x: Array) -> Array:
        return self.mean_of_blocks(x, np.zeros((x.shape[0], 1), np.int64), self.n, self.n)  # one block of all rows

    def _tile(self, x: Array) -> int:
        return tile_rows(max(self._bytes, 8 * x.shape[1]))


def _mean(component: Callable[..., Any], x: Array, parts: Iterable[tuple[Array, ...]], count: int) -> Array:
    total = _nothing(x)
    for part in parts:
        total = total + _sum(_values(component, x, part))
    return total / count


def _weighted(component: Callable[..., Any], x: Array, parts: Iterable[tuple[Array, ...]], weights: Array) -> Array:
    total, start = _nothing(x), 0
    for part in parts:
        values = _values(component, x, part)
        some = weights[start : start + len(values)]
        total = total + (some if isinstance(x, np.ndarray) else arrays.like(some, x)) @ values
        start += len(values)
    return total


def _nothing(x: Array) -> Array:
    """A sum of no values: on the host in double precision."""
    return np.zeros(x.size) if isinstance(x, np.ndarray) else arrays.zeros_like(x)


def _sum(values: Array) -> Array:
    """Groups of rows in the precision of the values (single at least), the groups in double precision."""
    if not isinstance(values, np.ndarray):
        return arrays.namespace(values).sum(values, axis=0)
    dtype = np.result_type(values.dtype, np.float32)
    if len(values) <= _GROUP:
        return values.sum(axis=0, dtype=dtype)
    values, ones = values.astype(dtype, copy=False), np.ones(_GROUP, dtype)
    rest = len(values) % _GROUP
    groups = ones @ values[: len(values) - rest].reshape(-1, _GROUP, values.shape[1])  # faster than `sum`
    return groups.sum(axis=0, dtype=np.result_type(dtype, np.float64)) + ones[:rest] @ values[len(values) - rest :]


def _values(component: Callable[..., Any], x: Array, part: tuple[Array, ...]) -> Array:
    if isinstance(x, np.ndarray):
        values = arrays.to_host(component(x.copy(), *part))
    else:
        values = arrays.settled(component(arrays.copy(x), *(rows.copy() for rows in part)), x)
    shape = (len(part[0]), x.shape[0])
    if tuple(values.shape) != shape:
        raise OracleError(
            f"FiniteSum: component must return shape {shape}, one row per index",
            f"shape {tuple(values.shape)}",
            "Compute with all the rows of data that it is given, and return one vector for each",
        )
    return values


class _RankOne(_Kernel):
    """u_i (v_i' x - t_i): two products with the gathered rows."""

    def __init__(self, u: Array, v: Array, targets: Array | None, instance: IntArray | None) -> None:
        self._u, self._v, self._targets, self._instance = u, v, targets, instance
        self.n = u.shape[1]
        self._known: dict[int | str, Any] = {}  # found out once, and shared by all selections of rows

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = tile_rows(8 * x.shape[1])
        if indices.shape[1] > length:
            return self._mean_in_tiles(x, indices, length)
        u = _gather(self._u, self._instance, indices)
        v = u if self._v is self._u else _gather(self._v, self._instance, indices)
        if indices.shape[1] == 1:
            inner = np.einsum("ij,ij->i", v[:, 0], x)[:, None]
            if self._targets is not None:
                inner -= _gather(self._targets, self._instance, indices)
            return inner * u[:, 0]
        inner = np.matmul(v, x[:, :, None])[:, :, 0]
        if self._targets is not None:
            inner -= _gather(self._targets, self._instance, indices)
        inner /= indices.shape[1]
        return np.matmul(inner[:, None, :], u)[:, 0]

    def _mean_in_tiles(self, x: Array, indices: IntArray, length: int) -> Array:
        tables = [self._u] if self._v is self._u else [self._u, self._v]
        if self._targets is not None:
            tables.append(self._targets)
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            total = np.zeros(x.shape[1])
            for u, *others in scattered([table[at] for table in tables], np.sort(indices[row]), length):
                u = u.astype(np.result_type(u, x), copy=False)  # once for both products
                inner = (u if self._v is self._u else others[0]) @ x[row]
                if self._targets is not None:
                    inner -= others[-1]
                total += inner @ u
            out[row] = total / indices.shape[1]
        return out

    def weighted(self, x: Array, weights: Array) -> Array:
        out = np.zeros_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            for span in _converted(self._v[at], x):
                inner = self._v[at, span] @ x[row]
                if self._targets is not None:
                    inner = inner - self._targets[at, span]
                out[row] += (weights[row, span] * inner) @ self._u[at, span]
        return out

    def whole(self, x: Array) -> Array:
        out = np.zeros_like(x)
        instance = np.zeros(len(x), int) if self._instance is None else self._instance
        for at in np.unique(instance):
            rows = instance == at
            if self._small:
                out[rows] = x[rows] @ self._mean_matrix(at)
                continue
            for span in _converted(self._v[at], x):
                inner = x[rows] @ self._v[at, span].T
                if self._targets is not None:
                    inner -= self._targets[at, span]
                inner /= self.n
                out[rows] += inner @ self._u[at, span]
        return out

    @property
    def _small(self) -> bool:
        """Whether the mean of all u v' takes less memory than they do, and less time."""
        n, d = self._u.shape[1:]
        return self._targets is None and d <= 2 * n and d <= _MATRIX

    def _mean_matrix(self, at: int) -> Array:
        if at not in self._known:
            self._known[at] = self._v[at].T @ self._u[at] / self.n
        return self._known[at]

    @property
    def _finite(self) -> bool:
        """Whether all data are numbers: compiled steps could not tell a defect from divergence."""
        if "finite" not in self._known:
            self._known["finite"] = bool(np.isfinite(self._u).all())
        return self._known["finite"]

    def recipe(self, rows: int) -> Recipe | None:
        if self._v is not self._u or self._targets is not None or self._u.dtype != np.float64 or not self._finite:
            return None
        which = np.zeros(rows, np.int64) if self._instance is None else self._instance
        return Recipe("rank-one", self._u, which, components=self.n)

    def take(self, rows: Rows) -> _Kernel:
        if self._instance is None:
            return self
        part = _RankOne(self._u, self._v, self._targets, self._instance[rows])
        part._known = self._known
        return part


class _Linear(_Kernel):
    """A_i x - b_i: the mean matrix of the batch is applied."""

    def __init__(self, matrices: Array, offsets: Array | None, instance: IntArray | None) -> None:
        self._matrices, self._offsets, self._instance = matrices, offsets, instance
        self.n = matrices.shape[1]

    def mean(self, x: Array, indices: IntArray) -> Array:
        length = tile_rows(row_bytes(self._matrices[0]))
        if indices.shape[1] > length:
            return self._mean_in_tiles(x, indices, length)
        A = _gather(self._matrices, self._instance, indices).mean(axis=1)
        value: Array = np.matmul(A, x[:, :, None])[:, :, 0]
        if self._offsets is not None:
            value -= _gather(self._offsets, self._instance, indices).mean(axis=1)
        return value

    def _mean_in_tiles(self, x: Array, indices: IntArray, length: int) -> Array:
        tables = [self._matrices] if self._offsets is None else [self._matrices, self._offsets]
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            A, b = np.zeros(self._matrices.shape[2:]), np.zeros(x.shape[1])
            for matrices, *offsets in scattered([table[at] for table in tables], np.sort(indices[row]), length):
                A += matrices.sum(axis=0)
                if offsets:
                    b += offsets[0].sum(axis=0)
            out[row] = (A @ x[row] - b) / indices.shape[1]
        return out

    def weighted(self, x: Array, weights: Array) -> Array:
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            A = sum(
                np.tensordot(weights[row, span], self._matrices[at, span], axes=1)
                for span in _converted(self._matrices[at], x)
            )
            value = A @ x[row]
            if self._offsets is not None:
                value -= weights[row] @ self._offsets[at]
            out[row] = value
        return out

    def take(self, rows: Rows) -> _Kernel:
        if self._instance is None:
            return self
        return _Linear(self._matrices, self._offsets, self._instance[rows])


def _gather(table: Array, instance: IntArray | None, indices: IntArray) -> Array:
    """The rows of the table that each row of the run asks for: (rows, B, ...)."""
    return rows_at(table[0], indices) if instance is None else table[instance[:, None], indices]


def _converted(table: Array, x: Array) -> Iterable[slice]:
    """All of the table at once, or in tiles where a product with x makes a copy of it in another precision."""
    return (slice(None),) if table.dtype == x.dtype else spans(len(table), tile_rows(row_bytes(table)))


def _counts(rng: np.random.Generator, n: int, size: int, block: int) -> IntArray:
    """How often each of n components is in a batch of blocks."""
    blocks, rest = divmod(size, block)
    counts = rng.multinomial(blocks, np.full(n, 1.0 / n))
    if block > 1:
        sums = np.cumsum(np.concatenate([[0], counts[n - block + 1 :], counts]))
        counts = sums[block:] - sums[:-block]  # a row is in the blocks that start at it or up to block - 1 before
        counts[(rng.integers(n) + np.arange(rest)) % n] += 1
    return counts


def _checked_blocks(sampling: str, block: int | None, shuffle: int | None, n: int) -> _Blocks | None:
    if sampling not in ("rows", "blocks"):
        raise ArgumentError(
            explain("FiniteSum.from_data: sampling must be 'rows' or 'blocks'", repr(sampling), "Choose one of them")
        )
    if sampling == "rows":
        if block is not None:
            raise ArgumentError(
                explain(
                    "FiniteSum.from_data: block goes with sampling='blocks'",
                    f"block={block!r} with sampling='rows'",
                    "Pass sampling='blocks' as well, or leave block out",
                )
            )
        return None
    block = _BLOCK if block is None else block
    if not _is_int(block) or not 1 <= block <= n:
        raise ArgumentError(
            explain(
                f"FiniteSum.from_data: block must be an int from 1 to the number of rows, {n}",
                repr(block),
                "Use at most a hundredth of the rows, or sampling='rows'",
            )
        )
    if shuffle is not None and (not _is_int(shuffle) or shuffle < 0):
        raise ArgumentError(
            explain(
                "FiniteSum.from_data: shuffle must be an int >= 0 or None",
                repr(shuffle),
                "Pass a seed, or None for data in random order",
            )
        )
    return _Blocks(int(block), None if shuffle is None else int(shuffle))


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _stacked(value: Any, ndim: int, name: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise ArgumentTypeError(
            explain(f"FiniteSum: {name} must be real numbers", f"dtype {array.dtype}", "Pass floats")
        )
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if array.ndim not in (ndim, ndim + 1):
        raise ArgumentError(
            explain(
                f"FiniteSum: {name} must have {ndim} axes, or {ndim + 1} with one set per instance",
                f"shape {array.shape}",
                "Reshape it",
            )
        )
    return array[None] if array.ndim == ndim else array


def _same_shape(**arrays: Array) -> None:
    (first, a), (second, b) = arrays.items()
    if a.shape != b.shape:
        raise ArgumentError(
            explain(
                f"FiniteSum: {second} must go with {first}",
                f"shapes {b.shape} and {a.shape}",
                "Check the sizes",
            )
        )


def _instances(table: Array, instance: Any) -> IntArray | None:
    if instance is not None:
        return np.asarray(instance, dtype=np.int64)
    return None if table.shape[0] == 1 else np.arange(table.shape[0])
