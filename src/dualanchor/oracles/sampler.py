"""A user's own function that samples F."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.oracle import Batch, Session
from dualanchor.core.streams import Handle, Streams
from dualanchor.core.types import Array
from dualanchor.oracles.each_row import each_row, require_callable
from dualanchor.oracles.shards import Shardable


class Sampler(Shardable):
    """Samples of F from a function: `sample(x, n, rng)` is the mean of n independent samples at x.

    A batch is the state of a generator. The same samples are had at another point by calling the function with
    a generator in that state, so a function that takes all its randomness from `rng` is replayable.

    Parameters
    ----------
    sample : callable
        `sample(x, n, rng)` for one point x of shape (d,), an int n and a `numpy.random.Generator`.
    replayable : bool, optional
        Whether the same generator state gives the same samples. A simulator with randomness of its own is
        not; that is legal, and only methods that need one batch at two points refuse it. Not declared, it is found
        out when such a method starts, by asking for one sample twice (outside of the budget).
    vectorized : bool
        Whether `sample` takes all rows at once: `sample(x, n, rngs)` with x of shape (rows, d) and one
        generator per row.
    shards : int, optional
        Into how many parts a batch is cut, each with a generator of its own. Results depend on it. 1 if left out, or
        what an engine asks for.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return 2 * x + rng.normal(size=(n, x.size)).mean(axis=0)
    >>> problem = da.Problem(da.Sampler(sample), x0=[1.0, 1.0], constants=da.Constants(L=2.0))
    >>> da.solve(problem, "s-dual-ohm", budget=1000).nfev
    999
    """

    def __init__(
        self,
        sample: Callable[..., Any],
        *,
        replayable: bool | None = None,
        vectorized: bool = False,
        shards: int | None = None,
    ) -> None:
        require_callable(sample, "Sampler: sample", "sample(x, n, rng)")
        _require_arguments(sample, 3, "Sampler: sample must accept (x, n, rng)", "use Sampler.from_single for (x, rng)")
        if shards is not None and (not isinstance(shards, int) or shards < 1):
            raise ArgumentError("Sampler: shards must be an int >= 1", repr(shards), "Use shards=1")
        self._sample, self._vectorized, self._shards = sample, vectorized, shards
        self.replayable = replayable

    @classmethod
    def from_single(cls, sample: Callable[[Array, np.random.Generator], Any], **options: Any) -> Sampler:
        """A sampler from a function of one sample: `sample(x, rng)`; a batch calls it n times."""
        require_callable(sample, "Sampler.from_single: sample", "sample(x, rng)")
        _require_arguments(sample, 2, "Sampler.from_single: sample must accept (x, rng)", "use Sampler for (x, n, rng)")

        def mean(x: Array, n: int, rng: np.random.Generator) -> Array:
            total = sample(x, rng)
            if not arrays.is_foreign(x):
                total = np.asarray(total, dtype=x.dtype)
            for _ in range(n - 1):
                total = total + sample(x, rng)
            return total / n

        return cls(mean, **options)

    def draw(self, streams: Streams, size: int) -> Batch:
        position = streams.position
        positions = [position] * streams.rows if isinstance(position, int) else position.tolist()
        return Batch(size, (streams.handles(), positions))

    def in_shards(self, shards: int) -> Self:
        """The same sampler with batches cut into so many shards, unless it was made with a number of its own."""
        if self._shards is not None:
            return self
        other = copy(self)
        other._shards = shards
        return other

    def cut(self, batch: Batch) -> int:
        return min(self._shards or 1, int(batch.size))

    def partial(self, x: Array, batch: Batch, shard: int, out: Array | None = None) -> Array:
        handles, positions = batch.data
        size, shards = int(batch.size), self.cut(batch)
        part = size // shards + (shard < size % shards)
        value = self._part(x, part, handles, positions, shard)
        if out is None or value.shape != out.shape or value.dtype != out.dtype:
            return value * (part / size)
        return np.multiply(value, part / size, out)

    def _part(self, x: Array, n: int, handles: list[Handle], positions: list[int], shard: int) -> Array:
        if self._vectorized:
            generators = [handle.generator(at, shard) for handle, at in zip(handles, positions, strict=True)]
            value = self._sample(arrays.lent(x), n, generators)
            if value is None:
                raise OracleError(
                    "Sampler: sample must return one vector for each row",
                    f"None for x of shape {tuple(x.shape)}",
                    "Return the means over the samples, in the shape of x",
                )
            return value if arrays.is_foreign(x) else _in_precision_of(x, arrays.to_host(value))
        return each_row(
            lambda row: self._sample(arrays.lent(x[row]), n, handles[row].generator(positions[row], shard)),
            x,
            "Sampler: sample",
        )

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "shards": self._shards or 1, "vectorized": self._vectorized}

    def __repr__(self) -> str:
        words = [getattr(self._sample, "__name__", type(self._sample).__name__)]
        words += ["vectorized=True"] if self._vectorized else []
        words += [] if self._shards is None else [f"shards={self._shards}"]
        return f"Sampler({', '.join(words)})"

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        if self.replayable is None:
            F = Session(self, streams)
            batch = F.draw(1)
            self.replayable = arrays.same(F(x, batch), F(x, batch))
        return self.replayable


def _in_precision_of(x: Array, value: Array) -> Array:
    """Real values in the precision of x, as one row at a time would be; others are left for the Session to refuse."""
    return value.astype(x.dtype, copy=False) if value.dtype.kind in "fiu" else value


def _require_arguments(function: Callable[..., Any], count: int, rule: str, remedy: str) -> None:
    """Raise if a function cannot be called with so many positional arguments, where that can be seen."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        raise ArgumentTypeError(rule, f"one with {signature}", f"Change it, or {remedy}") from error
