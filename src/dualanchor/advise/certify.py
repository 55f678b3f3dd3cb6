"""How large is F at a point? An estimate and an upper confidence bound from fresh samples."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf, log
from typing import Any

import numpy as np

from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import arrays, check
from dualanchor.core.certificate import Certificate
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, unknown_name
from dualanchor.core.finding import Finding, Severity
from dualanchor.core.problem import Problem
from dualanchor.core.result import Result
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.theory import confidence as bounds
from dualanchor.theory.confidence import GroupMoments, group_moments

MIN_SAMPLES, GROUPS = 16, 256
GROUP_SIZE = 2  # at least
MANY_GROUPS = 2048  # to see the variance well, for points that are not long
FEW_GROUPS, FEW_OF_LONG = 128, 32  # below, bounds are less reliable; at least so many for long points
_PIECE = 1 << 20  # numbers that one draw may stand for; more are drawn in pieces
_HELD = 1 << 25  # numbers that the group means of rows treated together may take
_LONG = 1 << 25  # and those of one row, as long as that leaves 32 groups
_LARGEST = 1e150  # larger means cannot be squared: the bound is infinite
_ROUNDING = 32  # times the precision: relative differences of group means that are put down to rounding
RULES = ("min", "any-distribution", "sub-gaussian", "kurtosis")


def certify(
    oracle: Source,
    x: Any = None,
    *,
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
    rng: np.random.Generator | None = None,
    rule: str = "min",
    sigma: float | None = None,
    kurtosis: float | None = None,
) -> Certificate:
    r"""Bound :math:`\|F(x)\|` from fresh samples, and estimate it without bias.

    The samples come from streams of their own, independent of every run, so x may be what a run returned. They are cut
    into 256 groups (fewer below 512 samples). With several points each bound holds with the given confidence by itself.

    Samples that all agree are taken as they are if the oracle has no noise: it knows its operator, sigma = 0 is given,
    or the sampler leaves `rng` alone. Else there may be noise that no sample showed: the bound is that of
    "any-distribution" if sigma is known, infinite if not.

    Of a finite sum with n <= `samples` components the residual is computed exactly, in one pass over all of them: n
    evaluations, no draws, the rule "exact", confidence 1.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng)` that returns the mean of n samples at x
    x : number, array of shape (d,) or (rows, d), or Result, optional; without it at a problem's start
    samples : int
        How many at each point, at least 16, better 256 or more; the largest multiple of the number of groups is used.
    confidence : float, the probability with which the claim is to be right, between 0 and 1
    seed, rng : int or numpy.random.Generator
        Where the samples come from. Use a new seed if x was chosen by an earlier certificate.
    rule : {"min", "any-distribution", "sub-gaussian", "kurtosis"}
        "min": the smaller of two asymptotic bounds, no constant needed, corrected for what the largest samples say of
        rare ones; noise that shows in none can make it too small. The others hold for every number of samples, for
        every distribution with a standard deviation of at most sigma (about 1.4 times as far above :math:`\|F(x)\|` in
        one dimension); or one that is also sub-Gaussian, in each direction with a variance proxy of at most
        :math:`\sigma^2`; or one of any deviation with :math:`E\|\xi\|^4 \le` `kurtosis` :math:`(E\|\xi\|^2)^2`.
    sigma : float, optional; the known bound for "any-distribution" and "sub-gaussian"; a problem's declared sigma if
        left out
    kurtosis : float, optional; for "kurtosis"; 3 for normal noise in one direction, 9 for exponential noise

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
    seed = check.seed(seed, rng, "certify")
    F, points, single = open_samples(oracle, x, seed=seed, purpose=Purpose.CERTIFICATE, owner="certify")
    if sigma is None and isinstance(oracle, Problem):
        sigma = oracle.constants.sigma
    options: dict[str, Any] = {"confidence": confidence, "rule": rule, "sigma": sigma, "kurtosis": kurtosis}
    return certificate_from_session(F, points, samples, single=single, **options)


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
    if not isinstance(candidates, Collection) or isinstance(candidates, str):
        rule = "best_of: candidates must be a list of points or results"
        raise ArgumentTypeError(rule, repr(candidates)[:80], "Pass at least one")
    points, seed = [one.x if isinstance(one, Result) else one for one in candidates], check.seed(seed, None, "best_of")
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
    kurtosis: float | None = None,
    single: bool = False,
    scale: Any = 0.0,
    least: int = 0,
) -> Certificate:
    """As `certify`, for points (rows, d), from a session with streams that are independent of x.

    With `single` the numbers of the only row are plain floats. Where samples that may be noisy all agree, the bound
    allows for a sample as large as `scale`, what was seen elsewhere, one number or one per row, as often as it may have
    been missed. It is infinite where that is 0, and with fewer samples than `least`.
    """
    samples = check.count(samples, "certify: samples", MIN_SAMPLES)
    confidence = check.probability(confidence, "certify: confidence")
    if not isinstance(rule, str) or rule not in RULES:
        raise unknown_name("certify: rule", rule, RULES)
    _require(rule, sigma, kurtosis)
    known = None if sigma is None else check.number(sigma, "certify: sigma", remedy="Pass a bound on the noise")
    if (n := F.oracle.components) is not None and samples >= n:
        return Certificate.exact(arrays.row_norms(F(x, F.full_batch())), n, single)
    many = max(GROUPS, min(MANY_GROUPS, _PIECE // x.shape[1]))
    groups, size = group_sizes(samples, x.shape[1], many if rule == "kurtosis" else GROUPS)
    m, finite = _moments(F, x, groups, size)
    delta, variance = 1 - confidence, inf if known is None else known**2 / size
    if rule == "min":
        upper = bounds.upper_by_both(m, delta)
    elif rule == "any-distribution":
        upper = bounds.upper_any_distribution(m, variance, delta)
    elif rule == "sub-gaussian":
        upper = bounds.upper_sub_gaussian(m.norm, variance / groups, delta)
    else:
        kurtosis = check.number(kurtosis, "certify: kurtosis", least=1.0)
        upper = bounds.upper_by_kurtosis(m, 3 + max(kurtosis - 3, 0) / size, delta)
    unseen = np.zeros(len(finite), bool)
    if rule in ("min", "kurtosis"):  # those that go by the noise seen
        unseen = _unseen_noise(F, x, m, finite, known)
        enough = (scale > 0) & (groups * size >= least)
        missed = np.where(enough, m.norm + log(1 / delta) / (groups * size) * (m.norm + scale), inf)
        allowed = missed if known is None else bounds.upper_any_distribution(m, variance, delta)
        upper[unseen] = allowed[unseen]

    def number(values: Array) -> Any:
        values = np.where(finite, values, np.inf)
        return float(values[0]) if single else values

    return Certificate(
        residual=number(np.sqrt(np.maximum(m.square, 0.0))),
        lower=number(bounds.lower_by_square(m, delta)),
        upper=number(upper),
        squared=number(m.square),
        sigma=number(np.sqrt(size * m.trace)),
        confidence=confidence,
        samples=groups * size,
        groups=groups,
        rule=rule,
        findings=(*_findings(m, finite, samples, size, rule, known, unseen), *_unseen(upper[unseen], known, scale)),
        assumed_sigma=known if rule in ("any-distribution", "sub-gaussian") else None,
        assumed_kurtosis=kurtosis if rule == "kurtosis" else None,
    )


def _require(rule: str, sigma: float | None, kurtosis: float | None) -> None:
    """Raise where a rule lacks the constant that it needs."""
    missing = "sigma, a known bound on the noise of one sample" if rule in ("any-distribution", "sub-gaussian") else ""
    if rule == "kurtosis":
        missing, sigma = "kurtosis, a known bound on that of the noise", kurtosis
    if missing and sigma is None:
        word = missing.partition(",")[0]
        remedy = f"Pass {word}=..., or use rule='min', which estimates the noise"
        received = "no sigma, and no problem that declares one" if word == "sigma" else "none"
        raise ArgumentError(f"certify: rule {rule!r} needs {missing}", received, remedy)


def group_sizes(samples: int, dimension: int = 1, most: int = GROUPS) -> tuple[int, int]:
    """Number and size of the groups: about 256 (32 for very long points), fewer below 512 samples, but 8 at least."""
    size = max(GROUP_SIZE, samples // min(most, max(FEW_OF_LONG, _LONG // dimension)))
    return samples // size, size


def _unseen_noise(F: Session, x: Array, m: GroupMoments, finite: Array, sigma: float | None) -> Array:
    """Which points have samples that all agree, to rounding, although they may be noisy."""
    precision = _ROUNDING * float(np.finfo(arrays.numpy_dtype(x.dtype)).eps)
    agree = finite & (m.trace <= m.groups * (precision * m.norm) ** 2)
    if not agree.any() or sigma == 0:
        return np.zeros(len(agree), bool)
    some, points = F.oracle.take(agree), arrays.take(x, agree)
    true = some.operator(points) if some.knows_operator else None
    if true is not None:
        norms = arrays.row_norms(true)
        agree[agree] = norms > m.norm[agree] * (1 + precision) + precision * norms
    elif some.is_noiseless(points, F.streams.take(agree)):
        agree[:] = False
    return agree


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


def group_means(F: Session, x: Array, groups: int, size: int, beside: Array | None = None) -> Array:
    """The means of groups of fresh samples at points (rows, d), less those `beside`: (rows, groups, d)."""
    if F.oracle.tables and size <= _most(x) and beside is None:
        batches = [F.draw(size) for _ in range(groups)]
        if (values := F.table([x], batches)) is None:
            values = np.stack([arrays.to_host(F(x, batch)) for batch in batches])[None]
        return arrays.like(values[0].swapaxes(0, 1), x)
    means = arrays.empty((len(x), groups, x.shape[1]), x)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite samples, which the caller finds
        for k in range(groups):
            means = arrays.put(means, np.s_[:, k], _group_mean(F, x, size, beside))
    return means


def _group_mean(F: Session, x: Array, size: int, beside: Array | None) -> Array:
    """The mean of `size` samples, drawn in pieces."""
    most = _most(x)
    mean, done = arrays.zeros_like(x), 0
    while done < size:
        part = min(most, size - done)
        done += part
        batch = F.draw(part)
        value = F(x, batch) if beside is None else F(x, batch) - F(beside, batch)
        mean += (part / done) * (value - mean)
    return mean


def _most(x: Array) -> int:
    """Samples of one batch, so that an oracle that lists them lists few at a time."""
    return max(64, _PIECE // x.shape[1])


def _findings(
    m: GroupMoments, finite: Array, samples: int, size: int, rule: str, sigma: float | None, unseen: Array
) -> Iterator[Finding]:
    used, spread = m.groups * size, np.sqrt(size * m.trace)
    few = {"groups": m.groups, "usual": FEW_GROUPS, "samples": FEW_GROUPS * GROUP_SIZE}
    assumed = rule in ("any-distribution", "sub-gaussian") and sigma is not None
    for code, found, values in (
        ("samples-rounded-down", used < samples, {"used": used, "given": samples, "groups": m.groups, "size": size}),
        ("asymptotic", rule == "min", {}),
        ("few-groups", rule == "min" and samples < FEW_GROUPS * GROUP_SIZE, few),
        ("samples-agree", finite.any() and not (m.trace[finite & ~unseen]).all(), {}),
        ("samples-too-large", not finite.all(), {}),
        ("spread-above-sigma", assumed and (spread > 1.5 * (sigma or 0)).any(), {"seen": spread.max(), "sigma": sigma}),
        ("separate-confidence", len(finite) > 1, {}),
    ):
        if found:
            yield Finding(code, values=values)


def _unseen(upper: Array, sigma: float | None, scale: Any) -> Iterator[Finding]:
    """What is said of the bounds at points where noise may be there that no sample showed."""
    if upper.size:
        severity = Severity.NOTE if np.isfinite(upper).all() else Severity.WARNING
        yield Finding("noise-not-seen", severity, {"sigma": sigma, "scale": float(np.max(scale))})
