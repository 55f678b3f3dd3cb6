"""Plans for operators that are monotone and Lipschitz, and need not be cocoercive."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from dualanchor.advise.planned import THEOREMS, Plan, refused
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
from dualanchor.theory.schedules.monotone import AveragedExtragradient, Known, Regularised
from dualanchor.theory.schedules.recursive import Recursive

_SMALL = 0.5  # noise below this part of M D: extragradient stages may need fewer samples


@dataclass(frozen=True)
class MonotoneCandidates:
    """The plans for what is known; `inputs` are the arguments of `plan`."""

    known: Known
    inputs: dict[str, Any]

    @property
    def _tapered(self) -> bool:
        return bool(self.inputs["batches"] == "tapered")

    @property
    def _little_noise(self) -> bool:
        known = self.known
        return self._tapered and not known.composite and known.sigma < _SMALL * known.M * known.D

    def for_accuracy(self, eps: float) -> list[Plan]:
        known, free = self.known, not self.known.composite
        if free and eps >= known.M * known.D:
            return [self._start()]
        if self.inputs["growth"]:
            return [self._with_growth(lambda one: schedules.regularised_for_accuracy(eps, one, self._tapered))]
        if free and known.sigma == 0:
            return [self._fast(max(1, ceil(2 * known.M * known.D / eps * (1 - 1e-15))))]
        choices = []
        if free and self.inputs["affine"]:
            choices.append(self._averaged(schedules.averaged_for_accuracy(eps, known)))
        if self.inputs["cocoercive_in_expectation"]:
            one = schedules.regularised_for_accuracy(eps, known, self._tapered)
            choices += [self._regularised(one)] if one.delta or not free else []  # else Theorem A says the same
            if self._little_noise and (made := recursive.hybrid_for_accuracy(eps, known)):
                choices.append(self._recursive(made))
        if free and self._tapered and (made := recursive.recursive_for_accuracy(eps, known)) is not None:
            choices.append(self._recursive(made))
        return choices

    def for_budget(self, budget: int) -> list[Plan]:
        known, free = self.known, not self.known.composite
        if known.multiple > budget:
            rule = f"budget must pay for one sample on each of {known.multiple} workers"
            raise refused(rule, budget, "Use a larger one")
        choices = [self._start()] if free else []
        if self.inputs["growth"]:
            choices.append(self._with_growth(lambda one: schedules.regularised_for_budget(budget, one, self._tapered)))
        elif free and known.sigma == 0:
            choices += [self._fast(steps)] if (steps := budget // (2 * known.multiple)) else []
        else:
            choices += self._within(budget, free)
        best = min(choices, key=lambda one: one.bound)
        return [replace(best, eps=None, budget=budget)]

    def _within(self, budget: int, free: bool) -> Iterator[Plan]:
        known, A3 = self.known, self.inputs["cocoercive_in_expectation"]
        affine = schedules.averaged_for_budget(budget, known) if self.inputs["affine"] and free else None
        if affine is not None:
            yield self._averaged(affine)
        if A3:
            one = schedules.regularised_for_budget(budget, known, self._tapered)
            yield self._regularised(one)
            guess = min(one.run.bound, 0.9 * known.M * known.D)
            if self._little_noise and (made := recursive.hybrid_for_budget(budget, known, guess)):
                yield self._recursive(made)
        elif free and (stages := recursive.recursive_for_budget(budget, known)) is not None:
            yield self._recursive(stages)

    def _start(self) -> Plan:
        """The start as it is: F is M-Lipschitz and D away from a root."""
        return self._plan("start-lipschitz", None, [Run(1, 1, 0, self.known.M * self.known.D)])

    def _with_growth(self, plan: Any) -> Plan:
        if self.known.composite:
            raise refused("growth is for operators without a prox", self.inputs["growth"], "Pass a sigma for the set")
        found = schedules.growing_noise(plan, self.known, self.inputs["growth"])
        if found is None:
            raise refused(
                "noise that grows so fast has no plan", f"growth = {self.inputs['growth']}", "Use a smaller eps"
            )
        made, sigma = found
        finding = Finding.of("growing-noise", sigma=self.known.sigma, growth=self.inputs["growth"], assumed=sigma)
        one = self._regularised(made)
        assumptions = (*one.assumptions, "noise of at most sigma + growth |x - x0|")
        return replace(one, theorem=replace(one.theorem, assumptions=assumptions), findings=(finding,))

    def _regularised(self, made: Regularised) -> Plan:
        if made.run.horizon == 1 and not self.known.composite:
            return self._start()
        method = RegularisedDualOHM(made.step_size, made.run.horizon, made.run.batch_size, delta=made.delta)
        return self._plan("theorem-m-prox" if self.known.composite else "theorem-m", method, [made.run])

    def _recursive(self, made: Recursive) -> Plan:
        runs = [Run(one.steps + 1, one.batch_size, one.samples, made.bound, False) for one in made.stages]
        runs += [] if made.last is None else [replace(made.last.run, exact=False)]
        plain = made.last is None and len(made.stages) == 1 and made.stages[0].nu == 0
        theorem = "lemma-e" if plain else "theorem-r" if made.last is None else "theorem-h"
        return self._plan(theorem, RecursiveExtragradient.of(made), runs, made.bound)

    def _averaged(self, made: AveragedExtragradient) -> Plan:
        method = averaged(SEG(made.step_size, made.batch_size), weights="uniform")
        run = Run(made.steps + 1, made.batch_size, made.samples, made.bound, False)
        return self._plan("averaged-extragradient", method, [run])

    def _fast(self, steps: int) -> Plan:
        known, size = self.known, self.known.multiple
        run = Run(steps + 1, 2 * size, 2 * size * steps, 2 * known.M * known.D / steps)
        return self._plan("fast-extragradient", FEG(1 / known.M, size), [run])

    def _plan(self, theorem: str, method: Method | None, runs: list[Run], bound: float | None = None) -> Plan:
        result, step_size = THEOREMS[theorem], 1 / self.known.M if method is None else float(method.step_size)
        if self.known.mu > 0:
            assumptions = tuple(STRONG if one == MONOTONE else one for one in result.assumptions)
            result = replace(result, assumptions=assumptions)
        bound = runs[-1].bound if bound is None else bound
        return Plan.of(result, step_size, runs, self.inputs, bound=bound, made=method)
