"""Plans that theorems offer for an accuracy or a budget, one function for each theorem."""

from dataclasses import dataclass, replace
from math import ceil, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.planned import THEOREMS, Plan, refused
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory import bounds, schedules
from dualanchor.theory.schedules import Run, Setting


@dataclass(frozen=True)
class Candidates:
    """The plans for one setting; `inputs` are the arguments of `plan`."""

    setting: Setting
    L: float
    inputs: dict[str, Any]

    @property
    def _tapered(self) -> bool:
        return self.inputs["batches"] == "tapered" and self.setting.bound != "paper"

    @property
    def _has_one_shot(self) -> bool:
        return self.inputs["cocoercive_in_expectation"] or self.setting.bound == "affine"

    def for_accuracy(self, eps: float, thorough: bool = True) -> list[Plan]:
        choices, setting, mu = [], self.setting, self.inputs["mu"]
        if self._has_one_shot:
            run = (schedules.tapered_for_accuracy if self._tapered else schedules.constant_for_accuracy)(
                eps, setting, thorough
            )
            choices.append(self._one_shot(run))
            if setting.bound == "affine" and setting.multiple == 1 and run.horizon > 1:
                steps = 2 * setting.sigma**2 / eps**2
                steps = max(1, ceil(steps + sqrt(steps**2 + (2 * setting.A(1) / eps) ** 2)))
                choices.append(self._averaged(steps))
            if mu > 0 and setting.bound == "sharp" and run.horizon > 1:
                stages = schedules.restarts_for_accuracy(eps, setting, mu, self._tapered, thorough)
                if len(stages) > 1:
                    choices.append(self._made("restarts", *stages))
        elif self._tapered and (power := schedules.power_for_accuracy(eps, setting)) is not None:
            choices.append(self._one_shot(power) if power.horizon == 1 else self._power(power))
        if mu > 0 and setting.multiple == 1 and not self.inputs["sharp_only"]:
            contracted = self._early_stop(eps, mu) if setting.bound == "paper" else self._contracted(eps, mu)
            choices += [] if contracted is None else [contracted]
        return choices

    def for_budget(self, budget: int) -> list[Plan]:
        setting, choices = self.setting, []
        if setting.multiple > budget:
            rule = f"budget must pay for one sample on each of {setting.multiple} workers"
            raise refused(rule, budget, "Use a larger one")
        if self._has_one_shot:
            run = (schedules.tapered_for_budget if self._tapered else schedules.constant_for_budget)(budget, setting)
            choices.append(self._one_shot(run))
            if setting.bound == "affine" and setting.multiple == 1:
                choices.append(self._averaged(budget))
        if (self.inputs["mu"] > 0 or not self._has_one_shot) and setting.D > 0:
            choices += self._stages_within(budget)
        if not choices:
            rule = "a budget must pay for the first steps of a method with a theorem"
            raise refused(rule, budget, "Use a larger budget")
        return [replace(min(choices, key=lambda one: one.bound), eps=None, budget=budget)]

    def for_private_rounds(self) -> Plan:
        given = self.inputs["round_variance"]
        run = schedules.best_horizon(given if callable(given) else lambda rounds: given * rounds, self.setting)
        if not isfinite(run.bound):
            raise refused("round_variance must give finite variances", run.bound, "Check the function")
        return self._made("theorem-a-rounds", run, exact=True)

    def _stages_within(self, budget: int) -> list[Plan]:
        """Plans for accuracies whose samples come close to the budget from below; samples go about like 1/eps**2."""
        high = 2 * self.setting.D / self.setting.step_size
        low, eps, found = high * 1e-14, high / 2, []
        for _ in range(9):
            cheapest = min(self.for_accuracy(eps, False), key=lambda one: one.samples, default=None)
            spent = inf if cheapest is None else cheapest.samples
            if cheapest is not None and spent <= budget:
                high = eps
                found.append(cheapest)
            else:
                low = eps
            guess = eps * sqrt(max(spent, 1) / budget) * (1 + 1e-3) if isfinite(spent) else 0.0
            eps = guess if low < guess < high else sqrt(low * high)
            if high / low < 1 + 1e-3:
                break
        return found

    def _one_shot(self, run: Run) -> Plan:
        if run.horizon == 1:
            theorem = "start"
        elif self.setting.sigma == 0:
            theorem = "proposition-3.3"
        elif self.setting.bound == "paper":
            theorem = "theorem-4.1"
        else:
            theorem = "theorem-a" if isinstance(run.batch_size, int) else "theorem-b"
            theorem += "-affine" if self.setting.bound == "affine" else ""
        return self._made(theorem, run)

    def _power(self, run: Run) -> Plan:
        method = DualOHM(self.setting.step_size, run.horizon, run.batch_size)
        return self._made("theorem-n", run, made=method)

    def _averaged(self, steps: int) -> Plan:
        known = (self.setting.step_size, self.setting.D, self.setting.sigma)
        while (value := sqrt(bounds.averaged_affine(steps, *known, weights="uniform"))) > (self.inputs["eps"] or inf):
            steps += max(1, steps >> 50)  # rounding only
        return self._made("averaging-affine", Run(steps + 1, 1, steps, value))

    def _made(self, theorem: str, *runs: Run, **more: Any) -> Plan:
        return Plan.of(THEOREMS[theorem], self.setting.step_size, runs, self.inputs, **more)

    def _early_stop(self, eps: float, mu: float) -> Plan | None:
        """Theorem 4.5: step 1/L, stop at k with N = max(k + 1, 4LD/eps); a horizon costs nothing, k rounds do."""
        L, D, sigma = self.L, self.setting.D, self.setting.sigma
        first = L / mu * log(max(1.0, 128 * L**4 * D**2 / (mu * eps) ** 2))
        k = np.unique(np.ceil(np.linspace(max(1.0, first), first + 20 * L / mu + 10, 4000)))
        N = np.maximum(k + 1, ceil(4 * L * D / eps))
        room = eps**2 - bounds.theorem_4_5(N, k, L, mu, D, 0.0, 1)
        k, N, room = k[room > 0], N[room > 0], room[room > 0]
        if not k.size:
            return None
        B = np.maximum(1, np.ceil(4 * L * sigma**2 / (mu * room) - 1e-12))
        i = int(np.argmin(k * (B + self.setting.round_cost)))
        steps, horizon, size = int(k[i]), int(N[i]), int(B[i])
        while (value := sqrt(float(bounds.theorem_4_5(horizon, steps, L, mu, D, sigma, size)))) > eps:
            size += max(1, size >> 50)
        run = Run(horizon, size, steps * size, value, False)
        return replace(self._made("theorem-4.5", run, horizon=horizon), step_size=1 / L, rounds=steps)

    def _contracted(self, eps: float, mu: float) -> Plan | None:
        """Theorem C without horizon (SGDA with step 1/L) in epochs that shrink the squared distance by a factor g."""
        L, D, sigma = self.L, self.setting.D, self.setting.sigma
        rho, goal = 1 - mu / L, (eps / L) ** 2 * (1 - 1e-12)
        if goal >= D**2:
            return None
        least, k, sizes = inf, 0, np.empty(0)
        for epochs in range(1, max(1, min(60, ceil(log(D**2 / goal) / log(2)) + 1)) + 1):
            g = (goal / D**2) ** (1 / epochs)
            steps = np.array([1.0])
            if rho > 0:
                first = log(g) / log(rho) if rho < 1 else inf
                steps = np.unique(np.ceil(first * np.geomspace(1.0, 12.0, 120) + np.arange(120) / 40))
            left = g - np.power(rho, steps)
            steps, left = steps[left > 0], left[left > 0]
            spread = (1 - np.power(rho, steps)) * sigma**2 / (L * mu)
            starts = D**2 * g ** np.arange(epochs)
            tried = np.maximum(1, np.ceil(spread[:, None] / (left[:, None] * starts) - 1e-12))
            costs = steps * (tried + self.setting.round_cost).sum(axis=1)
            i = int(np.argmin(costs)) if costs.size else -1
            if i >= 0 and costs[i] < least:
                least, k, sizes = float(costs[i]), int(steps[i]), tried[i]
        distance, runs = D, []
        for size in sizes:
            distance = sqrt(float(bounds.theorem_c_distance(k, 1 / L, L, mu, distance, sigma, size)))
            runs.append(Run(k + 1, int(size), k * int(size), L * distance))
        if not runs or runs[-1].bound > eps:
            return None
        return replace(self._made("theorem-c", *runs, exact=False), step_size=1 / L)
