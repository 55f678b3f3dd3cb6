"""A mean of n component operators, sampled by index."""

import hashlib
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.problem import as_reals
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.kernels import Components, Kernel, Linear, RankOne

_BLOCK = 256  # default number of data rows in a block


class ComponentCounts(NamedTuple):
    """The data of a batch larger than n: how often each component was drawn, (rows, n)."""

    counts: IntArray


class BlockStarts(NamedTuple):
    """The data of a batch of blocks: the first component of each, (rows, number of blocks), and their length."""

    starts: IntArray
    block: int


class FiniteSum(Oracle):
    r"""A finite sum :math:`F(x) = \frac1n \sum_i F_i(x)`, sampled by component with replacement.

    A batch is a list of indices, so it can be evaluated at two points; a batch larger than n is drawn as
    multinomial counts; a full pass is a batch of size n that needs no draws.

    Parameters
    ----------
    component : callable
        `component(x, i)` for one point x (d,) and an array i of B indices: the B values :math:`F_i(x)`, shape (B, d).
    n : int, number of components

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

    independent_samples = True
    rowwise = True  # products are computed row by row
    _block: int | None = None  # length of the blocks that are drawn; None: components are drawn one by one
    _shuffle: int | None = None  # the seed of the shuffle of the data rows

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        check.function(component, "FiniteSum: component", "component(x, i)")
        self._set(Components(component, check.count(n, "FiniteSum: n", remedy="Pass the number of components")))

    @classmethod
    def from_data(
        cls,
        data: Any,
        component: Callable[..., Any],
        *,
        sampling: str = "rows",
        block: int | None = None,
        shuffle: int | None = 0,
    ) -> Self:
        r"""A finite sum over the rows of a data set.

        Parameters
        ----------
        data : array or tuple of arrays with the same number n of rows
        component : callable
            `component(x, rows)`, or `component(x, rows_1, rows_2, ...)` for a tuple: the values for m data rows,
            shape (m, d). A large batch is passed in tiles; the rows are valid during the call only.
        sampling : {"rows", "blocks"}, rows one by one, or blocks of neighbouring rows, which are read much faster
        block : int, rows of a block, at most n; 256 if left out
        shuffle : int or None
            For blocks: the seed with which a copy of the rows is shuffled once. None: no shuffle, for data that is
            already in random order.

        Notes
        -----
        A batch of B consists of blocks that begin at uniformly drawn rows; the last one is cut. Averaged over shuffles,
        the variance of a mean of B rows is at most :math:`\sigma^2/B` (docs/finite_sums.md); without a shuffle it can
        be `block` times as large. Use at least 100 blocks.

        Examples
        --------
        >>> import numpy as np, dualanchor as da
        >>> A, b = np.eye(4), np.arange(4.0)
        >>> least_squares = lambda x, a, t: a * (a @ x - t)[:, None]
        >>> da.FiniteSum.from_data((A, b), least_squares).operator(np.zeros((1, 4)))
        array([[ 0.  , -0.25, -0.5 , -0.75]])
        """
        check.function(component, "FiniteSum.from_data: component", "component(x, rows)")
        arrays = tuple(np.atleast_1d(array) for array in (data if isinstance(data, tuple) else (data,)))
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            rule = "FiniteSum.from_data: all arrays must have the same number of rows"
            raise ArgumentError(rule, f"{sorted(lengths)} rows", "Pass arrays of the same length")
        n = lengths.pop()
        block, shuffle = _block_sampling(sampling, block, shuffle, n)
        if shuffle is not None:
            order = np.random.default_rng(shuffle).permutation(n)
            arrays = tuple(array[order] for array in arrays)
        oracle = cls.__new__(cls)._set(Components(component, n, arrays))
        oracle._block, oracle._shuffle = block, shuffle
        oracle.independent_samples = block is None  # neighbours in a block are not drawn independently
        return oracle

    @classmethod
    def rank_one(cls, u: Any, v: Any = None, targets: Any = None, *, instance: Any = None) -> Self:
        r"""The sum of :math:`F_i(x) = u_i (v_i^\top x - t_i)`, as in least squares (v = u, the default).

        Parameters
        ----------
        u, v : arrays of shape (n, d) or, with one set per instance, (instances, n, d)
        targets : array of shape (n,) or (instances, n), the t_i; zero if left out
        instance : array of int, the instance of each row of a run; row i uses instance i if left out
        """
        u = _stacked(u, 2, "u")
        v = u if v is None else _stacked(v, 2, "v", u=u)
        targets = None if targets is None else _stacked(targets, 1, "targets", u=u[..., 0])
        return cls.__new__(cls)._set(RankOne(u, v, targets, _instances(u, instance)), u.shape[2])

    @classmethod
    def linear(cls, matrices: Any, offsets: Any = None, *, instance: Any = None) -> Self:
        r"""The sum of :math:`F_i(x) = A_i x - b_i`.

        Parameters
        ----------
        matrices : array of shape (n, d, d) or, with one set per instance, (instances, n, d, d), the A_i
        offsets : array of shape (n, d) or (instances, n, d), the b_i; zero if left out
        instance : array of int, the instance of each row of a run; row i uses instance i if left out
        """
        matrices = _stacked(matrices, 3, "matrices")
        if matrices.shape[-2] != matrices.shape[-1]:
            raise ArgumentError("FiniteSum: matrices must be square", f"shape {matrices.shape[-2:]}", "Check the sizes")
        offsets = None if offsets is None else _stacked(offsets, 2, "offsets", matrices=matrices[..., 0])
        return cls.__new__(cls)._set(Linear(matrices, offsets, _instances(matrices, instance)), matrices.shape[-1])

    def _set(self, kernel: Kernel, dimension: int | None = None) -> Self:
        self._kernel, self.dimension = kernel, dimension
        self.components = check.count(kernel.n, "FiniteSum: n", remedy="Pass at least one component")
        if isinstance(kernel, Components):  # F calls the user's function for all components
            self.operator_price = float(kernel.n)
        return self

    def draw(self, streams: Streams, size: int) -> Batch:
        return draw_components(streams, self._kernel.n, size, self._block)

    def full_batch(self) -> Batch:
        return Batch(self._kernel.n, None)

    def mean(self, x: Array, batch: Batch) -> Array:
        if batch.data is None:
            return self._kernel.full(x)
        if isinstance(batch.data, ComponentCounts):
            return self._kernel.weighted(x, batch.data.counts / batch.size)
        if isinstance(batch.data, BlockStarts):
            assert isinstance(self._kernel, Components)
            return self._kernel.mean_of_blocks(x, *batch.data, int(batch.size))
        return self._kernel.mean(x, batch.data)

    def component_values(self, x: Array, indices: IntArray) -> Array:
        return self._kernel.values(x, indices)

    def operator(self, x: Array) -> Array:
        return self._kernel.operator(x)

    def __repr__(self) -> str:
        return f"FiniteSum(n={self.components}" + (")" if self.dimension is None else f", d={self.dimension})")

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, value in sorted(vars(self._kernel).items()):
            if isinstance(value, np.ndarray):
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        blocks = {} if self._block is None else {"block": self._block, "shuffle": self._shuffle}
        return {**super().describe(), "n": self.components, "data": digest.hexdigest()[:16], **blocks}

    def take(self, rows: Rows) -> Self:
        part = copy(self)
        part._kernel = self._kernel.take(rows)
        return self if part._kernel is self._kernel else part


def draw_components(streams: Streams, n: int, size: int, block: int | None = None) -> Batch:
    """Draw `size` of n components with replacement, one by one or in blocks of neighbours."""
    if size > n:
        counts = [_counts(rng, n, size, block or 1) for rng in streams.generators()]
        return Batch(size, ComponentCounts(np.stack(counts)))
    drawn = streams.integers(n, -(-size // (block or 1)))
    return Batch(size, drawn if block is None else BlockStarts(drawn, block))


def _counts(rng: np.random.Generator, n: int, size: int, block: int) -> IntArray:
    """How often each component is among `size` that are drawn in blocks, (n,)."""
    blocks, remainder = divmod(size, block)
    counts = rng.multinomial(blocks, np.full(n, 1.0 / n))  # how many blocks begin at each component
    if block > 1:
        sums = np.cumsum(np.concatenate([[0], counts[n - block + 1 :], counts]))
        counts = sums[block:] - sums[:-block]  # a component is in the blocks that begin 0 to block - 1 before it
        counts[(rng.integers(n) + np.arange(remainder)) % n] += 1
    return counts


def _block_sampling(
    sampling: str, block: int | None, shuffle: int | None, n: int
) -> tuple[int, int | None] | tuple[None, None]:
    """The length of a block and the seed of the shuffle, checked; (None, None) for rows one by one."""
    owner = "FiniteSum.from_data"
    check.choice(sampling, f"{owner}: sampling", ("rows", "blocks"))
    if sampling == "rows":
        if block is not None:
            rule, received = f"{owner}: block goes with sampling='blocks'", f"block={block!r} with sampling='rows'"
            raise ArgumentError(rule, received, "Pass sampling='blocks' as well, or leave block out")
        return None, None
    remedy = "Use at most a hundredth of the rows, or sampling='rows'"
    block = check.count(_BLOCK if block is None else block, f"{owner}: block", most=n, remedy=remedy)
    if shuffle is not None:
        remedy = "Pass a seed, or None for data in random order"
        shuffle = check.count(shuffle, f"{owner}: shuffle", least=0, remedy=remedy)
    return block, shuffle


def _stacked(value: Any, ndim: int, name: str, **other: Array) -> Array:
    """A table with an axis of instances in front, checked to have the same shape as the other one; not copied."""
    is_table = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    array = value if is_table else as_reals(value)
    if array is None:
        raise ArgumentTypeError(f"FiniteSum: {name} must be real numbers", repr(value)[:80], "Pass floats")
    if array.ndim not in (ndim, ndim + 1):
        rule = f"FiniteSum: {name} must have {ndim} axes, or {ndim + 1} with one set per instance"
        raise ArgumentError(rule, f"shape {array.shape}", "Reshape it")
    array = array[None] if array.ndim == ndim else array
    for other_name, table in other.items():
        if table.shape != array.shape:
            received = f"shapes {array.shape} and {table.shape}"
            raise ArgumentError(f"FiniteSum: {name} must go with {other_name}", received, "Check the sizes")
    return array


def _instances(table: Array, instance: Any) -> IntArray | None:
    """The instance of each row; None if all rows share the only one."""
    if instance is not None:
        return np.array([check.count(i, "FiniteSum: instance", 0, most=len(table) - 1) for i in np.ravel(instance)])
    return None if table.shape[0] == 1 else np.arange(table.shape[0])
