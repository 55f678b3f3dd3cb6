"""Experiment 1: the affine operator that is worst for every nonexpansive fixed-point method."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dualanchor.core.oracle import Recipe
from dualanchor.core.problem import Constants, Instance
from dualanchor.core.streams import Purpose, Streams, cycle
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.problems.named import NamedProblem


@dataclass(frozen=True, repr=False)
class WorstCaseNonexpansive(NamedProblem):
    r"""The worst-case construction of Park and Ryu (2022) with a random shift and Gaussian noise (experiment 1).

    .. math:: F(x) = H(x - s) + (x - s), \qquad
        H(y) = \bigl(y_d - 2/\sqrt d,\, -y_1,\, \dots,\, -y_{d-1}\bigr), \qquad s \sim N(0, I_d)

    from :math:`x_0 = 0`. H turns and shifts without changing lengths, so F is exactly 1/2-cocoercive; its only root is
    :math:`s + 1/\sqrt d`.

    Parameters
    ----------
    dimension : int
        d.
    sigma : float
        Root mean square norm of the noise of one sample.
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
        generators = streams.of(Purpose.INSTANCE).generators()
        shift = np.stack([rng.standard_normal(d) for rng in generators])
        oracle = AdditiveNoise(_Turn.around(shift), self.sigma, vectorized=True)
        oracle.rowwise = True
        return Instance(oracle, np.zeros((streams.rows, d)), shift + 1 / sqrt(d))


class _Turn:
    """F for one shift per row, as x + H'x - c with the linear part H' of H and c gathered in advance.

    Row i has offset `rows[i]`; configurations that go through the same replications share theirs.
    """

    def __init__(self, offsets: Array, rows: IntArray | None = None) -> None:
        self._offsets = offsets
        self._rows = np.arange(len(offsets)) if rows is None else rows
        self._cycle = offsets if rows is None else offsets[cycle(rows)]

    @classmethod
    def around(cls, shift: Array) -> _Turn:
        offsets = -cls(np.zeros_like(shift))(-shift)
        offsets[:, 0] += 2 / sqrt(shift.shape[1])
        return cls(offsets)

    def __call__(self, x: Array) -> Array:
        return self._turned(x, -self._cycle)

    def with_noise(self, x: Array, noise: Array) -> Array:
        """F(x) plus noise of each row, or of replications that rows go through: one pass less over x."""
        offsets = self._cycle
        if len(x) == 1:  # quicker without the axis of rows
            value = noise - offsets
            value += x
            others = value[:, 1:]
            others -= x[:, :-1]
            value[0, 0] += x[0, -1]
            return value
        if len(noise) > len(offsets) > 1:
            noise = noise.reshape(-1, *offsets.shape)
        elif len(offsets) > len(noise) > 1:
            offsets = offsets.reshape(-1, *noise.shape)
        return self._turned(x, (noise - offsets).reshape(-1, x.shape[1]))

    def _turned(self, x: Array, added: Array) -> Array:
        """X + H'x plus something for each row."""
        each = x if len(added) in (1, len(x)) else x.reshape(-1, *added.shape)
        value = each + added
        _turn(value.T, each.T)
        return value.reshape(x.shape)

    def recipe(self, rows: int) -> Recipe:
        return Recipe("turn", self._offsets[:, None], self._rows if len(self._offsets) > 1 else np.zeros(rows, int))

    def take(self, rows: Rows) -> _Turn:
        return self if len(self._offsets) == 1 else _Turn(self._offsets, self._rows[rows])  # one goes for every row


def _turn(value: Array, x: Array) -> None:
    """Add H'x to a value; coordinates come first."""
    others = value[1:]
    others -= x[:-1]
    value[0] += x[-1]
