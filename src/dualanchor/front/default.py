"""The default method where no theorem is wanted: which, why, and with how many samples per round."""

from collections.abc import Callable
from math import hypot, inf, sqrt

from dualanchor.core import arrays
from dualanchor.core.method import Method
from dualanchor.core.schedule import Paired
from dualanchor.engines import SHARDS
from dualanchor.front.evidence import Evidence
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request
from dualanchor.methods.auto import LONG, Auto
from dualanchor.methods.averaged import averaged
from dualanchor.methods.seg import SEG

_LONG_ON_TENSORS = 10_000  # rounds, whose calls take longer than those of NumPy
_MUCH_SHORTER = 0.4  # of 1/L: where L is right, calibration finds about a half


def default_method(request: Request, evidence: Evidence) -> Callable[[int], Method]:
    """Makes the method for a number of samples, and adds to the evidence why it was chosen."""
    seen, mirror = evidence.calibration, None if evidence.composite is None else evidence.composite.method
    if mirror is not None:
        evidence.add("mirror-prox")
        return lambda samples: mirror(_round_size(request, evidence, samples))
    if (M := _lipschitz(request, evidence)) is not None:
        evidence.add("extragradient", reason="seen" if request.M is None else "M-without-mu")

        def extragradient(samples: int) -> Method:
            far = seen is not None and seen.residual > seen.sigma * sqrt(samples / 200)
            both = _round_size(request, evidence, samples)
            if far or samples < 4 * MIN_PILOT_SAMPLES:  # the start counts more than the noise
                return averaged(SEG(1 / (2 * M), max(1, both // 2)))
            ahead = max(1, both // 4)  # whose noise counts less
            return averaged(SEG(1 / (2 * M), Paired(ahead, 3 * ahead)), weights="uniform")

        return extragradient
    if request.budget is not None:
        evidence.add("route-budget")
    longest = None if seen is None else seen.largest_step
    if request.L is None:
        evidence.add("no-L")
        step = _first_step(evidence)
        if seen is not None and longest is not None:  # by a lower bound on L alone, it may be far too long
            rough = seen.replayable and (seen.local_L_interval is None or seen.local_L_interval[1] == inf)
            step = min(step, longest) if rough else longest
    else:  # 1/L, shrunk by calibration
        step = 1 / request.L
        step = step if longest is None or longest >= _MUCH_SHORTER * step else longest

    def auto(samples: int) -> Method:
        size = _round_size(request, evidence, samples)
        return Auto(step, max(1, samples // size), size)

    return auto


def _first_step(evidence: Evidence) -> float:
    """Where no change of F was visible: a step that moves as far as calibration looked, in any units of F."""
    seen = evidence.calibration
    size = 0.0 if seen is None else hypot(seen.residual, seen.sigma)
    return seen.radius / size if seen is not None and size > 0 else 1.0


def _lipschitz(request: Request, evidence: Evidence) -> float | None:
    """M, given or seen, if the default is the mean of extragradient steps: F may be, or is, merely monotone."""
    if request.merely_monotone:
        return request.M
    seen = evidence.calibration
    turning = seen is not None and seen.not_cocoercive > 0 and request.mu == 0
    return (seen.local_M if request.M is None else request.M) if seen is not None and turning else None


def _round_size(request: Request, evidence: Evidence, samples: int) -> int:
    """Samples of a round: few, so that there are many rounds, but as many as are asked for, and one for every shard."""
    shards = 0 if request.engine is None else min(SHARDS, samples // MIN_PILOT_SAMPLES)
    most = request.max_rounds or (_LONG_ON_TENSORS if arrays.is_foreign(evidence.x0) else LONG)
    return max(1, -(-samples // most), shards, min(request.batch or 1, samples))
