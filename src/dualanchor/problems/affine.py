"""A normal affine operator whose spectrum varies from a segment to a circle, for tests and teaching."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array
from dualanchor.problems.named import NamedProblem, gaussian


@dataclass(frozen=True, repr=False)
class Affine(NamedProblem):
    r"""An affine operator from pure attraction to as much rotation as cocoercivity allows, with Gaussian noise.

    .. math:: F(x) = A (x - x_\star), \qquad \text{eigenvalues } t \pm i \rho \sqrt{(t-\mu)(L-t)}, \quad
        t \text{ evenly spaced on } [\mu, L].

    With :math:`\rho = 0` a gradient; with :math:`\rho = 1` the eigenvalues lie on the circle with diameter
    :math:`[\mu, L]`. F stays :math:`\mu`-strongly monotone and 1/L-cocoercive throughout.

    Parameters
    ----------
    dimension : int; the unknowns rotate in pairs
    L, mu : float, cocoercivity and strong monotonicity
    rotation : float, :math:`\rho` in [0, 1]
    sigma : float, root mean square norm of the noise of one sample
    D : float, distance from the start, 0, to the root
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
            received = f"L = {self.L}, mu = {self.mu}, rotation = {self.rotation}"
            rule = f"{self.id}: L > 0, mu <= L and rotation <= 1 are needed"
            raise ArgumentError(rule, received, "Choose constants that satisfy all three")

    @property
    def constants(self) -> Constants:
        return Constants(L=self.L, mu=self.mu, M=self.L, sigma=self.sigma, D=self.D)

    def instance(self, streams: Streams) -> Instance:
        d = self.dimension
        real = np.linspace(self.L, self.mu, (d + 1) // 2)[::-1]  # an odd last unknown has the real eigenvalue L
        imaginary = self.rotation * np.sqrt(np.maximum(0.0, (real - self.mu) * (self.L - real)))
        root = np.full(d, self.D / sqrt(d))
        scale, coupling = np.repeat(real, 2)[:d], imaginary[: d // 2]

        def operator(x: Array) -> Array:
            y = x - root
            value = scale * y
            first, second = slice(0, d - d % 2, 2), slice(1, None, 2)
            value[:, first] += coupling * y[:, second]
            value[:, second] -= coupling * y[:, first]
            return value

        x0 = np.zeros((streams.rows, d))
        return Instance(gaussian(operator, self.sigma), x0, x0 + root)
