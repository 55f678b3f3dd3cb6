"""A mean of n component operators, sampled by index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, explain
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.each_row import each_row, require_callable

_BLOCK = 4096  # components evaluated at a time in a full pass


class _Counts(NamedTuple):
    """How often each component is in the batch, per row: (rows, n), for batches larger than n."""

    counts: IntArray


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

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        require_callable(component, "FiniteSum: component", "component(x, i)")
        self._set_size(n)
        self._kernel: _Kernel = _Components(component, self._n)
        self.operator_price = float(self._n)

    @classmethod
    def from_data(cls, data: Any, component: Callable[..., Any]) -> FiniteSum:
        """A finite sum over the rows of a data set.

        Parameters
        ----------
        data : array or tuple of arrays
            Arrays with the same number n of rows.
        component : callable
            `component(x, rows)`, or `component(x, rows_1, rows_2, ...)` for a tuple: the values for B data rows,
            shape (B, d).

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
        return cls(lambda x, i: component(x, *(array[i] for array in arrays)), lengths.pop())

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
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise ArgumentError(explain("FiniteSum: n must be an int >= 1", repr(n), "Pass the number of components"))
        self._n = self.components = int(n)

    def draw(self, streams: Streams, size: int) -> Batch:
        if size <= self._n:
            return Batch(size, streams.integers(self._n, size))
        even = np.full(self._n, 1.0 / self._n)
        counts = np.stack([rng.multinomial(size, even) for rng in streams.generators()])
        return Batch(size, _Counts(counts))

    def full_batch(self) -> Batch:
        return Batch(self._n, _FULL)

    def mean(self, x: Array, batch: Batch) -> Array:
        if batch.data is _FULL:
            return self._kernel.weighted(x, np.full((x.shape[0], self._n), 1.0 / self._n))
        if isinstance(batch.data, _Counts):
            return self._kernel.weighted(x, batch.data.counts / batch.size)
        return self._kernel.mean(x, batch.data)

    def operator(self, x: Array) -> Array:
        return self._kernel.whole(x)

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, value in sorted(vars(self._kernel).items()):
            if isinstance(value, np.ndarray):
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return {**super().describe(), "n": self._n, "data": digest.hexdigest()[:16]}

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

    def whole(self, x: Array) -> Array:
        """All with the same weight, for recording: here rows may be multiplied together."""
        return self.weighted(x, np.full((x.shape[0], self.n), 1.0 / self.n))

    def take(self, rows: Rows) -> _Kernel:
        return self


class _Components(_Kernel):
    """A user's component function, called once per row."""

    def __init__(self, component: Callable[[Array, IntArray], Any], n: int) -> None:
        self._component, self.n = component, n

    def mean(self, x: Array, indices: IntArray) -> Array:
        return each_row(lambda row: self._values(x[row], indices[row]).mean(axis=0), x, "FiniteSum: component")

    def weighted(self, x: Array, weights: Array) -> Array:
        def total(row: int) -> Array:
            used = np.flatnonzero(weights[row])
            value = np.zeros(x.shape[1]) if isinstance(x, np.ndarray) else arrays.zeros_like(x[row])
            for start in range(0, used.size, _BLOCK):
                some = used[start : start + _BLOCK]
                parts = weights[row, some]
                value += (parts if isinstance(x, np.ndarray) else arrays.like(parts, x)) @ self._values(x[row], some)
            return value

        return each_row(total, x, "FiniteSum: component")

    def _values(self, x: Array, indices: IntArray) -> Array:
        if isinstance(x, np.ndarray):
            values = arrays.to_host(self._component(x.copy(), indices))
        else:
            values = arrays.settled(self._component(arrays.copy(x), indices.copy()), x)
        wanted = (indices.size, x.shape[0])
        if tuple(values.shape) != wanted:
            raise ValueError(
                f"component(x, i) must return shape {wanted}, one row per index, not {tuple(values.shape)}"
            )
        return values


class _RankOne(_Kernel):
    """u_i (v_i' x - t_i): two products with the gathered rows."""

    def __init__(self, u: Array, v: Array, targets: Array | None, instance: IntArray | None) -> None:
        self._u, self._v, self._targets, self._instance = u, v, targets, instance
        self.n = u.shape[1]

    def mean(self, x: Array, indices: IntArray) -> Array:
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

    def weighted(self, x: Array, weights: Array) -> Array:
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            inner = self._v[at] @ x[row]
            if self._targets is not None:
                inner = inner - self._targets[at]
            out[row] = (weights[row] * inner) @ self._u[at]
        return out

    def whole(self, x: Array) -> Array:
        out = np.empty_like(x)
        instance = np.zeros(len(x), int) if self._instance is None else self._instance
        for at in np.unique(instance):
            rows = instance == at
            inner = x[rows] @ self._v[at].T
            if self._targets is not None:
                inner -= self._targets[at]
            inner /= self.n
            out[rows] = inner @ self._u[at]
        return out

    def take(self, rows: Rows) -> _Kernel:
        if self._instance is None:
            return self
        return _RankOne(self._u, self._v, self._targets, self._instance[rows])


class _Linear(_Kernel):
    """A_i x - b_i: the mean matrix of the batch is applied."""

    def __init__(self, matrices: Array, offsets: Array | None, instance: IntArray | None) -> None:
        self._matrices, self._offsets, self._instance = matrices, offsets, instance
        self.n = matrices.shape[1]

    def mean(self, x: Array, indices: IntArray) -> Array:
        A = _gather(self._matrices, self._instance, indices).mean(axis=1)
        value: Array = np.matmul(A, x[:, :, None])[:, :, 0]
        if self._offsets is not None:
            value -= _gather(self._offsets, self._instance, indices).mean(axis=1)
        return value

    def weighted(self, x: Array, weights: Array) -> Array:
        out = np.empty_like(x)
        for row in range(x.shape[0]):
            at = 0 if self._instance is None else self._instance[row]
            value = np.tensordot(weights[row], self._matrices[at], axes=1) @ x[row]
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
    return table[0][indices] if instance is None else table[instance[:, None], indices]


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
