"""`plan`: how many rounds and samples an accuracy needs, before anything runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import hypot, isfinite, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.candidates import Candidates
from dualanchor.advise.monotone import MonotoneCandidates
from dualanchor.advise.planned import Plan, refused
from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.finding import Finding
from dualanchor.engines import Engine
from dualanchor.theory import bounds
from dualanchor.theory.schedules import Setting
from dualanchor.theory.schedules.monotone import Known

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
    """Plan a run: rounds, batch sizes, samples, and the bound that they earn, by the best theorem that applies.

    It is the cheapest run that is proved to reach `eps`, or that with the smallest proved bound within a `budget`.

    Parameters
    ----------
    eps : float, optional; root mean square residual to reach; exactly one of `eps` and `budget`
    budget : int, optional; samples that may be spent
    L : float, F is 1/L-cocoercive in expectation (Assumption 3.2)
    M : float
        Samples are M-Lipschitz in mean square, E‖F̂(x; ξ) - F̂(y; ξ)‖² <= M²‖x - y‖²; with noise that does not depend on
        x, that of F. Without L the operator may be merely monotone, and regularised, extragradient and, if F is affine,
        averaged runs compete; beside L it damps the noise of short steps.
    D : float, distance from the start to a root, at most
    sigma : float, root mean square noise of one sample, at most
    mu : float, F is mu-strongly monotone, or dist(x, roots) <= ‖F(x)‖/mu; 0 if not known
    step_size : float, optional; at most 2/L, which is the default
    batches : {"tapered", "constant"}, largest at the end (not in the paper), or the paper's constant sizes
    bound : {"sharp", "paper"}, Theorem A, or Theorems 4.1 and 4.5 as they are printed (constant batches)
    affine : bool, whether F is affine, which needs fewer samples and no cocoercivity in expectation
    cocoercive_in_expectation : bool
        Whether single samples have the constant L (Assumption 3.2), or M in mean square; if not, only F itself has it.
    sharp_only : bool, whether mu is only known as dist(x, roots) <= ‖F(x)‖/mu, which is enough for restarts
    L_mean : float, optional
        The mean operator is 1/L_mean-cocoercive, so a mean of B samples has the constant L/B + (1 - 1/B) L_mean: larger
        batches take longer steps and need fewer rounds, at most two percent above the least cost.
    workers : int or Engine, optional
        How many compute a batch together; with it, or with `latency`, the least time is sought instead. An engine with
        `sample_cost` has its latency measured for `dimension` numbers (1000 if left out), unless one is given.
    latency, sample_cost : float, optional; seconds of a round beside its samples, and of one sample on one worker
    dimension : int, optional; of x, for the latency of an engine
    round_variance : float or callable, optional
        Instead of eps, budget and sigma: variance of each round as a function of their number, as when noise is added
        for privacy; a number c stands for c times the number of rounds.
    growth : float
        With M and no L: the noise of a sample at x is at most sigma + growth ‖x - x0‖, as with random matrices.
    prox : bool
        Whether there is a constraint or penalty, as in `inclusion`, which runs such plans; one sample more is for z0.
    confidence : float, optional
        Probability with which the residual is to be at most eps: by Markov's inequality, in one run, whose root mean
        square residual is then at most eps times the root of 1 - confidence.

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
            raise refused("confidence goes with eps", "no eps", "Pass eps, or leave confidence out")
        asked, eps = eps, eps * sqrt(1 - check.probability(confidence, "plan: confidence"))
        made = plan(**{**inputs, "eps": eps, "workers": workers, "confidence": None})
        return replace(made, findings=(Finding.of("markov", eps=asked, confidence=confidence), *made.findings))
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            made = _plan(inputs)
        possible = isfinite(made.bound) and made.horizon <= check.LARGEST_COUNT and (eps is None or made.bound <= eps)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise _extreme(inputs) from error
    if not possible:
        raise _extreme(inputs)
    return made


def _extreme(inputs: dict[str, Any]) -> ArgumentError:
    names = [name for name in ("eps", "budget", "L", "M", "D", "sigma", "mu", "step_size") if inputs[name]]
    received = ", ".join(f"{name} = {inputs[name]:g}" for name in names)
    return refused("numbers must not be so large or small that a plan overflows", received, "Use other units")


def _plan(inputs: dict[str, Any]) -> Plan:
    latency, sample_cost = inputs["latency"], inputs["sample_cost"]
    candidates = _candidates(inputs)
    if inputs["round_variance"] is not None:
        assert isinstance(candidates[0], Candidates)
        return candidates[0].for_private_rounds()
    if not (ranked := _ranked(candidates)):
        raise refused(
            "a theorem must reach eps", inputs["eps"], "Use a larger eps, or leave bound, step_size and workers out"
        )
    best, *others = ranked
    if inputs["L_mean"] is not None and best.rounds > 1:
        assert isinstance(candidates[0], Candidates)
        best = _with_longer_steps(best, candidates[0], inputs["L_mean"])
    workers = inputs["workers"] or 1
    seconds = best.rounds * (latency or 0.0) + best.samples / workers * sample_cost if sample_cost else None
    return replace(best, seconds=seconds, rejected=tuple((one.theorem, one.samples) for one in others))


def _candidates(inputs: dict[str, Any]) -> list[Candidates | MonotoneCandidates]:
    """What offers plans: the theorems for cocoercive operators, those for monotone ones, or both."""
    M, mu, D, sigma = (inputs[name] for name in ("M", "mu", "D", "sigma"))
    step_size, L_mean, latency = (inputs[name] for name in ("step_size", "L_mean", "latency"))
    L = _cocoercivity(inputs["L"], M, mu)
    round_cost = 0.0 if latency is None else latency / (inputs["sample_cost"] or 1.0)
    workers: int = inputs["workers"] or 1
    made: list[Candidates | MonotoneCandidates] = []
    if L is not None and not (inputs["prox"] and inputs["L"] is None):
        step = 2 / L if step_size is None else float(step_size)
        if L_mean is not None and L_mean > L:
            raise refused("L_mean must be at most L", f"L_mean = {L_mean}, L = {L}", "Check which of the two is right")
        if L_mean is not None and step_size is not None:
            raise refused("L_mean chooses the step itself", f"step_size = {step_size}", "Leave step_size out")
        if step > 2 / L * (1 + 1e-12):
            raise refused(f"step_size must satisfy 0 < step_size <= 2/L = {2 / L:.6g}", step, "Use a smaller step")
        kind = "paper" if inputs["bound"] == "paper" else "affine" if inputs["affine"] else "sharp"
        tau = min(2.0, step * (L if M is None else min(L, M)))
        own = inputs
        if inputs["prox"]:  # backward-forward steps, from z0 with one sample
            kind, tau, D_z = "sharp" if kind == "affine" else kind, 2.0, hypot(D, step * (sigma or 0.0))
            own = inputs | {"affine": False, "mu": float(bounds.composite_modulus(step, mu)), "sharp_only": True}
        setting = Setting(step, D_z if inputs["prox"] else D, sigma or 0.0, tau, kind, round_cost, workers)
        made.append(Candidates(setting, L, own))
    plain = inputs["L"] is None and step_size is None and inputs["round_variance"] is None
    if plain and L_mean is None and inputs["bound"] == "sharp":
        known = Known(M, D, sigma or 0.0, mu if not inputs["sharp_only"] else 0.0, inputs["prox"], round_cost, workers)
        made.append(MonotoneCandidates(known, inputs))
    if inputs["growth"] and not any(isinstance(one, MonotoneCandidates) for one in made):
        raise refused("growth goes with M and without L", f"growth = {inputs['growth']}", "Pass M, or a larger sigma")
    if not made:
        rule = "M without mu goes with the theorems for monotone operators alone"
        received = "step_size, L_mean, round_variance or bound='paper'"
        raise refused(rule, received, "Leave them out, or pass L or mu")
    return [one for one in made if not inputs["growth"] or isinstance(one, MonotoneCandidates)]


def _ranked(candidates: Sequence[Candidates | MonotoneCandidates]) -> list[Plan]:
    eps, budget = candidates[0].inputs["eps"], candidates[0].inputs["budget"]
    plans = [one.for_accuracy(eps) if budget is None else one.for_budget(budget) for one in candidates]
    return sorted((one for some in plans for one in some), key=_worth)


def _worth(one: Plan) -> tuple[float, float]:
    inputs = one.inputs
    latency = 0.0 if inputs["latency"] is None else inputs["latency"] / inputs["sample_cost"]
    time = one.samples / (inputs["workers"] or 1) + latency * one.rounds
    return (time, one.bound) if inputs["eps"] is not None else (one.bound, time)


def _with_longer_steps(first: Plan, candidates: Candidates, L_mean: float) -> Plan:
    """The plan with batches of at least b = 1, 2, 4, .. and steps of 2/L_b that has the fewest rounds at no cost."""
    tried, b, setting = [first], 2, candidates.setting
    while b < 2**40:
        L_b = float(bounds.batch_cocoercivity(b, candidates.L, L_mean))
        cost = setting.round_cost / b  # in units of one sample of each worker, b of which make a batch
        M = candidates.inputs["M"]
        tau = 2.0 if M is None else min(2.0, 2 / L_b * M)
        longer = replace(setting, step_size=2 / L_b, tau=tau, multiple=b * setting.multiple, round_cost=cost)
        try:
            ranked = _ranked([replace(candidates, setting=longer, L=L_b)])
        except ArgumentError:  # a budget that does not pay for such batches
            break
        if not ranked:
            break
        tried.append(ranked[0])
        if tried[-1].rounds <= 1 or _worth(tried[-1])[0] > 2 * _worth(first)[0]:
            break
        b *= 2
    least = min(_worth(one)[0] for one in tried)
    cheap = [one for one in tried if _worth(one)[0] <= 1.02 * least]
    timed = candidates.inputs["latency"] is not None
    best = min(cheap, key=lambda one: _worth(one) if timed else one.rounds)
    if best is first:
        return first
    rounds = {"saved": first.rounds - best.rounds, "rounds": first.rounds}
    longer_steps = Finding.of("longer-steps", size=best.batches["first"], step=best.step_size, **rounds)
    assumptions = (*best.assumptions, "the mean operator is 1/L_mean-cocoercive")
    return replace(best, theorem=replace(best.theorem, assumptions=assumptions), findings=(longer_steps,))


def _check(inputs: dict[str, Any]) -> None:
    for name, value in inputs.items():
        of_rounds = name == "round_variance" and callable(value)
        if name in _POSITIVE | _NON_NEGATIVE and value is not None and not of_rounds:
            check.number(value, f"plan: {name}", positive=name in _POSITIVE)
    check.choice(inputs["batches"], "plan: batches", ("tapered", "constant"))
    check.choice(inputs["bound"], "plan: bound", ("sharp", "paper"))
    given = sum(inputs[name] is not None for name in ("eps", "budget"))
    if inputs["round_variance"] is not None:
        if given:
            raise refused("round_variance takes the place of eps and budget", "both", "Leave eps and budget out")
    elif given != 1:
        received = "both" if given else "neither"
        raise refused("exactly one of eps and budget must be given", received, "Pass eps=... or budget=...")
    elif inputs["sigma"] is None:
        raise refused("sigma must be given", None, "Pass sigma, for instance from dualanchor.calibrate")
    if inputs["D"] is None:
        raise refused("D must be given", None, "Pass D, an upper bound for the distance from the start to a root")
    if inputs["latency"] is not None and inputs["sample_cost"] is None:
        raise refused("latency needs sample_cost, both in seconds", "latency alone", "Pass sample_cost too")


def _cocoercivity(L: float | None, M: float | None, mu: float) -> float | None:
    """The L of the theorems for cocoercive operators; None for one that is merely monotone."""
    name, largest = ("M", M) if L is None else ("L", L)
    if largest is None:
        raise refused("L or M must be given", None, "Pass L, the cocoercivity constant, or M, a Lipschitz constant")
    if mu > largest:
        raise refused(f"mu must be at most {name}", f"mu = {mu}, {name} = {largest}", "Check which of the two is right")
    return L if L is not None or mu == 0 else largest**2 / mu
