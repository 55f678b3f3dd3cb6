"""What samples say about constants that were given, about x0, and about eps."""

from collections.abc import Iterator
from dataclasses import replace
from math import log

import numpy as np

from dualanchor.advise.calibration import Calibration
from dualanchor.core import arrays
from dualanchor.core.certificate import Certificate
from dualanchor.core.claim import Claim, ClaimKind
from dualanchor.core.finding import Finding
from dualanchor.core.history import History
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.front.request import Request
from dualanchor.theory.confidence import enough_for_rare

_SLACK = 1.25  # by how much samples must exceed a constant before they contradict it
_KURTOSIS = 3  # of samples of which none stands out
_STAYED = 0.9  # of the residual at x0: a residual above that has not fallen


def contradictions(request: Request, seen: Calibration, plain: bool) -> Iterator[Finding]:
    """Constants that samples contradict; D only for a `plain` problem, where it is the distance from a fixed x0."""
    comparable = not (seen.violations or seen.not_cocoercive)
    if request.L is not None and comparable and seen.L_at_least > _SLACK * request.L:
        yield Finding.of("L-too-small", given=request.L, seen=seen.L_at_least)
    if request.M is not None and seen.M_at_least > _SLACK * request.M:
        yield Finding.of("M-too-small", given=request.M, seen=seen.M_at_least)
    if request.sigma is not None and (sigma := seen.sigma_at_least) > _SLACK * request.sigma:
        yield Finding.of("sigma-too-small", given=request.sigma, seen=sigma, at="x0", relation="at least")
    constant, largest = ("L", request.L) if request.M is None else ("M", request.M)
    distance = seen.residual_at_least / largest if largest is not None and plain else 0.0
    large_enough = request.M is None or seen.M_at_least <= _SLACK * request.M
    if request.D is not None and large_enough and distance > _SLACK * request.D:
        yield Finding.of("D-too-small", given=request.D, seen=distance, constant=constant)


def largest_sample(result: Result, start: Certificate | None) -> Array:
    """At least the size of the largest sample at x0 and, where some stand out, of the run; one number per row."""
    scale = np.full(np.size(result.nfev), 0.0 if start is None else start.scale)
    if "fourth" not in result.state:
        return scale
    fourth, level, count = (arrays.to_host(result.state[name]) for name in ("fourth", "level", "count"))
    with np.errstate(over="ignore", invalid="ignore"):  # of what diverged
        rare = np.maximum(fourth - _KURTOSIS * count * level**2, 0.0)  # of fourth powers, beyond those of others
    return np.maximum(scale, result.method["parameters"]["samples_per_round"] * rare**0.25)


def has_fallen(here: Certificate, start: Certificate, result: Result, samples: int, fitted: int = 0) -> Array:
    """Whether the residual here is seen to be below `_STAYED` times that at the start: a test of the estimated squares.

    At a residual that has stayed, it is wrong about one time in twenty where noise hides both, and hardly ever where
    the residual at the start is visible. Exact residuals are compared as they are. Where no noise has been seen, all
    `samples` so far must be so many that one would have shown an event of 1 in 200. Samples as large as others of the
    run may be missing from either certificate. Where the element of G at the start
    was chosen by `fitted` samples, their noise, which is a part of its residual, is not counted.
    """
    if here.is_exact and start.is_exact:
        return (np.asarray(here.residual) < start.residual) | (np.asarray(here.residual) == 0)
    unseen = any(one.code == "noise-not-seen" for one in here.findings)
    if unseen and samples < enough_for_rare(1 - here.confidence):
        return np.zeros(np.shape(here.residual), bool)
    known = start.lower > 0
    at_start = start.squared - start.lower**2 if known else start.upper**2 - max(start.squared, 0.0)
    scale = largest_sample(result, None).reshape(np.shape(here.residual))
    with np.errstate(invalid="ignore", over="ignore"):
        upper = here.upper + _missed(here, scale)
        reach = np.asarray(upper) ** 2 - np.maximum(here.squared, 0.0)  # as the other, about 1.8 standard errors
        at_start = at_start + 2 * start.residual * _missed(start, scale)
        noise = 2 * start.sigma**2 / fitted if fitted else 0.0
        fall = _STAYED**2 * (start.squared - noise) - np.asarray(here.squared)
        return np.asarray((fall > np.hypot(_STAYED**2 * at_start, reach)) | (np.asarray(here.upper) == 0))


def _missed(certificate: Certificate, scale: Array) -> Array:
    """What samples of a size that was seen elsewhere may add to a mean, if none was among those of a certificate."""
    missing = np.asarray(scale > certificate.scale) & (not certificate.is_exact)
    return np.where(missing, log(1 / (1 - min(certificate.confidence, 0.999))) / certificate.samples * scale, 0.0)


def estimated_history(result: Result, start: Certificate, end: Certificate) -> History:
    """The estimates on the way of each row, with those of certificates at x0 and at its end."""
    way, count = result.history, np.size(end.residual)
    sigma = start.sigma if end.is_exact else end.sigma
    nit, draws, nfev, residual, samples, noise = (
        np.broadcast_to(np.ravel(one), (count,))
        for one in (result.nit, result.draws, result.nfev, end.residual, end.samples, sigma)
    )
    if way.residual.size and way.samples.size:
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = way.residual**2 - noise[way.row] ** 2 / way.samples
        way = replace(way, residual=np.sqrt(np.maximum(squares, 0.0)))
    last = np.zeros(count, int) if not way.stage.size else np.array([way.of(row).stage.max() for row in range(count)])
    inner = np.zeros(len(way), bool) if not way.residual.size else (way.k > 0) & (way.k < nit[way.row])
    inner &= np.isfinite(way.residual) if way.residual.size else False
    zero, rows = np.zeros(count, int), np.arange(count)
    at_start = (np.full(count, float(value)) for value in (start.residual, start.samples))
    first = (rows, zero, zero, zero, *at_start, zero + 1, zero)
    final = (rows, nit, draws, nfev, residual, samples.astype(float), zero + 1, last)
    middle = [column[inner] if column.size else np.zeros(inner.sum(), column.dtype) for column in vars(way).values()]
    columns = [np.concatenate(parts) for parts in zip(first, middle, final, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return History(*(column[order] for column in columns))


def certified_claim(certificate: Certificate | None, eps: float, confidence: float) -> Claim:
    """What a certificate says about eps: that it holds, or what holds instead; with its own confidence if exact."""
    worst = np.inf if certificate is None else float(np.max(certificate.upper))
    confidence = 1.0 if certificate is not None and certificate.is_exact else confidence
    if worst <= eps:
        return Claim(ClaimKind.CERTIFICATE, eps, confidence)
    return Claim(ClaimKind.NOT_REACHED, worst if np.isfinite(worst) else None, confidence)
