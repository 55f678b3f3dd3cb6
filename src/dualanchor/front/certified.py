"""An accuracy by certificate: stages of a method, alone or before a plan that a theorem stands behind."""

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
_BESIDE = 0.15  # of the samples of a plan: what may be spent beside it, for calibration, certificates and all else
_LEAST = 2 * PILOT  # samples, to try for a certificate before a plan
_PRICE = 6  # times (sigma/eps)**2: what most runs take that end with a certificate


def until_certified(route: Route, method: Callable[[int], Method] | None = None, **why: Any) -> Result:
    """Stages, and a certificate after each, until one is good enough; with a method given, stages of that one alone."""
    if method is None and pays_for_passes(route):
        return solve_by_passes(route)
    request, evidence = route.request, route.evidence
    unknown = request.L is None and request.M is None
    least = SHORTEST_STAGE + MIN_PILOT_SAMPLES + (MIN_PILOT_SAMPLES if unknown else 0)
    if request.limit < least:
        raise request.error(f"max_samples must pay for a first certificate, {least}", request.limit, "Allow more")
    pilot = PILOT if request.L is None else FIRST_STAGE
    pilot = min(pilot, request.limit // 8 // MIN_PILOT_SAMPLES * MIN_PILOT_SAMPLES)
    evidence.calibrate(pilot, needed=unknown and method is None)
    if method is not None:
        route.try_replay(method, FIRST_STAGE)
    evidence.add("route-certified", **why, **({} if method else {"expected": _expected(route), "most": request.limit}))
    limit = request.limit - evidence.evals
    stages = _stages(route, method or default_method(request, evidence), limit, corrected=method is None)
    return _judged(route, route.run(stages, budget=limit, record=0))


def may_be_certified_before(route: Route, chosen: Plan, last: int) -> bool:
    """Whether a small part of what a plan takes may be enough, and no theorem is asked for."""
    same = route.composite is None or route.composite.regularised is None
    room = _BESIDE * chosen.samples - last >= _LEAST
    return room and same and route.request.certificate and not route.request.guarantee


def certified_before_plan(route: Route, last: int, chosen: Plan, claim: Claim) -> Result:
    """Try to certify eps with a small part of what a plan takes; follow the plan where that fails."""
    evidence = route.evidence
    samples = int(_BESIDE * chosen.samples) - evidence.evals - last
    most = evidence.evals + samples + chosen.samples + last
    evidence.add("route-certified-first", samples=samples, expected=min(_expected(route), most), most=most)
    stages = _stages(route, default_method(route.request, evidence), samples, chosen)
    result = route.run(stages, budget=2 * samples + chosen.samples, record=0)  # the stages have a limit of their own
    planned = result.state["followed_plan"].astype(bool)
    if not planned.any():
        return _judged(route, result, chosen)
    if not planned.all():
        claim = replace(claim, assumptions=(*claim.assumptions, "for the runs that were not certified before"))
    return conclude(evidence, result, last, chosen, claim)


def _expected(route: Route) -> int:
    """Samples that a certified run is expected to take in all, by the noise seen at x0."""
    request, seen = route.request, route.evidence.calibration
    sigma = request.sigma if seen is None else seen.sigma
    assert request.eps is not None
    return min(request.limit, route.evidence.evals + PILOT + int(_PRICE * ((sigma or 0.0) / request.eps) ** 2))


def _stages(
    route: Route, method: Callable[[int], Method], limit: int, chosen: Plan | None = None, corrected: bool = True
) -> UntilCertified:
    """Stages of a method within a number of samples, then a plan, if there is one.

    Points are corrected where samples can be evaluated twice, and roots of the oracle's F are what is looked for.
    """
    request, start, pilot = route.request, route.evidence.fallback, route.evidence.calibration
    repeats = route.oracle.replayable if pilot is None else pilot.replayable
    corrected = corrected and bool(repeats) and (route.composite is None or route.composite.method is None)
    assert request.eps is not None
    given: dict[str, Any] = {"start": lambda rows: arrays.tile(start, rows), "sigma": request.sigma, "plan": chosen}
    if not corrected:
        return UntilCertified(method, request.eps, request.level, limit, **given)
    given["batch"] = max(request.batch or 1, 1 if request.engine is None else SHARDS)
    given["noise_at_start"] = 0.0 if pilot is None else float(pilot.sigma)
    return UntilCorrected(method, request.eps, request.level, limit, **given)


def _judged(route: Route, result: Result, chosen: Plan | None = None) -> Result:
    """The result of a run by stages, with what its certificates say of eps."""
    request = route.request
    assert request.eps is not None
    reached = np.asarray(result.status == Status.TARGET)
    findings = (*result.findings, *findings_of(result, request.eps))
    if Status.DIVERGED in np.atleast_1d(result.status):  # of the point that was left
        result = replace(result, residual=None, residual_kind=None)
    result = replace(result, success=reached if result.shape else bool(reached), findings=findings)
    certificate = certificate_of(result, request.level)
    claim = certified_claim(certificate, request.eps, request.level)
    return route.evidence.finish(result, certificate, chosen, claim)
