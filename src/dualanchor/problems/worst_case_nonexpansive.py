"""Experiment 1: the affine operator that is worst for every nonexpansive fixed-point method."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, Rows
from dualanchor.problems.named import NamedProblem, gaussian


@dataclass(frozen=True, repr=False)
class WorstCaseNonexpansive(NamedProblem):
    r"""The worst-case construction of Park and Ryu (2022) with a random shift and Gaussian noise (experiment 1).

    .. math:: F(x) = H(x - s) + (x - s), \qquad
        H(y) = \bigl(y_d - 2/\sqrt d,\, -y_1,\, \dots,\, -y_{d-1}\bigr), \qquad s \sim N(0, I_d)

    from :math:`x_0 = 0`. H is an isometry, so F is exactly 1/2-cocoercive; its only root is
    :math:`s + 1/\sqrt d`.

    Parameters
    ----------
    dimension : int, d
    sigma : float, root mean square norm of the noise of one sample
    """

    dimension: int = 2001
    sigma: float = 0.1

    id = "worst-case-nonexpansive"
    title = "worst-case nonexpansive operator (experiment 1)"
    step_size = 1.0

    @property
    def constants(self) -> Constants:
        # The linear part of H is orthogonal: <F(x) - F(y), x - y> = |F(x) - F(y)|^2 / 2 exactly.
        return Constants(L=2.0, mu=0.0, M=2.0, sigma=self.sigma, D=sqrt(self.dimension + 1))

    def instance(self, streams: Streams) -> Instance:
        d = self.dimension
        shift = np.stack([rng.standard_normal(d) for rng in streams.of(Purpose.INSTANCE).generators()])
        offsets = _Shifted(np.zeros((1, 1)))(shift)
        offsets[:, 0] += 2 / sqrt(d)
        return Instance(gaussian(_Shifted(offsets), self.sigma), np.zeros_like(shift), shift + 1 / sqrt(d))


class _Shifted:
    """The map x + H'x - c, H' the linear part of H, with offsets c of shape (rows, d), or (1, d) for any rows."""

    def __init__(self, offsets: Array) -> None:
        self._offsets = offsets

    def __call__(self, x: Array) -> Array:
        value = x - self._offsets
        first, others = value[:, 0], value[:, 1:]
        first += x[:, -1]
        others -= x[:, :-1]
        return value

    def take(self, rows: Rows) -> _Shifted:
        return self if len(self._offsets) == 1 else _Shifted(self._offsets[rows])
