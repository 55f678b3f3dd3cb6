"""Plans that theorems offer for an accuracy or a budget, one function for each theorem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.planned import AVERAGING, Plan, refused
from dualanchor.theory import bounds
from dualanchor.theory.bounds import A1, A2, COCOERCIVE, STRONG
from dualanchor.theory.schedules import (
    Run,
    Setting,
    best_horizon,
    constant_for_accuracy,
    constant_for_budget,
    restarts_for_accuracy,
    tapered_for_accuracy,
    tapered_for_budget,
)


def for_accuracy(
    eps: float, setting: Setting, L: float, mu: float, asked: dict[str, Any], thorough: bool = True
) -> list[Plan]:
    """The cheapest plan that reaches an accuracy by each theorem that applies."""
    choices = []
    tapered = asked["batches"] == "tapered" and setting.bound != "paper"
    if asked["cocoercive_in_expectation"] or setting.bound == "affine":
        one_shot = tapered_for_accuracy if tapered else constant_for_accuracy
        run = one_shot(eps, setting, thorough)
        choices.append(_one_shot(run, setting, asked))
        if setting.bound == "affine" and setting.multiple == 1 and run.horizon > 1:
            steps = 2 * setting.sigma**2 / eps**2
            steps = max(1, ceil(steps + sqrt(steps**2 + (2 * setting.A(1) / eps) ** 2)))
            choices.append(_averaged(steps, setting, asked))
        if mu > 0 and setting.bound == "sharp" and run.horizon > 1:
            stages = restarts_for_accuracy(eps, setting, mu, tapered, thorough)
            if len(stages) > 1:
                choices.append(_restarted(stages, setting, asked))
    if mu > 0 and setting.multiple == 1 and not asked["sharp_only"]:
        contracted = _early_stop if setting.bound == "paper" else _contracted
        if (one := contracted(eps, setting, L, mu, asked)) is not None:
            choices.append(one)
    return choices


def for_budget(budget: int, setting: Setting, L: float, mu: float, asked: dict[str, Any]) -> list[Plan]:
    """The plan with the smallest bound that a budget pays for."""
    if setting.multiple > budget:
        raise refused(
            f"budget must pay for one sample on each of {setting.multiple} workers", budget, "Use a larger one"
        )
    choices = []
    tapered = asked["batches"] == "tapered" and setting.bound != "paper"
    if asked["cocoercive_in_expectation"] or setting.bound == "affine":
        run = tapered_for_budget(budget, setting) if tapered else constant_for_budget(budget, setting)
        choices.append(_one_shot(run, setting, asked))
        if setting.bound == "affine" and setting.multiple == 1:
            choices.append(_averaged(budget, setting, asked))
    if mu > 0 and setting.D > 0:
        choices += _stages_within(budget, setting, L, mu, asked)
    if not choices:
        raise refused("a budget must pay for the first steps of a method with a theorem", budget, "Use a larger budget")
    best = min(choices, key=lambda one: one.bound)
    return [replace(best, eps=None, budget=budget)]


def _stages_within(budget: int, setting: Setting, L: float, mu: float, asked: dict[str, Any]) -> list[Plan]:
    """Plans for accuracies whose samples come close to the budget from below; samples go about like 1/eps**2."""
    high = 2 * setting.D / setting.step_size
    low, eps, found = high * 1e-14, high / 2, []
    for _ in range(9):
        cheapest = min(for_accuracy(eps, setting, L, mu, asked, False), key=lambda one: one.samples, default=None)
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


def _one_shot(run: Run, setting: Setting, asked: dict[str, Any]) -> Plan:
    constant = isinstance(run.batch_size, int)
    assumptions: tuple[str, ...]
    if setting.bound == "paper":
        theorem, assumptions = "Theorem 4.1 (constant batches)", (A1, A2)
    else:
        theorem = "Theorem A (constant batches)" if constant else "Theorems A and B (tapered batches)"
        assumptions = (A1, "F is affine") if setting.bound == "affine" else (A1, A2)
        if setting.bound == "affine":
            theorem = theorem.replace(" (", " for affine operators (")
    if setting.sigma == 0:
        theorem, assumptions = "Proposition 3.3 (no noise)", (COCOERCIVE,)
    if run.horizon == 1:
        theorem, assumptions = "the start itself: |F(x0)| <= 2D/step_size", (COCOERCIVE,)
    return _made(theorem, assumptions, (run,), setting, asked)


def _averaged(steps: int, setting: Setting, asked: dict[str, Any]) -> Plan:
    """The mean of SGDA's iterates, equally weighted, for an affine operator: one sample in each of so many rounds."""
    value = sqrt(float(bounds.averaged_affine(steps, setting.step_size, setting.D, setting.sigma, weights="uniform")))
    while asked["eps"] is not None and value > asked["eps"]:  # rounding only
        steps += max(1, steps >> 50)
        value = sqrt(
            float(bounds.averaged_affine(steps, setting.step_size, setting.D, setting.sigma, weights="uniform"))
        )
    return _made(AVERAGING, (A1, "F is affine"), (Run(steps + 1, 1, steps, value),), setting, asked)


def _restarted(stages: list[Run], setting: Setting, asked: dict[str, Any]) -> Plan:
    sharp = "dist(x, roots) <= |F(x)|/mu"
    return _made("Restarts of Theorem A", (A1, A2, sharp), tuple(stages), setting, asked)


def _made(theorem: str, assumptions: tuple[str, ...], runs: tuple[Run, ...], setting: Setting, asked: Any) -> Plan:
    rounds = sum(run.horizon - 1 for run in runs)
    return Plan(
        theorem=theorem,
        assumptions=assumptions,
        step_size=setting.step_size,
        horizon=rounds + 1,
        stop=rounds,
        stages=runs,
        rounds=rounds,
        samples=sum(run.samples for run in runs),
        bound=runs[-1].bound,
        exact=all(run.exact for run in runs),
        eps=asked["eps"],
        budget=asked["budget"],
        asked=asked,
    )


def _early_stop(eps: float, setting: Setting, L: float, mu: float, asked: dict[str, Any]) -> Plan | None:
    """Theorem 4.5: step 1/L, stop at k with N = max(k + 1, 4LD/eps); a horizon costs nothing, k rounds do."""
    D, sigma = setting.D, setting.sigma
    shortest = ceil(4 * L * D / eps)
    first = L / mu * log(max(1.0, 128 * L**4 * D**2 / (mu * eps) ** 2))
    k = np.unique(np.ceil(np.linspace(max(1.0, first), first + 20 * L / mu + 10, 4000)))
    N = np.maximum(k + 1, shortest)
    room = eps**2 - bounds.theorem_4_5(N, k, L, mu, D, 0.0, 1)
    k, N, room = k[room > 0], N[room > 0], room[room > 0]
    if not k.size:
        return None
    B = np.maximum(1, np.ceil(4 * L * sigma**2 / (mu * room) - 1e-12))
    i = int(np.argmin(k * (B + setting.round_cost)))
    steps, horizon, size = int(k[i]), int(N[i]), int(B[i])
    while (value := sqrt(float(bounds.theorem_4_5(horizon, steps, L, mu, D, sigma, size)))) > eps:
        size += max(1, size >> 50)
    run = Run(horizon, size, steps * size, value, False)
    made = _made("Theorem 4.5 (early stopping)", (A1, COCOERCIVE, STRONG), (run,), setting, asked)
    return replace(made, step_size=1 / L, horizon=horizon, stop=steps, rounds=steps, samples=run.samples)


def _contracted(eps: float, setting: Setting, L: float, mu: float, asked: dict[str, Any]) -> Plan | None:
    """Theorem C without horizon (SGDA with step 1/L) in epochs that shrink the squared distance by a factor g."""
    D, sigma = setting.D, setting.sigma
    rho, goal = 1 - mu / L, (eps / L) ** 2 * (1 - 1e-12)
    if goal >= D**2:
        return None
    best: tuple[float, int, int, Any] = (inf, 0, 0, None)
    most = max(1, min(60, ceil(log(D**2 / goal) / log(2)) + 1))
    for epochs in range(1, most + 1):
        g = (goal / D**2) ** (1 / epochs)
        steps = _steps_to_try(rho, g)
        left = g - np.power(rho, steps)
        steps, left = steps[left > 0], left[left > 0]
        starts = D**2 * g ** np.arange(epochs)
        spread = (1 - np.power(rho, steps)) * sigma**2 / (L * mu)
        sizes = np.maximum(1, np.ceil(spread[:, None] / (left[:, None] * starts) - 1e-12))
        costs = steps * (sizes + setting.round_cost).sum(axis=1)
        i = int(np.argmin(costs)) if costs.size else -1
        if i >= 0 and costs[i] < best[0]:
            best = (float(costs[i]), epochs, int(steps[i]), sizes[i])
    if best[3] is None:
        return None
    _, epochs, k, sizes = best
    distance, runs = D, []
    for size in sizes:
        distance = sqrt(float(bounds.theorem_c_distance(k, 1 / L, L, mu, distance, sigma, size)))
        runs.append(Run(k + 1, int(size), k * int(size), L * distance))
    if runs[-1].bound > eps:
        return None
    made = _made("Theorem C (SGDA in epochs)", (A1, COCOERCIVE, STRONG), tuple(runs), setting, asked)
    return replace(made, step_size=1 / L, exact=False)


def _steps_to_try(rho: float, g: float) -> Any:
    if rho <= 0:
        return np.array([1.0])
    first = log(g) / log(rho) if rho < 1 else inf
    return np.unique(np.ceil(first * np.geomspace(1.0, 12.0, 120) + np.arange(120) / 40))


def for_private_rounds(round_variance: float | Callable[[int], float], setting: Setting, asked: dict[str, Any]) -> Plan:
    """The plan with the smallest bound where the number of rounds sets the variance of each."""

    def variance(rounds: int) -> float:
        return round_variance(rounds) if callable(round_variance) else round_variance * rounds

    run = best_horizon(variance, setting)
    if not isfinite(run.bound):
        raise refused("round_variance must give finite variances", run.bound, "Check the function")
    made = _made("Theorem A (variance of a round given by their number)", (A1, A2), (run,), setting, asked)
    return replace(made, exact=True)
