"""Dual-OHM in stages that start where the one before ended: planned from a budget, or of doubling length."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Stages, Tapered
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.types import Array, IntArray
from dualanchor.methods._bases import LimitedStep, required, set_tuples
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.schedules import Setting, restarts_for_budget
from dualanchor.theory.weights import root_sum

SHORTEST = 8  # first stage of the anytime method: from here on the stages after it lose little by its noise


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


@dataclass(frozen=True)
class AnytimeDualOHM(Staged, LimitedStep):
    r"""Dual-OHM in stages that double in length, for operators 1/L-cocoercive in expectation.

    Each stage starts where the one before ended; the end of the last finished stage is returned. Anytime.
    Stages up to j take at most :math:`\frac43 b N_j^2 H_{N_j}^2 + 2N_j` samples.

    The update of `DualOHM`, restarted in stages of horizon :math:`N_j = 2^j N_0` with batches `Tapered(C)`,
    :math:`C = b N_j^2 H_{N_j}`, :math:`H_N = \sum_{m=2}^N 1/\sqrt{m(m-1)} \approx \ln N`, b = `batch_scale` and
    :math:`N_0` = `first_stage`.

    Guarantee under Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`, at the end of each stage:
    :math:`\mathbb E \|F(x)\|^2 \le (P_j + \sqrt{P_j^2 + 2\sigma^2/b})^2 / N_j^2` with :math:`P_j = D_j/\alpha`,
    :math:`D_0 = D` and :math:`D_{j+1}^2 = D_j^2 + \frac{\alpha^2\sigma^2}{2} \sum_k 1/B_k` over the rounds of stage
    j: in the number Q of samples :math:`O(\log^2 Q\,\log\log Q / Q)`, for any b. Not in the paper.

    Parameters
    ----------
    step_size : float, at most 2/L; 2/L by name
    batch_scale : float, b; :math:`\alpha^2\sigma^2/(4D^2)` by name; ten times off costs about half as much again
    first_stage : int, at least 8

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), "anytime-dual-ohm", budget=10_000)
    >>> bool(result.residual < 0.02)
    True
    """

    step_size: Any
    batch_scale: Any
    first_stage: Any = SHORTEST

    id = "anytime-dual-ohm"
    title = "Anytime Dual-OHM, stages of doubling length"
    citation = "yoon-loizou"
    step_rule = "Theorem A"
    compared = False
    positive = ("step_size", "batch_scale")
    counts = ("first_stage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.min(self.first_stage) < SHORTEST:
            rule = f"{type(self).__name__}: first_stage must be at least {SHORTEST}"
            raise ArgumentError(rule, self.first_stage, f"Use first_stage={SHORTEST}")

    def batches(self, horizon: int) -> Tapered:
        """The batch sizes of the stage with this horizon."""
        return Tapered(float(self.batch_scale) * horizon**2 * float(root_sum(horizon)))

    def stage(self, number: int, memory: State) -> Stage:
        N = int(self.first_stage) << number
        method = DualOHM(self.step_size, N, self.batches(N))
        return Stage(method, method.init(memory.x), N - 1)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        memory.x = s.x
        return np.full(len(s.x), number + 1)

    def point(self, number: int, memory: State, s: State) -> Array:
        return memory.x  # the end of the last finished stage

    def steps_within(self, budget: int) -> int:
        steps, N = 0, int(self.first_stage)
        while (spent := int(np.sum(self.batches(N).size(np.arange(N - 1), N)))) <= budget:
            steps, budget, N = steps + N - 1, budget - spent, 2 * N
        return steps + int(np.searchsorted(np.cumsum(self.batches(N).size(np.arange(N - 1), N)), budget, side="right"))

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        step = cls.step_for(problem, given)
        if step is None or "batch_scale" in given:
            return {"step_size": step}
        rule = "batch_scale follows from sigma and D"
        remedy = "Declare what is missing, or pass batch_scale; sigma^2 / |F(x0)|^2 is large enough"
        sigma, D = required(cls, problem, rule, remedy, sigma=problem.constants.sigma, D=problem.constants.D)
        best = (step * sigma / (2 * D)) ** 2 if D > 0 else 1.0
        return {"step_size": step, "batch_scale": max(best, check.SMALLEST)}
