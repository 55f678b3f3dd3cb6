"""SGDA, stochastic gradient descent-ascent."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dualanchor.core.method import State
from dualanchor.core.problem import Problem
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
