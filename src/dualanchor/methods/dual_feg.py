"""Dual-FEG, the H-dual of the fast extragradient method."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, State
from dualanchor.core.oracle import Session
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Schedule, as_schedule
from dualanchor.core.types import Array
from dualanchor.methods.anchored import longest_horizon
from dualanchor.methods.lipschitz import Lipschitz


@dataclass(frozen=True)
class DualFEG(Lipschitz):
    r"""Dual fast extragradient method for monotone Lipschitz operators.

    To `FEG` what `DualOHM` is to `OHM`: the same rate without noise, at the last iterate of a run whose length is
    fixed in advance. Not anytime. With samples it is experimental.

    Update
    ------
    .. math::
        z_{k+1/2} &= z_k - \alpha w_k - \alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_{k+1/2} - \tfrac{N-k-1}{N-k}\alpha\bigl(F_{B'_k}(z_{k+1/2}) - F_{B_k}(z_k)\bigr), \\
        w_{k+1} &= \tfrac{N-k-1}{N-k} w_k - \tfrac{1}{N-k} F_{B'_k}(z_{k+1/2}), \qquad w_0 = 0, \quad k = 0, \dots, N-1

    with :math:`\alpha` = `step_size`, N + 1 = `horizon` and both batches of size `batch_size`.

    Guarantee
    ---------
    Noiseless, :math:`\alpha = 1/M`: :math:`\|F(z_N)\|^2 \le 4M^2D^2/N^2`; on linear operators it ends where `FEG` does
    (Yoon, Kim, Suh, Ryu 2024). None known with samples.

    Cost
    ----
    2B draws and 2B evaluations per step.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 1/M.
    horizon : int
        N + 1; the method takes N steps.
    batch_size : int, Schedule or list of int
        Samples per operator call.

    Notes
    -----
    The two batches of a step are independent. The source counts N steps where `DualOHM` counts N - 1; here `horizon` is
    one more than the steps for both. Where M is not declared L stands in for it.

    References
    ----------
    Yoon, Kim, Suh, Ryu 2024.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=0.0)
    >>> result = da.solve(problem, da.DualFEG(step_size=1.0, horizon=101))
    >>> result.nit, bool(result.residual <= 2 * problem.constants.D / 100)
    (100, True)
    """

    step_size: Any
    horizon: Any = field()  # required: None would mean anytime
    batch_size: Any = 1

    id = "dual-feg"
    title = "Dual-FEG, dual fast extragradient (experimental with samples)"
    citation = "h-duality"
    step_rule = "Yoon, Kim, Suh, Ryu 2024"
    anytime = False
    compared = False

    def __post_init__(self) -> None:
        self._require_count("horizon")
        super().__post_init__()
        _ = self.schedule  # complains about sizes

    @cached_property
    def schedule(self) -> Schedule:
        """The rule behind `batch_size`."""
        return as_schedule(self.batch_size, type(self).__name__, self.horizon)

    def init(self, x0: Array) -> State:
        s = super().init(x0)
        s.w = arrays.zeros_like(x0)
        return s

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        if self.steps is not None and k >= self.steps:
            raise self._past_horizon(k)
        N, alpha = self.horizon - 1, self.step_size
        here = F(s.x, F.draw(self.batch(k)))
        half = s.x - alpha * (s.w + here)
        there = F(half, F.draw(self.batch(k)))
        s.w *= (N - k - 1) / (N - k)
        s.w -= there / (N - k)
        s.x = arrays.assign(s.x, half - (N - k - 1) / (N - k) * alpha * (there - here))

    def batch(self, k: int) -> Any:
        """Size of each of the two batches of step k."""
        size = self.schedule.size(k, self.horizon)
        return size if isinstance(size, int) else np.asarray(size)[:, 0]

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        size = self.schedule.size(k, self.horizon)
        return Cost(2 * size, 2 * size)

    def check_rounds(self, rounds: int | None) -> None:
        as_schedule(self.batch_size, type(self).__name__, self.horizon, rounds)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        horizon = given.get("horizon")
        if horizon is None and budget is not None:
            size = given.get("batch_size", 1)
            horizon = longest_horizon(size, budget // 2, cls.__name__) + isinstance(size, int)
        return {**super().defaults(problem, budget, given), "horizon": horizon}
