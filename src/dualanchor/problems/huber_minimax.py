"""Experiment 3: a strongly-convex-strongly-concave minimax problem with Huber terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.oracle import Recipe
from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.problems.named import NamedProblem

_SHORT = 512  # coordinates of a player; with fewer, numbers that NumPy would broadcast are written out


@dataclass(frozen=True, repr=False)
class HuberMinimax(NamedProblem):
    r"""Saddle point of a bilinear coupling with Huber terms on both sides and Gaussian noise (experiment 3).

    .. math:: F(x, y) = \begin{pmatrix} (1-\delta)\,\mathrm{clip}(x, -\nu, \nu) + \delta y + \mu x \\
        -\delta x + (1-\delta)\,\mathrm{clip}(y, -\nu, \nu) + \mu y \end{pmatrix}

    from a random unit vector; the root is 0. F is :math:`\mu`-strongly monotone and :math:`(1+\mu)`-Lipschitz, so
    1/L-cocoercive with :math:`L = (1+\mu)^2/\mu`.

    Parameters
    ----------
    dimension : int
        Length of z = (x, y), twice the d of the paper; even.
    sigma : float
        Root mean square norm of the noise of one sample.
    mu, delta, nu : float
        Strong monotonicity, coupling, and where the Huber terms turn linear.
    """

    dimension: int = 100
    sigma: float = 0.05
    mu: float = 0.1
    delta: float = 1e-2
    nu: float = 5e-5

    id = "huber-minimax"
    title = "minimax problem with Huber terms (experiment 3)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension % 2:
            raise ArgumentError(
                f"{self.id}: dimension must be even, since z = (x, y)", self.dimension, "Use an even number"
            )
        if not (self.mu > 0 and self.delta <= 1):
            raise ArgumentError(
                f"{self.id}: mu must be positive and delta at most 1",
                f"mu = {self.mu}, delta = {self.delta}",
                "Use the paper's mu=0.1, delta=0.01",
            )

    @property
    def constants(self) -> Constants:
        M = 1 + self.mu
        return Constants(L=M**2 / self.mu, mu=self.mu, M=M, sigma=self.sigma, D=1.0)

    @property
    def step_size(self) -> float:
        return self.mu / (1 + self.mu) ** 2  # 1/L

    def instance(self, streams: Streams) -> Instance:
        starts = [rng.standard_normal(self.dimension) for rng in streams.of(Purpose.START).generators()]
        x0 = np.stack([start / np.linalg.norm(start) for start in starts])
        oracle = AdditiveNoise(_Coupled(self.mu, self.delta, self.nu), self.sigma, vectorized=True)
        oracle.rowwise = True
        return Instance(oracle, x0, np.zeros_like(x0))


@dataclass(frozen=True)
class _Coupled:
    """F for all rows."""

    mu: float
    delta: float
    nu: float

    def __call__(self, z: Array) -> Array:
        players = z.reshape(len(z), 2, -1)
        value = z.clip(-self.nu, self.nu)
        value *= 1 - self.delta
        linear = self.mu * z
        value += linear
        others = linear.reshape(players.shape)
        others[...] = players[:, ::-1]
        others *= _signed(self.delta, players.shape, z.dtype)
        value += linear
        return value

    def recipe(self, rows: int) -> Recipe:
        return Recipe("coupled-huber", np.zeros((1, 1, 1)), np.zeros(rows, int), (self.mu, self.delta, self.nu))


@lru_cache(maxsize=16)
def _signed(delta: float, shape: tuple[int, ...], dtype: Any) -> Array:
    """What the other player's coordinates are multiplied with; written out where rows are short, which is quicker."""
    signed = np.array([[delta], [-delta]], dtype)
    return np.broadcast_to(signed, shape).copy() if shape[2] < _SHORT else signed
