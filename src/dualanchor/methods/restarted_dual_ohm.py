"""Dual-OHM with restarts: each stage starts where the previous one ended."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Stages
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.types import IntArray
from dualanchor.methods._bases import LimitedStep, required, set_tuples
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.schedules import Setting, restarts_for_budget


@dataclass(frozen=True)
class RestartedDualOHM(Staged, LimitedStep):
    r"""Dual-OHM restarted at the end of each of its stages, for operators with :math:`\mu > 0`.

    Not anytime: all stages are fixed in advance, by name those of the smallest bound for a budget, mu, sigma and D.

    The update of `DualOHM`, restarted at the end of each stage.

    Guarantee under Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`,
    :math:`\mathrm{dist}(x, \text{roots}) \le \|F(x)\|/\mu`: from a root mean square residual r a stage ends with that
    of `TaperedDualOHM` for :math:`D = r/\mu`; about :math:`\frac{16}{3}\ln^2(4\kappa)\,\sigma^2/\epsilon^2` samples
    with tapered batches. Not in the paper.

    Parameters
    ----------
    step_size : float, at most 2/L
    horizons : tuple of int, N of each stage, which takes N - 1 steps
    batch_sizes : tuple of (int, Schedule or list of int), one per stage

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.05, L=1.0, mu=0.1, D=1.0, sigma=0.1)
    >>> int(da.solve(da.problems.affine(mu=0.1, sigma=0.1), plan.method()).nfev) == plan.samples
    True
    """

    step_size: Any
    horizons: Any
    batch_sizes: Any

    id = "restarted-dual-ohm"
    title = "Dual-OHM with restarts"
    citation = "yoon-loizou"
    step_rule = "Theorem A"
    anytime = False
    compared = False

    def __post_init__(self) -> None:
        set_tuples(self, "horizons", "batch_sizes")
        Stages(self.horizons, self.batch_sizes)  # raises if lengths or sizes are wrong
        super().__post_init__()

    @cached_property
    def horizon(self) -> int:
        """One more than the steps of all stages."""
        return 1 + sum(horizon - 1 for horizon in self.horizons)

    def stage(self, number: int, memory: State) -> Stage:
        method = DualOHM(self.step_size, self.horizons[number], self.batch_sizes[number])
        return Stage(method, method.init(memory.x), method.horizon - 1)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        memory.x = s.x
        return np.full(len(s.x), number + 1 if number + 1 < len(self.horizons) else END)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        if "horizons" in given and "batch_sizes" in given:
            return {"step_size": problem.step_size}
        known, rule = problem.constants, "stages follow from a budget and from mu > 0, L, sigma and D"
        remedy = "Pass horizons and batch_sizes, or a problem with these constants, or use dualanchor.plan"
        needed = {"mu": known.mu or None, "L": cls.step_for(problem, given), "D": known.D, "sigma": known.sigma}
        budget, mu, step, D, sigma = required(cls, problem, rule, remedy, budget=budget, **needed)
        setting = Setting(step, D, sigma, step * known.L if known.L else 2.0)
        if (runs := restarts_for_budget(budget, setting, mu)) is None:
            rule = f"{cls.id}: the budget must pay for a first stage"
            raise ArgumentError(rule, budget, "Use a larger budget or s-dual-ohm")
        horizons, sizes = zip(*((run.horizon, run.batch_size) for run in runs), strict=True)
        return {"step_size": step, "horizons": horizons, "batch_sizes": sizes}
