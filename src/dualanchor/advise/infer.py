"""How far is a root from where it is estimated? Error bars on x itself, from fresh samples or from a data set."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from dualanchor.advise.inference import Inference, quadratic
from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, CapabilityError, DualAnchorError, OracleError
from dualanchor.core.result import Result
from dualanchor.core.session import Session, raised
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array

MIN_SAMPLES, PER_COORDINATE, MAX_DIMENSION = 32, 5, 500
_GROUPS, _FIRST_GROUPS = 128, 8  # of the samples, at least if there are as many; of the first attempt at the Jacobian
_PARTS = 32  # of the groups, from which the error of the Jacobian is seen
_PRECISE, _SINGULAR = 0.03, 0.5  # errors of the Jacobian, relative to itself: small enough; too large
_ROUNDS, _TRIES = 8, 8  # Jacobians; attempts at a difference
_CONVERGED, _NEAR = 0.1, 0.1  # standard errors: of the last Newton step; of the first that needs no other Jacobian
_UNCHANGED = 0.01  # second Newton steps beside the first, with a Jacobian that is that of the root
_TILE = 1 << 22  # numbers of component values that are held at a time
_ROUNDING = 1e3  # times the precision: relative errors of a Newton step


def infer(
    oracle: Source,
    x: Any = None,
    *,
    samples: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    rng: np.random.Generator | None = None,
) -> Inference:
    r"""Standard errors and confidence intervals of a root :math:`x_\star` of F, starting from a point x near it.

    With `samples`, n of them are drawn from streams of their own, and the root of their mean :math:`F_n` is found by
    Newton steps from x. Its error is asymptotically normal with covariance :math:`J^{-1} S J^{-\top}/n`, J the
    Jacobian of F and S the covariance of one sample. The intervals are those of the exact root; how x was found, and
    how near it is, does not enter.

    A finite sum without `samples` is taken as n independent rows of data, in exact passes: the estimate is its root,
    and the standard errors say how far that is from the root for the distribution which the data come from. These are
    the standard errors of M-estimators, the sandwich formula (HC0 of a regression). With `samples`
    components are drawn, and the intervals are those of the root of the finite sum itself.

    The Jacobian is measured by central differences of the same samples, at distances where F changes by as much as the
    noise of its mean, so that units do not matter. That takes about 2d evaluations of each sample, fewer where a part
    of them shows J within 3 %, and as many again if the Newton steps have led away from x.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng)`, whose samples can be repeated at a second point
    x : number, array of shape (d,), or Result, optional; without it at a problem's start
    samples : int, at least 32 and 5 for each coordinate; rounded down to a multiple of a 128th of them
    confidence : float, the probability with which each interval by itself is to be right
    seed, rng : int or numpy.random.Generator, where the samples come from

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> rng = np.random.default_rng(0)
    >>> A = rng.normal(size=(1000, 2))
    >>> b = A @ [1.0, 2.0] + rng.normal(size=1000)
    >>> least_squares = da.FiniteSum.rank_one(A, targets=b)
    >>> found = da.infer(least_squares, [0.0, 0.0])
    >>> found.std_errors.round(3)
    array([0.03 , 0.033])
    """
    confidence = check.probability(confidence, "infer: confidence")
    seed = check.seed(seed, rng, "infer")
    if isinstance(x, Result) and any(one.code == "composite-residual" for one in x.findings):
        rule, remedy = "infer: x must be a root of F itself", "Where no constraint is active, pass result.x"
        raise CapabilityError(rule, "the result of a run with bounds or a prox", remedy)
    F, points, single = open_samples(oracle, x, seed=seed, purpose=Purpose.INFERENCE, owner="infer")
    if not single:
        rule, remedy = "infer: x must be one point, of shape (d,)", "Call it for each point, with a seed for each"
        raise ArgumentError(rule, f"shape {tuple(points.shape)}", remedy)
    d, n = points.shape[1], F.oracle.components if samples is None else samples
    if n is None:
        rule, remedy = (
            "infer: samples can be left out only where the oracle is a finite sum",
            "Say how many: samples=...",
        )
        raise ArgumentError(rule, "no samples", remedy)
    if d > MAX_DIMENSION:
        rule = f"infer: x may have {MAX_DIMENSION} coordinates at most, as the whole Jacobian is measured"
        raise CapabilityError(rule, f"{d} coordinates", "Use certify for a bound on the residual")
    least = max(MIN_SAMPLES, PER_COORDINATE * d)
    remedy = f"Take {least} or more" if samples is not None else f"The data must have {least} rows or more"
    n = check.count(n, "infer: samples", least, remedy=f"{remedy}, {PER_COORDINATE} for each coordinate")
    source = _Data(F, points, n) if samples is None else _Fresh(F, points, n)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is examined here
        return _inferred(source, arrays.to_host(points)[0].astype(float), confidence)


class _Source(ABC):
    """Samples that can be evaluated at any point, in groups; numbers on the host, in double precision."""

    population: bool
    groups: int
    samples: int

    def __init__(self, F: Session, x: Array) -> None:
        self.F, self._like = F, x
        self.eps = float(np.finfo(arrays.numpy_dtype(x.dtype)).eps)

    @abstractmethod
    def means(self, x: Array, groups: range) -> Array:
        """The means of some groups at x (d,): (groups, d)."""

    @abstractmethod
    def moments(self, x: Array) -> tuple[Array, Array]:
        """The mean of all samples at x (d,), and the covariance of one of them, (d, d)."""

    @abstractmethod
    def degrees_of_freedom(self, d: int) -> int:
        """Of Student's t, for d coordinates."""

    def _point(self, x: Array) -> Array:
        return arrays.like(x.astype(arrays.numpy_dtype(self._like.dtype))[None], self._like)


class _Fresh(_Source):
    """Fresh samples, each group one batch."""

    population = False

    def __init__(self, F: Session, x: Array, samples: int) -> None:
        super().__init__(F, x)
        self.size = max(1, samples // _GROUPS)
        self.groups = samples // self.size
        self.samples = self.groups * self.size
        self._batches = [F.draw(self.size) for _ in range(self.groups)]
        if not arrays.same(F(x, self._batches[0]), F(x, self._batches[0])):
            rule = "infer: samples must be repeatable at a second point"
            remedy = "Draw from the rng that is passed, so that the same state gives the same samples"
            raise CapabilityError(rule, "one batch with two values at the same point", remedy)

    def means(self, x: Array, groups: range) -> Array:
        point = self._point(x)
        return np.stack([arrays.to_host(self.F(point, self._batches[k]))[0].astype(float) for k in groups])

    def moments(self, x: Array) -> tuple[Array, Array]:
        means = self.means(x, range(self.groups))
        return means.mean(axis=0), self.size * np.atleast_2d(np.cov(means, rowvar=False))

    def degrees_of_freedom(self, d: int) -> int:
        return self.groups - 1


class _Data(_Source):
    """All components of a finite sum, component i in group i modulo their number."""

    population = True

    def __init__(self, F: Session, x: Array, samples: int) -> None:
        super().__init__(F, x)
        self.groups, self.samples = min(MIN_SAMPLES, samples), samples

    def means(self, x: Array, groups: range) -> Array:
        sums = np.zeros((self.groups, x.size))
        for indices, values in self._values(x, groups):
            np.add.at(sums, indices % self.groups, values)
        return (sums * (self.groups / self.samples))[groups.start : groups.stop]  # the mean of all is that of the sum

    def moments(self, x: Array) -> tuple[Array, Array]:
        every = range(self.groups)
        mean = self.means(x, every).mean(axis=0)
        products = sum((values - mean).T @ (values - mean) for _, values in self._values(x, every))
        return mean, products / self.samples

    def degrees_of_freedom(self, d: int) -> int:
        return self.samples - d

    def _values(self, x: Array, groups: range) -> Iterator[tuple[Array, Array]]:
        """The components of some groups, a part at a time: their indices and values."""
        point, step = self._point(x)[0], max(self.groups, _TILE // x.size)
        for start in range(0, self.samples, step):
            indices = np.arange(start, min(start + step, self.samples))
            indices = indices[(indices % self.groups >= groups.start) & (indices % self.groups < groups.stop)]
            self.F.evals = self.F.evals + indices.size
            try:
                values = arrays.to_host(self.F.oracle.component_values(point, indices))
            except DualAnchorError:
                raise
            except Exception as error:
                raise raised(error, "evaluating components") from error
            yield indices, values.astype(float)


def _inferred(source: _Source, start: Array, confidence: float) -> Inference:
    x = start
    for _ in range(_ROUNDS):
        mean, S = source.moments(x)
        if not np.isfinite(S).all():
            rule, remedy = "infer: samples at x must be finite", "Fix the sampler, or start elsewhere"
            raise OracleError(rule, "infinite ones, or NaN", remedy)
        error_of_mean = np.sqrt(np.diag(S) / source.samples)
        if not error_of_mean.any():
            rule, remedy = "infer: samples must be noisy", "Without noise a root has no standard error; see certify"
            raise ArgumentError(rule, "samples that all agree at x", remedy)
        source.F.checking = False  # values have been examined at x; what follows examines its own
        steps = _steps(source, x, error_of_mean)
        inverse = _inverse(source, x, steps, S)  # of the Jacobian, in units of the steps
        x, done = _root(source, x, mean, S, steps[:, None] * inverse)
        if done:
            break
    else:
        rule = "infer: x must be so near to a root that Newton steps from it converge"
        received = f"steps that led from |x| = {np.linalg.norm(start):.3g} to {np.linalg.norm(x):.3g}"
        raise ArgumentError(rule, received, "Run longer before, or take more samples")
    mean, S = source.moments(x)
    J_inverse = steps[:, None] * inverse
    covariance = J_inverse @ S @ J_inverse.T / source.samples
    return Inference(
        estimate=x,
        std_errors=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        jacobian=np.linalg.inv(J_inverse),
        noise=S,
        samples=source.samples,
        population=source.population,
        degrees_of_freedom=source.degrees_of_freedom(x.size),
        confidence=confidence,
        evals=int(np.max(source.F.evals)),
    )


def _root(source: _Source, x: Array, mean: Array, S: Array, inverse: Array) -> tuple[Array, bool]:
    """Newton steps with one Jacobian to the root of the mean of all samples, and whether that Jacobian holds there.

    They end where a step is no longer half as long as the one before, in standard errors. The Jacobian holds if the
    root was reached and is near, or if already the second step was short beside the first.
    """
    errors, sizes = np.sqrt(quadratic(inverse, S) / source.samples), [inf]
    while True:
        step = inverse @ mean
        sizes.append(float(np.max(np.abs(step) / (errors + _ROUNDING * source.eps * np.abs(x) + check.SMALLEST))))
        if not sizes[-1] < inf or sizes[-1] > sizes[-2] / 2:
            break
        x = x - step
        if sizes[-1] <= _CONVERGED / 100:
            break
        mean = source.means(x, range(source.groups)).mean(axis=0)
    same = sizes[1] <= _NEAR or sizes[:3][-1] <= _UNCHANGED * sizes[1]
    return x, min(sizes) <= _CONVERGED and same


def _steps(source: _Source, x: Array, noise: Array) -> Array:
    """For each coordinate a distance at which F changes about as much as the noise of its mean, (d,)."""
    floor = np.cbrt(source.eps) * np.abs(x)
    typical = np.where(x == 0, np.abs(x).max() or 1.0, np.abs(x))
    some, noisy, steps = range(min(_FIRST_GROUPS, source.groups)), noise > 0, np.cbrt(source.eps) * typical
    for j, h in enumerate(steps):
        for _ in range(_TRIES):
            change = np.abs(_differences(source, x, j, h, some).mean(axis=0))
            if not np.isfinite(change).all():
                h = h / 100
                continue
            ratio = float(np.max(change[noisy] / noise[noisy]))
            if 0.3 <= ratio <= 3 or (ratio > 3 and h <= floor[j]):
                steps[j] = max(h / ratio, floor[j])
                break
            h = max(h * np.clip(1 / ratio if ratio else inf, 1e-4, 1e4), floor[j])
    return steps


def _differences(source: _Source, x: Array, j: int, h: float, groups: range) -> Array:
    """(F(x + h e_j) - F(x - h e_j))/2 for some groups, (groups, d)."""
    e = np.zeros(x.size)
    e[j] = h
    return (source.means(x + e, groups) - source.means(x - e, groups)) / 2


def _inverse(source: _Source, x: Array, steps: Array, S: Array) -> Array:
    r"""The inverse of J with rows in units of the steps, from as many groups as show it well.

    The error of J relative to itself is :math:`E_k = S^{-1/2} (J_k - J) J^{-1} S^{1/2}` for a part k of the groups,
    whatever the coordinates of x and of F. Of :math:`\sum_k E_k E_k^\top/k^2` the mean eigenvalue is to be small, and
    the largest must not be near 1: then J may be singular.
    """
    d, parts, used, worst = x.size, np.zeros((_PARTS, x.size, x.size)), 0, inf
    while used < source.groups:
        more = range(used, source.groups if source.population else min(max(_FIRST_GROUPS, 2 * used), source.groups))
        for j, h in enumerate(steps):
            differences = _differences(source, x, j, h, more)
            if not np.isfinite(differences).all():
                rule = "infer: samples near x must be finite"
                received = f"infinite ones at a distance of {h:.3g} in coordinate {j}"
                raise OracleError(rule, received, "Fix the sampler for such points, or take more samples")
            np.add.at(parts[:, :, j], np.arange(more.start, more.stop) % _PARTS, differences)
        used = more.stop
        count = min(used, _PARTS)
        J = parts.sum(axis=0) / used
        inverse = _inverse_or_none(J, source.eps)
        if inverse is None:
            continue
        root = _root_of(S, np.abs(J).max(axis=1), d / (d + source.groups))
        E = np.linalg.solve(root, (parts[:count] * (count / used) - J) @ (inverse @ root))
        products = np.tensordot(E, E, axes=((0, 2), (0, 2))) / (count * (count - 1))
        worst = float(np.sqrt(np.linalg.eigvalsh(products)[-1]))
        if np.trace(products) <= d * _PRECISE**2 and worst <= _SINGULAR:
            break
    if worst > _SINGULAR:
        seen = "no change of F in some direction" if worst == inf else f"an error of {100 * worst:.0f} % in J"
        rule = "infer: the Jacobian of F at x must be seen to be invertible"
        raise ArgumentError(rule, seen, "Take more samples, or remove unknowns that F does not determine")
    return np.asarray(inverse)


def _root_of(S: Array, scales: Array, shrinkage: float) -> Array:
    """A triangular root of S, shrunk towards its diagonal, on which zeros are replaced."""
    diagonal = np.where(np.diag(S) > 0, np.diag(S), scales**2)
    shrunk = (1 - shrinkage) * S + np.diag(diagonal - (1 - shrinkage) * np.diag(S))
    return np.linalg.cholesky(shrunk)


def _inverse_or_none(J: Array, eps: float) -> Array | None:
    """The inverse unless J is singular to rounding, whatever the units of its rows and columns."""
    rows = np.abs(J).max(axis=1)
    columns = np.abs(J).max(axis=0) / (rows.max() or 1.0)
    if not (rows.all() and columns.all()):
        return None
    scaled = J / rows[:, None] / columns
    if not np.linalg.cond(scaled) < eps**-0.5:
        return None
    return np.asarray(np.linalg.inv(scaled) / columns[:, None] / rows)
