"""Experiment 3: a strongly-convex-strongly-concave minimax problem with Huber terms."""

from dataclasses import dataclass

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.problems.named import NamedProblem, gaussian


@dataclass(frozen=True, repr=False)
class HuberMinimax(NamedProblem):
    r"""Saddle point of a bilinear coupling with Huber terms on both sides and Gaussian noise (experiment 3).

    .. math:: F(x, y) = \begin{pmatrix} (1-\delta)\,\mathrm{clip}(x, -\nu, \nu) + \delta y + \mu x \\
        -\delta x + (1-\delta)\,\mathrm{clip}(y, -\nu, \nu) + \mu y \end{pmatrix}

    from a random unit vector; the root is 0. F is :math:`\mu`-strongly monotone and :math:`(1+\mu)`-Lipschitz, so
    1/L-cocoercive with :math:`L = (1+\mu)^2/\mu`.

    Parameters
    ----------
    dimension : int, the length of z = (x, y), twice the d of the paper
    sigma : float, root mean square norm of the noise of one sample
    mu, delta, nu : float; strong monotonicity, coupling, and where the Huber terms turn linear
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
            rule = f"{self.id}: dimension must be even, since z = (x, y)"
            raise ArgumentError(rule, self.dimension, "Use an even number")
        if not (self.mu > 0 and self.delta <= 1):
            rule = f"{self.id}: mu must be positive and delta at most 1"
            received = f"mu = {self.mu}, delta = {self.delta}"
            raise ArgumentError(rule, received, "Use the paper's mu=0.1, delta=0.01")

    @property
    def constants(self) -> Constants:
        M = 1 + self.mu
        return Constants(L=M**2 / self.mu, mu=self.mu, M=M, sigma=self.sigma, D=1.0)

    def instance(self, streams: Streams) -> Instance:
        starts = [rng.standard_normal(self.dimension) for rng in streams.of(Purpose.START).generators()]
        x0 = np.stack([start / np.linalg.norm(start) for start in starts])
        coupling = np.repeat([[self.delta], [-self.delta]], self.dimension // 2, axis=1)  # of the other player

        def operator(z: Array) -> Array:
            value = (z.reshape(-1, *coupling.shape)[:, ::-1] * coupling).reshape(z.shape)
            value += self.mu * z
            value += (1 - self.delta) * z.clip(-self.nu, self.nu)
            return value

        return Instance(gaussian(operator, self.sigma), x0, np.zeros_like(x0))
