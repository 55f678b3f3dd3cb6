"""Plans for operators that are monotone and Lipschitz, and need not be cocoercive."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from dualanchor.advise.planned import THEOREMS, Plan, plan_error
from dualanchor.core.check import LARGEST_COUNT
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method
from dualanchor.methods.averaged import averaged
from dualanchor.methods.feg import FEG
from dualanchor.methods.recursive_extragradient import RecursiveExtragradient
from dualanchor.methods.regularised_dual_ohm import RegularisedDualOHM
from dualanchor.methods.seg import SEG
from dualanchor.theory.bounds import STRONG
from dualanchor.theory.monotone import MONOTONE
from dualanchor.theory.schedules import Run, recursive
from dualanchor.theory.schedules import monotone as schedules
from dualanchor.theory.schedules.monotone import MonotonePlan, MonotoneSetting
from dualanchor.theory.schedules.recursive import Recursive

_LITTLE_NOISE = 0.5  # where sigma is below this part of M D, a hybrid plan may need fewer samples


@dataclass(frozen=True)
class MonotoneCandidates:
    """The plans that the theorems for monotone operators offer; `inputs` are the arguments of `plan`."""

    known: MonotoneSetting
    inputs: dict[str, Any]

    @property
    def _tapered(self) -> bool:
        return bool(self.inputs["batches"] == "tapered")

    @property
    def _hybrid_may_pay(self) -> bool:
        known = self.known
        return self._tapered and not known.composite and known.sigma < _LITTLE_NOISE * known.M * known.D

    def for_accuracy(self, eps: float) -> list[Plan]:
        """One plan for each theorem that reaches eps."""
        known = self.known
        unconstrained = not known.composite
        if unconstrained and eps >= known.M * known.D:
            return [self._start()]
        if self.inputs["growth"]:
            return [self._growing(lambda known: schedules.regularised_for_accuracy(eps, known, self._tapered))]
        if unconstrained and known.sigma == 0:
            return [self._fast(max(1, ceil(2 * known.M * known.D / eps * (1 - 1e-15))))]
        plans = []
        if unconstrained and self.inputs["affine"]:
            plans.append(self._averaged(schedules.averaged_for_accuracy(eps, known)))
        if self.inputs["cocoercive_in_expectation"]:
            regularised = schedules.regularised_for_accuracy(eps, known, self._tapered)
            if regularised.delta or known.composite:  # without regularisation, it is the plan of Theorem A
                plans.append(self._regularised(regularised))
            if self._hybrid_may_pay and (hybrid := recursive.hybrid_for_accuracy(eps, known)) is not None:
                plans.append(self._recursive(hybrid))
        if unconstrained and self._tapered and (stages := recursive.recursive_for_accuracy(eps, known)) is not None:
            plans.append(self._recursive(stages))
        return plans

    def for_budget(self, budget: int) -> list[Plan]:
        """The plan of smallest bound within a budget of samples, if there is one."""
        known = self.known
        plans = [] if known.composite else [self._start()]
        if self.inputs["growth"]:
            plans.append(self._growing(lambda known: schedules.regularised_for_budget(budget, known, self._tapered)))
        elif known.sigma == 0 and not known.composite:
            steps = budget // (2 * known.multiple)
            plans += [self._fast(steps)] if steps else []
        else:
            plans += self._within(budget)
        return sorted(plans, key=lambda plan: plan.bound)[:1]

    def _within(self, budget: int) -> Iterator[Plan]:
        """One plan for each theorem, within a budget of samples."""
        known = self.known
        unconstrained = not known.composite
        if self.inputs["affine"] and unconstrained:
            affine = schedules.averaged_for_budget(budget, known)
            if affine is not None:
                yield self._averaged(affine)
        if self.inputs["cocoercive_in_expectation"]:
            regularised = schedules.regularised_for_budget(budget, known, self._tapered)
            yield self._regularised(regularised)
            guess = min(regularised.run.bound, 0.9 * known.M * known.D)
            if self._hybrid_may_pay and (hybrid := recursive.hybrid_for_budget(budget, known, guess)) is not None:
                yield self._recursive(hybrid)
        elif unconstrained and (stages := recursive.recursive_for_budget(budget, known)) is not None:
            yield self._recursive(stages)

    def _start(self) -> Plan:
        """The start itself: F is M-Lipschitz, and a root is at most D away."""
        return self._plan("start-lipschitz", None, [Run(1, 1, 0, self.known.M * self.known.D)])

    def _growing(self, schedule: Callable[[MonotoneSetting], MonotonePlan]) -> Plan:
        """A regularised plan for noise of at most sigma + growth |x - x0|."""
        growth = self.inputs["growth"]
        if self.known.composite:
            raise plan_error("growth is for operators without a prox", growth, "Pass a sigma for the set")
        found = schedules.growing_noise(schedule, self.known, growth)
        if found is None:
            raise plan_error("noise that grows so fast has no plan", f"growth = {growth}", "Use a smaller eps")
        regularised, sigma = found
        finding = Finding.of("growing-noise", sigma=self.known.sigma, growth=growth, assumed=sigma)
        plan = self._regularised(regularised).assuming("noise of at most sigma + growth |x - x0|")
        return replace(plan, findings=(finding,))

    def _regularised(self, regularised: MonotonePlan) -> Plan:
        run = regularised.run
        if run.horizon == 1 and not self.known.composite:
            return self._start()
        if run.horizon > LARGEST_COUNT:
            raise OverflowError
        method = RegularisedDualOHM.of(regularised)
        return self._plan("theorem-m-prox" if self.known.composite else "theorem-m", method, [run])

    def _recursive(self, plan: Recursive) -> Plan:
        theorem = "theorem-r"
        if plan.is_hybrid:
            theorem = "theorem-h"
        elif len(plan.stages) == 1 and plan.stages[0].delta == 0:
            theorem = "lemma-e"
        runs = [stage.run for stage in plan.stages]
        return self._plan(theorem, RecursiveExtragradient.of(plan), runs)

    def _averaged(self, plan: MonotonePlan) -> Plan:
        method = averaged(SEG(plan.step_size, plan.run.batch_size), weights="uniform")
        return self._plan("averaged-extragradient", method, [plan.run])

    def _fast(self, steps: int) -> Plan:
        known, size = self.known, self.known.multiple
        run = Run(steps + 1, 2 * size, 2 * size * steps, 2 * known.M * known.D / steps)
        return self._plan("fast-extragradient", FEG(1 / known.M, size), [run])

    def _plan(self, name: str, method: Method | None, runs: list[Run]) -> Plan:
        theorem = THEOREMS[name]
        if self.known.mu > 0:
            assumptions = tuple(STRONG if assumed == MONOTONE else assumed for assumed in theorem.assumptions)
            theorem = replace(theorem, assumptions=assumptions)
        step_size = 1 / self.known.M if method is None else float(method.step_size)
        return Plan.of(theorem, step_size, runs, self.inputs, made=method)
