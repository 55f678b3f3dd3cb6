"""Plans for cocoercive operators: one function for each theorem, for an accuracy or within a budget."""

from dataclasses import dataclass, replace
from math import ceil, inf, isfinite, log, sqrt
from operator import attrgetter
from typing import Any

import numpy as np

from dualanchor.advise.planned import THEOREMS, Plan, plan_error
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory import bounds, schedules
from dualanchor.theory.schedules import Run, Setting
from dualanchor.theory.schedules.constant import for_smallest_accuracy


@dataclass(frozen=True)
class CocoerciveCandidates:
    """The plans that the theorems for cocoercive operators offer; `inputs` are the arguments of `plan`."""

    setting: Setting
    L: float
    inputs: dict[str, Any]

    @property
    def _tapered(self) -> bool:
        return self.inputs["batches"] == "tapered" and self.setting.bound != "paper"

    @property
    def _theorem_a_applies(self) -> bool:
        return self.inputs["cocoercive_in_expectation"] or self.setting.bound == "affine"

    def for_accuracy(self, eps: float, thorough: bool = True) -> list[Plan]:
        """One plan for each theorem that reaches eps; not quite optimal if not thorough."""
        setting, mu = self.setting, self.inputs["mu"]
        plans: list[Plan | None] = []
        if self._theorem_a_applies:
            schedule = schedules.tapered_for_accuracy if self._tapered else schedules.constant_for_accuracy
            run = schedule(eps, setting, thorough)
            plans.append(self._single_run(run))
            if setting.bound == "affine" and setting.multiple == 1 and run.horizon > 1:
                c = 2 * setting.sigma**2 / eps**2
                plans.append(self._averaged(max(1, ceil(c + sqrt(c**2 + (2 * setting.A(1) / eps) ** 2)))))
            if mu > 0 and setting.bound == "sharp" and run.horizon > 1:
                stages = schedules.restarts_for_accuracy(eps, setting, mu, self._tapered, thorough)
                if len(stages) > 1:
                    plans.append(self._plan("restarts", *stages))
        elif self._tapered and (run_n := schedules.power_for_accuracy(eps, setting)) is not None:
            plans.append(self._single_run(run_n) if run_n.horizon == 1 else self._without_a2(run_n))
        if mu > 0 and setting.multiple == 1 and not self.inputs["sharp_only"]:
            plans.append(self._early_stop(eps, mu) if setting.bound == "paper" else self._sgda_epochs(eps, mu))
        return [plan for plan in plans if plan is not None]

    def for_budget(self, budget: int) -> list[Plan]:
        """The plan of smallest bound within a budget of samples, if there is one."""
        setting = self.setting
        if setting.multiple > budget:
            return []
        plans = []
        if self._theorem_a_applies:
            schedule = schedules.tapered_for_budget if self._tapered else schedules.constant_for_budget
            plans.append(self._single_run(schedule(budget, setting)))
            if setting.bound == "affine" and setting.multiple == 1:
                plans.append(self._averaged(budget))
        if (self.inputs["mu"] > 0 or not self._theorem_a_applies) and setting.D > 0:
            below = 2 * setting.D / setting.step_size
            cheapest = for_smallest_accuracy(self._cheapest, attrgetter("samples"), budget, below)
            plans += [] if cheapest is None else [cheapest]
        return sorted(plans, key=lambda plan: plan.bound)[:1]

    def for_private_rounds(self) -> Plan:
        """The plan of smallest bound where the variance of a round depends on their number."""
        variance = self.inputs["round_variance"]
        run = schedules.best_horizon(variance if callable(variance) else lambda rounds: variance * rounds, self.setting)
        if not isfinite(run.bound):
            raise plan_error("round_variance must give finite variances", run.bound, "Check the function")
        return self._plan("theorem-a-rounds", run)

    def _cheapest(self, eps: float) -> Plan | None:
        return min(self.for_accuracy(eps, thorough=False), key=attrgetter("samples"), default=None)

    def _plan(self, theorem: str, *runs: Run, **more: Any) -> Plan:
        return Plan.of(THEOREMS[theorem], self.setting.step_size, runs, self.inputs, **more)

    def _single_run(self, run: Run) -> Plan:
        """One run of Dual-OHM, by Theorem A or the paper's form of it."""
        if run.horizon == 1:
            return self._plan("start", run)
        if self.setting.sigma == 0:
            return self._plan("proposition-3.3", run)
        if self.setting.bound == "paper":
            return self._plan("theorem-4.1", run)
        theorem = "theorem-a" if isinstance(run.batch_size, int) else "theorem-b"
        return self._plan(f"{theorem}-affine" if self.setting.bound == "affine" else theorem, run)

    def _without_a2(self, run: Run) -> Plan:
        """Theorem N: samples need not be cocoercive in expectation."""
        return self._plan("theorem-n", run, made=DualOHM(self.setting.step_size, run.horizon, run.batch_size))

    def _averaged(self, steps: int) -> Plan:
        """The mean of SGDA's iterates, for affine operators."""
        constants = self.setting.step_size, self.setting.D, self.setting.sigma
        eps = self.inputs["eps"] or inf
        while (bound := sqrt(bounds.averaged_affine(steps, *constants, weights="uniform"))) > eps:
            steps += max(1, steps >> 50)  # rounding only
        return self._plan("averaging-affine", Run(steps + 1, 1, steps, bound))

    def _early_stop(self, eps: float, mu: float) -> Plan | None:
        """Theorem 4.5: step 1/L, stop at k with N = max(k + 1, 4LD/eps); rounds cost samples, the horizon does not."""
        L, D, sigma = self.L, self.setting.D, self.setting.sigma
        shortest = L / mu * log(max(1.0, 128 * L**4 * D**2 / (mu * eps) ** 2))
        k = np.unique(np.ceil(np.linspace(max(1.0, shortest), shortest + 20 * L / mu + 10, 4000)))
        N = np.maximum(k + 1, ceil(4 * L * D / eps))
        room = eps**2 - bounds.theorem_4_5(N, k, L, mu, D, 0.0, 1)
        k, N, room = k[room > 0], N[room > 0], room[room > 0]
        if not k.size:
            return None
        B = np.maximum(1, np.ceil(4 * L * sigma**2 / (mu * room) - 1e-12))
        best = int(np.argmin(k * (B + self.setting.round_cost)))
        rounds, horizon, size = int(k[best]), int(N[best]), int(B[best])
        while (bound := sqrt(float(bounds.theorem_4_5(horizon, rounds, L, mu, D, sigma, size)))) > eps:
            size += max(1, size >> 50)
        run = Run(horizon, size, rounds * size, bound, exact=False)
        return replace(self._plan("theorem-4.5", run, horizon=horizon), step_size=1 / L, rounds=rounds)

    def _sgda_epochs(self, eps: float, mu: float) -> Plan | None:
        """Theorem C for SGDA with step 1/L, in epochs that each shrink the squared distance by a factor g."""
        L, D, sigma = self.L, self.setting.D, self.setting.sigma
        rho = 1 - mu / L
        target = (eps / L) ** 2 * (1 - 1e-12)  # for the squared distance at the end
        if target >= D**2:
            return None
        least, best_steps, best_sizes = inf, 0, np.empty(0)
        for epochs in range(1, max(1, min(60, ceil(log(D**2 / target) / log(2)) + 1)) + 1):
            g = (target / D**2) ** (1 / epochs)
            steps = np.array([1.0])
            if rho > 0:
                shortest = log(g) / log(rho) if rho < 1 else inf
                steps = np.unique(np.ceil(shortest * np.geomspace(1.0, 12.0, 120) + np.arange(120) / 40))
            room = g - np.power(rho, steps)
            steps, room = steps[room > 0], room[room > 0]
            noise = (1 - np.power(rho, steps)) * sigma**2 / (L * mu)
            starts = D**2 * g ** np.arange(epochs)
            sizes = np.maximum(1, np.ceil(noise[:, None] / (room[:, None] * starts) - 1e-12))
            costs = steps * (sizes + self.setting.round_cost).sum(axis=1)
            if costs.size and costs.min() < least:
                i = int(np.argmin(costs))
                least, best_steps, best_sizes = float(costs[i]), int(steps[i]), sizes[i]
        distance, runs = D, []
        for size in best_sizes:
            distance = sqrt(float(bounds.theorem_c_distance(best_steps, 1 / L, L, mu, distance, sigma, size)))
            runs.append(Run(best_steps + 1, int(size), best_steps * int(size), L * distance))
        if not runs or runs[-1].bound > eps:
            return None
        return replace(self._plan("theorem-c", *runs, exact=False), step_size=1 / L)
