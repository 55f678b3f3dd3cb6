"""Experiment 2: a finite sum of random rank-one operators."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Purpose, Streams
from dualanchor.oracles.finite_sum import FiniteSum
from dualanchor.problems.named import NamedProblem


@dataclass(frozen=True, repr=False)
class FiniteSumCocoercive(NamedProblem):
    r"""A sum of n projections onto random lines, padded with a null space (experiment 2).

    .. math:: F(x) = \frac1n \sum_{i=1}^n \begin{pmatrix} q_i q_i^\top x_{1:r} \\ 0 \end{pmatrix}, \qquad
        q_i \text{ uniform on the unit sphere of } \mathbb R^r, \qquad x_0 \sim 10 \cdot N(0, I_d).

    Every component is 1-cocoercive and vanishes at the roots :math:`x_{1:r} = 0`; nothing is strongly monotone
    when r < d.

    Parameters
    ----------
    components, dimension, rank : int, n, d and r

    Notes
    -----
    The noise grows with the distance to the roots: :math:`\sigma = D \sqrt{\lambda(1-\lambda)}` at distance D, with
    :math:`\lambda` the largest eigenvalue of the mean of :math:`q_i q_i^\top` or 1/2 if that is less. Declared is the
    limit :math:`(1 + \sqrt{r/n})^2/r` of large n and r; single instances differ by a few percent.
    """

    components: int = 200
    dimension: int = 200
    rank: int = 199

    id = "finite-sum-cocoercive"
    title = "finite sum of random projections (experiment 2)"
    step_size = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank > self.dimension:
            rule = f"{self.id}: rank must be at most dimension = {self.dimension}"
            raise ArgumentError(rule, self.rank, "Use a smaller rank")

    @property
    def constants(self) -> Constants:
        D = 10 * sqrt(self.rank)
        edge = min(0.5, (1 + sqrt(self.rank / self.components)) ** 2 / self.rank)
        return Constants(L=1.0, mu=0.0, M=1.0, sigma=D * sqrt(edge * (1 - edge)), D=D)

    def instance(self, streams: Streams) -> Instance:
        n, d, r = self.components, self.dimension, self.rank
        lines = np.zeros((streams.rows, n, d))
        for row, rng in enumerate(streams.of(Purpose.INSTANCE).generators()):
            q = rng.standard_normal((n, r))
            lines[row, :, :r] = q / np.linalg.norm(q, axis=1, keepdims=True)
        x0 = 10 * np.stack([rng.standard_normal(d) for rng in streams.of(Purpose.START).generators()])
        root = x0.copy()
        root[:, :r] = 0.0  # the root nearest to the start
        return Instance(FiniteSum.rank_one(lines), x0, root)
