"""RAIN in its single-loop form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, State
from dualanchor.core.oracle import Session
from dualanchor.core.problem import Problem
from dualanchor.core.rowwise import number
from dualanchor.core.types import Array
from dualanchor.methods.extragradient import TwoCall


@dataclass(frozen=True)
class RAIN(TwoCall):
    r"""Recursive anchored iteration, single loop, for monotone Lipschitz operators.

    Extragradient on F plus a pull towards a weighted mean of all earlier iterates that grows geometrically. Anytime.
    The simplification that its authors use in experiments; their theorem is for the double loop.

    Update
    ------
    .. math::
        z_{k+1/2} &= z_k - \eta\bigl(\hat F(z_k; \xi_k) + r_k(z_k)\bigr), \\
        z_{k+1} &= z_k - \eta\bigl(\hat F(z_{k+1/2}; \xi_{k+1/2}) + r_k(z_{k+1/2})\bigr), \\
        r_k(x) &= \lambda\gamma(S_k x - m_k), \qquad
        S_k = \sum_{t<k} (1+\gamma)^t, \qquad m_k = \sum_{t<k} (1+\gamma)^t z_t

    with :math:`\eta` = `step_size`, :math:`\lambda` = `anchor_weight` and :math:`\gamma` = `growth`.

    Guarantee
    ---------
    None known for the single loop. The double loop needs :math:`\tilde O(\epsilon^{-2})` samples.

    Cost
    ----
    2B draws and 2B evaluations per step; B = 1 in the paper.

    Parameters
    ----------
    step_size, anchor_weight, growth : float
        :math:`\eta, \lambda, \gamma`. No rule is enforced: parts of the paper's grid diverge.
    batch_size : int, Schedule or list of int
        Samples per operator call.

    Notes
    -----
    Kept as the gap :math:`z_k - m_k/S_k`, in which nothing overflows; :math:`\lambda\gamma S_k` equals
    :math:`\lambda((1+\gamma)^k - 1)`. Where that grows without limit the run diverges, as an ordinary outcome.

    References
    ----------
    Chen and Luo 2024.

    Examples
    --------
    >>> import dualanchor as da
    >>> method = da.RAIN(step_size=0.1, anchor_weight=0.01, growth=0.01)
    >>> result = da.solve(da.problems.affine(sigma=0.0), method, budget=400)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("anchor_weight")
        self._require_positive("growth")

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), gap=arrays.zeros_like(x0))  # z_k - m_k / S_k; at k = 0 its weight is zero

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        gamma, weight = self.growth, number(np.power(1 + self.growth, -1.0 * k))
        pull = number(self.anchor_weight * np.expm1(k * np.log1p(gamma)))  # lambda gamma S_k
        move = self._move(pull * s.gap, F(s.x, F.draw(self.batch(k))))
        half = s.x - move
        move -= s.gap  # the gap at the half step, the other way round
        move *= -pull
        move = self._move(move, F(half, F.draw(self.batch(k))))
        s.x -= move
        s.gap *= (1 - weight) / (1 + gamma - weight)  # z_k enters the mean with weight (1 + gamma)^k / S_{k+1}
        s.gap -= move

    def _move(self, r: Array, G: Array) -> Array:
        """Eta (G + r_k), in the array of r_k."""
        r += G
        r *= self.step_size
        return r

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return self.twice(k)

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
