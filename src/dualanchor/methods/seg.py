"""SEG, stochastic extragradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualanchor.core.method import Cost, State
from dualanchor.core.oracle import Session
from dualanchor.core.problem import Problem
from dualanchor.methods.extragradient import TwoCall


@dataclass(frozen=True)
class SEG(TwoCall):
    r"""Stochastic extragradient for monotone Lipschitz operators.

    Looks ahead with one batch and steps with another, independent one. Anytime, no anchor.

    Update
    ------
    .. math:: x_{k+1/2} = x_k - \alpha F_{B_k}(x_k), \qquad x_{k+1} = x_k - \alpha F_{B'_k}(x_{k+1/2})

    with :math:`\alpha` = `step_size` and both batches of size `batch_size`.

    Guarantee
    ---------
    None known for the last iterate under noise; :math:`O(\epsilon^{-4})` samples for a random iterate (the
    paper's Table 1, after Gorbunov et al. 2022).

    Cost
    ----
    2B draws and 2B evaluations per step.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`. No rule is enforced: the paper's grid has steps at which it diverges.
    batch_size : int, Schedule or list of int
        Samples per operator call.

    Notes
    -----
    Without a given step the default is min(the problem's step, 1/(2M)).

    References
    ----------
    Korpelevich 1976; Gorbunov, Berard, Gidel, Loizou 2022.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(mu=0.5, sigma=0.0), da.SEG(step_size=0.5), budget=100)
    >>> result.nit, result.nfev
    (50, 100)
    """

    step_size: Any
    batch_size: Any = 1

    id = "seg"
    title = "SEG, stochastic extragradient"
    citation = "gorbunov"

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        alpha = self.step_size
        half = s.x - alpha * F(s.x, F.draw(self.batch(k)))
        s.x -= alpha * F(half, F.draw(self.batch(k)))

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return self.twice(k)

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        return {"step_size": cls._steps_to_try(problem)}
