"""SEG, stochastic extragradient."""

from dataclasses import dataclass
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.session import Session
from dualanchor.core.types import Array
from dualanchor.methods._bases import TwoCall


@dataclass(frozen=True)
class SEG(TwoCall):
    r"""Stochastic extragradient for monotone Lipschitz operators.

    Looks ahead with one batch and steps with another. Anytime, no anchor.
    Korpelevich 1976; Gorbunov, Berard, Gidel, Loizou 2022.

    .. math:: x_{k+1/2} = x_k - \alpha F_{B_k}(x_k), \qquad x_{k+1} = x_k - \alpha F_{B'_k}(x_{k+1/2})

    Guarantee: none known for the last iterate; :math:`O(\epsilon^{-4})` samples for a random iterate (Table 1). For
    affine F the mean of the half-steps, which `averaged` returns, has one: :math:`\alpha \le 1/M`, n steps,
    :math:`\mathbb E\|F(\bar x)\|^2 \le 4D^2/(\alpha^2n^2) + (4/B' + \alpha^2M^2/B)\,\sigma^2/n`. Not in the paper.

    Parameters
    ----------
    step_size : float, :math:`\alpha`; min(the problem's step, 1/(2M)) by name, no rule is enforced
    batch_size : int, Schedule or list of int; size of each of the independent batches :math:`B_k, B'_k`, or Paired

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
    tuned = ("step_size",)

    mean_of = "half"

    def init(self, x0: Array) -> State:
        return State(**vars(super().init(x0)), half=arrays.copy(x0))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        alpha = self.step_size
        half = s.x - alpha * self.first_call(k, s.x, F)
        s.x -= alpha * self.second_call(k, half, F)
        s.half = half
