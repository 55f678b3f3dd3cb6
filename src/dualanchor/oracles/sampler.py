"""A user's own function that samples F."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import OracleError
from dualanchor.core.nested import in_order_of, mapped, skeleton_and_leaves
from dualanchor.core.oracle import Batch
from dualanchor.core.session import Session
from dualanchor.core.streams import Streams, per_row
from dualanchor.core.types import Array
from dualanchor.oracles.shards import Shardable
from dualanchor.oracles.user_call import accepted, raised, takes_generator, taking_generator, torch_generator


class Sampler(Shardable):
    """Samples of F from a function: `sample(x, n, rng)` gives n independent samples at x, or their mean.

    A batch is the state of a generator. To evaluate the same samples at another point, the function is called with
    a generator in that state, so a function that takes all its randomness from `rng` is replayable.

    To find the step at which a row diverged or a call failed, a run may take up to 128 steps again with the same
    generators; these calls are not counted, and not made if `replayable` is False.

    Parameters
    ----------
    sample : callable
        `sample(x, n, rng)` for one point x of shape (d,), an int n and a `numpy.random.Generator`: the mean of n
        samples, shape (d,), or the samples themselves, shape (n, d). On tensors of PyTorch the third argument is a
        `torch.Generator` on their device if the parameter is called `generator`.
    replayable : bool, optional
        Whether the same generator state gives the same samples. A simulator with its own randomness is not
        replayable; only methods that need one batch at two points refuse it. If left out, this is found out when such
        a method starts, by drawing one sample twice (outside of the budget).
    vectorized : bool
        Whether `sample` takes all rows at once: `sample(x, n, rngs)` with x of shape (rows, d) and one
        generator per row; it must return means.
    shards : int, optional
        Number of parts of a batch, each with its own generator; results depend on it. If left out, 1, or what an
        engine asks for.
    shape : tuple of int, optional; the shape of the points that `sample` takes, if not (d,)
    args : tuple, passed to `sample` after the generator
    name : str, what error messages call the function

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return 2 * x + rng.normal(size=(n, x.size)).mean(axis=0)
    >>> problem = da.Problem(da.Sampler(sample), x0=[1.0, 1.0], constants=da.Constants(L=2.0))
    >>> da.solve(problem, "s-dual-ohm", budget=1000).nfev
    999
    """

    returns_new = False  # whether the function returns a newly allocated array, which need not be copied

    def __init__(
        self,
        sample: Callable[..., Any],
        *,
        replayable: bool | None = None,
        vectorized: bool = False,
        shards: int | None = None,
        shape: tuple[int, ...] | None = None,
        args: tuple[Any, ...] = (),
        name: str = "Sampler: sample",
    ) -> None:
        form = "(x, n, rng, *args)" if args else "(x, n, rng)"
        check.function(sample, name, f"{form}; da.each wraps a function of (x, rng)", 3 + len(args))
        self._function = sample
        self._vectorized = vectorized
        self._name = name
        with_generator = taking_generator(sample, 2)
        self._sample: Callable[..., Any] = with_generator
        if args:
            self._sample = lambda x, n, rng: with_generator(x, n, rng, *args)
        self._shape = None if shape is None or len(shape) == 1 else shape
        self._shards = None if shards is None else check.count(shards, "Sampler: shards")
        self.replayable = replayable

    @classmethod
    def from_single(cls, sample: Callable[[Array, np.random.Generator], Any], **options: Any) -> Sampler:
        """A sampler from a function of one sample: `sample(x, rng)`; a batch calls it n times."""
        return cls(each(sample), **options)

    def draw(self, streams: Streams, size: int) -> Batch:
        position = streams.position
        streams.position = position + 1
        return Batch(size, (streams.sources, position))

    def in_shards(self, shards: int) -> Self:
        if self._shards is not None:
            return self
        other = copy(self)
        other._shards = shards
        return other

    def cut(self, batch: Batch) -> int:
        return min(self._shards or 1, int(batch.size))

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        size, shards = int(batch.size), self.cut(batch)
        n = size // shards + (shard < size % shards)
        value = self.mean(x, batch, n, shard)
        if out is None or value.shape != out.shape or value.dtype != out.dtype:
            return value * (n / size)
        return np.multiply(value, n / size, out)

    def mean(self, x: Array, batch: Batch, n: Any = None, shard: int = 0) -> Array:
        """F_B(x), (rows, d), newly allocated; with n, the mean over one shard of the batch, which has n samples."""
        if n is None:
            if self._shards is not None:
                return super().mean(x, batch)
            n = batch.size
        sources, position = batch.data
        positions = [position] * len(sources) if type(position) is int else per_row(position, len(sources)).tolist()
        if self._vectorized:
            generators = [source.generator(at, shard) for source, at in zip(sources, positions, strict=True)]
            return self._all_rows(x, self._sample(arrays.user_copy(x), n, generators))
        sample, shape, dtype = self._sample, self._shape, x.dtype
        rows, d = x.shape
        foreign = type(x) is not np.ndarray and arrays.is_foreign(x)
        short = not foreign and d < arrays.LARGE
        expected = (d,) if shape is None else shape
        values: Any = [None] * rows if foreign else np.empty((rows, d), dtype)
        for row, source in enumerate(sources):
            point = x[row].copy() if short else arrays.user_copy(x[row])
            if shape is not None:
                point = point.reshape(shape)[()]
            try:
                value = sample(point, n, source.generator(positions[row], shard))
            except Exception as error:
                raise raised(error, self._name, row, x) from error
            if foreign or type(value) is not np.ndarray or value.dtype is not dtype or value.shape != expected:
                value = accepted(value, x, self._name, row, shape, n)
            values[row] = value if shape is None else value.reshape(-1)
        if not foreign:
            return values
        return values[0][None] if rows == 1 and self.returns_new else arrays.namespace(x).stack(values)

    def _all_rows(self, x: Array, value: Any) -> Array:
        """What a vectorized function returned; the Session checks library, shape and dtype."""
        if value is None:
            received = f"None for x of shape {tuple(x.shape)}"
            remedy = "Return the means over the samples, in the shape of x"
            raise OracleError(f"{self._name} must return one vector for each row", received, remedy)
        if arrays.is_foreign(x):
            return value
        value = arrays.to_host(value)
        return value.astype(x.dtype) if value.dtype.kind in "fiu" else value  # a copy, as of single rows

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "shards": self._shards or 1, "vectorized": self._vectorized}

    def __repr__(self) -> str:
        words = [getattr(self._function, "__name__", type(self._function).__name__)]
        words += ["vectorized=True"] if self._vectorized else []
        words += [] if self._shards is None else [f"shards={self._shards}"]
        return f"Sampler({', '.join(words)})"

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        if self.replayable is None:
            F = Session(self, streams)
            batch = F.draw(1)
            self.replayable = arrays.same(F(x, batch), F(x, batch))
        return self.replayable

    def is_noiseless(self, x: Array, streams: Streams) -> bool:
        """Whether one sample, drawn for this outside of the budget, left its generators in the state they were in."""
        generators = [source.generator(0).bit_generator for source in streams.sources]
        before = [repr(generator.state) for generator in generators]
        self.mean(x, Batch(1, (streams.sources, 0)), 1)
        return [repr(generator.state) for generator in generators] == before


def each(sample: Callable[[Array, np.random.Generator], Any]) -> Callable[[Array, int, np.random.Generator], Any]:
    """Wrap a function of one sample: `each(f)(x, n, rng)` is the mean of n calls of `f(x, rng)`, also of trees.

    With tensors, `f(x, generator)` gets a `torch.Generator`; with JAX arrays, `f(x, key)` gets a key.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, rng):
    ...     return x - rng.exponential(size=2)
    >>> result = da.root(da.each(sample), x0=np.zeros(2), budget=5000, L=1.0)
    >>> bool(np.abs(result.x - 1).max() < 0.2)
    True
    """
    check.function(sample, "each: sample", "(x, rng)", 2)
    of_torch = takes_generator(sample, 1)

    def mean(x: Array, n: int, rng: Any, *args: Any) -> Any:
        if arrays.is_jax(rng):
            from dualanchor.oracles.jax_function import mean_of_each

            return mean_of_each(sample, x, n, rng, *args)
        if of_torch and isinstance(rng, np.random.Generator):
            rng = torch_generator(rng, x)
        if isinstance(x, (Mapping, list, tuple)):
            return _mean_of_trees(lambda: sample(x, rng, *args), n, x)
        total = _summed(sample(x, rng, *args), x)
        for _ in range(n - 1):
            total = total + sample(x, rng, *args)
        return total / n

    return mean


def _mean_of_trees(draw: Callable[[], Any], n: int, x: Any) -> Any:
    """The mean of n trees like x, leaf by leaf; a value of another form is returned, for the caller to refuse."""
    skeleton, points = skeleton_and_leaves(x)
    total: list[Any] = []
    for _ in range(n):
        value = draw()
        form, leaves = skeleton_and_leaves(in_order_of(skeleton, value))
        if form != skeleton:
            return value
        if total:
            total = [a + b for a, b in zip(total, leaves, strict=True)]
        else:
            total = [_summed(leaf, point) for leaf, point in zip(leaves, points, strict=True)]
    means = (leaf / n for leaf in total)
    return mapped(lambda _: next(means), skeleton)


def _summed(value: Any, x: Any) -> Any:
    """The first of several samples at x, to which others are added: if x is of NumPy, as an array of floats."""
    return value if arrays.is_foreign(x) else np.asarray(value, dtype=np.result_type(x, np.float32))
