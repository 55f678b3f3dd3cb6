"""From probes to numbers: noise, local constants, monotonicity, rotation, growth of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import fdtri, stdtrit

from dualanchor.advise.probes import AtStart, Directions, Pair
from dualanchor.core.types import Array
from dualanchor.theory.confidence import GroupMoments, group_moments

FALSE_ALARM = 2e-4
"""How often, at most, one kind of alarm is raised without a cause; asymptotic."""

_MATERIAL = 1.15  # a variance that is larger by less than this factor is not called larger
_ROUGH = 0.4  # a quotient with a larger relative error counts with its lower end only
_OPEN = 0.25  # a rotation index that is less well known is not reported
_TURNS = 1e-6  # a smaller index is rounding
_SKEW = 1e-3  # a quotient below this part of the Lipschitz constant is called none


class Estimate(NamedTuple):
    """A number with an interval."""

    value: float
    low: float
    high: float


def quantile(tail: float, freedom: float) -> float:
    """What a Student t variable exceeds with this probability."""
    return -float(stdtrit(max(1.0, freedom), tail))


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / sqrt(values.size))


# -- at x0 -------------------------------------------------------------------------------------------------------


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


def effective_dimension(at: AtStart) -> float:
    """In how many directions the noise is spread: (tr Σ)²/tr Σ²."""
    moments = group_moments(at.group_means)
    squares = _squares(moments)
    return float(np.clip(float(moments.trace) ** 2 / squares, 1, at.dimension)) if squares > 0 else 1.0


def _squares(moments: GroupMoments) -> float:
    """The trace of Σ² of the group means, without what the sampling error of S adds to tr S²."""
    biased, freedom = float(moments.squares), moments.groups - 1
    return max(biased - float(moments.trace) ** 2 / freedom, 0.1 * biased / freedom)


def batch_defects(at: AtStart, batches: Array, size: int) -> list[str]:
    """What is wrong with means of `size` samples, compared with single samples at the same point."""
    count, n = len(batches), at.count
    spread = float(np.square(batches - batches.mean(axis=0)).sum()) / (count - 1)
    if at.variance == 0 and spread == 0:
        same = np.allclose(batches.mean(axis=0), at.mean, rtol=1e-6, atol=0)
        return [] if same else [_MEANS.format(size=size)]
    defects, d = [], effective_dimension(at)
    difference = batches.mean(axis=0) - at.mean
    expected = spread / count + at.variance / n
    if difference @ difference > expected * float(fdtri(d, (count - 1) * d, 1 - FALSE_ALARM / 2)):
        defects.append(_MEANS.format(size=size))
    if at.variance == 0:
        return defects
    ratio = size * spread / at.variance
    blocks = np.array(at.blocks)
    scatter = (
        float(np.var(blocks[:, 1]) * blocks[:, 0].mean()) / at.variance**2
    )  # of one sample: 2/d for Gaussian noise
    # Satterthwaite: a chi-square variable with f degrees of freedom has the squared relative error 2/f.
    top, bottom = (2 / error for error in (2 / ((count - 1) * d) + scatter / (count * size), scatter / n + 1e-9))
    low, high = (float(fdtri(top, bottom, tail)) for tail in (FALSE_ALARM / 8, 1 - FALSE_ALARM / 8))
    if not low <= ratio <= high:
        defects.append(
            f"the mean of {size} samples has {ratio:.2g} times the variance that independent samples give: samples "
            "within a batch depend on each other, or it is not their mean"
        )
    return defects


_MEANS = (
    "the mean of {size} samples is not at the same place as single samples: the oracle is biased, or returns a sum "
    "instead of a mean"
)


# -- pairs of points ---------------------------------------------------------------------------------------------


class Local(NamedTuple):
    """Local constants: L of one sample (None if samples cannot be had again), of the mean operator, and M."""

    L: Estimate | None
    L_mean: Estimate | None
    M: float | None
    not_cocoercive: int


def local_constants(pairs: Sequence[Pair], replayable: bool, confidence: float) -> Local:
    """The largest quotients seen. The true constants are at least as large, up to the errors of the estimates."""
    looks = [_Look.of([pair]) for pair in pairs] + [_Look.of(pairs)]  # the average over all pairs is the least noisy
    means = [look.cocoercivity(look.products, 2.0, confidence) for look in looks]
    singles = [look.cocoercivity(look.squares, 1.0, confidence) for look in looks] if replayable else []
    lipschitz = [float(look.products.mean()) for look in looks if _resolved(look.products, 2.0)]
    return Local(
        max((one for one in singles if one is not None), default=None),
        max((one for one in means if one is not None), default=None),
        sqrt(max(lipschitz)) if lipschitz else None,
        sum(one is not None and one.value == inf and one.low < inf for one in means[:-1]),
    )


class _Look(NamedTuple):
    """What one pair shows, or several taken together."""

    inner: Array
    squares: Array
    products: Array
    rounding: float

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> _Look:
        inner, squares, products = (
            np.concatenate([getattr(pair, name) for pair in pairs]) for name in ("inner", "square", "leave_one_out")
        )
        return cls(inner, squares, products, max(pair.rounding for pair in pairs))

    def cocoercivity(self, squares: Array, projection: float, confidence: float) -> Estimate | None:
        """Squares over inner products; the lower end of that where it is badly resolved, None where it is hidden.

        `projection` is 2 where the squares are products of each draw with the mean of the others: the error of their
        mean is then twice that of independent values.
        """
        if not _resolved(squares, projection):
            return None
        (square, error), (inner, inner_error) = mean_and_error(squares), mean_and_error(self.inner)
        largest_inner = inner + 3 * inner_error + self.rounding
        if largest_inner <= 0:  # not even monotone
            return Estimate(inf, inf, inf)
        lowest = max(0.0, square - 2 * projection * error) / largest_inner
        if largest_inner <= _SKEW * sqrt(square):
            return Estimate(inf, lowest, inf)
        if inner > 3 * inner_error + self.rounding:
            value = square / inner
            _, spread = mean_and_error((projection * squares - value * self.inner) / inner)
            reach = quantile((1 - confidence) / 2, squares.size - 1) * spread
            if spread <= _ROUGH * value:
                return Estimate(value, max(0.0, value - reach), value + reach)
        return Estimate(lowest, lowest, inf)


def _resolved(squares: Array, projection: float) -> bool:
    mean, error = mean_and_error(squares)
    return mean > 2.5 * projection * error and mean > 0


def violations(pairs: Sequence[Pair], level: float = FALSE_ALARM) -> list[Pair]:
    """The pairs along which F is not monotone, all of them together at one level."""
    found = []
    for pair in pairs:
        inner, error = mean_and_error(pair.inner)
        if inner + quantile(level / len(pairs), pair.inner.size - 1) * error < -pair.rounding:
            found.append(pair)
    return found


def smallest_quotient(pairs: Sequence[Pair], confidence: float) -> float:
    """An upper confidence bound on mu: no operator is more strongly monotone than along any of these pairs."""
    tail = (1 - confidence) / len(pairs)
    uppers = [
        inner + quantile(tail, pair.inner.size - 1) * error + pair.rounding
        for pair in pairs
        for inner, error in [mean_and_error(pair.inner)]
    ]
    return min(uppers)


def exact_pairs(seen: Directions, rounding: float) -> list[Pair]:
    """Directions along which both batches agree, as pairs."""
    if not seen.exact:
        return []
    result = []
    for direction, image in zip(seen.directions, seen.images.swapaxes(0, 1), strict=True):
        square = np.einsum("ij,ij->i", image, image)
        product = np.full(2, image[0] @ image[1])
        still = np.zeros(2)
        mean = image.mean(axis=0)
        result.append(Pair(direction, seen.distance, image @ direction, square, product, still, 0.0, mean, rounding))
    return result


def lowest_direction(directions: Array, images: Array) -> Array:
    """In the span of the directions, the unit vector along which F increases least, judged from noisy images."""
    products = directions @ directions.T
    sizes, vectors = np.linalg.eigh(products)
    kept = sizes > 1e-6 * sizes[-1]
    basis = vectors[:, kept] / np.sqrt(sizes[kept])
    mixed = directions @ images.T
    lowest = np.linalg.eigh(basis.T @ (mixed + mixed.T) @ basis)[1][:, 0]
    vector = (basis @ lowest) @ directions
    return np.asarray(vector / np.linalg.norm(vector))


# -- rotation and growth -----------------------------------------------------------------------------------------


def rotation(seen: Directions) -> Estimate | None:
    r"""The index :math:`\|J-J^\top\|_F/(\|J-J^\top\|_F + \|J+J^\top\|_F)` of the Jacobian, from a random compression.

    For orthonormal directions that are uniformly random, :math:`\|A\|_F^2 = d\,\mathbb E(v_i^\top A v_i)^2 +
    d(d-1)\,\mathbb E(v_i^\top A v_j)^2`. Products of two independent batches take the place of squares, so noise adds
    nothing on average. None where noise leaves the index open.
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
        size, error = d * (d - 1) * size, d * (d - 1) * error
        least = 0.0
        if sign > 0:
            own, own_error = _products(np.diag(a), np.diag(b), unseen)
            size, error = size + d * own, sqrt(error**2 + (d * own_error) ** 2)
            # The trace is seen far better, and tr(S)²/d is never more than |S|².
            mean, mean_error = mean_and_error(np.diag(a + b) / 2)
            least = d * max(0.0, abs(mean) - 2 * mean_error) ** 2
        # A negative value is noise: it must not make the upper end small.
        return Estimate(max(least, size), max(least, size - 2 * error), max(least, size, 0.0) + 2 * error)

    turn, pull = part(-1), part(1)
    index, low, high = _index(turn.value, pull.value), _index(turn.low, pull.high), _index(turn.high, pull.low)
    if not high - low <= _OPEN:
        return None
    return Estimate(*(value if value > _TURNS else 0.0 for value in (index, low, high)))


def _products(a: Array, b: Array, unseen: float) -> tuple[float, float]:
    """Mean of a*b, where a and b are the same numbers with independent noise, and its standard error."""
    mean, noise = float(np.mean(a * b)), float(np.mean((a - b) ** 2)) / 2
    signal = max(mean, 0.0)
    return mean, sqrt((2 * signal * noise + noise**2 + 2 * unseen * signal**2) / a.size)


def _index(turn: float, pull: float) -> float:
    """The index from the two squared norms; nan where neither is seen."""
    turn, pull = sqrt(turn), sqrt(pull)
    return turn / (turn + pull) if turn + pull > 0 else nan


class Growth(NamedTuple):
    """Sigma at a distance from x0, and whether the variance there is larger than at x0 beyond doubt."""

    distance: float
    sigma: float
    grown: bool


def growth(pairs: Sequence[Pair], at: AtStart, tests: int) -> Growth:
    """Compare the noise at points of one distance with that at x0; one of so many tests."""
    values = np.concatenate([pair.growth for pair in pairs])
    change, error = mean_and_error(values)
    clear = change > quantile(FALSE_ALARM / tests, values.size - 1) * error
    material = change > (_MATERIAL - 1) * at.variance + max(pair.rounding * pair.distance for pair in pairs) ** 2
    here = float(np.mean([pair.variance for pair in pairs]))
    return Growth(float(np.mean([pair.distance for pair in pairs])), sqrt(here), bool(clear and material))
