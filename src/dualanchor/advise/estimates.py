"""From probes to numbers: noise, local constants, monotonicity, rotation, growth of the noise."""

from collections.abc import Sequence
from math import exp, hypot, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtri, stdtrit

from dualanchor.advise.probes import AtStart, Directions, Pair
from dualanchor.core.finding import Finding
from dualanchor.core.types import Array
from dualanchor.theory.confidence import GroupMoments, group_moments, lower_by_square, upper_by_square

FALSE_ALARM = 2e-4  # how often, at most, one kind of alarm is raised without a cause; asymptotic
_SEVERAL = 4  # batches, for a test of their mean and one of their variance beside that of both
_MATERIAL = 1.15  # a variance that is larger by less than this factor is not called larger
_ROUGH = 0.4  # a quotient with a larger relative error counts with its lower end only
_ENOUGH = 16  # draws of a pair, for a confidence bound where there is noise
_OPEN = 0.2  # a rotation index that is less well known is not reported
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
    if count < 2:
        return Estimate(sqrt(variance), 0.0, inf)
    scatter = np.square(weights * (values - variance)).sum() * count / (count - 1) / weights.sum() ** 2
    scatter = max(scatter, 2 * variance**2 / weights.sum() / at.dimension)  # no less than for Gaussian noise
    factor = exp(0.5 * min(50.0, quantile((1 - confidence) / 2, count - 1) * sqrt(scatter) / variance))
    return Estimate(sqrt(variance), sqrt(variance) / factor, sqrt(variance) * factor)


def residual(at: AtStart, confidence: float) -> Estimate:
    """The norm of F(x0) without the upward bias of the norm of a mean; 0 where noise hides it."""
    square = float(at.mean @ at.mean) - at.variance / at.count
    moments, tail = group_moments(at.group_means), (1 - confidence) / 2
    low, high = float(lower_by_square(moments, tail)), float(upper_by_square(moments, tail))
    return Estimate(min(max(sqrt(max(0.0, square)), low), high), low, high)


def _squares(moments: GroupMoments) -> float:
    """The trace of Σ² of the group means, without what the sampling error of S adds to tr S²."""
    biased, freedom = float(moments.squares), moments.groups - 1
    return max(biased - float(moments.trace) ** 2 / freedom, 0.1 * biased / freedom)


def batch_findings(at: AtStart, batches: Array, size: int, singles: Array | None = None) -> list[Finding]:
    """What is wrong with means of `size` samples, compared with single samples at the same point.

    `singles` are samples from the states of the generators that the batches were drawn from, if that is possible: a
    sampler that ignores n gives the same values again.
    """
    count, n, floor = len(batches), at.count, at.floor
    mean = batches.mean(axis=0)
    spread = float(np.square(batches - mean).sum()) / max(1, count - 1)
    spread = spread if spread > floor else 0.0
    difference, norm = mean - at.mean, float(at.mean @ at.mean)
    apart, factor = float(difference @ difference), float(mean @ at.mean) / norm if norm > 0 else 0.0
    biased = Finding.of("biased-batches", size=size, factor=factor)
    if at.variance == 0 and spread == 0:
        return [biased] if apart > max(4 * floor, 1e-12 * norm) else []
    if singles is not None and _recurs(at, singles, batches, size):
        return [Finding.of("batch-variance", size=size, ratio=float(size))]
    moments = group_moments(at.group_means)
    # The effective dimension, too small where groups are few.
    d = float(np.clip(moments.trace**2 / moments.squares, 1, at.dimension)) if moments.squares > 0 else 1.0
    found, ratio = [], size * spread / at.variance if at.variance > 0 else inf
    if count >= _SEVERAL and apart > (spread / count + at.variance / n + floor) * fdtri(
        d, (count - 1) * d, 1 - FALSE_ALARM / 4
    ):
        found.append(biased)
    if at.variance == 0:
        return found
    blocks = np.array(at.blocks)
    scatter = float(np.var(blocks[:, 1]) * blocks[:, 0].mean()) / at.variance**2  # of one sample: 2/d if Gaussian
    scatter = max(scatter, 2 / at.dimension)
    # Satterthwaite: a chi-square variable with f degrees of freedom has the squared relative error 2/f.
    top, bottom = (2 / error for error in (2 / ((count - 1) * d + 1e-9) + scatter / (count * size), scatter / n))
    bottom = min(bottom, (n - 1) * d)
    most = float(fdtri(top, bottom, 1 - FALSE_ALARM / 8))  # less than independent samples give does no harm
    # Bias and variance together, which few batches show: their squared distances from the mean of single samples.
    both = float(np.square(batches - at.mean).sum()) / (count * at.variance * (1 / size + 1 / n) + count * floor)
    together = both > fdtri(2 / (2 / (count * d) + scatter / (count * size)), bottom, 1 - FALSE_ALARM / 4)
    if count >= _SEVERAL and ratio > most:
        found.append(Finding.of("batch-variance", size=size, ratio=ratio))
    elif together and not found:
        pull = count * apart > float(np.square(batches - mean).sum())
        found.append(biased if pull else Finding.of("batch-variance", size=size, ratio=ratio))
    return found


def _recurs(at: AtStart, singles: Array, batches: Array, size: int) -> bool:
    """Whether means are the single samples themselves, which independent samples would all have to be equal for."""
    if at.variance == 0 or not np.array_equal(singles, batches):
        return False
    seen = np.array([*at.first, *singles])
    equal = (seen[:, None] == singles[None]).all(axis=2).sum(axis=0)
    often = np.minimum(1.0, (equal + 3) / (len(seen) + 3))  # how often, at most, a sample has this value
    return bool(np.prod(often) ** (size - 1) < FALSE_ALARM / 4)


class Quotients:
    """The difference quotients of all pairs, one pair after another; at the end those of all pairs as if of one."""

    def __init__(self, pairs: Sequence[Pair], seen: Directions | None, independent: bool = True) -> None:
        self.independent = independent  # no sample is in two pairs
        inner, square, products = ([getattr(pair, name) for pair in pairs] for name in Pair._fields[2:5])
        rounding, self.steepest_rise = [pair.rounding for pair in pairs], -inf
        if seen is not None and seen.exact:  # both batches agree along each direction: pairs of two draws
            mixed = seen.images[0][: seen.random] @ seen.directions[: seen.random].T
            self.steepest_rise = float(np.linalg.eigvalsh(mixed + mixed.T)[-1] / 2) if seen.random else -inf
            inner += list(np.einsum("bpd,pd->pb", seen.images, seen.directions))
            square += list(np.einsum("bpd,bpd->pb", *[seen.images] * 2))
            products += list(np.repeat(np.einsum("pd,pd->p", *seen.images[:2])[:, None], len(seen.images), axis=1))
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

    def reach(self, tail: float) -> Array:
        """How far the mean of `inner` may lie above the one seen, for all pairs together, without rounding."""
        mean, error = self.means(self.inner)
        n, t = self.counts, quantile(tail / max(1, self.pairs), self.counts - 1)
        with np.errstate(all="ignore"):  # where there is no skewness to speak of
            skew, _ = self.means(((self.inner - np.repeat(mean, n)) / np.repeat(error * np.sqrt(n), n)) ** 3)
            # Hall's transformation: means of samples from a law with a long right tail are mostly too small.
            longer = 3 * np.sqrt(n) / skew * (1 - np.cbrt(1 - skew * (t / np.sqrt(n) + skew / (6 * n))))
        return error * np.where(skew > 1e-3, np.fmax(t, longer), t)

    def slopes(self, tail: float) -> Array:
        """Upper confidence bounds of the slopes of F along the pairs."""
        return (self.means(self.inner)[0] + self.reach(tail) + self.rounding)[:-1]

    def violations(self, level: float = FALSE_ALARM) -> Array:
        return self.means(self.inner)[0][:-1][self.slopes(level) < 0]

    def least_L(self, single: bool, level: float = FALSE_ALARM) -> float:
        """A lower bound on L, and on the Lipschitz constant along the pairs, which is at most L."""
        lowest = self._least_squares(single, level / 2)
        largest = self.means(self.inner)[0] + self.reach(level / 2) + self.rounding
        with np.errstate(all="ignore"):  # infinite rounding, no pull
            return float(np.where(largest > 0, np.fmax(np.sqrt(lowest), lowest / largest), 0.0)[:-1].max())

    def least_M(self, single: bool, level: float = FALSE_ALARM) -> float:
        """A lower bound on the Lipschitz constant, in mean square of single samples or of the mean operator."""
        return float(np.sqrt(self._least_squares(single, level))[:-1].max())

    def _least_squares(self, single: bool, level: float) -> Array:
        squares, factor = (self.square, 1.0) if single else (self.products, 2.0)
        square, error = self.means(squares)
        rounding = np.where(np.isfinite(self.rounding), self.rounding, 0.0)
        lowest = square - factor * quantile(level / self.pairs, self.counts - 1) * error
        return np.where(square > (10 * rounding) ** 2, np.maximum(0.0, lowest), 0.0)

    def decreasing(self, dimension: int, level: float = FALSE_ALARM) -> bool:
        """Whether F decreases beyond doubt along most pairs, and is not seen to increase elsewhere."""
        inner, reach = self.means(self.inner)[0][:-1], (self.reach(level) + self.rounding)[:-1]
        down, up = np.count_nonzero(inner < -reach), np.count_nonzero(inner > reach)
        rises = up > _FEW * down or self.steepest_rise > -_SKEW * inner.min()
        return bool(down >= max(min(dimension, 3), self.pairs / 2) and not rises)

    def smallest_slope(self, confidence: float) -> float:
        """An upper confidence bound on mu, from pairs with enough draws and from all together; infinite if none."""
        mean, error = self.means(self.inner)
        enough = (self.counts >= _ENOUGH) | (error <= 1e-6 * np.abs(mean))
        enough[-1] &= self.independent
        bounds = mean + self.reach((1 - confidence) / 2) + self.rounding  # half, for laws with a long right tail
        return float(bounds[enough].min(initial=inf))

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


def lowest_combination(directions: Array, images: Array) -> Array:
    """The combination of directions, with a norm of 1, along which F increases least, judged from noisy images."""
    products = directions @ directions.T
    sizes, vectors = np.linalg.eigh(products)
    large = sizes > 1e-6 * sizes[-1]
    basis = vectors[:, large] / np.sqrt(sizes[large])
    mixed = directions @ images.T
    lowest = np.linalg.eigh(basis.T @ (mixed + mixed.T) @ basis)[1][:, 0]
    return np.asarray(basis @ lowest)


def rotation(seen: Directions) -> Estimate | None:
    """The rotation index of the Jacobian from random orthonormal directions; None where noise leaves it open.

    |A|² = d E(v_i'Av_i)² + d(d-1) E(v_i'Av_j)², with products of two independent batches in place of squares.
    """
    p, d = seen.random, seen.directions.shape[1]
    if d == 1:
        return Estimate(0.0, 0.0, 0.0)
    if p < 2 or not (seen.exact or len(seen.images) > 2):
        return None
    V, above = seen.directions[:p], np.triu_indices(p, 1)
    mixed = V @ seen.images[:, :p].swapaxes(1, 2)
    unseen = max(0.0, 1 - (p / d) ** 2)  # all d directions leave nothing to chance
    c = 2.0 if seen.exact else float(quantile(0.0125, len(mixed) - 1))

    def part(sign: int) -> Estimate:
        a = mixed + sign * mixed.swapaxes(1, 2)
        off = a[:, above[0], above[1]]
        diagonal = np.diagonal(a, axis1=1, axis2=2) if sign > 0 else np.zeros((len(a), 1))
        size, error = _square(np.sqrt(d * (d - 1) / len(above[0])) * off, sqrt(d / p) * diagonal, unseen)
        least = 0.0
        if sign > 0:  # the trace is seen far better, and tr(S)²/d is never more than |S|²
            traces, own = diagonal.mean(axis=1), diagonal.mean(axis=0)
            mean, mean_error = mean_and_error(own) if seen.exact else mean_and_error(traces)
            beyond = 0.0 if seen.exact else mean_and_error(own)[1] * sqrt(unseen)
            least = d * max(0.0, abs(mean) - c * hypot(mean_error, beyond)) ** 2
        # A negative value is noise: it must not make the upper end small.
        return Estimate(max(least, size), max(least, size - c * error), max(least, size, 0.0) + c * error)

    turn, pull = np.sqrt(part(-1)), np.sqrt(part(1))[[0, 2, 1]]  # the lower end: little turn and much pull
    with np.errstate(invalid="ignore"):  # nan where neither is seen
        index, low, high = (turn / (turn + pull)).tolist()
    if not high - low <= _OPEN:
        return None
    return Estimate(*(value if value > _TURNS else 0.0 for value in (index, low, high)))


def _square(off: Array, diagonal: Array, unseen: float) -> tuple[float, float]:
    """The sum of squares of a mean, without its noise, and the standard error; one row per batch."""
    rows = np.concatenate([off, diagonal], axis=1)
    b, total = len(rows), rows.sum(axis=0)
    squares = np.einsum("ij,ij->i", rows, rows)
    size = float(total @ total - squares.sum()) / (b * (b - 1))
    chance = (
        2
        * unseen
        * sum(float(np.square(np.square(part.mean(axis=0)).sum())) / part.shape[1] for part in (off, diagonal))
    )
    if b == 2:
        return size, sqrt(chance)
    rest = total - rows  # the jackknife: each batch left out in turn
    without = (np.einsum("ij,ij->i", rest, rest) - (squares.sum() - squares)) / ((b - 1) * (b - 2))
    return size, sqrt((b - 1) / b * float(np.square(without - without.mean()).sum()) + chance)


def growth(pairs: Sequence[Pair], at: AtStart, tests: int) -> tuple[float, float, bool]:
    """A distance from x0, sigma there, and whether it is larger than at x0 beyond doubt; one of several tests."""
    values = np.concatenate([pair.growth for pair in pairs])
    change, error = mean_and_error(values)
    clear = change > quantile(FALSE_ALARM / tests, values.size - 1) * error
    material = change > (_MATERIAL - 1) * at.variance + max(pair.rounding * pair.distance for pair in pairs) ** 2
    here = float(np.mean([pair.variance for pair in pairs]))
    return float(np.mean([pair.distance for pair in pairs])), sqrt(here), bool(clear and material)
