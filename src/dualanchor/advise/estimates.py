"""From probes to numbers: noise, local constants, monotonicity, rotation, growth of the noise."""

from collections.abc import Sequence
from math import exp, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtri, stdtrit

from dualanchor.advise.probes import Pair, Sketch, StartSamples
from dualanchor.core.arrays import quiet
from dualanchor.core.finding import Finding
from dualanchor.core.types import Array
from dualanchor.theory.confidence import group_moments, lower_by_square, upper_by_square

FALSE_ALARM = 2e-4  # nominal rate, asymptotic, at which each kind of alarm is raised without a cause
_MIN_BATCHES = 4  # batches needed to test their mean and their variance separately
_LIKE_A_SUM = 0.25  # largest relative distance of a factor from the size of a batch at which it looks like a sum
_MATERIAL_VARIANCE = 1.15  # a variance that is larger by less than this factor does not count as larger
_MAX_RELATIVE_ERROR = 0.4  # a quotient with a larger relative error counts with its lower end only
_MIN_DRAWS = 16  # draws of a pair that give a usable confidence bound where there is noise
_CONTRADICTING = 0.1  # share of the pairs along which a decreasing F may still seem to increase
_NO_SLOPE = 1e-3  # <F(y) - F(x), y - x> below this part of |F(y) - F(x)| |y - x| counts as 0: F only rotates


class Estimate(NamedTuple):
    """A number with a confidence interval."""

    value: float
    low: float
    high: float


def quantile(tail: float, degrees_of_freedom: Any) -> Any:
    """The value that a Student t variable exceeds with probability `tail`."""
    return -stdtrit(np.maximum(1.0, degrees_of_freedom), tail)


def mean_and_error(values: Array) -> tuple[float, float]:
    """The mean of independent values and its standard error."""
    n = values.size
    mean = float(np.add.reduce(values)) / n
    centred = values - mean
    with quiet():  # an infinite error says that nothing is known
        return mean, sqrt(float(centred @ centred) / (n - 1) / n)


def noise(start: StartSamples, confidence: float) -> Estimate:
    """Sigma at x0, with an interval from the scatter of the variances of blocks of samples."""
    variance = start.variance
    if variance <= 0:
        return Estimate(0.0, 0.0, 0.0)
    weights, values = np.array([(n - 1, value) for n, value in start.blocks]).T
    count = len(values)
    if count < 2:
        return Estimate(sqrt(variance), 0.0, inf)
    # Relative to the variance, whose square may underflow.
    scatter = np.square(weights * (values / variance - 1)).sum() * count / (count - 1) / weights.sum() ** 2
    scatter = max(scatter, 2 / weights.sum() / start.dimension)  # at least that of Gaussian noise
    factor = exp(0.5 * min(50.0, quantile((1 - confidence) / 2, count - 1) * sqrt(scatter)))
    return Estimate(sqrt(variance), sqrt(variance) / factor, sqrt(variance) * factor)


def residual(start: StartSamples, confidence: float) -> Estimate:
    """The norm of F(x0) without the upward bias of the norm of a mean; 0 where noise hides it."""
    square = float(start.mean @ start.mean) - start.variance / start.count
    moments, tail = group_moments(start.group_means), (1 - confidence) / 2
    low, high = float(lower_by_square(moments, tail)), float(upper_by_square(moments, tail))
    return Estimate(min(max(sqrt(max(0.0, square)), low), high), low, high)


def batch_findings(start: StartSamples, batches: Array, size: int, singles: Array | None = None) -> list[Finding]:
    """Compare means of `size` samples, (count, d), with single samples at x0; findings if they do not fit.

    `singles` (count, d), if samples repeat, come from the same states of the streams: a sampler that ignores n repeats
    its values. No other finding rests on one large sample: it remains without the farthest batch.
    """
    if singles is not None and _ignores_size(start, singles, batches, size):
        return [Finding.of("batch-variance", size=size, ratio=float(size))]
    findings = _statistical_findings(start, batches, size)
    if len(batches) == 1:
        return [one for one in findings if abs(one.values.get("factor", 0.0) / size - 1) < _LIKE_A_SUM]
    farthest = np.square(batches - start.mean).sum(axis=1).argmax()
    return findings if _statistical_findings(start, np.delete(batches, farthest, axis=0), size) else []


def _statistical_findings(start: StartSamples, batches: Array, size: int) -> list[Finding]:
    """The findings of `batch_findings` from means and variances."""
    count, n, rounding = len(batches), start.count, start.rounding_variance
    mean = batches.mean(axis=0)
    within = float(np.square(batches - mean).sum())
    variance = within / max(1, count - 1)
    variance = variance if variance > rounding else 0.0
    norm_squared = float(start.mean @ start.mean)
    distance_squared = float((mean - start.mean) @ (mean - start.mean))
    factor = float(mean @ start.mean) / norm_squared if norm_squared > 0 else 0.0
    biased = Finding.of("biased-batches", size=size, factor=factor)
    if start.variance == 0 and variance == 0:
        return [biased] if distance_squared > max(4 * rounding, 1e-12 * norm_squared) else []
    moments = group_moments(start.group_means)
    # The effective dimension of the noise; too small where groups are few, which is on the safe side.
    d = float(np.clip(moments.trace**2 / moments.squares, 1, start.dimension)) if moments.squares > 0 else 1.0
    findings = []
    if count >= _MIN_BATCHES:
        allowed = (variance / count + start.variance / n + rounding) * fdtri(d, (count - 1) * d, 1 - FALSE_ALARM / 4)
        if distance_squared > allowed:
            findings.append(biased)
    if start.variance == 0:
        return findings
    ratio = size * variance / start.variance
    blocks = np.array(start.blocks)
    scatter = float(np.var(blocks[:, 1] / start.variance) * blocks[:, 0].mean())  # of one sample: 2/d if Gaussian
    scatter = max(scatter, 2 / start.dimension)
    # Satterthwaite: a chi-square variable with f degrees of freedom has the squared relative error 2/f.
    freedom_batches = 2 / (2 / ((count - 1) * d + 1e-9) + scatter / (count * size))
    freedom_singles = min(2 / (scatter / n), (n - 1) * d)
    largest_ratio = float(fdtri(freedom_batches, freedom_singles, 1 - FALSE_ALARM / 8))
    # Bias and variance together, which even few batches show: squared distances from the mean of the single samples.
    expected = count * start.variance * (1 / size + 1 / n) + count * rounding
    both = float(np.square(batches - start.mean).sum()) / expected
    freedom_both = 2 / (2 / (count * d) + scatter / (count * size))
    if count >= _MIN_BATCHES and ratio > largest_ratio:  # a smaller variance than that of a mean does no harm
        findings.append(Finding.of("batch-variance", size=size, ratio=ratio))
    elif not findings and both > fdtri(freedom_both, freedom_singles, 1 - FALSE_ALARM / 4):
        mostly_bias = count * distance_squared > within
        findings.append(biased if mostly_bias else Finding.of("batch-variance", size=size, ratio=ratio))
    return findings


def _ignores_size(start: StartSamples, singles: Array, batches: Array, size: int) -> bool:
    """Whether batches equal the single samples drawn from the same state, beyond what recurring values explain."""
    if start.variance == 0 or not np.array_equal(singles, batches):
        return False
    samples = np.array([*start.stored, *singles])
    equal = (samples[:, None] == singles[None]).all(axis=2).sum(axis=0)
    frequency = np.minimum(1.0, (equal + 3) / (len(samples) + 3))  # upper estimate of how often each value occurs
    return bool(np.prod(frequency) ** (size - 1) < FALSE_ALARM / 4)


class Quotients:
    """The difference quotients of all pairs, concatenated; at the end those of all pairs again, as one pair.

    `inner`, `square` and `products` are as in `Pair`; arrays of results have one entry per pair and a last one for all.
    """

    def __init__(self, pairs: Sequence[Pair], sketch: Sketch | None, independent: bool = True) -> None:
        self.independent = independent  # whether no sample is in two pairs
        self.steepest_rise = -inf  # largest eigenvalue of the symmetric part of the sketch
        inner = [pair.inner for pair in pairs]
        square = [pair.square for pair in pairs]
        products = [pair.products for pair in pairs]
        rounding = [pair.rounding for pair in pairs]
        if sketch is not None and sketch.exact:  # each direction is a pair with one draw per batch
            images, random = sketch.images, sketch.random
            if random:
                mixed = images[0][:random] @ sketch.directions[:random].T
                self.steepest_rise = float(np.linalg.eigvalsh(mixed + mixed.T)[-1] / 2)
            inner += list(np.einsum("bpd,pd->pb", images, sketch.directions))
            square += list(np.einsum("bpd,bpd->pb", images, images))
            products += list(np.repeat(np.einsum("pd,pd->p", *images[:2])[:, None], len(images), axis=1))
            rounding += [max(rounding)] * len(sketch.directions)
        counts = [values.size for values in inner]
        self.pairs = len(counts)
        self.counts = np.array([*counts, sum(counts)])
        self.rounding = np.array([*rounding, max(rounding)])
        self.inner, self.square, self.products = (np.concatenate(values * 2) for values in (inner, square, products))

    def _means(self, values: Array) -> tuple[Array, Array]:
        """Mean and standard error of the values of each pair."""
        starts = np.cumsum(self.counts) - self.counts
        mean = np.add.reduceat(values, starts) / self.counts
        centred = values - np.repeat(mean, self.counts)
        return mean, np.sqrt(np.add.reduceat(centred * centred, starts) / (self.counts - 1) / self.counts)

    def _inner_margin(self, tail: float) -> Array:
        """How far the expectation of `inner` may lie above its mean, for all pairs together; rounding not included."""
        mean, error = self._means(self.inner)
        n, t = self.counts, quantile(tail / max(1, self.pairs), self.counts - 1)
        with np.errstate(all="ignore"):  # where the skewness vanishes
            skew, _ = self._means(((self.inner - np.repeat(mean, n)) / np.repeat(error * np.sqrt(n), n)) ** 3)
            # Hall's transformation: means of samples from a law with a long right tail are mostly too small.
            corrected = 3 * np.sqrt(n) / skew * (1 - np.cbrt(1 - skew * (t / np.sqrt(n) + skew / (6 * n))))
        return error * np.where(skew > 1e-3, np.fmax(t, corrected), t)

    def _inner_at_most(self, tail: float) -> Array:
        """Upper confidence bounds on <F(y) - F(x0), y - x0>/|y - x0|²."""
        return np.asarray(self._means(self.inner)[0] + self._inner_margin(tail) + self.rounding)

    def violations(self) -> Array:
        """The slopes of the pairs along which F decreases beyond doubt."""
        return self._means(self.inner)[0][:-1][self._inner_at_most(FALSE_ALARM)[:-1] < 0]

    def L_at_least(self, single: bool) -> float:
        """A lower bound on L, along each pair and along all together; it includes the Lipschitz constant, at most L."""
        square = self._square_at_least(single, FALSE_ALARM / 2)
        inner = self._inner_at_most(FALSE_ALARM / 2)
        with np.errstate(all="ignore"):  # infinite rounding, or a slope of 0
            lowest = np.where(inner > 0, np.fmax(np.sqrt(square), square / inner), 0.0)[:-1]
        pooled = self._pooled_L_at_least(single) if self.independent else 0.0
        return max(float(lowest.max()), pooled)

    def _pooled_L_at_least(self, single: bool) -> float:
        """The largest L for which E(|δ|² - L <δ, d>) is positive beyond doubt, in the mean over all pairs.

        That mean is at most 0 if L is right: one number for all pairs shows a small L much sooner than each of them.
        """
        squares, factor = self._squares(single)
        draws = np.stack([squares, self.inner])[:, -self.counts[-1] :]
        (S, I), covariance = draws.mean(axis=1), np.cov(draws) / self.counts[-1]
        I += self.rounding[-1]
        (SS, SI), (_, II) = covariance * np.outer([factor, 1], [factor, 1])
        t = float(quantile(FALSE_ALARM / 2, self.counts[-1] - 1))
        # The smallest root L of (S - L I)^2 = t^2 Var(S - L I), as in Fieller's theorem.
        a, b, c = I * I - t * t * II, S * I - t * t * SI, S * S - t * t * SS
        root = b * b - a * c
        if not (min(I, c) > 0 and (10 * self.rounding[-1]) ** 2 < S and root >= 0):  # also where one is NaN
            return 0.0
        return float(c / (b + sqrt(root)))

    def M_at_least(self, single: bool) -> float:
        """A lower bound on the Lipschitz constant, in mean square of single samples or of the mean operator."""
        return float(np.sqrt(self._square_at_least(single, FALSE_ALARM))[:-1].max())

    def _squares(self, single: bool) -> tuple[Array, float]:
        """Values with mean E|δ|², or |E δ|² for the mean operator, and the factor on their standard error.

        `products` multiply each draw with the mean of the others: their mean has twice the error of independent values.
        """
        return (self.square, 1.0) if single else (self.products, 2.0)

    def _square_at_least(self, single: bool, level: float) -> Array:
        squares, factor = self._squares(single)
        square, error = self._means(squares)
        rounding = np.where(np.isfinite(self.rounding), self.rounding, 0.0)
        lowest = square - factor * quantile(level / self.pairs, self.counts - 1) * error
        return np.where(square > (10 * rounding) ** 2, np.maximum(0.0, lowest), 0.0)

    def is_decreasing(self, dimension: int) -> bool:
        """Whether F decreases beyond doubt along most pairs, and is not seen to increase elsewhere."""
        inner = self._means(self.inner)[0][:-1]
        margin = (self._inner_margin(FALSE_ALARM) + self.rounding)[:-1]
        down, up = np.count_nonzero(inner < -margin), np.count_nonzero(inner > margin)
        rises = up > _CONTRADICTING * down or self.steepest_rise > -_NO_SLOPE * inner.min()
        return bool(down >= max(min(dimension, 3), self.pairs / 2) and not rises)

    def mu_at_most(self, confidence: float) -> float:
        """An upper confidence bound on mu, from pairs with enough draws and from all together; infinite if none."""
        mean, error = self._means(self.inner)
        usable = (self.counts >= _MIN_DRAWS) | (error <= 1e-6 * np.abs(mean))
        usable[-1] &= self.independent
        return float(self._inner_at_most((1 - confidence) / 2)[usable].min(initial=inf))

    def lipschitz(self) -> float | None:
        """The largest Lipschitz quotient of the mean operator seen; None if noise hides all of them."""
        square, error = self._means(self.products)
        visible = square[(square > 5.0 * error) & (square > 0)]
        return sqrt(visible.max()) if visible.size else None

    def cocoercivity(self, confidence: float, single: bool) -> tuple[Estimate | None, int]:
        """The largest L seen, of single samples or of the mean operator, and along how many pairs F only rotates."""
        squares, factor = self._squares(single)
        square, error = self._means(squares)
        inner, inner_error = self._means(self.inner)
        visible = (square > 2.5 * factor * error) & (square > 0)
        largest_inner = inner + 3 * inner_error + self.rounding
        with np.errstate(all="ignore"):  # quotients that are not selected below
            lowest = np.maximum(0.0, square - 2 * factor * error) / largest_inner
            value = square / inner
            residuals = factor * squares - np.repeat(value, self.counts) * self.inner
            _, value_error = self._means(residuals / np.repeat(inner, self.counts))
            margin = quantile((1 - confidence) / 2, self.counts - 1) * value_error
            rotates = (largest_inner > 0) & (largest_inner <= _NO_SLOPE * np.sqrt(square))
            resolved = (inner > 3 * inner_error + self.rounding) & (value_error <= _MAX_RELATIVE_ERROR * value)
        infinite = np.full_like(inner, inf)
        intervals = np.select(
            [largest_inner <= 0, rotates, resolved],  # the first: not even monotone
            [inf, [infinite, lowest, infinite], [value, np.maximum(0.0, value - margin), value + margin]],
            [lowest, lowest, infinite],
        )
        largest = max((Estimate(*interval) for interval in intervals.T[visible].tolist()), default=None)
        return largest, int(np.count_nonzero((visible & rotates)[:-1]))


def lowest_combination(directions: Array, images: Array) -> Array:
    """Coefficients of the unit vector in the span of directions (p, d) along which F increases least.

    That is the lowest eigenvector of the symmetric part of the Jacobian in the span, from noisy images (p, d).
    """
    products = directions @ directions.T
    sizes, vectors = np.linalg.eigh(products)
    large = sizes > 1e-6 * sizes[-1]
    basis = vectors[:, large] / np.sqrt(sizes[large])
    mixed = directions @ images.T
    lowest = np.linalg.eigh(basis.T @ (mixed + mixed.T) @ basis)[1][:, 0]
    return np.asarray(basis @ lowest)


class FarNoise(NamedTuple):
    """The noise at a distance from x0, and whether it is larger there beyond doubt and by a material factor."""

    distance: float
    sigma: float
    is_larger: bool


def far_noise(pairs: Sequence[Pair], start: StartSamples, tests: int) -> FarNoise:
    """The noise at the far ends of pairs of about the same distance; one of several `tests`."""
    excess = np.concatenate([pair.excess for pair in pairs])
    mean, error = mean_and_error(excess)
    clear = mean > quantile(FALSE_ALARM / tests, excess.size - 1) * error
    rounding = max(pair.rounding * pair.distance for pair in pairs)
    material = mean > (_MATERIAL_VARIANCE - 1) * start.variance + rounding**2
    variance = float(np.mean([pair.variance for pair in pairs]))
    return FarNoise(float(np.mean([pair.distance for pair in pairs])), sqrt(variance), bool(clear and material))
