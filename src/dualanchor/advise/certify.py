"""`certify`: an estimate of the residual at a point and an upper confidence bound, from fresh samples."""

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

MIN_SAMPLES = 16
GROUPS = 256  # groups that samples are cut into, if there are enough
MIN_GROUP_SIZE = 2
MAX_GROUPS = 2048  # for the rule "kurtosis", which needs the variance to be well known, in low dimension
RELIABLE_GROUPS = 128  # with fewer groups the asymptotic bounds are less reliable
MIN_LONG_GROUPS = 32  # groups of points so long that memory limits their number
_BATCH_NUMBERS = 1 << 20  # samples times dimension of one batch; larger groups are drawn in several batches
_BLOCK_NUMBERS = 1 << 25  # numbers in the group means of rows that are treated together
_ROW_NUMBERS = 1 << 25  # numbers in the group means of one row, unless that leaves fewer than MIN_LONG_GROUPS
_MAX_MEAN = 1e150  # larger means overflow when squared: the bound is infinite
_ROUNDING = 32  # times the precision: smaller relative differences of group means are put down to rounding
RULES = ("min", "any-distribution", "sub-gaussian", "kurtosis")
_SIGMA_RULES = ("any-distribution", "sub-gaussian")  # these rest on a known sigma


def certify(
    oracle: Source,
    x: Any = None,
    *,
    args: Sequence[Any] = (),
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
    rng: np.random.Generator | None = None,
    rule: str = "min",
    sigma: float | None = None,
    kurtosis: float | None = None,
) -> Certificate:
    r"""Bound :math:`\|F(x)\|` from fresh samples, and estimate it without bias.

    The samples come from separate streams, independent of every run, so x may be the result of a run. They are cut into
    256 groups (fewer below 512 samples). With several points each bound holds with the given confidence by itself.

    Samples that all agree are accepted if the oracle is known to have no noise: it knows its operator, sigma = 0 is
    given, or the sampler does not use `rng`. Otherwise there may be noise that no sample showed: the bound is that of
    "any-distribution" if sigma is known, and infinite if not.

    Of a finite sum with n <= `samples` components the residual is computed exactly, in one pass over all of them: n
    evaluations, no draws, the rule "exact", confidence 1.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng, *args)` that returns the mean of n samples at x
    x : number, array of shape (d,) or (rows, d), tree of arrays, torch.nn.Module or Result, optional
        Without it at a problem's start. A tree or a module reaches the callable as such, as in `root`.
    args : tuple, passed on to the callable
    samples : int
        Samples at each point, at least 16, better 256 or more; the largest multiple of the number of groups is used.
    confidence : float, probability that the bound holds, between 0 and 1
    seed, rng : int or numpy.random.Generator
        Source of the samples. Use a new seed if x was chosen by an earlier certificate.
    rule : {"min", "any-distribution", "sub-gaussian", "kurtosis"}
        "min" is the smaller of two asymptotic bounds. It needs no constant and is corrected for rare large samples, as
        far as the largest ones seen indicate them; noise that no sample shows can make it too small. The other rules
        hold for every number of samples. "any-distribution": every distribution with a standard deviation of at most
        sigma (about 1.4 times as far above :math:`\|F(x)\|` in one dimension). "sub-gaussian": sub-Gaussian noise, in
        each direction with a variance proxy of at most :math:`\sigma^2`. "kurtosis": any standard deviation, and
        :math:`E\|\xi\|^4 \le` `kurtosis` :math:`(E\|\xi\|^2)^2`.
    sigma : float, optional; the bound for "any-distribution" and "sub-gaussian"; by default a problem's declared sigma
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
    options: dict[str, Any] = {"confidence": confidence, "rule": rule, "sigma": sigma, "kurtosis": kurtosis}
    return _certificate(oracle, x, "certify", samples, check.seed(seed, rng, "certify"), args, **options)


def _certificate(
    oracle: Source, x: Any, owner: str, samples: int, seed: int, args: Sequence[Any], one: bool = False, **options: Any
) -> Certificate:
    """The certificate at x; with `one`, an array for a function is one point of any shape."""
    check.count(samples, f"{owner}: samples", MIN_SAMPLES)  # before anything is drawn
    settings: dict[str, Any] = {"purpose": Purpose.CERTIFICATE, "owner": owner, "args": args, "one_point": one}
    F, points, single = open_samples(oracle, x, seed=seed, **settings)
    if one and not single:
        rule = f"{owner}: each candidate must be one point"
        raise ArgumentError(rule, f"{len(points)} points", "Pass each by itself")
    if options.get("sigma") is None and isinstance(oracle, Problem):
        options["sigma"] = oracle.constants.sigma
    return certificate_from_session(F, points, samples, single=single, **options)


def best_of(
    oracle: Source,
    candidates: Sequence[Any],
    *,
    args: Sequence[Any] = (),
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[int, Certificate]:
    """The index of the candidate with the smallest upper bound on fresh samples, and its certificate.

    The failure probability is divided among the candidates, so the confidence holds for the one that is chosen.

    Parameters
    ----------
    oracle, args, confidence, seed : as in `certify`; of a problem with random parts, give the oracle of the instance
    candidates : list of arrays of shape (d,), of trees of arrays, or of Results
    samples : int, total number; each candidate gets an equal share, at least 16

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
    points = list(candidates)
    if isinstance(oracle, Problem):  # of one instance, whatever the seeds of the results
        points = [point.x if isinstance(point, Result) else point for point in points]
    seed = check.seed(seed, None, "best_of")
    if not points:
        raise ArgumentError("best_of: there must be a candidate", "none", "Pass points or results")
    confidence = check.probability(confidence, "best_of: confidence")
    share = check.count(samples, "best_of: samples", MIN_SAMPLES * len(points)) // len(points)
    level = 1 - (1 - confidence) / len(points)
    certificates = [
        _certificate(oracle, x, "best_of", share, seed + i, args, one=True, confidence=level)
        for i, x in enumerate(points)
    ]
    best = min(range(len(points)), key=lambda i: float(certificates[i].upper))
    findings = (*certificates[best].findings, Finding.of("joint-confidence", count=len(points)))
    return best, replace(certificates[best], confidence=confidence, findings=findings)


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

    With `single` the numbers of the only row are plain floats. Where samples that may be noisy all agree and sigma is
    not known, the bound allows for samples as large as `scale` (a number, or one per row: what was seen elsewhere) with
    the largest probability at which all of them may have been missed. It is infinite where `scale` is 0, and with fewer
    samples than `least`.
    """
    samples = check.count(samples, "certify: samples", MIN_SAMPLES)
    confidence = check.probability(confidence, "certify: confidence")
    if not isinstance(rule, str) or rule not in RULES:
        raise unknown_name("certify: rule", rule, RULES)
    _require(rule, sigma, kurtosis)
    known = None if sigma is None else check.number(sigma, "certify: sigma", remedy="Pass a bound on the noise")
    if (n := F.oracle.components) is not None and samples >= n:
        return Certificate.exact(arrays.row_norms(F(x, F.full_batch())), n, single)
    d = x.shape[1]
    max_groups = max(GROUPS, min(MAX_GROUPS, _BATCH_NUMBERS // d)) if rule == "kurtosis" else GROUPS
    groups, size = group_sizes(samples, d, max_groups)
    used = groups * size
    m, finite = _moments(F, x, groups, size)
    delta = 1 - confidence
    variance = inf if known is None else known**2 / size  # of a group mean
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
    if rule in ("min", "kurtosis"):  # these rules estimate the noise
        unseen = _may_hide_noise(F, x, m, finite, known)
        if known is None:
            missed = np.where((scale > 0) & (used >= least), m.norm + log(1 / delta) / used * (m.norm + scale), inf)
        else:
            missed = bounds.upper_any_distribution(m, variance, delta)
        upper[unseen] = missed[unseen]
    findings = [*_findings(m, finite, samples, size, rule, known, unseen)]
    if unseen.any():
        severity = Severity.NOTE if np.isfinite(upper[unseen]).all() else Severity.WARNING
        findings.append(Finding("noise-not-seen", severity, {"sigma": known, "scale": float(np.max(scale))}))

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
        samples=used,
        groups=groups,
        rule=rule,
        findings=tuple(findings),
        assumed_sigma=known if rule in _SIGMA_RULES else None,
        assumed_kurtosis=kurtosis if rule == "kurtosis" else None,
    )


def _require(rule: str, sigma: float | None, kurtosis: float | None) -> None:
    """Raise if the constant that a rule needs is missing."""
    if rule in _SIGMA_RULES and sigma is None:
        name, what = "sigma", "a known bound on the noise of one sample"
        received = "no sigma, and no problem that declares one"
    elif rule == "kurtosis" and kurtosis is None:
        name, what, received = "kurtosis", "a known bound on that of the noise", "none"
    else:
        return
    remedy = f"Pass {name}=..., or use rule='min', which estimates the noise"
    raise ArgumentError(f"certify: rule {rule!r} needs {name}, {what}", received, remedy)


def group_sizes(samples: int, dimension: int = 1, max_groups: int = GROUPS) -> tuple[int, int]:
    """Number and size of the groups: about 256 (32 for very long points), fewer below 512 samples, but 8 at least."""
    affordable = max(MIN_LONG_GROUPS, _ROW_NUMBERS // dimension)
    size = max(MIN_GROUP_SIZE, samples // min(max_groups, affordable))
    return samples // size, size


def _may_hide_noise(F: Session, x: Array, m: GroupMoments, finite: Array, sigma: float | None) -> Array:
    """Which rows have samples that all agree, up to rounding, although the oracle may be noisy, (rows,)."""
    precision = _ROUNDING * float(np.finfo(arrays.numpy_dtype(x.dtype)).eps)
    agree = finite & (m.trace <= m.groups * (precision * m.norm) ** 2)
    if not agree.any() or sigma == 0:
        return np.zeros(len(agree), bool)
    oracle, points = F.oracle.take(agree), arrays.take(x, agree)
    value = oracle.operator(points) if oracle.knows_operator else None
    if value is not None:
        norms = arrays.row_norms(value)
        agree[agree] = norms > m.norm[agree] * (1 + precision) + precision * norms
    elif oracle.is_noiseless(points, F.streams.take(agree)):
        agree[:] = False
    return agree


def _moments(F: Session, x: Array, groups: int, size: int) -> tuple[GroupMoments, Array]:
    """Moments of the group means of each row, and whether they are finite and can be squared, (rows,)."""
    rows, d = x.shape
    block = max(1, _BLOCK_NUMBERS // (groups * d))
    parts, finite = [], np.ones(rows, bool)
    for number in range(-(-rows // block)):
        here = np.arange(rows) // block == number
        means = group_means(F.at(here), arrays.take(x, here), groups, size)
        finite[here] = finite_means(means)
        means = arrays.put(means, np.flatnonzero(~finite[here]), 0.0)
        parts.append(group_moments(means)[1:])
    return GroupMoments(groups, *(np.concatenate(values) for values in zip(*parts, strict=True))), finite


def finite_means(means: Array) -> Array:
    """Whether the means (rows, groups, d) of each row are finite and can be squared and summed, (rows,)."""
    xp = arrays.namespace(means)
    largest, largest_double = (
        float(np.finfo(arrays.numpy_dtype(y.dtype)).max)
        for y in (means, arrays.in_double(means[:1, :1]))  # JAX may have no doubles
    )
    limit = min(_MAX_MEAN, largest, (largest_double / (4 * max(means.shape[1:]))) ** 0.5)
    return np.asarray(arrays.to_host(xp.all(xp.abs(means) <= limit, axis=(1, 2))))


def group_means(F: Session, x: Array, groups: int, size: int, minus: Array | None = None) -> Array:
    """Means of groups of fresh samples at points x (rows, d), (rows, groups, d).

    With other points `minus` (rows, d), means of the differences of the same samples at x and there.
    """
    if F.oracle.tables and size <= _max_batch(x) and minus is None:
        batches = [F.draw(size) for _ in range(groups)]
        if (values := F.table([x], batches)) is None:
            values = np.stack([arrays.to_host(F(x, batch)) for batch in batches])[None]
        return arrays.like(values[0].swapaxes(0, 1), x)
    means = arrays.empty((len(x), groups, x.shape[1]), x)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller treats infinite samples
        for k in range(groups):
            means = arrays.put(means, np.s_[:, k], _group_mean(F, x, size, minus))
    return means


def _group_mean(F: Session, x: Array, size: int, minus: Array | None) -> Array:
    """The mean of `size` samples, drawn in batches of limited size."""
    mean, done = x, 0  # replaced by the value of the first batch
    while done < size:
        n = min(_max_batch(x), size - done)
        done += n
        batch = F.draw(n)
        value = F(x, batch) if minus is None else F(x, batch) - F(minus, batch)
        mean = value if done == n else mean + (n / done) * (value - mean)
    return mean


def _max_batch(x: Array) -> int:
    """The largest batch to draw at points x, so that an oracle that lists its samples does not run out of memory."""
    return max(64, _BATCH_NUMBERS // x.shape[1])


def _findings(
    m: GroupMoments, finite: Array, samples: int, size: int, rule: str, sigma: float | None, unseen: Array
) -> Iterator[Finding]:
    used, spread = m.groups * size, np.sqrt(size * m.trace)
    reliable = RELIABLE_GROUPS * MIN_GROUP_SIZE
    few = {"groups": m.groups, "usual": RELIABLE_GROUPS, "samples": reliable}
    above_sigma = sigma is not None and rule in _SIGMA_RULES and (spread > 1.5 * sigma).any()
    for code, applies, values in (
        ("samples-rounded-down", used < samples, {"used": used, "given": samples, "groups": m.groups, "size": size}),
        ("asymptotic", rule == "min", {}),
        ("few-groups", rule == "min" and samples < reliable, few),
        ("samples-agree", finite.any() and not (m.trace[finite & ~unseen]).all(), {}),
        ("samples-too-large", not finite.all(), {}),
        ("spread-above-sigma", above_sigma, {"seen": spread.max(), "sigma": sigma}),
        ("separate-confidence", len(finite) > 1, {}),
    ):
        if applies:
            yield Finding(code, values=values)
