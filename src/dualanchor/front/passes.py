"""Finite sums with room for several passes over all components: SVRG, whose residuals are exact."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dualanchor.advise.certify import MIN_SAMPLES
from dualanchor.core import arrays
from dualanchor.core.certificate import Certificate
from dualanchor.core.result import Result, Status
from dualanchor.engines import SHARDS
from dualanchor.front.judge import conclude
from dualanchor.front.request import calibration_share
from dualanchor.front.stages import FIRST_STAGE
from dualanchor.methods.svrg import LONGEST, SVRG

if TYPE_CHECKING:
    from dualanchor.front.route import Route

_MIN_PASSES = 5
_MIN_STEPS_ON_ENGINE = 64  # steps of an epoch, at least, before batches are cut down to a sample per shard
_ROUNDING = 1e-5  # of eps: sums in another order differ in their last digits


def pays_for_passes(route: Route, samples: float = inf) -> bool:
    """Whether F is a finite sum that SVRG is suited to, and these samples, within the limit, pay for several passes."""
    n, composite = route.oracle.components, route.composite
    if n is None or route.oracle.replayable is False:
        return False
    suited = composite is None or (composite.method is None and composite.plan is None)
    return suited and min(samples, route.request.limit) >= _MIN_PASSES * n


def solve_by_passes(route: Route) -> Result:
    """Run SVRG, to eps or for the budget; the certificate is the exact residual of the run itself."""
    request, evidence, n = route.request, route.evidence, route.oracle.components
    assert n is not None
    pilot = calibration_share(request.limit) if request.eps is None else min(FIRST_STAGE, request.limit // 8)
    evidence.calibrate(pilot, ignoring=("not-cocoercive", "noise-grows", "start-not-visible"))
    evidence.add("route-passes", components=n, passes=request.limit // n)
    eps = None if request.eps is None else request.eps * (1 - _ROUNDING)
    starts_elsewhere = route.composite is not None  # with a prox, a run does not start at what stands for x0
    spend = request.limit - evidence.evals - (n if starts_elsewhere else 0)
    batch = None if request.engine is None else max(-(-n // LONGEST), min(SHARDS, n // _MIN_STEPS_ON_ENGINE))
    result = route.run(SVRG(components=n, small_batch=batch, eps=eps, budget=spend), budget=spend)
    if Status.INTERRUPTED in np.atleast_1d(result.status) or not request.certificate:
        return conclude(evidence, result, 0)
    if starts_elsewhere:
        evidence.start_certificate = evidence.certify_start(max(n, MIN_SAMPLES))
    else:
        first = arrays.to_host(result.state["start_residual"])[:1, 0]
        evidence.start_certificate = Certificate.exact(first, n, single=True)
    residuals = arrays.to_host(result.state["residual"])[:, 0]
    if eps is not None and (stalled := (np.atleast_1d(result.status) == Status.HORIZON) & (residuals > eps)).any():
        evidence.add("stalled", residual=residuals[stalled].max())
    return conclude(evidence, result, 0, exact=Certificate.exact(residuals, n, single=not result.shape))
