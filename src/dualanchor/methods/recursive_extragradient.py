"""Extragradient in stages on ever more strongly regularised operators."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.types import Array, IntArray
from dualanchor.methods._bases import TwoCall, lipschitz, required, set_tuples
from dualanchor.methods.regularised_dual_ohm import RegularisedDualOHM
from dualanchor.theory.schedules.monotone import MonotoneSetting
from dualanchor.theory.schedules.recursive import Recursive, recursive_for_budget


@dataclass(frozen=True)
class PulledExtragradient(TwoCall):
    r"""Extragradient steps on :math:`F(z) + \nu(z - c)`; the state has the centre c."""

    step_size: Any
    weight: Any
    batch_size: Any = 1

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), centre=arrays.copy(x0))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        a, nu = self.step_size, self.weight
        half = s.x - a * (self.first_call(k, s.x, F) + nu * (s.x - s.centre))
        s.x -= a * (self.second_call(k, half, F) + nu * (half - s.centre))


@dataclass(frozen=True)
class RecursiveExtragradient(Staged):
    r"""Recursively regularised extragradient, for monotone Lipschitz operators whose samples need not be Lipschitz.

    Stage s takes extragradient steps on :math:`F(z) + \nu_s(z - c_s)` from where the last one ended, :math:`z_s`.
    Few rounds and large batches. Not anytime. After Chen and Luo 2024.

    .. math:: \nu_s c_s = \nu_{s-1} c_{s-1} + (\nu_s - \nu_{s-1}) z_s, \qquad c_0 = z_0 = x_0

    Guarantee under Assumption 3.1 for M-Lipschitz F, stages that end at root mean square distances
    :math:`R_1, \dots, R_{S+1}` from the roots of their operators (Lemma E):
    :math:`(\mathbb E\|F(x)\|^2)^{1/2} \le \nu_0 D + \sum_s(\nu_s-\nu_{s-1})R_s + (M+\nu_S)R_{S+1}` (Theorem R). With
    regularised Dual-OHM as the `last` stage its bound takes the place of the last term, if samples are Lipschitz in
    mean square. Not in the paper.

    Parameters
    ----------
    step_size : float, :math:`\alpha_0`
    deltas, stage_steps, step_factors : tuples of one number per stage: :math:`\nu_s`, steps, :math:`\alpha_s/\alpha_0`
    batch_sizes : tuple of (int, Schedule or list of int), per operator call, or Paired
    last : RegularisedDualOHM, optional; the last stage, its delta comes after the others

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.1, M=1.0, D=1.0, sigma=0.01)
    >>> plan.method().id, plan.samples < da.plan(eps=0.1, M=1.0, D=1.0, sigma=0.1).samples
    ('recursive-extragradient', True)
    """

    step_size: Any
    deltas: Any
    stage_steps: Any
    batch_sizes: Any
    step_factors: Any
    last: Any = None

    id = "recursive-extragradient"
    title = "Recursively regularised extragradient, for monotone operators"
    citation = "rain"
    anytime = False
    compared = False

    def __post_init__(self) -> None:
        names = ("deltas", "stage_steps", "batch_sizes", "step_factors")
        set_tuples(self, *names)
        if len({len(getattr(self, name)) for name in names}) > 1 or not (self.deltas or self.last):
            rule = "RecursiveExtragradient: there must be as many deltas, steps, batch sizes and step factors"
            raise ArgumentError(rule, [len(getattr(self, name)) for name in names], "Give one of each for every stage")
        if not isinstance(self.last, RegularisedDualOHM | None):
            rule = "RecursiveExtragradient: last must be a RegularisedDualOHM"
            raise ArgumentTypeError(rule, repr(self.last), "Leave it out, or use da.plan(...).method()")
        weights = [check.number(delta, "RecursiveExtragradient: each delta") for delta in self.deltas]
        for factor in self.step_factors:
            check.number(factor, "RecursiveExtragradient: each step factor", positive=True)
        for steps in self.stage_steps:
            check.count(steps, "RecursiveExtragradient: the steps of a stage")
        if sorted(weights) != weights:
            rule = "RecursiveExtragradient: deltas must not fall from stage to stage"
            raise ArgumentError(rule, self.deltas, "Sort them")
        super().__post_init__()
        for number in range(len(self.deltas)):
            self._extragradient(number)  # raises if a parameter is wrong

    @classmethod
    def of(cls, plan: Recursive) -> "RecursiveExtragradient":
        """The method that a plan asks for."""
        first, stages, last = plan.stages[0].step_size, list(plan.stages), None
        if plan.is_hybrid:
            end = stages.pop()
            last = RegularisedDualOHM.of(end)
        return cls(
            first,
            deltas=[stage.delta for stage in stages],
            stage_steps=[stage.run.horizon - 1 for stage in stages],
            batch_sizes=[stage.run.batch_size for stage in stages],
            step_factors=[stage.step_size / first for stage in stages],
            last=last,
        )

    @cached_property
    def horizon(self) -> int:
        """One more than the steps of all stages."""
        return 1 + sum(self.stage_steps) + (0 if self.last is None else self.last.horizon - 1)

    def begin(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), centre=arrays.copy(x0))

    def stage(self, number: int, memory: State) -> Stage:
        dual = number == len(self.deltas)
        method: Method = self.last if dual else self._extragradient(number)
        state = method.init(memory.x)
        setattr(state, "anchor" if dual else "centre", arrays.copy(memory.centre))
        return Stage(method, state, self.last.horizon - 1 if dual else self.stage_steps[number])

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        memory.x, deltas = s.x, (*self.deltas, *([] if self.last is None else [self.last.delta]))
        if number + 1 == len(deltas):
            return np.full(len(s.x), END)
        if (after := deltas[number + 1]) > 0:
            memory.centre = memory.centre + (1 - deltas[number] / after) * (s.x - memory.centre)
        return np.full(len(s.x), number + 1)

    def _extragradient(self, number: int) -> PulledExtragradient:
        return PulledExtragradient(
            self.step_size * self.step_factors[number], self.deltas[number], self.batch_sizes[number]
        )

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        known, M = problem.constants, lipschitz(problem.constants)
        if isinstance(deltas := given.get("deltas"), (tuple, list)):
            step = problem.step_size if M is None else 1 / (2 * (M + max(deltas, default=0.0)))
            return {"step_size": step, "step_factors": (1.0,) * len(deltas)}
        rule = "stages follow from a budget and from M, D and sigma"
        remedy = "Pass the stages, or a problem with these constants, or use dualanchor.plan"
        needed = {"budget": budget, "M": M, "D": known.D, "sigma": known.sigma}
        budget, M, D, sigma = required(cls, problem, rule, remedy, **needed)
        if (made := recursive_for_budget(budget, MonotoneSetting(M, D, sigma, known.mu))) is None:
            raise ArgumentError(f"{cls.id}: the budget must pay for a first stage", budget, "Use a larger budget")
        return cls.of(made).parameters()
