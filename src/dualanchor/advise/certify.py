"""How large is F at a point? An estimate and an upper confidence bound from fresh samples."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import arrays, check
from dualanchor.core.certificate import Certificate
from dualanchor.core.errors import ArgumentError, unknown_name
from dualanchor.core.finding import Finding
from dualanchor.core.problem import Problem
from dualanchor.core.result import Result
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.theory import confidence as bounds
from dualanchor.theory.confidence import GroupMoments, group_moments

MIN_SAMPLES, GROUPS, MIN_GROUPS = 16, 32, 8
GROUP_SIZE = 8  # at least, as long as that leaves 8 groups: means of 8 are near enough to normal for skewed noise
_PIECE = 1 << 20  # numbers that one draw may stand for; more are drawn in pieces
_HELD = 1 << 25  # numbers that the group means of rows treated together may take
_LARGEST = 1e150  # larger means cannot be squared: the bound is infinite
_BOUNDS: dict[str, Callable[[GroupMoments, float, float], Array]] = {  # of the moments, sigma^2/n and delta
    "min": lambda m, _, delta: bounds.upper_by_both(m, delta),
    "any-distribution": lambda m, variance, delta: bounds.upper_any_distribution(m.norm, variance, delta),
    "sub-gaussian": lambda m, variance, delta: bounds.upper_sub_gaussian(m.norm, variance, delta),
}


def certify(
    oracle: Source,
    x: Any = None,
    *,
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
    rule: str = "min",
    sigma: float | None = None,
) -> Certificate:
    r"""Bound :math:`\|F(x)\|` from fresh samples, and estimate it without bias.

    The samples come from streams of their own, independent of every run, so x may be what a run returned. They are cut
    into 32 groups (fewer below 256 samples). With several points each bound holds with the given confidence by itself.

    Of a finite sum with n <= `samples` components the residual is computed exactly, in one pass over all of them: n
    evaluations, no draws, the rule "exact", confidence 1.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng)` that returns the mean of n samples at x
    x : array of shape (d,) or (rows, d), or Result, optional; without it at a problem's start
    samples : int
        How many at each point, at least 16, better 256 or more; the largest multiple of the number of groups is used.
    confidence : float, the probability with which the claim is to be right, between 0 and 1
    seed : int, where the samples come from. Use a new seed if x was chosen by an earlier certificate
    rule : {"min", "any-distribution", "sub-gaussian"}
        "min": the smaller of two asymptotic bounds, no constant needed; noise that shows only in rare samples can make
        it too small. "any-distribution": Cantelli's inequality, for every number of samples and every distribution
        whose standard deviation is at most sigma; about twice as far above :math:`\|F(x)\|`. "sub-gaussian": likewise
        for noise that is sub-Gaussian, in each direction with a variance proxy of at most :math:`\sigma^2`.
    sigma : float, optional; the known bound for the last two rules; a problem's declared sigma if left out

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(dimension=4)
    >>> result = da.solve(problem, budget=2000)
    >>> certificate = da.certify(problem, result, samples=4096)
    >>> certificate.holds_for(1.0), certificate.samples
    (True, 4096)
    """
    check.count(samples, "certify: samples", MIN_SAMPLES)  # before anything is drawn
    F, points, single = open_samples(oracle, x, seed=seed, purpose=Purpose.CERTIFICATE, owner="certify")
    if sigma is None and isinstance(oracle, Problem):
        sigma = oracle.constants.sigma
    return certificate_from_session(F, points, samples, confidence=confidence, rule=rule, sigma=sigma, single=single)


def best_of(
    oracle: Source, candidates: Sequence[Any], *, samples: int, confidence: float = 0.95, seed: int = 0
) -> tuple[int, Certificate]:
    """The number of the candidate with the smallest upper bound on fresh samples, and its certificate.

    The failure probability is shared out among the candidates, so the confidence holds for the one that is chosen.

    Parameters
    ----------
    oracle, confidence, seed : as in `certify`; for a problem whose instance is random, give the oracle of the instance
    candidates : list of arrays of shape (d,) or of Results, what to choose from
    samples : int, how many in all; each candidate gets an equal share, at least 16

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(dimension=4)
    >>> results = [da.solve(problem, name, budget=500) for name in ("sgda", "averaged")]
    >>> number, certificate = da.best_of(problem, results, samples=2000)
    >>> certificate.confidence
    0.95
    """
    points = [one.x if isinstance(one, Result) else one for one in candidates]
    if not points:
        raise ArgumentError("best_of: there must be a candidate", "none", "Pass points or results")
    confidence = check.probability(confidence, "best_of: confidence")
    share = check.count(samples, "best_of: samples") // len(points)
    check.count(share, "best_of: samples of each", MIN_SAMPLES)
    level = 1 - (1 - confidence) / len(points)
    made = [certify(oracle, point, samples=share, confidence=level, seed=seed + i) for i, point in enumerate(points)]
    best = min(range(len(made)), key=lambda i: float(made[i].upper))
    joint = Finding.of("joint-confidence", count=len(made))
    return best, replace(made[best], confidence=confidence, findings=(*made[best].findings, joint))


def certificate_from_session(
    F: Session,
    x: Array,
    samples: int,
    *,
    confidence: float = 0.95,
    rule: str = "min",
    sigma: float | None = None,
    single: bool = False,
) -> Certificate:
    """As `certify`, for points (rows, d), from a session with streams that are independent of x.

    With `single` the numbers of the only row are plain floats.
    """
    samples = check.count(samples, "certify: samples", MIN_SAMPLES)
    confidence = check.probability(confidence, "certify: confidence")
    if not isinstance(rule, str) or rule not in _BOUNDS:
        raise unknown_name("certify: rule", rule, _BOUNDS)
    known = 0.0
    if rule != "min":
        if sigma is None:
            needs = f"certify: rule {rule!r} needs sigma, a known bound on the noise of one sample"
            remedy = "Pass sigma=..., or use rule='min', which estimates the noise"
            raise ArgumentError(needs, "no sigma, and no problem that declares one", remedy)
        known = check.number(sigma, "certify: sigma", remedy="Pass a bound on the noise of one sample")
    if (n := F.oracle.components) is not None and samples >= n:
        return Certificate.exact(arrays.row_norms(F(x, F.full_batch())), n, single)
    groups, size = group_sizes(samples)
    m, finite = _moments(F, x, groups, size)

    def number(values: Array) -> Any:
        values = np.where(finite, values, np.inf)
        return float(values[0]) if single else values

    return Certificate(
        residual=number(np.sqrt(np.maximum(m.square, 0.0))),
        lower=number(bounds.lower_by_square(m, 1 - confidence)),
        upper=number(_BOUNDS[rule](m, known**2 / (groups * size), 1 - confidence)),
        squared=number(m.square),
        sigma=number(np.sqrt(size * m.trace)),
        confidence=confidence,
        samples=groups * size,
        groups=groups,
        rule=rule,
        findings=tuple(_findings(m, finite, samples, size, rule, known)),
        assumed_sigma=None if rule == "min" else known,
    )


def group_sizes(samples: int) -> tuple[int, int]:
    """Number and size of the groups: 32 if each has 8 samples at least, else fewer, but no fewer than 8."""
    groups = min(GROUPS, max(MIN_GROUPS, samples // GROUP_SIZE))
    return groups, samples // groups


def _moments(F: Session, x: Array, groups: int, size: int) -> tuple[GroupMoments, Array]:
    rows, d = x.shape
    step = max(1, _HELD // (groups * d))
    parts, finite = [], np.ones(rows, bool)
    own, wide = (float(np.finfo(arrays.numpy_dtype(y.dtype)).max) for y in (x, arrays.in_double(x[:1])))
    largest = min(_LARGEST, own, (wide / (4 * max(groups, d))) ** 0.5)  # JAX may have no doubles to square them in
    for start in range(0, rows, step):
        here = np.zeros(rows, bool)
        here[start : start + step] = True
        means, xp = group_means(F.at(here), arrays.take(x, here), groups, size), arrays.namespace(x)
        finite[here] = arrays.to_host(xp.all(xp.abs(means) <= largest, axis=(1, 2)))
        means = arrays.put(means, np.flatnonzero(~finite[here]), 0.0)
        parts.append(group_moments(means)[1:])
    return GroupMoments(groups, *(np.concatenate(values) for values in zip(*parts, strict=True))), finite


def group_means(F: Session, x: Array, groups: int, size: int) -> Array:
    """The means of groups of fresh samples at points (rows, d): (rows, groups, d)."""
    means = arrays.empty((len(x), groups, x.shape[1]), x)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite samples, which the caller finds
        for k in range(groups):
            means = arrays.put(means, np.s_[:, k], _group_mean(F, x, size))
    return means


def _group_mean(F: Session, x: Array, size: int) -> Array:
    """The mean of `size` samples, drawn in pieces so that an oracle that lists its samples lists few at a time."""
    most = max(64, _PIECE // x.shape[1])
    mean, done = arrays.zeros_like(x), 0
    while done < size:
        part = min(most, size - done)
        done += part
        mean += (part / done) * (F(x, F.draw(part)) - mean)
    return mean


def _findings(m: GroupMoments, finite: Array, samples: int, size: int, rule: str, sigma: float) -> Iterator[Finding]:
    used, spread = m.groups * size, np.sqrt(size * m.trace)
    asymptotic, few = rule == "min", {"groups": m.groups, "usual": GROUPS, "samples": GROUPS * GROUP_SIZE}
    for code, found, values in (
        ("samples-rounded-down", used < samples, {"used": used, "given": samples, "groups": m.groups, "size": size}),
        ("asymptotic", asymptotic, {}),
        ("few-groups", asymptotic and m.groups < GROUPS, few),
        ("samples-agree", finite.any() and not m.trace[finite].all(), {}),
        ("samples-too-large", not finite.all(), {}),
        ("spread-above-sigma", not asymptotic and (spread > 1.5 * sigma).any(), {"seen": spread.max(), "sigma": sigma}),
        ("separate-confidence", len(finite) > 1, {}),
    ):
        if found:
            yield Finding(code, values=values)
