"""From probes to numbers: noise, local constants, monotonicity, rotation, growth of the noise."""

from collections.abc import Sequence
from math import exp, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtri, stdtrit

from dualanchor.advise.probes import AtStart, Directions, Pair, unit
from dualanchor.core.finding import Finding
from dualanchor.core.types import Array
from dualanchor.theory.confidence import GroupMoments, group_moments

FALSE_ALARM = 2e-4  # how often, at most, one kind of alarm is raised without a cause; asymptotic
_MATERIAL = 1.15  # a variance that is larger by less than this factor is not called larger
_ROUGH = 0.4  # a quotient with a larger relative error counts with its lower end only
_OPEN = 0.25  # a rotation index that is less well known is not reported
_TURNS = 1e-6  # a smaller index is rounding
_FEW = 0.1  # of the pairs may contradict the rest
_SKEW = 1e-3  # a quotient below this part of the Lipschitz constant is called none


class Estimate(NamedTuple):
    """A number with an interval."""

    value: float
    low: float
    high: float


def quantile(tail: float, freedom: Any) -> Any:
    """What a Student t variable exceeds with this probability."""
    return -stdtrit(np.maximum(1.0, freedom), tail)


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    n = values.size
    mean = float(np.add.reduce(values)) / n
    rest = values - mean
    return mean, sqrt(float(rest @ rest) / (n - 1) / n)


def noise(at: AtStart, confidence: float) -> Estimate:
    """Sigma at x0, with an interval from the scatter between blocks of samples."""
    variance = at.variance
    if variance <= 0:
        return Estimate(0.0, 0.0, 0.0)
    weights, values = np.array([(n - 1, value) for n, value in at.blocks]).T
    count = len(values)
    scatter = np.square(weights * (values - variance)).sum() * count / (count - 1) / weights.sum() ** 2
    factor = exp(0.5 * min(50.0, quantile((1 - confidence) / 2, count - 1) * sqrt(scatter) / variance))
    return Estimate(sqrt(variance), sqrt(variance) / factor, sqrt(variance) * factor)


def residual(at: AtStart, confidence: float) -> Estimate:
    """The norm of F(x0) without the upward bias of the norm of a mean; 0 where noise hides it."""
    square = float(at.mean @ at.mean) - at.variance / at.count
    moments = group_moments(at.group_means)
    # Var U = 4 f'Σf/n + 2 tr(Σ²)/n², with f'Σf <= |f|² λ
    error = sqrt(4 * max(square, 0.0) * float(moments.largest) / at.groups + 2 * _squares(moments) / at.groups**2)
    reach = quantile((1 - confidence) / 2, at.groups - 1) * error
    value, low, high = (sqrt(max(0.0, square + shift)) for shift in (0.0, -reach, reach))
    return Estimate(value, low, high)


def _squares(moments: GroupMoments) -> float:
    """The trace of Σ² of the group means, without what the sampling error of S adds to tr S²."""
    biased, freedom = float(moments.squares), moments.groups - 1
    return max(biased - float(moments.trace) ** 2 / freedom, 0.1 * biased / freedom)


def batch_findings(at: AtStart, batches: Array, size: int) -> list[Finding]:
    """What is wrong with means of `size` samples, compared with single samples at the same point."""
    count, n = len(batches), at.count
    spread = float(np.square(batches - batches.mean(axis=0)).sum()) / (count - 1)
    biased = Finding.of("biased-batches", size=size)
    if at.variance == 0 and spread == 0:
        return [] if np.allclose(batches.mean(axis=0), at.mean, rtol=1e-6, atol=0) else [biased]
    moments = group_moments(at.group_means)
    squares, difference = _squares(moments), batches.mean(axis=0) - at.mean
    d = float(np.clip(moments.trace**2 / squares, 1, at.dimension)) if squares > 0 else 1.0  # effective dimension
    quotient = float(difference @ difference) / (spread / count + at.variance / n)
    found = [biased] if quotient > fdtri(d, (count - 1) * d, 1 - FALSE_ALARM / 2) else []
    if at.variance == 0:
        return found
    ratio = size * spread / at.variance
    blocks = np.array(at.blocks)
    scatter = float(np.var(blocks[:, 1]) * blocks[:, 0].mean()) / at.variance**2  # of one sample: 2/d if Gaussian
    # Satterthwaite: a chi-square variable with f degrees of freedom has the squared relative error 2/f.
    top, bottom = (2 / error for error in (2 / ((count - 1) * d) + scatter / (count * size), scatter / n + 1e-9))
    if not fdtri(top, bottom, FALSE_ALARM / 8) <= ratio <= fdtri(top, bottom, 1 - FALSE_ALARM / 8):
        found.append(Finding.of("batch-variance", size=size, ratio=ratio))
    return found


class Quotients:
    """The difference quotients of all pairs, one pair after another; at the end those of all pairs as if of one."""

    def __init__(self, pairs: Sequence[Pair], seen: Directions | None) -> None:
        inner, square, products = ([getattr(pair, name) for pair in pairs] for name in Pair._fields[2:5])
        rounding, self.steepest_rise = [pair.rounding for pair in pairs], -inf
        if seen is not None and seen.exact:  # both batches agree along each direction: pairs of two draws
            mixed = seen.images[0] @ seen.directions.T
            self.steepest_rise = float(np.linalg.eigvalsh(mixed + mixed.T)[-1] / 2)
            inner += list(np.einsum("bpd,pd->pb", seen.images, seen.directions))
            square += list(np.einsum("bpd,bpd->pb", *[seen.images] * 2))
            products += list(np.repeat(np.einsum("pd,pd->p", *seen.images)[:, None], 2, axis=1))
            rounding += [max(rounding)] * len(seen.directions)
        counts = [values.size for values in inner]
        self.pairs, self.counts = len(counts), np.array([*counts, sum(counts)])
        self.rounding = np.array([*rounding, max(rounding)])
        self.inner, self.square, self.products = (np.concatenate(both * 2) for both in (inner, square, products))

    def means(self, values: Array) -> tuple[Array, Array]:
        starts = np.cumsum(self.counts) - self.counts
        mean = np.add.reduceat(values, starts) / self.counts
        rest = values - np.repeat(mean, self.counts)
        return mean, np.sqrt(np.add.reduceat(rest * rest, starts) / (self.counts - 1) / self.counts)

    def slopes(self, tail: float) -> Array:
        inner, error = self.means(self.inner)
        return (inner + quantile(tail / self.pairs, self.counts - 1) * error)[:-1]

    def violations(self, level: float = FALSE_ALARM) -> Array:
        inner, _ = self.means(self.inner)
        return inner[:-1][self.slopes(level) < -self.rounding[:-1]]

    def decreasing(self, dimension: int, level: float = FALSE_ALARM) -> bool:
        """Whether F decreases beyond doubt along most pairs, and is not seen to increase elsewhere."""
        inner, error = (values[:-1] for values in self.means(self.inner))
        reach = quantile(level / self.pairs, self.counts[:-1] - 1) * error + self.rounding[:-1]
        down, up = np.count_nonzero(inner < -reach), np.count_nonzero(inner > reach)
        rises = up > _FEW * down or self.steepest_rise > -_SKEW * inner.min()
        return bool(down >= max(min(dimension, 3), self.pairs / 2) and not rises)

    def smallest_slope(self, confidence: float) -> float:
        return float((self.slopes(1 - confidence) + self.rounding[:-1]).min())

    def lipschitz(self) -> float | None:
        square, error = self.means(self.products)
        visible = square[(square > 5.0 * error) & (square > 0)]
        return sqrt(visible.max()) if visible.size else None

    def cocoercivity(self, confidence: float, single: bool) -> tuple[Estimate | None, int]:
        """The largest L seen, of single samples or of the mean operator, and along how many pairs there is none."""
        # Products of each draw with the mean of the others: their mean has twice the error of independent values.
        squares, factor = (self.square, 1.0) if single else (self.products, 2.0)
        (square, error), (inner, inner_error) = self.means(squares), self.means(self.inner)
        visible, largest = (square > 2.5 * factor * error) & (square > 0), inner + 3 * inner_error + self.rounding
        with np.errstate(all="ignore"):  # quotients that are not chosen below
            lowest = np.maximum(0.0, square - 2 * factor * error) / largest
            value, each = square / inner, np.repeat(inner, self.counts)
            _, spread = self.means((factor * squares - np.repeat(value, self.counts) * self.inner) / each)
            reach = quantile((1 - confidence) / 2, self.counts - 1) * spread
            skew = (largest > 0) & (largest <= _SKEW * np.sqrt(square))
            clear = (inner > 3 * inner_error + self.rounding) & (spread <= _ROUGH * value)
        ends = np.select(
            [largest <= 0, skew, clear],  # not even monotone; no pull; well resolved
            [
                np.full((3, len(inner)), inf),
                np.array([np.full_like(inner, inf), lowest, np.full_like(inner, inf)]),
                np.array([value, np.maximum(0.0, value - reach), value + reach]),
            ],
            np.array([lowest, lowest, np.full_like(inner, inf)]),
        )
        found = max((Estimate(*one) for one in ends.T[visible].tolist()), default=None)
        return found, int(np.count_nonzero((visible & skew)[:-1]))


def lowest_direction(directions: Array, images: Array) -> Array:
    """In the span of the directions, the unit vector along which F increases least, judged from noisy images."""
    products = directions @ directions.T
    sizes, vectors = np.linalg.eigh(products)
    large = sizes > 1e-6 * sizes[-1]
    basis = vectors[:, large] / np.sqrt(sizes[large])
    mixed = directions @ images.T
    lowest = np.linalg.eigh(basis.T @ (mixed + mixed.T) @ basis)[1][:, 0]
    return unit((basis @ lowest) @ directions)


def rotation(seen: Directions) -> Estimate | None:
    """The rotation index of the Jacobian from random orthonormal directions; None where noise leaves it open.

    |A|² = d E(v_i'Av_i)² + d(d-1) E(v_i'Av_j)², with products of two independent batches in place of squares.
    """
    p, d = seen.directions.shape
    if d == 1:
        return Estimate(0.0, 0.0, 0.0)
    first, second = (seen.directions @ image.T for image in seen.images)
    above = np.triu_indices(p, 1)
    unseen = max(0.0, 1 - (p / d) ** 2)  # all d directions leave nothing to chance

    def part(sign: int) -> Estimate:
        a, b = first + sign * first.T, second + sign * second.T
        size, error = _products(a[above], b[above], unseen)
        size, error, least = d * (d - 1) * size, d * (d - 1) * error, 0.0
        if sign > 0:
            own, own_error = _products(np.diag(a), np.diag(b), unseen)
            size, error = size + d * own, sqrt(error**2 + (d * own_error) ** 2)
            # The trace is seen far better, and tr(S)²/d is never more than |S|².
            mean, mean_error = mean_and_error(np.diag(a + b) / 2)
            least = d * max(0.0, abs(mean) - 2 * mean_error) ** 2
        # A negative value is noise: it must not make the upper end small.
        return Estimate(max(least, size), max(least, size - 2 * error), max(least, size, 0.0) + 2 * error)

    turn, pull = np.sqrt(part(-1)), np.sqrt(part(1))[[0, 2, 1]]  # the lower end: little turn and much pull
    with np.errstate(invalid="ignore"):  # nan where neither is seen
        index, low, high = (turn / (turn + pull)).tolist()
    if not high - low <= _OPEN:
        return None
    return Estimate(*(value if value > _TURNS else 0.0 for value in (index, low, high)))


def _products(a: Array, b: Array, unseen: float) -> tuple[float, float]:
    """Mean of a*b, where a and b are the same numbers with independent noise, and its standard error."""
    mean, noise = float(np.mean(a * b)), float(np.mean((a - b) ** 2)) / 2
    signal = max(mean, 0.0)
    return mean, sqrt((2 * signal * noise + noise**2 + 2 * unseen * signal**2) / a.size)


def growth(pairs: Sequence[Pair], at: AtStart, tests: int) -> tuple[float, float, bool]:
    """A distance from x0, sigma there, and whether it is larger than at x0 beyond doubt; one of several tests."""
    values = np.concatenate([pair.growth for pair in pairs])
    change, error = mean_and_error(values)
    clear = change > quantile(FALSE_ALARM / tests, values.size - 1) * error
    material = change > (_MATERIAL - 1) * at.variance + max(pair.rounding * pair.distance for pair in pairs) ** 2
    here = float(np.mean([pair.variance for pair in pairs]))
    return float(np.mean([pair.distance for pair in pairs])), sqrt(here), bool(clear and material)
