"""A deterministic operator plus noise that does not depend on the point."""

from collections.abc import Callable
from copy import copy
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, Counts, Rows
from dualanchor.oracles.user_call import user_call


class _Noise(NamedTuple):
    """`scale` (a number or (rows, 1)) times the normal vectors at a position of the streams, read when evaluated."""

    streams: Streams
    position: Counts
    scale: Any


class AdditiveNoise(Oracle):
    r"""Samples :math:`\hat F(x; \xi) = F(x) + \xi` with noise independent of x.

    The noise is Gaussian with :math:`\mathbb E\|\xi\|^2 = \sigma^2`, variance :math:`\sigma^2/d` per coordinate, unless
    `noise` is given. The mean of B Gaussian samples is drawn as one vector of the same distribution, and costs B.

    Parameters
    ----------
    operator : callable, the deterministic F, `operator(x)` for one point of shape (d,)
    sigma : float, root mean square norm of the noise of one sample; 0 makes a noiseless oracle
    noise : callable, `noise(n, rng)`: the mean of n independent noise vectors, instead of Gaussian noise
    vectorized : bool, whether `operator` takes all rows at once, (rows, d) to (rows, d); faster with many replications

    Notes
    -----
    The noise is drawn by NumPy, so the same seed gives the same numbers in every library and on every device. An
    `operator` object with a method `take(rows)` is restricted to the active rows, one instance per replication.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> A = np.array([[1.0, 2.0], [-2.0, 1.0]])
    >>> oracle = da.AdditiveNoise(lambda x: A @ x, sigma=0.5)
    """

    def __init__(
        self,
        operator: Callable[[Array], Any],
        sigma: float = 0.0,
        *,
        noise: Callable[[int, np.random.Generator], Any] | None = None,
        vectorized: bool = False,
    ) -> None:
        check.function(operator, "AdditiveNoise: operator", "F(x)")
        check.number(sigma, "AdditiveNoise: sigma", remedy="Use 0 for no noise")
        if noise is not None:
            check.function(noise, "AdditiveNoise: noise", "noise(n, rng)")
        self._F = operator
        self._sigma = float(sigma)
        self._noise = noise
        self._vectorized = vectorized
        self.mixed_sizes = noise is None
        self.rowwise = not vectorized  # a vectorized operator may multiply matrices, or return an array that it keeps

    def draw(self, streams: Streams, size: Any) -> Batch:
        if (noise := self._noise) is not None:
            generators = streams.generators()
            like = np.empty((streams.rows, streams.dimension), streams.dtype)
            values = user_call(lambda row: noise(size, generators[row]), like, "AdditiveNoise: noise")
            return Batch(size, values)
        if not self._sigma:
            return Batch(size, None)
        position, d = streams.position, streams.dimension
        if d >= arrays.LARGE:
            streams.release()
        streams.position = position + 1  # one vector for the batch, with variance sigma^2 / (d B) per coordinate
        if isinstance(size, int):
            return Batch(size, _Noise(streams, position, self._sigma / sqrt(d * size)))
        scale = (self._sigma / np.sqrt(d * size)).astype(streams.dtype)
        return Batch(size, _Noise(streams, position, scale[:, None]))

    def mean(self, x: Array, batch: Batch) -> Array:
        value, noise = self.operator(x), batch.data
        if noise is None:
            return value if self.rowwise else arrays.copy(value)
        if not isinstance(noise, _Noise):
            return value + arrays.like(noise, x)
        if not isinstance(x, np.ndarray):
            normals = noise.streams.normals_at(noise.position)
            return value + arrays.like(noise.scale * np.tile(normals, (len(x) // len(normals), 1)), x)
        if not self.rowwise:  # the operator's own array must not be written to
            value = value.copy() if value.dtype is x.dtype else np.array(value, dtype=np.result_type(value, x))
        arrays.add_multiple(value, noise.scale, noise.streams.normals_at(noise.position))
        return value

    def operator(self, x: Array) -> Array:
        if self._vectorized:
            return self._F(x)
        return user_call(lambda row: self._F(arrays.user_copy(x[row])), x, "AdditiveNoise: operator")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "sigma": self._sigma, "own_noise": self._noise is not None}

    def __repr__(self) -> str:
        return f"AdditiveNoise({f'sigma={self._sigma:g}' if self._noise is None else 'noise=...'})"

    def take(self, rows: Rows) -> Self:
        if not hasattr(self._F, "take"):
            return self
        part = copy(self)
        part._F = self._F.take(rows)
        return part
