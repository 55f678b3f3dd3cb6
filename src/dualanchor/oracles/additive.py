"""A deterministic operator plus noise that does not depend on the point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.oracle import Batch, Oracle, Recipe
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, Rows
from dualanchor.oracles.each_row import each_row, require_callable, require_non_negative


class _Later(NamedTuple):
    """Noise that is so long that it is made when it is added, and not kept."""

    make: Callable[[], Array]
    scale: float

    def added_to(self, value: Array, in_place: bool, x: Array) -> Array:
        """Value plus noise, in the value's own array or in the noise's."""
        noise = self.make()
        noise *= self.scale
        if not isinstance(x, np.ndarray):
            return value + arrays.like(noise, x)
        target, other = (value, noise) if in_place else (noise, value)
        target += other
        return target


class AdditiveNoise(Oracle):
    r"""Samples :math:`\hat F(x; \xi) = F(x) + \xi` with noise independent of x.

    The noise is Gaussian with :math:`\mathbb E\|\xi\|^2 = \sigma^2`, that is variance :math:`\sigma^2/d` per
    coordinate, unless a sampler of its own is given. The mean of B Gaussian samples is drawn in one go, exact in
    law, and costs B.

    Parameters
    ----------
    operator : callable
        The deterministic F, `operator(x)` for one point of shape (d,).
    sigma : float
        Root mean square norm of the noise of one sample; 0 makes a noiseless oracle.
    noise : callable, optional
        `noise(n, rng)`: the mean of n independent noise vectors, instead of Gaussian noise.
    vectorized : bool
        Whether `operator` takes all rows at once, (rows, d) to (rows, d). Faster by far with many replications.

    Notes
    -----
    The noise is drawn by NumPy on the host and brought to the library and device of x, so the same seed gives the same
    numbers everywhere.

    An `operator` object with a method `take(rows)` is restricted with the rows of a run; that is how each
    replication gets an instance of its own. One with a method `with_noise(x, noise)` adds the noise itself.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> A = np.array([[1.0, 2.0], [-2.0, 1.0]])
    >>> oracle = da.AdditiveNoise(lambda x: A @ x, sigma=0.5)
    """

    knows_operator = True

    def __init__(
        self,
        operator: Callable[[Array], Any],
        sigma: float = 0.0,
        *,
        noise: Callable[[int, np.random.Generator], Any] | None = None,
        vectorized: bool = False,
    ) -> None:
        require_callable(operator, "AdditiveNoise: operator", "F(x)")
        require_non_negative(sigma, "AdditiveNoise: sigma")
        if noise is not None:
            require_callable(noise, "AdditiveNoise: noise", "noise(n, rng)")
        self._F, self._sigma, self._noise, self._vectorized = operator, float(sigma), noise, vectorized
        self._with_noise = getattr(operator, "with_noise", None)
        self.mixed_sizes = noise is None
        self.rowwise = not vectorized  # a vectorized one may multiply matrices, or hand out an array that it uses again

    def draw(self, streams: Streams, size: Any) -> Batch:
        if self._noise is not None:
            return Batch(size, self._sample_noise(streams, size))
        if not self._sigma:
            return Batch(size, None)
        if isinstance(size, int) and (later := streams.normals_later()) is not None:
            return Batch(size, _Later(later, self._sigma / sqrt(streams.dimension * size)))
        if isinstance(size, int):  # the mean of B Gaussian vectors is one, with variance sigma^2 / (d B)
            return Batch(size, streams.scaled_normals(self._sigma / sqrt(streams.dimension * size)))
        scale = (self._sigma / np.sqrt(streams.dimension * size)).astype(streams.dtype)
        noise = streams.normals(compact=True)
        return Batch(size, (scale.reshape(-1, len(noise), 1) * noise).reshape(-1, streams.dimension))

    def draw_many(self, streams: Streams, size: int, count: int) -> Iterator[Batch] | None:
        if self._noise is not None or not self._sigma:
            return None
        noise = streams.many_normals(count, self._sigma / sqrt(streams.dimension * size))
        return None if noise is None else _one_by_one(size, noise)

    def mean(self, x: Array, batch: Batch) -> Array:
        noise = batch.data
        known = self.rowwise and type(noise) is type(x) is np.ndarray
        if known and self._with_noise is not None:
            return self._with_noise(x, noise)
        value = self._F(x) if self._vectorized else self.operator(x)
        if known:
            each = value if len(noise) in (1, len(x)) else value.reshape(-1, *noise.shape)  # of the configurations
            each += noise
            return value
        if isinstance(noise, _Later):
            return noise.added_to(value, self.rowwise, x)
        if noise is None:
            return value if self.rowwise else arrays.copy(value)
        if not isinstance(x, np.ndarray):
            return value + arrays.like(noise, x)
        return value + (noise if len(noise) in (1, len(x)) else np.tile(noise, (len(x) // len(noise), 1)))

    def operator(self, x: Array) -> Array:
        if self._vectorized:
            return self._F(x)
        return each_row(lambda row: self._F(arrays.lent(x[row])), x, "AdditiveNoise: operator")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "sigma": self._sigma, "own_noise": self._noise is not None}

    def __repr__(self) -> str:
        return f"AdditiveNoise({f'sigma={self._sigma:g}' if self._noise is None else 'noise=...'})"

    def recipe(self, rows: int) -> Recipe | None:
        compiled = getattr(self._F, "recipe", None)
        if compiled is None or self._noise is not None or not self._sigma:
            return None
        return compiled(rows)._replace(sigma=self._sigma)

    def take(self, rows: Rows) -> Self:
        restrict = getattr(self._F, "take", None)
        if restrict is None:
            return self
        part = copy(self)
        part._F = restrict(rows)
        part._with_noise = getattr(part._F, "with_noise", None)
        return part

    def _sample_noise(self, streams: Streams, size: int) -> Array:
        assert self._noise is not None
        generators, noise = streams.generators(), self._noise
        like = np.empty((streams.rows, streams.dimension), streams.dtype)
        return each_row(lambda row: noise(size, generators[row]), like, "AdditiveNoise: noise")


def _one_by_one(size: int, noise: Iterator[Array]) -> Iterator[Batch]:
    """A batch of each noise: the same object, since a new one takes as long as a vector operation on a short row."""
    batch = Batch(size, None)
    for one in noise:
        batch.data = one
        yield batch
