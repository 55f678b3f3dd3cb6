"""Dual-OHM with tapered batches, planned from a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualanchor.core.errors import ArgumentError
from dualanchor.core.problem import Problem
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.schedules import Setting, tapered_for_budget


@dataclass(frozen=True)
class TaperedDualOHM(DualOHM):
    r"""Dual optimal Halpern method with horizon and tapered batches of the smallest bound that a budget can buy.

    A batch enters the bound with a weight that grows towards the end of the run, so small batches at first and large
    ones at the end need far fewer samples than equal ones. Everything follows from L, D and sigma: nothing is tuned.
    Not anytime.

    Update
    ------
    That of `DualOHM`,

    .. math:: x_{k+1} = x_k + \frac{N-k-1}{N-k} \bigl(T_k - T_{k-1}\bigr), \qquad
        B_k = \max\{1, \lceil C / \sqrt{(N-k)(N-k-1)} \rceil\}

    with N = `horizon` and `Tapered(C)` as `batch_size`.

    Guarantee
    ---------
    Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`: :math:`\mathbb E \|F(x_{N-1})\|^2 \le (A + \sqrt{A^2 + W})^2`,
    :math:`A = D/(\alpha N)`, :math:`W = 2\sigma^2 \sum_k 1/(B_k(N-k)(N-k-1))` (Theorem A). For accuracy
    :math:`\epsilon` that takes :math:`\tilde O(\epsilon^{-2})` samples (Theorem B). Not in the paper.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k; the budget in all, as nearly as whole batches allow.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L; 2/L by name.
    horizon : int
        N; the method takes N - 1 steps.
    batch_size : int, Schedule or list of int
        Samples per step.
    estimator : Estimator, optional
        Estimates F instead of a fresh batch; `batch_size` is not used then.

    Notes
    -----
    By name, horizon and C minimise the bound of Theorem A within the budget; where equal batches have a smaller bound
    they are equal. With a horizon, a batch size or an estimator given it is `DualOHM`, with that method's defaults.

    References
    ----------
    Built on Yoon and Loizou, Direct Acceleration of Stochastic Root-Finding Without Variance Reduction and
    Regularization; the batches are this library's.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.worst_case_nonexpansive(dimension=401)
    >>> equal, tapered = (da.solve(problem, name, budget=2000, reps=4) for name in ("s-dual-ohm", "dual-ohm"))
    >>> bool(tapered.residual.mean() < equal.residual.mean())
    True
    """

    id = "dual-ohm"
    title = "Dual-OHM with tapered batches, planned from the budget"
    citation = "yoon-loizou"
    step_rule = "Theorem A"

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        if any(given.get(name) is not None for name in ("horizon", "batch_size", "estimator")):
            return super().defaults(problem, budget, given)
        known = problem.constants
        step = given.get("step_size", None if known.L is None else 2 / known.L)
        if step is None:
            return {"step_size": None}
        needed = {"a budget": budget, "D": known.D, "sigma": known.sigma}
        if missing := [name for name, value in needed.items() if value is None]:
            raise ArgumentError(
                f"{cls.id}: horizon and batches follow from a budget, L, D and sigma",
                f"problem {problem.name!r} without {' and '.join(missing)}",
                "Declare what is missing, or pass horizon and batch_size, or use s-dual-ohm",
            )
        assert budget is not None
        assert known.D is not None
        assert known.sigma is not None
        tau = 2.0 if known.L is None else min(2.0, step * known.L)
        run = tapered_for_budget(budget, Setting(step, known.D, known.sigma, tau))
        return {"step_size": step, "horizon": run.horizon, "batch_size": run.batch_size}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        return {}
