"""Eps by certificates: stages of a method, by themselves or before the plan of a theorem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.claim import Claim
from dualanchor.core.method import Method
from dualanchor.core.result import Result, Status
from dualanchor.engines import SHARDS
from dualanchor.front.corrected import UntilCorrected
from dualanchor.front.default import default_method
from dualanchor.front.judge import certified_claim, conclude
from dualanchor.front.passes import pays_for_passes, solve_by_passes
from dualanchor.front.request import MIN_PILOT_SAMPLES
from dualanchor.front.stages import FIRST_STAGE, SHORTEST_STAGE, UntilCertified, certificate_of, findings_of

if TYPE_CHECKING:
    from dualanchor.front.route import Route

PILOT = 2 * FIRST_STAGE  # samples of a calibration before stages
_EXTRA_SHARE = 0.15  # of a plan's samples: what may be spent in addition to it, on everything together
_MIN_EXTRA = 2 * PILOT  # samples: with fewer in addition to a plan, stages before it are not worth trying
_TYPICAL_COST = 6  # times (sigma/eps)**2: samples that certified runs take where F is easy to solve


def until_certified(route: Route, method: Callable[[int], Method] | None = None, **why: Any) -> Result:
    """Stages of the default method, or of the one given, each followed by a certificate, until one certifies eps.

    `why` are the values of the finding that says why this route was chosen.
    """
    if method is None and pays_for_passes(route):
        return solve_by_passes(route)
    request, evidence = route.request, route.evidence
    unknown = request.L is None and request.M is None
    minimum = SHORTEST_STAGE + MIN_PILOT_SAMPLES + (MIN_PILOT_SAMPLES if unknown else 0)
    if request.limit < minimum:
        rule = f"max_samples must be at least {minimum}, the price of a first certificate"
        raise request.error(rule, request.limit, "Allow more")
    pilot = PILOT if request.L is None else FIRST_STAGE
    pilot = min(pilot, request.limit // 8 // MIN_PILOT_SAMPLES * MIN_PILOT_SAMPLES)
    evidence.calibrate(pilot, needed=unknown and method is None)
    if method is not None:
        route.try_replay(method, FIRST_STAGE)
    if method is None:
        why |= {"expected": _expected_samples(route), "most": request.limit}
    evidence.add("route-certified", **why)
    limit = request.limit - evidence.evals
    stages = _stages(route, method or default_method(request, evidence), limit, correct=method is None)
    return _judged(route, route.run(stages, budget=limit, record=0))


def may_be_certified_before(route: Route, chosen: Plan, reserved: int) -> bool:
    """Whether to try for a certificate before a plan: a small part of its samples may do, and no theorem is asked for.

    `reserved` samples are for the certificate after the plan.
    """
    same_oracle = route.composite is None or route.composite.regularised is None
    worthwhile = _EXTRA_SHARE * chosen.samples - reserved >= _MIN_EXTRA
    return worthwhile and same_oracle and route.request.certificate and not route.request.guarantee


def certified_before_plan(route: Route, reserved: int, chosen: Plan, claim: Claim) -> Result:
    """Try to certify eps with a small part of what a plan takes; follow the plan where that fails."""
    evidence = route.evidence
    samples = int(_EXTRA_SHARE * chosen.samples) - evidence.evals - reserved
    most = evidence.evals + samples + chosen.samples + reserved
    expected = min(_expected_samples(route), most)
    evidence.add("route-certified-first", samples=samples, expected=expected, most=most)
    stages = _stages(route, default_method(route.request, evidence), samples, chosen)
    result = route.run(stages, budget=2 * samples + chosen.samples, record=0)  # stages keep to `samples` themselves
    followed_plan = result.state["followed_plan"].astype(bool)
    if not followed_plan.any():
        return _judged(route, result, chosen)
    if not followed_plan.all():
        claim = replace(claim, assumptions=(*claim.assumptions, "for the runs that were not certified before"))
    return conclude(evidence, result, reserved, chosen, claim)


def _expected_samples(route: Route) -> int:
    """Samples that a certified run takes in all if F is easy to solve, by the noise at x0: the order of magnitude."""
    request, calibration = route.request, route.evidence.calibration
    sigma = request.sigma if calibration is None else calibration.sigma
    assert request.eps is not None
    stages = int(_TYPICAL_COST * ((sigma or 0.0) / request.eps) ** 2)
    return route.evidence.evals + PILOT + stages


def _stages(
    route: Route, method: Callable[[int], Method], limit: int, chosen: Plan | None = None, correct: bool = True
) -> UntilCertified:
    """Stages of a method within a number of samples, then a plan, if there is one.

    With `correct`, points are corrected if samples can be evaluated twice and the method solves F(x) = 0 itself.
    """
    request, fallback, calibration = route.request, route.evidence.fallback, route.evidence.calibration
    replayable = route.oracle.replayable if calibration is None else calibration.replayable
    assert request.eps is not None
    options: dict[str, Any] = {
        "method": method,
        "eps": request.eps,
        "confidence": request.level,
        "max_samples": limit,
        "start": lambda rows: arrays.tile(fallback, rows),
        "sigma": request.sigma,
        "plan": chosen,
    }
    if not (correct and replayable) or (route.composite is not None and route.composite.method is not None):
        return UntilCertified(**options)
    batch = max(request.batch or 1, 1 if request.engine is None else SHARDS)
    return UntilCorrected(
        **options, batch=batch, noise_at_start=0.0 if calibration is None else float(calibration.sigma)
    )


def _judged(route: Route, result: Result, chosen: Plan | None = None) -> Result:
    """The result of a run by stages, with what its certificates say about eps."""
    request = route.request
    assert request.eps is not None
    reached = np.asarray(result.status == Status.TARGET)
    findings = (*result.findings, *findings_of(result, request.eps))
    if Status.DIVERGED in np.atleast_1d(result.status):  # the residual is that of the point that diverged
        result = replace(result, residual=None, residual_kind=None)
    result = replace(result, success=reached if result.shape else bool(reached), findings=findings)
    certificate = certificate_of(result, request.level)
    claim = certified_claim(certificate, request.eps, request.level)
    return route.evidence.finish(result, certificate, chosen, claim)
