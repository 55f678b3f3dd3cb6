"""The default method where no theorem is wanted: which, why, and with how many samples per round."""

from collections.abc import Callable
from math import hypot, inf, sqrt

from dualanchor.advise.calibration import Calibration
from dualanchor.core import arrays
from dualanchor.core.method import Method
from dualanchor.core.schedule import Paired
from dualanchor.engines import SHARDS
from dualanchor.front.evidence import Evidence
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request
from dualanchor.methods.auto import LONG, Auto
from dualanchor.methods.averaged import averaged
from dualanchor.methods.seg import SEG

_MAX_ROUNDS_ON_TENSORS = 10_000  # fewer than with NumPy, because calls take longer
_MUCH_SHORTER = 0.4  # a calibrated step below this part of 1/L contradicts L; where L is right it is about a half


def default_method(request: Request, evidence: Evidence) -> Callable[[int], Method]:
    """A function that makes the method for a number of samples; a finding says why it was chosen."""
    calibration = evidence.calibration
    mirror_prox = None if evidence.composite is None else evidence.composite.method
    if mirror_prox is not None:
        evidence.add("mirror-prox")
        return lambda samples: mirror_prox(_round_size(request, evidence, samples))
    if (M := _lipschitz(request, evidence)) is not None:
        evidence.add("extragradient", reason="seen" if request.M is None else "M-without-mu")

        def extragradient(samples: int) -> Method:
            start_dominates = calibration is not None and calibration.residual > calibration.sigma * sqrt(samples / 200)
            size = _round_size(request, evidence, samples)
            if start_dominates or samples < 4 * MIN_PILOT_SAMPLES:
                return averaged(SEG(1 / (2 * M), max(1, size // 2)))
            ahead = max(1, size // 4)  # the noise of the look ahead counts less
            return averaged(SEG(1 / (2 * M), Paired(ahead, 3 * ahead)), weights="uniform")

        return extragradient
    if request.budget is not None:
        evidence.add("route-budget")
    if request.L is None:
        evidence.add("no-L")
    step = _first_step(request.L, calibration)

    def auto(samples: int) -> Method:
        size = _round_size(request, evidence, samples)
        return Auto(step, max(1, samples // size), size)

    return auto


def _first_step(L: float | None, calibration: Calibration | None) -> float:
    """1/L, unless calibration found a much shorter step; without L the calibrated step."""
    calibrated = None if calibration is None else calibration.largest_step
    if L is not None:
        step = 1 / L
        return step if calibrated is None or calibrated >= _MUCH_SHORTER * step else calibrated
    if calibration is None:
        return 1.0
    size = hypot(calibration.residual, calibration.sigma)
    to_radius = calibration.radius / size if size > 0 else 1.0  # moves as far as calibration looked, in any units of F
    if calibrated is None:
        return to_radius
    low, high = calibration.residual_interval
    if (residual := calibration.residual if low > 0 else high) > 0:  # F is known as far as the radius, and no further
        calibrated = min(calibrated, calibration.radius / residual)
    interval = calibration.local_L_interval
    is_rough = calibration.replayable and (interval is None or interval[1] == inf)  # rests on a lower bound on L alone
    return min(to_radius, calibrated) if is_rough else calibrated


def _lipschitz(request: Request, evidence: Evidence) -> float | None:
    """M, given or calibrated, if F is or may be merely monotone, so that extragradient steps are the default."""
    if request.merely_monotone:
        return request.M
    calibration = evidence.calibration
    if calibration is None or calibration.not_cocoercive <= 0 or request.mu != 0:
        return None
    return calibration.local_M if request.M is None else request.M


def _round_size(request: Request, evidence: Evidence, samples: int) -> int:
    """Samples of a round: as few as `max_rounds` allows, at least `batch`, and one for every shard of an engine."""
    shards = 0 if request.engine is None else min(SHARDS, samples // MIN_PILOT_SAMPLES)
    max_rounds = request.max_rounds or (_MAX_ROUNDS_ON_TENSORS if arrays.is_foreign(evidence.x0) else LONG)
    return max(1, -(-samples // max_rounds), shards, min(request.batch or 1, samples))
