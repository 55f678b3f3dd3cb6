"""RAIN in its single-loop form."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.rowwise import number
from dualanchor.core.session import Session
from dualanchor.core.types import Array
from dualanchor.methods._bases import TwoCall


@dataclass(frozen=True)
class RAIN(TwoCall):
    r"""Recursive anchored iteration, single loop, for monotone Lipschitz operators.

    Extragradient on F plus a geometrically growing pull towards a weighted mean of all earlier iterates. Anytime.
    Chen and Luo 2024.

    .. math::
        z_{k+1/2} &= z_k - \eta\bigl(\hat F(z_k; \xi_k) + r_k(z_k)\bigr), \\
        z_{k+1} &= z_k - \eta\bigl(\hat F(z_{k+1/2}; \xi_{k+1/2}) + r_k(z_{k+1/2})\bigr), \\
        r_k(x) &= \lambda\gamma(S_k x - m_k), \qquad
        S_k = \sum_{t<k} (1+\gamma)^t, \qquad m_k = \sum_{t<k} (1+\gamma)^t z_t

    Guarantee: none known for the single loop, which its authors use in experiments; see `RAINDoubleLoop`.

    Parameters
    ----------
    step_size, anchor_weight, growth : float, :math:`\eta, \lambda, \gamma`; no rule is enforced: some choices diverge
    batch_size : int, Schedule or list of int; per operator call

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.0), da.RAIN(0.1, anchor_weight=0.01, growth=0.01), budget=400)
    >>> bool(result.residual < 0.1)
    True
    """

    step_size: Any
    anchor_weight: Any = 0.01
    growth: Any = 0.001
    batch_size: Any = 1

    id = "rain"
    title = "RAIN, recursive anchored iteration, single loop"
    citation = "rain"
    positive = ("step_size", "anchor_weight", "growth")

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), gap=arrays.zeros_like(x0))  # z_k - m_k / S_k, which does not overflow

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        gamma, weight = self.growth, number(np.power(1 + self.growth, -1.0 * k))
        pull = number(self.anchor_weight * np.expm1(k * np.log1p(gamma)))  # lambda gamma S_k
        move = self.step_size * (pull * s.gap + self.first_call(k, s.x, F))
        half, gap = s.x - move, s.gap - move
        move = self.step_size * (pull * gap + self.second_call(k, half, F))
        s.x -= move
        s.gap *= (1 - weight) / (1 + gamma - weight)  # z_k enters the mean with weight (1 + gamma)^k / S_{k+1}
        s.gap -= move

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        chosen = {**super().defaults(problem, budget, given), **given}
        step, weight = chosen.get("step_size"), chosen.get("anchor_weight", cls.anchor_weight)
        if budget is None or step is None:
            return chosen
        bearable = np.log1p(0.25 / (step * weight)) / max(1, budget // 2)  # the pull of the last step times its length
        return {**chosen, "growth": float(min(cls.growth, bearable))}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        weights = [0.001, 0.01, 0.1, 1.0]
        return {"step_size": cls._steps_to_try(problem), "anchor_weight": weights, "growth": weights}
