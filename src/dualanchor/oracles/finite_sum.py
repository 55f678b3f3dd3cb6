"""A mean of n component operators, sampled by index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Batch, Oracle, Recipe
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.each_row import require_callable
from dualanchor.oracles.kernels import Components, Data, Kernel, Linear, RankOne

_BLOCK = 256  # rows that are drawn together, if rows are drawn in blocks


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

    knows_operator = True
    rowwise = True  # what is multiplied is multiplied row by row
    _blocks: _Blocks | None = None  # None: rows are drawn one by one

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        require_callable(component, "FiniteSum: component", "component(x, i)")
        self._set_size(n)
        self._kernel: Kernel = Components(component, self._n)
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
                "FiniteSum.from_data: all arrays must have the same number of rows",
                f"{sorted(lengths)} rows",
                "Pass arrays of the same length",
            )
        oracle = cls._from_kernel(Data(component, arrays), lengths.pop())
        oracle.operator_price = float(oracle._n)
        oracle._blocks = _checked_blocks(sampling, block, shuffle, oracle._n)
        if oracle._blocks is not None and shuffle is not None:
            order = np.random.default_rng(shuffle).permutation(oracle._n)
            oracle._kernel = Data(component, tuple(array[order] for array in arrays))
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
        return cls._from_kernel(RankOne(u, v, targets, _instances(u, instance)), u.shape[1], u.shape[2])

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
        kernel = Linear(matrices, offsets, _instances(matrices, instance))
        return cls._from_kernel(kernel, matrices.shape[1], matrices.shape[-1])

    @classmethod
    def _from_kernel(cls, kernel: Kernel, n: int, dimension: int | None = None) -> FiniteSum:
        oracle = cls.__new__(cls)
        oracle._set_size(n)
        oracle._kernel, oracle.dimension = kernel, dimension
        return oracle

    def _set_size(self, n: int) -> None:
        if not _is_int(n) or n < 1:
            raise ArgumentError("FiniteSum: n must be an int >= 1", repr(n), "Pass the number of components")
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

    def __repr__(self) -> str:
        return f"FiniteSum(n={self._n}" + (")" if self.dimension is None else f", d={self.dimension})")

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
            "FiniteSum.from_data: sampling must be 'rows' or 'blocks'", repr(sampling), "Choose one of them"
        )
    if sampling == "rows":
        if block is not None:
            raise ArgumentError(
                "FiniteSum.from_data: block goes with sampling='blocks'",
                f"block={block!r} with sampling='rows'",
                "Pass sampling='blocks' as well, or leave block out",
            )
        return None
    block = _BLOCK if block is None else block
    if not _is_int(block) or not 1 <= block <= n:
        raise ArgumentError(
            f"FiniteSum.from_data: block must be an int from 1 to the number of rows, {n}",
            repr(block),
            "Use at most a hundredth of the rows, or sampling='rows'",
        )
    if shuffle is not None and (not _is_int(shuffle) or shuffle < 0):
        raise ArgumentError(
            "FiniteSum.from_data: shuffle must be an int >= 0 or None",
            repr(shuffle),
            "Pass a seed, or None for data in random order",
        )
    return _Blocks(int(block), None if shuffle is None else int(shuffle))


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _stacked(value: Any, ndim: int, name: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise ArgumentTypeError(f"FiniteSum: {name} must be real numbers", f"dtype {array.dtype}", "Pass floats")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if array.ndim not in (ndim, ndim + 1):
        raise ArgumentError(
            f"FiniteSum: {name} must have {ndim} axes, or {ndim + 1} with one set per instance",
            f"shape {array.shape}",
            "Reshape it",
        )
    return array[None] if array.ndim == ndim else array


def _same_shape(**arrays: Array) -> None:
    (first, a), (second, b) = arrays.items()
    if a.shape != b.shape:
        raise ArgumentError(
            f"FiniteSum: {second} must go with {first}", f"shapes {b.shape} and {a.shape}", "Check the sizes"
        )


def _instances(table: Array, instance: Any) -> IntArray | None:
    if instance is not None:
        return np.asarray(instance, dtype=np.int64)
    return None if table.shape[0] == 1 else np.arange(table.shape[0])
