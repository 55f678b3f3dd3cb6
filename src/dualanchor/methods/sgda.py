"""SGDA, stochastic gradient descent-ascent, with constant and with decreasing steps."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.rowwise import number
from dualanchor.core.types import Array
from dualanchor.methods._bases import Batched


@dataclass(frozen=True)
class SGDA(Batched):
    r"""Stochastic gradient descent-ascent, the plain iteration, for cocoercive operators.

    Anytime. With a constant step it stops improving at a level set by step and noise.
    Gorbunov, Berard, Gidel, Loizou 2022.

    .. math:: x_{k+1} = x_k - \alpha F_{B_k}(x_k)

    Guarantee: none known for the last iterate; :math:`O(\epsilon^{-4})` samples for a random iterate (Table 1).

    Parameters
    ----------
    step_size : float, :math:`\alpha`; min(the problem's step, 1/L) by name, no rule is enforced
    batch_size : int, Schedule or list of int, :math:`B_k`, samples of step k

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(mu=0.5, sigma=0.0), da.SGDA(step_size=0.5), budget=100)
    >>> bool(result.residual < 1e-6)
    True
    """

    step_size: Any
    batch_size: Any = 1

    id = "sgda"
    title = "SGDA, stochastic gradient descent-ascent"
    citation = "gorbunov"
    tuned: ClassVar[tuple[str, ...]] = ("step_size",)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        step, L = problem.step_size, problem.constants.L
        return {"step_size": step if step is None or L is None else min(step, 1 / L)}

    def update(self, k: int, s: State, G: Array) -> None:
        s.x -= self.step_size * G


@dataclass(frozen=True)
class DecreasingSGDA(SGDA):
    r"""Stochastic gradient descent-ascent with steps like :math:`1/(\mu k)`, for strongly monotone operators.

    Anytime. A :math:`\mu` that is too large makes the steps too short. Robbins and Monro 1951; Gorbunov, Berard, Gidel,
    Loizou 2022.

    .. math:: x_{k+1} = x_k - \alpha_k F_{B_k}(x_k), \qquad
        \alpha_k = \min\left\{\alpha, \frac{1}{\mu (k + k_0)}\right\}

    Guarantee under Assumption 3.1 for 1/L-cocoercive F, :math:`\alpha \le 2/L`:
    :math:`\mathbb E \|x_k - x_\star\|^2 \le d_k`, :math:`d_0 = D^2`,
    :math:`d_{k+1} = (1 - \alpha_k\mu(2 - \alpha_k L)) d_k + \alpha_k^2\sigma^2/B_k`. For :math:`\alpha = 1/L` that is
    :math:`O(\sigma^2 \ln k/(\mu^2 k))`, and :math:`\|F(x_k)\| \le L \|x_k - x_\star\|`.

    Parameters
    ----------
    step_size, batch_size : as for `SGDA`; :math:`\alpha` is the largest step
    mu : float, positive; the problem's by name
    offset : float, :math:`k_0`, positive

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(mu=0.2, sigma=1.0), "sgda-decreasing", budget=5000)
    >>> bool(result.residual < 0.1)
    True
    """

    mu: Any = field(kw_only=True)
    offset: Any = 1.0

    id = "sgda-decreasing"
    title = "SGDA with decreasing steps, for strongly monotone operators"
    citation = "gorbunov"
    tuned = ()
    positive = ("step_size", "mu", "offset")

    def update(self, k: int, s: State, G: Array) -> None:
        s.x -= number(np.minimum(self.step_size, 1 / (self.mu * (k + self.offset)))) * G

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        chosen, mu = super().defaults(problem, budget, given), problem.constants.mu
        if given.get("step_size", chosen["step_size"]) is None or "mu" in given:
            return chosen
        if not mu:
            received = f"problem {problem.name!r} with mu = {mu:g}"
            raise ArgumentError(f"{cls.id}: steps follow from mu > 0", received, "Declare mu or pass it, or use sgda")
        return {**chosen, "mu": mu}
