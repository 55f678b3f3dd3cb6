"""FEG, the fast extragradient method, and Dual-FEG, its H-dual."""

from dataclasses import dataclass, field
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session
from dualanchor.core.types import Array
from dualanchor.methods._bases import Lipschitz, TwoCall, longest_horizon
from dualanchor.methods.eag import EAG


@dataclass(frozen=True)
class FEG(EAG):
    r"""Fast extragradient method for monotone Lipschitz operators.

    Anchored extragradient with a longer step than `EAG`. Anytime. With samples it is experimental.
    The first value of the first step is not used. Lee and Kim 2021.

    .. math::
        z_{k+1/2} &= z_k + \beta_k(z_0 - z_k) - (1 - \beta_k)\alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_k + \beta_k(z_0 - z_k) - \alpha F_{B'_k}(z_{k+1/2}), \qquad \beta_k = \tfrac{1}{k+1}

    Guarantee without noise, :math:`\alpha = 1/M`: :math:`\|F(z_k)\|^2 \le 4M^2D^2/k^2`. None known with samples.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 1/M
    batch_size : as for `EAG`

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.0), da.FEG(step_size=1.0), stop=da.Steps(100))
    >>> bool(result.residual <= 2 / 100)
    True
    """

    id = "feg"
    title = "FEG, fast extragradient (experimental with samples)"
    citation = "feg"
    step_rule = "Lee and Kim 2021"
    longest = (1.0, "M", "1/M")

    def weights(self, k: int) -> tuple[float, float]:
        return 1 / (k + 1), 1 - 1 / (k + 1)


@dataclass(frozen=True)
class DualFEG(Lipschitz, TwoCall):
    r"""Dual fast extragradient method for monotone Lipschitz operators.

    To `FEG` what `DualOHM` is to `OHM`. Not anytime. With samples it is experimental. Yoon, Kim, Suh, Ryu 2024.

    .. math::
        z_{k+1/2} &= z_k - \alpha w_k - \alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_{k+1/2} - \tfrac{N-k-1}{N-k}\alpha\bigl(F_{B'_k}(z_{k+1/2}) - F_{B_k}(z_k)\bigr), \\
        w_{k+1} &= \tfrac{N-k-1}{N-k} w_k - \tfrac{1}{N-k} F_{B'_k}(z_{k+1/2}), \qquad w_0 = 0, \quad k = 0, \dots, N-1

    Guarantee without noise, :math:`\alpha = 1/M`: :math:`\|F(z_N)\|^2 \le 4M^2D^2/N^2`. None known with samples.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 1/M
    horizon : int, N + 1, one more than the steps
    batch_size : as for `EAG`

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.0), da.DualFEG(step_size=1.0, horizon=101))
    >>> result.nit, bool(result.residual <= 2 / 100)
    (100, True)
    """

    step_size: Any
    horizon: Any = field()  # required: None would mean anytime
    batch_size: Any = 1

    id = "dual-feg"
    title = "Dual-FEG, dual fast extragradient (experimental with samples)"
    citation = "h-duality"
    step_rule = "Yoon, Kim, Suh, Ryu 2024"
    longest = (1.0, "M", "1/M")
    anytime = False
    counts = ("horizon",)
    compared = False

    def init(self, x0: Array) -> State:
        return State(**vars(super().init(x0)), w=arrays.zeros_like(x0))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        N, alpha = self.horizon - 1, self.step_size
        here = self.first_call(k, s.x, F)
        half = s.x - alpha * (s.w + here)
        there = self.second_call(k, half, F)
        s.w *= (N - k - 1) / (N - k)
        s.w -= there / (N - k)
        s.x = arrays.assign(s.x, half - (N - k - 1) / (N - k) * alpha * (there - here))

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        horizon = given.get("horizon")
        if horizon is None and budget is not None:
            size = given.get("batch_size", 1)
            horizon = longest_horizon(size, budget // 2, cls.__name__) + isinstance(size, int)
        return {**super().defaults(problem, budget, given), "horizon": horizon}
