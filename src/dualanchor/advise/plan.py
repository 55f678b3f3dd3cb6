"""`plan`: how many rounds and samples an accuracy needs, before anything runs."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from dualanchor.advise.candidates import for_accuracy, for_budget, for_private_rounds
from dualanchor.advise.planned import Plan, refused
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.engines import Engine
from dualanchor.theory import bounds
from dualanchor.theory.schedules import Setting


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
    if isinstance(budget, float) and budget.is_integer():  # 1e6 is a whole number
        budget = int(budget)
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
        raise refused("L_mean must be at most L", f"L_mean = {L_mean}, L = {L}", "Check which of the two is right")
    if L_mean is not None and step_size is not None:
        raise refused("L_mean chooses the step itself", f"step_size = {step_size}", "Leave step_size out")
    if step > 2 / L * (1 + 1e-12):
        raise refused("step_size must satisfy 0 < step_size <= 2/L = " + f"{2 / L:.6g}", step, "Use a smaller step")
    P = workers or 1
    round_cost = 0.0 if latency is None else latency / (sample_cost or 1.0)
    kind = "paper" if bound == "paper" else "affine" if affine else "sharp"
    assert D is not None
    setting = Setting(step, D, sigma or 0.0, min(2.0, step * L), kind, round_cost, P)
    if round_variance is not None:
        return for_private_rounds(round_variance, setting, asked)
    if not (cocoercive_in_expectation or affine or (mu > 0 and not sharp_only)):
        raise refused(
            "without cocoercivity in expectation a theorem needs mu > 0 or an affine operator",
            "cocoercive_in_expectation=False, mu = 0",
            "Pass mu, or affine=True",
        )

    def choices_for(setting: Setting, L: float) -> list[Plan]:
        if eps is not None:
            return for_accuracy(eps, setting, L, mu, asked)
        assert budget is not None
        return for_budget(budget, setting, L, mu, asked)

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
            raise refused(f"{name} must be a whole number >= 1", repr(value), "Use a positive int")
    for name, words in (("batches", ("tapered", "constant")), ("bound", ("sharp", "paper"))):
        if asked[name] not in words:
            raise refused(
                f"{name} must be one of {', '.join(map(repr, words))}", repr(asked[name]), "Choose one of them"
            )
    if asked["round_variance"] is not None:
        if asked["eps"] is not None or asked["budget"] is not None:
            raise refused("round_variance takes the place of eps and budget", "both", "Leave eps and budget out")
        value = asked["round_variance"]
        if not callable(value):
            _require("round_variance", value, False)
    else:
        if (asked["eps"] is None) == (asked["budget"] is None):
            received = "neither" if asked["eps"] is None else "both"
            raise refused("exactly one of eps and budget must be given", received, "Pass eps=... or budget=...")
        if asked["sigma"] is None:
            raise refused("sigma must be given", None, "Pass sigma, for instance from dualanchor.calibrate")
    if asked["D"] is None:
        raise refused("D must be given", None, "Pass D, an upper bound for the distance from the start to a root")
    if asked["latency"] is not None and asked["sample_cost"] is None:
        raise refused("latency needs sample_cost, both in seconds", "latency alone", "Pass sample_cost too")


def _require(name: str, value: Any, positive: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, np.floating, np.integer)):
        raise ArgumentTypeError(f"plan: {name} must be a number", repr(value), "Use a float")
    sign = "positive" if positive else "non-negative"
    if not isfinite(value) or value < 0 or (positive and value == 0):
        raise refused(f"{name} must be {sign} and finite", value, f"Use a {sign} number")


def _cocoercivity(L: float | None, M: float | None, mu: float) -> float:
    if L is None and M is None:
        raise refused("L must be given, or M with mu > 0", None, "Pass L, the cocoercivity constant in expectation")
    if L is None:
        assert M is not None
        if mu == 0:
            raise refused(
                "M with mu = 0 is outside the theorems, since F may not be cocoercive",
                f"M = {M}",
                "Pass L or mu, or let dualanchor.root choose with M",
            )
        if mu > M:
            raise refused("mu must be at most M", f"mu = {mu}, M = {M}", "Check which of the two is right")
        return M**2 / mu
    if mu > L:
        raise refused("mu must be at most L", f"mu = {mu}, L = {L}", "Check which of the two is right")
    return L
