"""Dual-OHM on a regularised operator, for operators that are monotone and Lipschitz but not cocoercive."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.types import Array
from dualanchor.methods._bases import RemembersStart, lipschitz, required
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.monotone import regularised_cocoercivity
from dualanchor.theory.schedules.monotone import MonotonePlan, MonotoneSetting, regularised_for_budget


@dataclass(frozen=True)
class RegularisedDualOHM(RemembersStart, DualOHM):
    r"""Dual optimal Halpern method on :math:`F(x) + \delta(x - x_0)`, for monotone Lipschitz operators.

    A small pull towards the start makes a merely monotone operator cocoercive in expectation. Not anytime.

    The update of `DualOHM` with :math:`F_{B_k}(x_k) + \delta(x_k - x_0)` in place of :math:`F_{B_k}(x_k)`.

    Guarantee under Assumption 3.1, samples M-Lipschitz in mean square, :math:`0 < \delta \le M`,
    :math:`0 < \alpha \le 2\delta/(M^2+\delta^2)`: :math:`(\mathbb E \|F(x_{N-1})\|^2)^{1/2} \le \delta D + A +
    \sqrt{A^2 + W}`, :math:`A = D/(\alpha N)`, W as for `TaperedDualOHM` (Theorem M); :math:`\tilde O(\epsilon^{-2})`
    samples. Not in the paper.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most :math:`2(\delta+\mu)/(M^2+\delta^2+2\mu\delta)`
    horizon, batch_size, estimator : as for `DualOHM`
    delta : float, :math:`\delta`; 0 is `DualOHM`. By name all are those of the smallest bound within the budget

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.2, M=1.0, D=1.0, sigma=1.0)
    >>> plan.method().id, plan.samples < 2000
    ('regularised-dual-ohm', True)
    """

    delta: Any = 0.0

    id = "regularised-dual-ohm"
    title = "Regularised Dual-OHM, for monotone operators"
    citation = "yoon-loizou"
    tuned = ()
    step_rule = "Theorem M"
    compared = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for delta in np.ravel(self.delta):
            check.number(delta, "RegularisedDualOHM: delta", remedy="Use a number >= 0")

    def update(self, k: int, s: State, G: Array) -> None:
        super().update(k, s, G + self.delta * (s.x - s.anchor))

    @classmethod
    def of(cls, plan: MonotonePlan) -> Self:
        """The method that a plan asks for."""
        return cls(plan.step_size, plan.run.horizon, plan.run.batch_size, delta=plan.delta)

    @staticmethod
    def _largest(constants: Constants, delta: Any) -> Any:
        """The largest step size of Theorem M; None if it does not apply."""
        M, mu = lipschitz(constants), constants.mu
        return None if M is None or delta + mu == 0 else 2 / regularised_cocoercivity(delta, M, mu)

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        if (largest := self._largest(constants, np.min(self.delta))) is None:
            return super().largest_step(constants)
        return largest, "2(delta+mu)/(M^2+delta^2+2 mu delta)", f"{self.step_rule} with M = {lipschitz(constants):.6g}"

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        known, M = problem.constants, lipschitz(problem.constants)
        if given.get("horizon") is None and {"delta", "batch_size"} & given.keys():
            rule = f"{cls.id}: delta and batch_size go with a horizon"
            raise ArgumentError(rule, "no horizon", "Pass horizon too, or leave them out: they follow from a budget")
        if given.get("horizon") is not None:
            largest = cls._largest(known, given.get("delta", 0.0))
            return {"step_size": problem.step_size if largest is None else largest}
        rule = "step, horizon and batches follow from a budget, M, D and sigma"
        remedy = "Declare what is missing, or pass step_size, horizon, batch_size and delta"
        needed = {"budget": budget, "M": M, "D": known.D, "sigma": known.sigma}
        budget, M, D, sigma = required(cls, problem, rule, remedy, **needed)
        return cls.of(regularised_for_budget(budget, MonotoneSetting(M, D, sigma, known.mu))).parameters()
