"""SGDA with steps that decrease, for strongly monotone operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.rowwise import number
from dualanchor.core.types import Array
from dualanchor.methods.sgda import SGDA


@dataclass(frozen=True)
class DecreasingSGDA(SGDA):
    r"""Stochastic gradient descent-ascent with steps like :math:`1/(\mu k)`, for strongly monotone operators.

    What a constant step leaves of the noise, a decreasing one averages out. Anytime. Needs :math:`\mu`: one that is too
    large makes the steps too short to get anywhere.

    Update
    ------
    .. math:: x_{k+1} = x_k - \alpha_k F_{B_k}(x_k), \qquad
        \alpha_k = \min\left\{\alpha, \frac{1}{\mu (k + k_0)}\right\}

    with :math:`\alpha` = `step_size`, :math:`\mu` = `mu`, :math:`k_0` = `offset` and :math:`B_k` from `batch_size`.

    Guarantee
    ---------
    Assumption 3.1, F :math:`\mu`-strongly monotone and 1/L-cocoercive, :math:`\alpha \le 2/L`: :math:`\mathbb E \|x_k -
    x_\star\|^2 \le d_k` with :math:`d_0 = D^2` and
    :math:`d_{k+1} = (1 - \alpha_k\mu(2 - \alpha_k L)) d_k + \alpha_k^2\sigma^2/B_k`. For :math:`\alpha = 1/L` that is
    :math:`O(\sigma^2 \ln k/(\mu^2 k))`, and :math:`\|F(x_k)\| \le L \|x_k - x_\star\|`.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, the largest step; min(the problem's step, 1/L) by name. No rule is enforced.
    batch_size : int, Schedule or list of int
        Samples per step.
    mu : float
        :math:`\mu`, positive; the problem's by name.
    offset : float
        :math:`k_0`, positive.

    References
    ----------
    Robbins and Monro 1951; Gorbunov, Berard, Gidel, Loizou 2022.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(mu=0.2, sigma=1.0)
    >>> constant, falling = (da.solve(problem, name, budget=5000) for name in ("sgda", "sgda-decreasing"))
    >>> bool(falling.residual < constant.residual / 5)
    True
    """

    mu: Any = field(kw_only=True)
    offset: Any = 1.0

    id = "sgda-decreasing"
    title = "SGDA with decreasing steps, for strongly monotone operators"
    citation = "gorbunov"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("mu")
        self._require_positive("offset")

    def update(self, k: int, s: State, G: Array) -> None:
        mu, k0 = self.mu, self.offset
        s.x -= number(np.minimum(self.step_size, 1 / (mu * (k + k0)))) * G

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        chosen, mu = super().defaults(problem, budget, given), problem.constants.mu
        if given.get("step_size", chosen["step_size"]) is None or "mu" in given:
            return chosen
        if not mu:
            raise ArgumentError(
                f"{cls.id}: steps follow from mu > 0",
                f"problem {problem.name!r} with mu = {mu:g}",
                "Declare mu or pass it, or use sgda",
            )
        return {**chosen, "mu": mu}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        return {}
