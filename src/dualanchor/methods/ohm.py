"""OHM, the optimal Halpern method, and S-OHM, its plain stochastic use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import Estimator, State
from dualanchor.core.types import Array
from dualanchor.methods.anchored import Anchored, Scheduled


class HalpernStep(Anchored):
    """The anchored step itself, shared with Halpern-PAGE."""

    step_rule = "Proposition 3.3"

    def init(self, x0: Array) -> State:
        s = super().init(x0)
        s.anchor = arrays.copy(x0)
        return s

    def update(self, k: int, s: State, G: Array) -> None:
        alpha = self.step_size
        s.x -= alpha * G
        s.x *= (k + 1) / (k + 2)
        s.x += s.anchor / (k + 2)


@dataclass(frozen=True)
class OHM(HalpernStep, Scheduled):
    r"""Optimal Halpern method (S-OHM with samples) for 1/L-cocoercive operators.

    Each step pulls back towards the start. Anytime: the deterministic rate holds at every k. Under noise each
    pull repeats earlier errors, so a constant batch lets them accumulate where `DualOHM` does not.

    Update
    ------
    .. math:: x_{k+1} = \frac{1}{k+2} x_0 + \frac{k+1}{k+2} \bigl(x_k - \alpha F_{B_k}(x_k)\bigr)

    with :math:`\alpha` = `step_size` and :math:`B_k` from `batch_size` (or G from `estimator`).

    Guarantee
    ---------
    Noiseless, :math:`0 < \alpha \le 2/L`: :math:`\|F(x_{N-1})\| \le 2D/(\alpha N)` for every N (Proposition 3.3).
    With samples the accuracy :math:`\epsilon` needs :math:`B_k = \Theta(k \epsilon^{-2})`, `Growing(c)`, in all
    :math:`O(\epsilon^{-4})` samples (Proposition 3.4). None for constant batches: the squared residual can
    grow like :math:`4 N \sigma^2 / (3B)`.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L.
    horizon : int, optional
        Stop after horizon - 1 steps; None runs until a stopping rule says so.
    batch_size : int, Schedule or list of int
        Samples per step.
    estimator : Estimator, optional
        Estimates F instead of a fresh batch; `batch_size` is not used then.

    Notes
    -----
    The paper compares at equal length: N = Q/B, N - 1 updates, so that is the default horizon for a budget.

    References
    ----------
    Halpern 1967; Lieder 2021; Kim 2021. Stochastic: Cai, Song, Guzmán, Diakonikolas 2022.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(dimension=4, sigma=0.0)
    >>> result = da.solve(problem, da.OHM(step_size=1.0), stop=da.Steps(99))
    >>> bool(result.residual <= 2 * problem.constants.D / 100)
    True
    """

    step_size: Any
    horizon: Any = None
    batch_size: Any = 1
    estimator: Estimator | None = None

    id = "s-ohm"
    title = "S-OHM, the optimal Halpern method"
    citation = "halpern"
