"""OHM, the optimal Halpern method, and S-OHM, its plain stochastic use."""

from dataclasses import dataclass
from typing import Any

from dualanchor.core.method import Estimator, State
from dualanchor.core.types import Array
from dualanchor.methods._bases import LimitedStep, RemembersStart, Scheduled


class HalpernStep(RemembersStart, LimitedStep):
    """The anchored step itself, shared with Halpern-PAGE."""

    step_rule = "Proposition 3.3"

    def update(self, k: int, s: State, G: Array) -> None:
        s.x -= self.step_size * G
        s.x *= (k + 1) / (k + 2)
        s.x += s.anchor / (k + 2)


@dataclass(frozen=True)
class OHM(HalpernStep, Scheduled):
    r"""Optimal Halpern method (S-OHM with samples) for 1/L-cocoercive operators.

    Each step pulls back towards the start. Anytime. With a constant batch errors accumulate, unlike those of `DualOHM`.
    Halpern 1967; Lieder 2021; Kim 2021; with samples Cai, Song, Guzmán, Diakonikolas 2022.

    .. math:: x_{k+1} = \frac{1}{k+2} x_0 + \frac{k+1}{k+2} \bigl(x_k - \alpha F_{B_k}(x_k)\bigr)

    Guarantee without noise, :math:`0 < \alpha \le 2/L`, every N: :math:`\|F(x_{N-1})\| \le 2D/(\alpha N)` (Proposition
    3.3). With `Growing(c)` batches :math:`O(\epsilon^{-4})` samples (Proposition 3.4). None for constant batches: the
    squared residual can grow like :math:`4 N \sigma^2 / (3B)`.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 2/L
    horizon : int, optional; stops after horizon - 1 steps. For a budget Q the paper's Q/B
    batch_size : int, Schedule or list of int, :math:`B_k`, samples of step k
    estimator : Estimator, optional; in place of a fresh batch

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.0), da.OHM(step_size=1.0), stop=da.Steps(99))
    >>> bool(result.residual <= 2 / 100)
    True
    """

    step_size: Any
    horizon: Any = None
    batch_size: Any = 1
    estimator: Estimator | None = None

    id = "s-ohm"
    title = "S-OHM, the optimal Halpern method"
    citation = "halpern"
