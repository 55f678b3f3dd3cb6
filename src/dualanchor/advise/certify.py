"""How large is F at a point? An estimate and an upper confidence bound from fresh samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.sampled import open_samples, require_whole
from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, unknown_name
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.problem import Problem
from dualanchor.core.result import Result, jsonable
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.theory.confidence import (
    GroupMoments,
    group_moments,
    upper_any_distribution,
    upper_by_both,
    upper_sub_gaussian,
)

FEWEST_SAMPLES = 16
GROUPS = 32
GROUP_SIZE = 8  # at least, as long as that leaves 8 groups: means of 8 are near enough to normal for skewed noise
FEWEST_GROUPS = 8

_PIECE = 1 << 20  # numbers that one draw may stand for; more are drawn in pieces
_HELD = 1 << 25  # numbers that the group means of rows treated together may take
_LARGEST = 1e150  # larger means cannot be squared: the bound is infinite


class _Rule(NamedTuple):
    claim: str
    bound: Callable[[GroupMoments, float, float], Array]  # of the moments, sigma^2/n and delta


_RULES = {
    "min": _Rule("asymptotic", lambda m, _, delta: upper_by_both(m, delta)),
    "any-distribution": _Rule(
        "for every distribution with sigma <= {:.4g}",
        lambda m, variance, delta: upper_any_distribution(m.norm, variance, delta),
    ),
    "sub-gaussian": _Rule(
        "for sub-Gaussian noise with sigma <= {:.4g}",
        lambda m, variance, delta: upper_sub_gaussian(m.norm, variance, delta),
    ),
}


@dataclass(frozen=True, repr=False)
class Certificate:
    r"""The residual at a point, estimated, with an upper confidence bound.

    The claim is :math:`\|F(x)\| \le` `upper`, made by a procedure that is right with probability `confidence` for each
    fixed x. For several points the numbers are arrays, one entry per point.

    Attributes
    ----------
    residual : float or array
        The estimate of :math:`\|F(x)\|`: the root of `squared`, or 0 where that is negative.
    upper : float or array
        The upper bound; infinite where samples were too large to be squared.
    squared : float or array
        The unbiased estimate of :math:`\|F(x)\|^2`. It may be negative; average this one, not `residual`.
    sigma : float or array
        The estimated noise of one sample, the root of :math:`\mathbb E\|\hat F(x;\xi) - F(x)\|^2`.
    confidence : float
        As asked for.
    samples : int or array of int
        Samples used at each point; one entry per point where a front door spent more on some points than on others.
    groups : int
        The number of groups of equal size they were cut into, at least.
    rule : str
        How the bound was made, as named in `certify`.
    notes : tuple of str
        What the claim rests on and what to watch.
    assumed_sigma : float or None
        The bound on the noise that the claim rests on; None for the rule "min".
    """

    residual: Any
    upper: Any
    squared: Any
    sigma: Any
    confidence: float
    samples: Any
    groups: int
    rule: str
    notes: tuple[str, ...] = ()
    assumed_sigma: float | None = None

    def holds_for(self, eps: float) -> Any:
        r"""Whether the certificate says :math:`\|F(x)\| \le` `eps`; an array for several points."""
        return bool(self.upper <= eps) if np.ndim(self.upper) == 0 else np.asarray(self.upper) <= eps

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, texts and lists, ready for JSON; an infinite number is None."""
        return {name: jsonable(getattr(self, name)) for name in self.__dataclass_fields__}

    @property
    def claim(self) -> str:
        """What is claimed, in a sentence."""
        several = np.ndim(self.upper) > 0
        basis = _RULES[self.rule].claim.format(self.assumed_sigma)
        return (
            f"||F(x)|| <= {_span(self.upper)} with confidence {100 * self.confidence:g} % {'each ' if several else ''}"
            f"({basis}); estimate {_span(self.residual)} from {_counts(self.samples)} fresh samples"
            f"{f' at each of {np.size(self.upper)} points' if several else ''}"
        )

    def __repr__(self) -> str:
        return "\n".join([f"Certificate: {self.claim}", *(f"  note: {note}" for note in self.notes)])


def certify(
    oracle: Oracle | Problem | Callable[..., Any],
    x: Any = None,
    *,
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
    rule: str = "min",
    sigma: float | None = None,
) -> Certificate:
    r"""Bound :math:`\|F(x)\|` from fresh samples, and estimate it without bias.

    The samples come from streams of their own: they are independent of every run, so x may be what a run returned. They
    are cut into 32 groups (fewer below 256 samples), of which only the means are kept: 32 d numbers per point, whatever
    the number of samples.

    Parameters
    ----------
    oracle : Oracle, Problem or callable
        What is sampled; a function `sample(x, n, rng)` returns the mean of n samples at x.
    x : array of shape (d,) or (rows, d), or Result, optional
        Where; without it at a problem's start.
    samples : int
        How many at each point, at least 16; better 256 or more. The largest multiple of the number of groups is used,
        never more than asked.
    confidence : float
        The probability with which the claim is to be right, between 0 and 1.
    seed : int
        Where the samples come from. Ask for a new seed if x was chosen by looking at an earlier certificate.
    rule : {"min", "any-distribution", "sub-gaussian"}
        "min": the smaller of two asymptotic bounds, no constant needed. "any-distribution": Cantelli's inequality, for
        every number of samples and every distribution whose standard deviation is at most sigma; about twice as far
        above :math:`\|F(x)\|`. "sub-gaussian": likewise for noise that is sub-Gaussian, in each direction with a
        variance proxy of at most :math:`\sigma^2`, such as Gaussian noise.
    sigma : float, optional
        The known bound for the last two rules; a problem's declared sigma if left out.

    Returns
    -------
    Certificate

    Notes
    -----
    The rule "min" is asymptotic in the size of the groups. Noise that shows only in rare samples can make it too
    small, and no rule that sees only samples is safe from that; the other two rest on sigma instead.

    With several points each bound holds with the given confidence by itself, not all of them together.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(dimension=4)
    >>> result = da.solve(problem, budget=2000)
    >>> certificate = da.certify(problem, result, samples=4096)
    >>> certificate.holds_for(1.0), certificate.samples
    (True, 4096)
    """
    _require_samples(samples)  # complain before anything is drawn
    F, points, single = open_samples(oracle, x, seed=seed, purpose=Purpose.CERTIFICATE, owner="certify")
    if sigma is None and isinstance(oracle, Problem):
        sigma = oracle.constants.sigma
    return certificate_from_session(F, points, samples, confidence=confidence, rule=rule, sigma=sigma, single=single)


def best_of(
    oracle: Oracle | Problem | Callable[..., Any],
    candidates: Sequence[Any],
    *,
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[int, Certificate]:
    """Choose among points, or results of several methods, by certificates on fresh samples.

    The failure probability is shared out among the candidates, so the claim about the one that is chosen holds with
    the given confidence although it was chosen by looking.

    Parameters
    ----------
    oracle, confidence, seed
        As in `certify`; for a problem whose instance is random, give the oracle of the instance.
    candidates : list of arrays of shape (d,) or of Results
        What to choose from.
    samples : int
        How many in all; each candidate gets an equal share, at least 16.

    Returns
    -------
    (int, Certificate)
        The number of the candidate with the smallest upper bound, and its certificate.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> problem = da.problems.affine(dimension=4)
    >>> results = [da.solve(problem, name, budget=500) for name in ("sgda", "averaged")]
    >>> number, certificate = da.best_of(problem, results, samples=2000)
    >>> certificate.confidence
    0.95
    """
    points = [one.x if isinstance(one, Result) else one for one in candidates]
    if not points:
        raise ArgumentError("best_of: there must be a candidate", "none", "Pass points or results")
    _require_confidence(confidence)
    _require_samples(samples // len(points))
    level = 1 - (1 - confidence) / len(points)
    made = [
        certify(oracle, point, samples=samples // len(points), confidence=level, seed=seed + i)
        for i, point in enumerate(points)
    ]
    best = min(range(len(made)), key=lambda i: float(made[i].upper))
    note = f"the smallest of {len(made)} bounds; the confidence is that of all of them together"
    return best, replace(made[best], confidence=float(confidence), notes=(*made[best].notes, note))


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
    """The certificate for points of shape (rows, d) from a session, which counts the samples.

    The session's streams must be independent of x: those of `Purpose.CERTIFICATE` are. With `single` the numbers of the
    only row are plain floats. The other arguments are those of `certify`.
    """
    _require_samples(samples)
    _require_confidence(confidence)
    if not isinstance(rule, str) or rule not in _RULES:
        raise unknown_name("certify: rule", rule, _RULES)
    known = 0.0 if rule == "min" else _require_sigma(sigma, rule)
    groups, size = group_sizes(int(samples))
    m, finite = _moments(F, x, groups, size)

    def number(values: Array) -> Any:
        values = np.where(finite, values, np.inf)
        return float(values[0]) if single else values

    return Certificate(
        residual=number(np.sqrt(np.maximum(m.square, 0.0))),
        upper=number(_RULES[rule].bound(m, known**2 / (groups * size), 1 - float(confidence))),
        squared=number(m.square),
        sigma=number(np.sqrt(size * m.trace)),
        confidence=float(confidence),
        samples=groups * size,
        groups=groups,
        rule=rule,
        notes=tuple(_notes(m, finite, int(samples), size, rule, known)),
        assumed_sigma=None if rule == "min" else known,
    )


def group_sizes(samples: int) -> tuple[int, int]:
    """Number and size of the groups: 32 if each has 8 samples at least, else fewer, but no fewer than 8."""
    groups = min(GROUPS, max(FEWEST_GROUPS, samples // GROUP_SIZE))
    return groups, samples // groups


def _moments(F: Session, x: Array, groups: int, size: int) -> tuple[GroupMoments, Array]:
    """Moments of the group means of each row, and which rows are small enough to have any."""
    rows, d = x.shape
    step = max(1, _HELD // (groups * d))
    parts, finite = [], np.ones(rows, bool)
    own, wide = (float(np.finfo(arrays.numpy_dtype(y.dtype)).max) for y in (x, arrays.in_double(x[:1])))
    largest = min(_LARGEST, own, (wide / (4 * max(groups, d))) ** 0.5)  # JAX may have no doubles to square them in
    for start in range(0, rows, step):
        here = np.zeros(rows, bool)
        here[start : start + step] = True
        part, points = F.at(here), arrays.take(x, here)
        xp = arrays.namespace(x)
        means = arrays.empty((len(points), groups, d), x)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite samples, which are told apart below
            for k in range(groups):
                mean = _group_mean(part, points, size)
                means = arrays.put(means, np.s_[:, k], mean)
                finite[here] &= arrays.to_host(xp.all(xp.abs(mean) <= largest, axis=1))
        means = arrays.put(means, np.flatnonzero(~finite[here]), 0.0)
        parts.append(group_moments(means)[1:])
    return GroupMoments(groups, *(np.concatenate(values) for values in zip(*parts, strict=True))), finite


def _group_mean(F: Session, x: Array, size: int) -> Array:
    """The mean of `size` samples, drawn in pieces so that an oracle that lists its samples lists few at a time."""
    most = max(64, _PIECE // x.shape[1])
    mean, done = arrays.zeros_like(x), 0
    while done < size:
        part = min(most, size - done)
        done += part
        mean += (part / done) * (F(x, F.draw(part)) - mean)
    return mean


def _notes(m: GroupMoments, finite: Array, asked: int, size: int, rule: str, sigma: float) -> list[str]:
    notes, used = [], m.groups * size
    if used < asked:
        notes.append(f"{used:,} of {asked:,} samples were used: {m.groups} groups of {size:,}")
    if rule == "min":
        notes.append("asymptotic: noise that shows only in rare samples can make the bound too small")
    if rule == "min" and m.groups < GROUPS:
        enough = GROUPS * GROUP_SIZE
        notes.append(f"{m.groups} groups instead of {GROUPS}: with {enough} samples or more the bound is more reliable")
    if finite.any() and not m.trace[finite].all():
        notes.append("all samples agree exactly: right without noise, but noise that no sample showed cannot be seen")
    if not finite.all():
        notes.append("some samples were infinite or too large to be squared")
    if rule != "min" and (size * m.trace > (1.5 * sigma) ** 2).any():
        seen = np.sqrt(size * m.trace.max())
        notes.append(f"the samples spread by {seen:.4g}, more than the sigma of {sigma:.4g} that the bound rests on")
    if len(finite) > 1:
        notes.append("each bound holds with the stated confidence by itself, not all of them together")
    return notes


def _require_samples(samples: Any) -> None:
    require_whole(samples, "certify", "samples", FEWEST_SAMPLES)


def _require_confidence(confidence: Any) -> None:
    if not _is_number(confidence):
        raise ArgumentTypeError(
            "certify: confidence must be a number between 0 and 1", repr(confidence), "Use for example 0.95"
        )
    if not 0 < confidence < 1:
        raise ArgumentError("certify: confidence must lie strictly between 0 and 1", confidence, "Use for example 0.95")


def _require_sigma(sigma: Any, rule: str) -> float:
    if sigma is None:
        raise ArgumentError(
            f"certify: rule {rule!r} needs sigma, a known bound on the noise of one sample",
            "no sigma, and no problem that declares one",
            "Pass sigma=..., or use rule='min', which estimates the noise",
        )
    if not _is_number(sigma):
        raise ArgumentTypeError("certify: sigma must be a number", repr(sigma), "Pass a non-negative number")
    if not (np.isfinite(sigma) and sigma >= 0):
        raise ArgumentError(
            "certify: sigma must be non-negative and finite", sigma, "Pass a bound on the noise of one sample"
        )
    return float(sigma)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _counts(values: Any) -> str:
    low, high = np.min(values), np.max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _span(values: Any) -> str:
    if np.ndim(values) == 0:
        return f"{values:.4g}"
    return f"{np.min(values):.4g} to {np.max(values):.4g}, median {np.median(values):.4g},"
