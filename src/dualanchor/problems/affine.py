"""A normal affine operator whose spectrum turns from a segment to a circle, for tests and teaching."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.problems.named import NamedProblem


@dataclass(frozen=True, repr=False)
class Affine(NamedProblem):
    r"""An affine operator from pure attraction to as much rotation as cocoercivity allows, with Gaussian noise.

    .. math:: F(x) = A (x - x_\star), \qquad \text{eigenvalues } t \pm i \rho \sqrt{(t-\mu)(L-t)}, \quad
        t \text{ evenly spaced on } [\mu, L].

    With :math:`\rho = 0` a gradient with spectrum :math:`[\mu, L]`; with :math:`\rho = 1` the eigenvalues lie on the
    circle with that diameter. F stays :math:`\mu`-strongly monotone and 1/L-cocoercive throughout.

    Parameters
    ----------
    dimension : int
        d; the unknowns turn in pairs.
    L, mu : float
        Cocoercivity and strong monotonicity.
    rotation : float
        :math:`\rho` in [0, 1].
    sigma : float
        Root mean square norm of the noise of one sample.
    D : float
        Distance from the start, 0, to the root.
    """

    dimension: int = 20
    L: float = 1.0
    mu: float = 0.0
    rotation: float = 0.5
    sigma: float = 0.1
    D: float = 1.0

    id = "affine"
    title = "affine operator with adjustable rotation"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.L > 0 and self.mu <= self.L and self.rotation <= 1):
            raise ArgumentError(
                f"{self.id}: L > 0, mu <= L and rotation <= 1 are needed",
                f"L = {self.L}, mu = {self.mu}, rotation = {self.rotation}",
                "Choose constants in that order",
            )

    @property
    def constants(self) -> Constants:
        return Constants(L=self.L, mu=self.mu, M=self.L, sigma=self.sigma, D=self.D)

    @property
    def step_size(self) -> float:
        return 1 / self.L

    def instance(self, streams: Streams) -> Instance:
        d = self.dimension
        real = np.linspace(self.L, self.mu, (d + 1) // 2)[::-1]  # an odd last unknown has the real eigenvalue L
        turn = self.rotation * np.sqrt(np.maximum(0.0, (real - self.mu) * (self.L - real)))
        root = np.full(d, self.D / sqrt(d))
        scale, cross = np.repeat(real, 2)[:d], turn[: d // 2]

        def operator(x: Array) -> Array:
            y = x - root
            value = scale * y
            first, second = y[:, 0 : d - d % 2 : 2], y[:, 1::2]
            value[:, 0 : d - d % 2 : 2] += cross * second
            value[:, 1::2] -= cross * first
            return value

        rows = streams.rows
        oracle = AdditiveNoise(operator, self.sigma, vectorized=True)
        oracle.rowwise = True
        return Instance(oracle, np.zeros((rows, d)), np.tile(root, (rows, 1)))
