"""Dual-OHM with tapered batches, planned from a budget."""

from dataclasses import dataclass
from typing import Any

from dualanchor.core.problem import Problem
from dualanchor.methods._bases import required
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.schedules import Setting, tapered_for_budget


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
