"""Dual-OHM and S-Dual-OHM, the centre of the library, and Dual-OHM planned from a budget."""

from dataclasses import dataclass, field
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import Estimator, State
from dualanchor.core.problem import Problem
from dualanchor.core.types import Array
from dualanchor.methods._bases import Scheduled, required
from dualanchor.theory.schedules import Setting, tapered_for_budget


@dataclass(frozen=True)
class DualOHM(Scheduled):
    r"""Dual optimal Halpern method (S-Dual-OHM with samples) for operators 1/L-cocoercive in expectation.

    The H-dual of `OHM`: errors do not accumulate, so a constant batch suffices. Not anytime: N is fixed in advance.
    Yoon and Loizou 2026; without noise Yoon, Kim, Suh, Ryu 2024.

    .. math:: x_{k+1} = x_k + \frac{N-k-1}{N-k} \bigl(T_k - T_{k-1}\bigr), \qquad
        T_k = x_k - \alpha F_{B_k}(x_k), \quad T_{-1} = x_0, \quad k = 0, \dots, N-2

    Guarantee under Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`, batches of size B:
    :math:`\mathbb E \|F(x_{N-1})\|^2 \le 4D^2/(\alpha^2 N^2) + 6\sigma^2/B` (Theorem 4.1).
    With :math:`\mu > 0` and :math:`\alpha = 1/L` also for every k < N, without Assumption 3.2:
    :math:`8L^2D^2/N^2 + 64 L^4 \mu^{-2} e^{-k\mu/L} D^2 + 4L\sigma^2/(\mu B)` (Theorem 4.5).

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 2/L
    horizon : int, N; the method takes N - 1 steps. For a budget Q the paper's Q/B
    batch_size : int, Schedule or list of int, :math:`B_k`, samples of step k; `Tapered(C)` needs fewest for an accuracy
    estimator : Estimator, optional; in place of a fresh batch

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), da.DualOHM(step_size=1.0, horizon=100, batch_size=50))
    >>> result.nit, result.nfev, result.status.name
    (99, 4950, 'HORIZON')
    """

    step_size: Any
    horizon: Any = field()  # required: None would mean anytime
    batch_size: Any = 1
    estimator: Estimator | None = None

    id = "s-dual-ohm"
    title = "S-Dual-OHM, the dual optimal Halpern method"
    citation = "yoon-loizou"
    step_rule = "Theorem 4.1"
    anytime = False
    counts = ("horizon",)

    def init(self, x0: Array) -> State:
        return State(**vars(super().init(x0)), z=arrays.zeros_like(x0))

    def update(self, k: int, s: State, G: Array) -> None:
        N, alpha, x, z = self.horizon, self.step_size, s.x, s.z
        z *= (N - k - 1) / (N - k)  # paper, proof of Lemma 4.2; more accurate than T_k - T_{k-1}
        z = arrays.minus_multiple(z, alpha / (N - k), G)
        x = arrays.minus_multiple(x, alpha, G)
        x -= z
        s.x, s.z = x, z


@dataclass(frozen=True)
class TaperedDualOHM(DualOHM):
    r"""Dual optimal Halpern method with horizon and tapered batches of the smallest bound that a budget can buy.

    Batches grow towards the end of a run, where errors weigh more. Not anytime.

    The update of `DualOHM` with :math:`B_k = \max\{1, \lceil C / \sqrt{(N-k)(N-k-1)} \rceil\}`, which is `Tapered(C)`.

    Guarantee under Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`:
    :math:`\mathbb E \|F(x_{N-1})\|^2 \le (A + \sqrt{A^2 + W})^2`, :math:`A = D/(\alpha N)`,
    :math:`W = 2\sigma^2 \sum_k 1/(B_k(N-k)(N-k-1))` (Theorem A); :math:`\tilde O(\epsilon^{-2})` samples (Theorem B).
    Not in the paper.

    Parameters
    ----------
    step_size, horizon, batch_size, estimator : as for `DualOHM`
        By name 2/L, and horizon and C (or equal batches, if better) of the smallest bound within the budget.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), "dual-ohm", budget=2000)
    >>> bool(result.residual < 0.02)
    True
    """

    id = "dual-ohm"
    title = "Dual-OHM with tapered batches, planned from the budget"
    citation = "yoon-loizou"
    tuned = ()
    step_rule = "Theorem A"

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        if any(given.get(name) is not None for name in ("horizon", "batch_size", "estimator")):
            return super().defaults(problem, budget, given)
        known, step = problem.constants, cls.step_for(problem, given)
        if step is None:
            return {"step_size": None}
        rule = "horizon and batches follow from a budget, L, D and sigma"
        remedy = "Declare what is missing, or pass horizon and batch_size, or use s-dual-ohm"
        budget, D, sigma = required(cls, problem, rule, remedy, budget=budget, D=known.D, sigma=known.sigma)
        tau = 2.0 if known.L is None else min(2.0, step * known.L)
        run = tapered_for_budget(budget, Setting(step, D, sigma, tau))
        return {"step_size": step, "horizon": run.horizon, "batch_size": run.batch_size}
