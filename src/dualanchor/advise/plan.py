"""`plan`: how many rounds and samples an accuracy needs, before anything runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import hypot, isfinite, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.candidates import CocoerciveCandidates
from dualanchor.advise.monotone import MonotoneCandidates
from dualanchor.advise.planned import Plan, plan_error
from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.finding import Finding
from dualanchor.engines import Engine
from dualanchor.theory import bounds
from dualanchor.theory.schedules import Setting
from dualanchor.theory.schedules.monotone import MonotoneSetting

_POSITIVE = {"eps", "L", "M", "L_mean", "step_size", "sample_cost"}
_NON_NEGATIVE = {"D", "sigma", "mu", "latency", "round_variance", "growth"}


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
    growth: float = 0.0,
    prox: bool = False,
    confidence: float | None = None,
) -> Plan:
    """Plan a run: rounds, batch sizes, samples, and the bound that they give, by the best theorem that applies.

    The plan is the cheapest run that is proved to reach `eps`, or the one with the smallest proved bound within a
    `budget`.

    Parameters
    ----------
    eps : float, optional; root mean square residual to reach; exactly one of `eps` and `budget` is needed
    budget : int, optional; maximum number of samples
    L : float, F is 1/L-cocoercive in expectation (Assumption 3.2)
    M : float
        Samples are M-Lipschitz in mean square, E‖F̂(x; ξ) - F̂(y; ξ)‖² <= M²‖x - y‖²; if the noise does not depend on x,
        this is the Lipschitz constant of F. Without L the operator may be merely monotone, and regularised,
        extragradient and, if F is affine, averaged runs compete; together with L it reduces the noise of short steps.
    D : float, upper bound on the distance from the start to a root
    sigma : float, upper bound on the root mean square noise of one sample
    mu : float, F is mu-strongly monotone, or dist(x, roots) <= ‖F(x)‖/mu; 0 if not known
    step_size : float, optional; at most 2/L, which is the default
    batches : {"tapered", "constant"}, largest at the end (not in the paper), or the paper's constant sizes
    bound : {"sharp", "paper"}, Theorem A, or Theorems 4.1 and 4.5 as printed (constant batches)
    affine : bool, whether F is affine, which needs fewer samples and no cocoercivity in expectation
    cocoercive_in_expectation : bool
        Whether single samples have the constant L (Assumption 3.2), or M in mean square; if not, only F itself has it.
    sharp_only : bool, whether mu is only known as dist(x, roots) <= ‖F(x)‖/mu, which is enough for restarts
    L_mean : float, optional
        The mean operator is 1/L_mean-cocoercive, so a mean of B samples has the constant L/B + (1 - 1/B) L_mean: larger
        batches allow longer steps and need fewer rounds, at no more than two percent above the least cost.
    workers : int or Engine, optional
        Number of workers that compute a batch together; with it, or with `latency`, the plan minimises time. If an
        engine is passed with `sample_cost` but no `latency`, its latency is measured for `dimension` numbers.
    latency, sample_cost : float, optional; seconds of a round beside its samples, and of one sample on one worker
    dimension : int, optional; of x, for measuring the latency of an engine; 1000 by default
    round_variance : float or callable, optional
        Instead of eps, budget and sigma: variance of each round as a function of the number of rounds, as when noise is
        added for privacy; a number c stands for c times the number of rounds.
    growth : float
        With M and without L: the noise of a sample at x is at most sigma + growth ‖x - x0‖, as with random matrices.
    prox : bool
        Whether there is a constraint or penalty, as in `inclusion`, which runs such plans; z0 takes one extra sample.
    confidence : float, optional
        Probability with which the residual of one run is to be at most eps. By Markov's inequality, the plan is made
        for a root mean square residual of eps times the root of 1 - confidence.

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0)
    >>> plan.rounds, plan.samples
    (25, 3491)
    >>> da.plan(eps=0.1, L=1.0, D=1.0, sigma=1.0, bound="paper").samples
    14688
    >>> da.plan(eps=0.1, M=1.0, D=1.0, sigma=1.0).theorem.title
    'Theorem M (regularised Dual-OHM)'
    """
    inputs: dict[str, Any] = dict(locals())
    if isinstance(workers, Engine):
        if latency is None and sample_cost is not None:
            d = 1000 if dimension is None else dimension
            latency = workers.measure(d).seconds(d)
        workers = workers.workers
    budget = None if budget is None else check.count(budget, "plan: budget")
    workers = None if workers is None else check.count(workers, "plan: workers")
    inputs |= {"budget": budget, "workers": workers, "latency": latency, "mu": 0.0 if mu is None else mu}
    _check(inputs)
    if confidence is not None:
        if eps is None:
            raise plan_error("confidence goes with eps", "no eps", "Pass eps, or leave confidence out")
        root_mean_square = eps * sqrt(1 - check.probability(confidence, "plan: confidence"))
        best = plan(**{**inputs, "eps": root_mean_square, "confidence": None})
        return replace(best, findings=(Finding.of("markov", eps=eps, confidence=confidence), *best.findings))
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            best = _best_plan(inputs)
        possible = isfinite(best.bound) and best.horizon <= check.LARGEST_COUNT and (eps is None or best.bound <= eps)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise _overflow(inputs) from error
    if not possible:
        raise _overflow(inputs)
    return best


def _overflow(inputs: dict[str, Any]) -> ArgumentError:
    names = [name for name in ("eps", "budget", "L", "M", "D", "sigma", "mu", "step_size") if inputs[name]]
    received = ", ".join(f"{name} = {inputs[name]:g}" for name in names)
    return plan_error("numbers must not be so large or small that a plan overflows", received, "Use other units")


def _best_plan(inputs: dict[str, Any]) -> Plan:
    cocoercive, monotone = _cocoercive(inputs), _monotone(inputs)
    if inputs["growth"]:
        if monotone is None:
            received = f"growth = {inputs['growth']}"
            raise plan_error("growth goes with M and without L", received, "Pass M, or a larger sigma")
        cocoercive = None  # these theorems assume that the noise does not grow
    candidates = [candidate for candidate in (cocoercive, monotone) if candidate is not None]
    if not candidates:
        rule = "M without mu goes with the theorems for monotone operators alone"
        received = "step_size, L_mean, round_variance or bound='paper'"
        raise plan_error(rule, received, "Leave them out, or pass L or mu")
    if inputs["round_variance"] is not None:
        assert cocoercive is not None
        return cocoercive.for_private_rounds()
    ranked = _ranked(candidates)
    if not ranked and inputs["eps"] is None:
        rule = "a budget must pay for the first steps of a method with a theorem"
        raise plan_error(rule, inputs["budget"], "Use a larger budget")
    if not ranked:
        remedy = "Use a larger eps, or leave bound, step_size and workers out"
        raise plan_error("a theorem must reach eps", inputs["eps"], remedy)
    best, *others = ranked
    if inputs["L_mean"] is not None and best.rounds > 1:
        assert cocoercive is not None
        best = _with_longer_steps(best, cocoercive, inputs["L_mean"])
    seconds = None
    if inputs["sample_cost"]:
        seconds = best.rounds * (inputs["latency"] or 0.0) + best.samples / _workers(inputs) * inputs["sample_cost"]
    return replace(best, seconds=seconds, rejected=tuple((other.theorem, other.samples) for other in others))


def _workers(inputs: dict[str, Any]) -> int:
    return inputs["workers"] or 1


def _round_cost(inputs: dict[str, Any]) -> float:
    """The latency of a round in units of one sample."""
    return 0.0 if inputs["latency"] is None else inputs["latency"] / inputs["sample_cost"]


def _cocoercive(inputs: dict[str, Any]) -> CocoerciveCandidates | None:
    """The theorems for cocoercive operators; None if no L is given and none follows."""
    M, mu, D, sigma = (inputs[name] for name in ("M", "mu", "D", "sigma"))
    step_size, L_mean, prox = (inputs[name] for name in ("step_size", "L_mean", "prox"))
    L = _cocoercivity(inputs["L"], M, mu)
    if L is None or (prox and inputs["L"] is None):
        return None
    step = 2 / L if step_size is None else float(step_size)
    if L_mean is not None and L_mean > L:
        raise plan_error("L_mean must be at most L", f"L_mean = {L_mean}, L = {L}", "Check which of the two is right")
    if L_mean is not None and step_size is not None:
        raise plan_error("L_mean chooses the step itself", f"step_size = {step_size}", "Leave step_size out")
    if step > 2 / L * (1 + 1e-12):
        raise plan_error(f"step_size must satisfy 0 < step_size <= 2/L = {2 / L:.6g}", step, "Use a smaller step")
    bound = "affine" if inputs["affine"] and not prox and inputs["bound"] == "sharp" else inputs["bound"]
    tau = min(2.0, step * (L if M is None else min(L, M)))
    if prox:  # backward-forward steps, from a z0 that takes one sample
        tau, D = 2.0, hypot(D, step * (sigma or 0.0))
        inputs = inputs | {"affine": False, "mu": float(bounds.composite_modulus(step, mu)), "sharp_only": True}
    setting = Setting(step, D, sigma or 0.0, tau, bound, _round_cost(inputs), _workers(inputs))
    return CocoerciveCandidates(setting, L, inputs)


def _cocoercivity(L: float | None, M: float | None, mu: float) -> float | None:
    """The L of the theorems for cocoercive operators, M²/mu if only M is given; None for a merely monotone operator."""
    name, largest = ("M", M) if L is None else ("L", L)
    if largest is None:
        raise plan_error("L or M must be given", None, "Pass L, the cocoercivity constant, or M, a Lipschitz constant")
    if mu > largest:
        received = f"mu = {mu}, {name} = {largest}"
        raise plan_error(f"mu must be at most {name}", received, "Check which of the two is right")
    return L if L is not None or mu == 0 else largest**2 / mu


def _monotone(inputs: dict[str, Any]) -> MonotoneCandidates | None:
    """The theorems for monotone operators; None if L is given or an argument asks for the others."""
    of_the_others = ("L", "step_size", "L_mean", "round_variance")
    if inputs["bound"] == "paper" or any(inputs[name] is not None for name in of_the_others):
        return None
    if inputs["prox"] and not inputs["cocoercive_in_expectation"]:
        rule = "with a prox and without L, samples must be M-Lipschitz in mean square"
        raise plan_error(rule, "cocoercive_in_expectation=False", "Pass L, the cocoercivity constant of F")
    M, D, sigma, mu = (inputs[name] for name in ("M", "D", "sigma", "mu"))
    mu = 0.0 if inputs["sharp_only"] else mu
    known = MonotoneSetting(M, D, sigma or 0.0, mu, inputs["prox"], _round_cost(inputs), _workers(inputs))
    return MonotoneCandidates(known, inputs)


def _ranked(candidates: Sequence[CocoerciveCandidates | MonotoneCandidates]) -> list[Plan]:
    """All plans for the target, the best first."""
    eps, budget = (candidates[0].inputs[name] for name in ("eps", "budget"))
    plans: list[Plan] = []
    for theorems in candidates:
        plans += theorems.for_accuracy(eps) if budget is None else theorems.for_budget(budget)
    return sorted(plans, key=_rank)


def _cost(plan: Plan) -> float:
    """Samples of one worker and the latency of the rounds, in units of one sample."""
    return plan.samples / _workers(plan.inputs) + _round_cost(plan.inputs) * plan.rounds


def _rank(plan: Plan) -> tuple[float, float]:
    return (_cost(plan), plan.bound) if plan.inputs["eps"] is not None else (plan.bound, _cost(plan))


def _with_longer_steps(first: Plan, candidates: CocoerciveCandidates, L_mean: float) -> Plan:
    """Of plans with batches of at least b = 1, 2, 4, ... and steps of 2/L_b, the one with the fewest rounds.

    Only plans within two percent of the least cost count; if latencies are given, the one of the best rank is taken.
    """
    plans, setting, M = [first], candidates.setting, candidates.inputs["M"]
    b = 2
    while b < 2**40:
        L_b = float(bounds.batch_cocoercivity(b, candidates.L, L_mean))
        longer = replace(
            setting,
            step_size=2 / L_b,
            tau=2.0 if M is None else min(2.0, 2 / L_b * M),
            multiple=b * setting.multiple,
            round_cost=setting.round_cost / b,  # in units of b samples of each worker, the smallest batch
        )
        ranked = _ranked([replace(candidates, setting=longer, L=L_b)])
        if not ranked:
            break
        plans.append(ranked[0])
        if ranked[0].rounds <= 1 or _rank(ranked[0])[0] > 2 * _rank(first)[0]:
            break
        b *= 2
    least = min(_rank(plan)[0] for plan in plans)
    cheap = [plan for plan in plans if _rank(plan)[0] <= 1.02 * least]
    timed = candidates.inputs["latency"] is not None
    best = min(cheap, key=lambda plan: _rank(plan) if timed else plan.rounds)
    if best is first:
        return first
    rounds = {"saved": first.rounds - best.rounds, "rounds": first.rounds}
    finding = Finding.of("longer-steps", size=best.batches["first"], step=best.step_size, **rounds)
    return replace(best.assuming("the mean operator is 1/L_mean-cocoercive"), findings=(finding,))


def _check(inputs: dict[str, Any]) -> None:
    for name, value in inputs.items():
        is_function = name == "round_variance" and callable(value)
        if name in _POSITIVE | _NON_NEGATIVE and value is not None and not is_function:
            check.number(value, f"plan: {name}", positive=name in _POSITIVE)
    check.choice(inputs["batches"], "plan: batches", ("tapered", "constant"))
    check.choice(inputs["bound"], "plan: bound", ("sharp", "paper"))
    targets = sum(inputs[name] is not None for name in ("eps", "budget"))
    if inputs["round_variance"] is not None:
        if targets:
            raise plan_error("round_variance takes the place of eps and budget", "both", "Leave eps and budget out")
    elif targets != 1:
        received = "both" if targets else "neither"
        raise plan_error("exactly one of eps and budget must be given", received, "Pass eps=... or budget=...")
    elif inputs["sigma"] is None:
        raise plan_error("sigma must be given", None, "Pass sigma, for instance from dualanchor.calibrate")
    if inputs["D"] is None:
        raise plan_error("D must be given", None, "Pass D, an upper bound for the distance from the start to a root")
    if inputs["budget"] is not None and _workers(inputs) > inputs["budget"]:
        rule = f"budget must pay for one sample on each of {inputs['workers']} workers"
        raise plan_error(rule, inputs["budget"], "Use a larger budget")
    if inputs["latency"] is not None and inputs["sample_cost"] is None:
        raise plan_error("latency needs sample_cost, both in seconds", "latency alone", "Pass sample_cost too")
