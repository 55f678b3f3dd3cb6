"""`plan`: how many rounds and samples an accuracy needs, before anything runs."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, explain
from dualanchor.core.method import Method
from dualanchor.core.schedule import Stages, Tapered
from dualanchor.engines import Engine
from dualanchor.methods.averaged import AveragedSGDA
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.restarted_dual_ohm import RestartedDualOHM
from dualanchor.methods.sgda import SGDA
from dualanchor.methods.tapered_dual_ohm import TaperedDualOHM
from dualanchor.theory import bounds
from dualanchor.theory.bounds import A1, A2, COCOERCIVE, STRONG
from dualanchor.theory.complexity import TABLE
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

AVERAGING = "Averaging of affine operators"


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run will do and what it is then known to reach.

    Attributes
    ----------
    theorem, assumptions : str, tuple of str
        The result behind the bound, and what it rests on.
    step_size : float
        alpha.
    horizon, stop : int
        N, and the step after which to stop, at most N - 1.
    stages : tuple of Run
        One run, or several started one after another.
    rounds, samples : int
        Oracle rounds, one after another, and samples in all.
    bound : float
        Root mean square of the residual at the end, at most.
    exact : bool
        Whether `samples` is the exact number and the optimum in whole numbers; otherwise a close upper bound.
    eps, budget : float or None
        What was asked for.
    seconds : float or None
        Predicted time, where latency and cost of a sample were given.
    rejected : tuple of (str, float)
        Other results that apply, and how many samples they would need.
    note : str or None
        What else was done, such as longer steps for larger batches.
    """

    theorem: str
    assumptions: tuple[str, ...]
    step_size: float
    horizon: int
    stop: int
    stages: tuple[Run, ...]
    rounds: int
    samples: int
    bound: float
    exact: bool
    eps: float | None
    budget: int | None
    seconds: float | None = None
    rejected: tuple[tuple[str, float], ...] = ()
    note: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def method(self) -> Method:
        """The method, ready for `solve`; stop it after `stop` steps if that is less than `horizon - 1`."""
        if self.rounds == 0:
            return DualOHM(self.step_size, horizon=1)
        if self.theorem == AVERAGING:
            return AveragedSGDA(self.step_size, weights="uniform")
        if self.theorem.startswith("Theorem C"):
            return SGDA(self.step_size, batch_size=self._batches())
        if len(self.stages) > 1:
            return RestartedDualOHM(
                self.step_size,
                horizons=tuple(run.horizon for run in self.stages),
                batch_sizes=tuple(run.batch_size for run in self.stages),
            )
        sizes = self.stages[0].batch_size
        kind = DualOHM if isinstance(sizes, int) else TaperedDualOHM
        return kind(self.step_size, horizon=self.horizon, batch_size=sizes)

    def _batches(self) -> Any:
        if len(self.stages) == 1:
            return self.stages[0].batch_size
        return Stages(
            tuple(run.horizon for run in self.stages),
            tuple(run.batch_size for run in self.stages),
        )

    @property
    def batches(self) -> dict[str, Any]:
        """Kind and parameters of the batch sizes, with the first and the last of them."""
        first, last = self.stages[0], self.stages[-1]
        if len(self.stages) > 1:
            kinds = {"stages": [_described(run.batch_size) for run in self.stages]}
            return {"kind": "staged", **kinds, "first": _size(first, 0), "last": _size(last, -1)}
        return {**_described(first.batch_size), "first": _size(first, 0), "last": _size(first, -1)}

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "theorem": self.theorem,
            "assumptions": list(self.assumptions),
            "horizon": self.horizon,
            "stop": self.stop,
            "batches": self.batches,
            "rounds": self.rounds,
            "samples": self.samples,
            "bound": self.bound,
            "step_size": self.step_size,
            "exact": self.exact,
            "eps": self.eps,
            "budget": self.budget,
            "seconds": self.seconds,
            "note": self.note,
            "stages": [
                {
                    "horizon": run.horizon,
                    "batches": _described(run.batch_size),
                    "samples": run.samples,
                    "bound": run.bound,
                }
                for run in self.stages
            ],
            "rejected": [{"theorem": name, "samples": samples} for name, samples in self.rejected],
            "other_methods": [
                {"method": name, "samples": samples, "complexity": order, "note": note}
                for name, order, samples, note in self.other_methods()
            ],
        }

    def other_methods(self) -> list[tuple[str, str, float | None, str]]:
        """Method, order, certified samples (None where only the order is known) and a note, for the same accuracy."""
        known = self.asked
        eps = self.eps if self.eps is not None else self.bound
        if not known or not eps or not isfinite(eps) or known.get("sigma") is None:
            return []
        given = (eps, known["L"], known["D"], known["sigma"])
        return [
            (line.method, line.complexity, None if line.samples is None else line.samples(*given), line.note)
            for line in TABLE
        ]

    @cached_property
    def halved(self) -> Plan | None:
        """The plan for half of eps, where an eps was asked for."""
        if self.eps is None or not self.asked:
            return None
        return plan(**{**self.asked, "eps": self.eps / 2})

    def __repr__(self) -> str:
        lines = [
            ("theorem", self.theorem),
            ("assumes", "; ".join(self.assumptions)),
            ("step size", f"{self.step_size:.6g}"),
            (
                "rounds",
                _count(self.rounds) + (f" of horizon {_count(self.horizon)}" if self.stop < self.horizon - 1 else ""),
            ),
            ("batches", self._batch_line()),
            ("samples", ("" if self.exact else "≤ ") + _count(self.samples)),
            ("bound", f"root mean square residual ≤ {self.bound:.4g}" + (f" (eps = {self.eps:g})" if self.eps else "")),
        ]
        if self.note is not None:
            lines.append(("note", self.note))
        if self.seconds is not None:
            lines.append(("time", f"about {self.seconds:.4g} s predicted"))
        if self.halved is not None and self.samples:
            more = self.halved
            lines.append(
                (
                    "eps / 2",
                    f"{more.rounds / max(1, self.rounds):.3g} times the rounds, "
                    f"{more.samples / self.samples:.3g} times the samples",
                )
            )
        for name, cost in self.rejected:
            lines.append(("instead of", f"{name}: {_count(cost)} samples"))
        others = self.other_methods()
        for name, order, samples, note in others:
            if samples is not None and name != "dual-ohm, tapered":
                lines.append((name, f"{_count(samples)} samples, {order}: {note}"))
        if others:
            orders = ", ".join(f"{name} {order}" for name, order, samples, _ in others if samples is None)
            lines.append(("order only", orders))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:>{width}}: {text}" for name, text in lines)

    def _batch_line(self) -> str:
        facts = self.batches
        if self.rounds == 0:
            return "none: the start is good enough"
        if facts["first"] == facts["last"] and facts["kind"] == "constant":
            return f"{_count(facts['size'])} {'sample' if facts['size'] == 1 else 'samples'} in every round"
        stages = f"{len(self.stages)} stages, " if len(self.stages) > 1 else ""
        return (
            f"{stages}from {_count(facts['first'])} samples in the first round to {_count(facts['last'])} in the last"
        )


def plan(
    *,
    eps: float | None = None,
    budget: int | None = None,
    L: float | None = None,
    M: float | None = None,
    D: float | None = None,
    sigma: float | None = None,
    mu: float = 0.0,
    step_size: float | None = None,
    batches: str = "tapered",
    bound: str = "sharp",
    affine: bool = False,
    cocoercive_in_expectation: bool = True,
    sharp_only: bool = False,
    L_mean: float | None = None,
    workers: int | Engine | None = None,
    latency: float | None = None,
    sample_cost: float | None = None,
    dimension: int | None = None,
    round_variance: float | Callable[[int], float] | None = None,
) -> Plan:
    """Plan a run before it starts: rounds, batch sizes, samples, and the bound that they earn.

    From an accuracy `eps` to the cheapest run that is proved to reach it, or from a `budget` of samples to the run
    with the smallest proved bound; among all results that apply to the constants given.

    Parameters
    ----------
    eps : float, optional
        Root mean square residual to reach; exactly one of `eps` and `budget`.
    budget : int, optional
        Samples that may be spent.
    L, M : float
        F is 1/L-cocoercive in expectation. With `mu` > 0 a Lipschitz constant M will do, L = M**2/mu.
    D : float
        Distance from the start to a root, at most.
    sigma : float
        Root mean square noise of one sample, at most.
    mu : float
        F is mu-strongly monotone, or dist(x, roots) <= ‖F(x)‖/mu; 0 if not known.
    step_size : float, optional
        At most 2/L, which is the default.
    batches : {"tapered", "constant"}
        Batch sizes small at first and largest at the end (not in the paper), or the paper's constant ones.
    bound : {"sharp", "paper"}
        Theorem A, or Theorems 4.1 and 4.5 as they are printed (constant batches).
    affine : bool
        Whether F is affine, which needs fewer samples and no cocoercivity in expectation.
    cocoercive_in_expectation : bool
        Whether Assumption 3.2 holds; without it only strongly monotone (or affine) operators have a theorem.
    sharp_only : bool
        Whether mu is only known as dist(x, roots) <= ‖F(x)‖/mu, which is enough for restarts.
    L_mean : float, optional
        The mean operator is 1/L_mean-cocoercive, L_mean <= L. A mean of B samples then has the constant
        L/B + (1 - 1/B) L_mean, so larger batches take longer steps and need fewer rounds. The plan has the fewest
        rounds at no more than two percent above the least cost, or takes the least time where rounds cost time.
    workers : int or Engine, optional
        How many compute a batch together; with it, or with `latency`, the least time is sought instead. An engine with
        `sample_cost` has its latency measured, for `dimension` numbers (1000 if left out), unless one is given.
    latency, sample_cost : float, optional
        Seconds that a round takes beside its samples, and seconds of one sample on one worker.
    dimension : int, optional
        Of x, for the latency of an engine.
    round_variance : float or callable, optional
        Instead of eps, budget and sigma: variance of each round as a function of the number of rounds, as when noise
        is added for privacy; a number c stands for c times the number of rounds.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0)
    >>> plan.rounds, plan.samples
    (25, 3491)
    >>> da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0, bound="paper").samples
    14688
    """
    if isinstance(workers, Engine):
        if latency is None and sample_cost is not None:
            d = 1000 if dimension is None else dimension
            latency = workers.measure(d).seconds(d)
        workers = workers.workers
    asked = {
        "eps": eps, "budget": budget, "L": L, "M": M, "D": D, "sigma": sigma, "mu": mu, "step_size": step_size,
        "batches": batches, "bound": bound, "affine": affine, "cocoercive_in_expectation": cocoercive_in_expectation,
        "sharp_only": sharp_only, "L_mean": L_mean,
        "workers": workers, "latency": latency, "sample_cost": sample_cost, "round_variance": round_variance,
    }  # fmt: skip
    _check(asked)
    L = _cocoercivity(L, M, mu)
    asked |= {"L": L, "M": None}
    step = 2 / L if step_size is None else float(step_size)
    if L_mean is not None and L_mean > L:
        raise _bad("L_mean must be at most L", f"L_mean = {L_mean}, L = {L}", "Check which of the two is right")
    if L_mean is not None and step_size is not None:
        raise _bad("L_mean chooses the step itself", f"step_size = {step_size}", "Leave step_size out")
    if step > 2 / L * (1 + 1e-12):
        raise _bad("step_size must satisfy 0 < step_size <= 2/L = " + f"{2 / L:.6g}", step, "Use a smaller step")
    P = workers or 1
    round_cost = 0.0 if latency is None else latency / (sample_cost or 1.0)
    kind = "paper" if bound == "paper" else "affine" if affine else "sharp"
    assert D is not None
    setting = Setting(step, D, sigma or 0.0, min(2.0, step * L), kind, round_cost, P)
    if round_variance is not None:
        return _private(round_variance, setting, asked)
    if not (cocoercive_in_expectation or affine or (mu > 0 and not sharp_only)):
        raise _bad(
            "without cocoercivity in expectation a theorem needs mu > 0 or an affine operator",
            "cocoercive_in_expectation=False, mu = 0",
            "Pass mu, or affine=True",
        )

    def choices_for(setting: Setting, L: float) -> list[Plan]:
        if eps is not None:
            return _for_accuracy(eps, setting, L, mu, asked)
        assert budget is not None
        return _for_budget(budget, setting, L, mu, asked)

    def worth(one: Plan) -> tuple[float, float]:
        time = one.samples / P + round_cost * one.rounds
        return (time, one.bound) if eps is not None else (one.bound, time)

    choices = sorted(choices_for(setting, L), key=worth)
    best = choices[0]
    if L_mean is not None and best.rounds > 1:
        best = _with_longer_steps(best, setting, L, L_mean, choices_for, worth, latency is not None)
    seconds = None
    if sample_cost is not None:
        seconds = best.rounds * (latency or 0.0) + best.samples / P * sample_cost
    return replace(best, seconds=seconds, rejected=tuple((one.theorem, one.samples) for one in choices[1:]))


def _with_longer_steps(
    best: Plan,
    setting: Setting,
    L: float,
    L_mean: float,
    choices_for: Callable[[Setting, float], list[Plan]],
    worth: Callable[[Plan], tuple[float, float]],
    timed: bool,
) -> Plan:
    """The plan with batches of at least b = 1, 2, 4, .. and steps of 2/L_b that has the fewest rounds at no cost."""
    tried, b = [best], 2
    while b < 2**40:
        L_b, size = float(bounds.batch_cocoercivity(b, L, L_mean)), b * setting.multiple
        cost = setting.round_cost / b  # in units of one sample of each worker, b of which make a batch
        longer = replace(setting, step_size=2 / L_b, multiple=size, round_cost=cost)
        try:
            tried.append(min(choices_for(longer, L_b), key=worth))
        except ArgumentError:  # a budget that does not pay for such batches
            break
        if tried[-1].rounds <= 1 or worth(tried[-1])[0] > 2 * worth(best)[0]:
            break
        b *= 2
    first, least = best, min(worth(one)[0] for one in tried)
    best = min(
        (one for one in tried if worth(one)[0] <= 1.02 * least), key=lambda one: worth(one) if timed else one.rounds
    )
    if best is first:
        return first
    smallest = best.batches["first"]
    saved = f"{first.rounds - best.rounds:,} of {first.rounds:,} rounds"
    note = f"batches of at least {smallest:,} admit the step {best.step_size:.4g}, which saves {saved}"
    return replace(best, assumptions=(*best.assumptions, "the mean operator is 1/L_mean-cocoercive"), note=note)


# -- candidates --------------------------------------------------------------------------------------------------


def _for_accuracy(
    eps: float, setting: Setting, L: float, mu: float, asked: dict[str, Any], thorough: bool = True
) -> list[Plan]:
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


def _for_budget(budget: int, setting: Setting, L: float, mu: float, asked: dict[str, Any]) -> list[Plan]:
    if setting.multiple > budget:
        raise _bad(f"budget must pay for one sample on each of {setting.multiple} workers", budget, "Use a larger one")
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
        raise _bad("a budget must pay for the first steps of a method with a theorem", budget, "Use a larger budget")
    best = min(choices, key=lambda one: one.bound)
    return [replace(best, eps=None, budget=budget)]


def _stages_within(budget: int, setting: Setting, L: float, mu: float, asked: dict[str, Any]) -> list[Plan]:
    """Plans for accuracies whose samples come close to the budget from below; samples go about like 1/eps**2."""
    high = 2 * setting.D / setting.step_size
    low, eps, found = high * 1e-14, high / 2, []
    for _ in range(9):
        cheapest = min(_for_accuracy(eps, setting, L, mu, asked, False), key=lambda one: one.samples, default=None)
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


def _private(round_variance: float | Callable[[int], float], setting: Setting, asked: dict[str, Any]) -> Plan:
    def variance(rounds: int) -> float:
        return round_variance(rounds) if callable(round_variance) else round_variance * rounds

    run = best_horizon(variance, setting)
    if not isfinite(run.bound):
        raise _bad("round_variance must give finite variances", run.bound, "Check the function")
    made = _made("Theorem A (variance of a round given by their number)", (A1, A2), (run,), setting, asked)
    return replace(made, exact=True)


# -- what is asked -----------------------------------------------------------------------------------------------


def _check(asked: dict[str, Any]) -> None:
    rules = {
        "eps": True, "L": True, "M": True, "L_mean": True, "step_size": True, "sample_cost": True,
        "D": False, "sigma": False, "mu": False, "latency": False,
    }  # fmt: skip
    for name, positive in rules.items():
        if (value := asked[name]) is not None:
            _require(name, value, positive)
    for name in ("budget", "workers"):
        value = asked[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1):
            raise _bad(f"{name} must be a whole number >= 1", repr(value), "Use a positive int")
    for name, words in (("batches", ("tapered", "constant")), ("bound", ("sharp", "paper"))):
        if asked[name] not in words:
            raise _bad(f"{name} must be one of {', '.join(map(repr, words))}", repr(asked[name]), "Choose one of them")
    if asked["round_variance"] is not None:
        if asked["eps"] is not None or asked["budget"] is not None:
            raise _bad("round_variance takes the place of eps and budget", "both", "Leave eps and budget out")
        value = asked["round_variance"]
        if not callable(value):
            _require("round_variance", value, False)
    else:
        if (asked["eps"] is None) == (asked["budget"] is None):
            received = "neither" if asked["eps"] is None else "both"
            raise _bad("exactly one of eps and budget must be given", received, "Pass eps=... or budget=...")
        if asked["sigma"] is None:
            raise _bad("sigma must be given", None, "Pass sigma, for instance from dualanchor.calibrate")
    if asked["D"] is None:
        raise _bad("D must be given", None, "Pass D, an upper bound for the distance from the start to a root")
    if asked["latency"] is not None and asked["sample_cost"] is None:
        raise _bad("latency needs sample_cost, both in seconds", "latency alone", "Pass sample_cost too")


def _require(name: str, value: Any, positive: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, np.floating, np.integer)):
        raise ArgumentTypeError(explain(f"plan: {name} must be a number", repr(value), "Use a float"))
    sign = "positive" if positive else "non-negative"
    if not isfinite(value) or value < 0 or (positive and value == 0):
        raise _bad(f"{name} must be {sign} and finite", value, f"Use a {sign} number")


def _cocoercivity(L: float | None, M: float | None, mu: float) -> float:
    if L is None and M is None:
        raise _bad("L must be given, or M with mu > 0", None, "Pass L, the cocoercivity constant in expectation")
    if L is None:
        assert M is not None
        if mu == 0:
            raise _bad(
                "M with mu = 0 is outside the theorems, since F may not be cocoercive",
                f"M = {M}",
                "Pass L or mu, or let dualanchor.root choose with M",
            )
        if mu > M:
            raise _bad("mu must be at most M", f"mu = {mu}, M = {M}", "Check which of the two is right")
        return M**2 / mu
    if mu > L:
        raise _bad("mu must be at most L", f"mu = {mu}, L = {L}", "Check which of the two is right")
    return L


def _bad(rule: str, received: Any, remedy: str) -> ArgumentError:
    return ArgumentError(explain(f"plan: {rule}", received, remedy))


# -- in words ----------------------------------------------------------------------------------------------------


def _described(batch_size: Any) -> dict[str, Any]:
    if isinstance(batch_size, Tapered):
        parameters = {"C": batch_size.C} | ({"multiple": batch_size.multiple} if batch_size.multiple > 1 else {})
        return {"kind": "tapered", **parameters}
    return {"kind": "constant", "size": batch_size}


def _size(run: Run, k: int) -> int:
    if run.horizon < 2:
        return 0
    if isinstance(run.batch_size, int):
        return run.batch_size
    m = run.horizon if k == 0 else 2
    P = run.batch_size.multiple
    return int(P * max(1, ceil(run.batch_size.C / P / sqrt(m * (m - 1.0)))))


def _count(value: float) -> str:
    if not isfinite(value):
        return "infinitely many"
    return f"{int(value):,}" if value < 1e9 else f"{value:.3g}"
