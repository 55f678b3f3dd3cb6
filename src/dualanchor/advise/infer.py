"""`infer`: standard errors and confidence intervals of a root, from fresh samples or from a data set."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from dualanchor.advise.inference import Inference, quadratic
from dualanchor.advise.jacobian import GroupedSamples, difference_steps, scaled_inverse
from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, CapabilityError, DualAnchorError, OracleError
from dualanchor.core.result import Result
from dualanchor.core.session import Session, raised
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.oracles.layout import coordinate_names

MIN_SAMPLES, PER_COORDINATE, MAX_DIMENSION = 32, 5, 500
_GROUPS = 128  # groups of fresh samples, if there are as many samples
_JACOBIANS = 8  # Jacobians measured before Newton's method is given up
_CONVERGED = 0.1  # length of the last Newton step, in standard errors
_NEAR = 0.1  # a first Newton step up to this length, in standard errors, needs no other Jacobian
_ONE_STEP = 3.0  # with rough samples, a first step up to this length is the only one
_UNCHANGED = 0.01  # nor does a second one that is shorter than this part of the first
_COMPONENT_NUMBERS = 1 << 22  # numbers of component values that are held at a time
_ROUNDING = 1e3  # times the precision: relative errors of a Newton step


def infer(
    oracle: Source,
    x: Any = None,
    *,
    args: Sequence[Any] = (),
    samples: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    rng: np.random.Generator | None = None,
) -> Inference:
    r"""Standard errors and confidence intervals of a root :math:`x_\star` of F, starting from a point x near it.

    With `samples`, n of them are drawn from separate streams, and the root of their mean :math:`F_n` is found by Newton
    steps from x. Its error is asymptotically normal with covariance :math:`J^{-1} S J^{-\top}/n`, J the Jacobian of F
    and S the covariance of one sample. The intervals are those of the exact root; how x was found, and how near it is,
    does not matter.

    A finite sum without `samples` is treated as n independent rows of data, in exact passes: the estimate is its root,
    and the standard errors refer to the root for the distribution of the data. These are the standard errors of
    M-estimators, the sandwich formula (HC0 of a regression). With `samples`, components are drawn, and the intervals
    are those of the root of the finite sum itself.

    The Jacobian is measured by central differences of the same samples, at distances where F changes by as much as the
    noise of its mean, so that units do not matter. That takes about 2d evaluations of each sample, fewer if a part of
    them shows J within 3 %, and as many again if the Newton steps have led away from x. Samples that share little noise
    at two points, such as counts whose rate depends on x, take longer differences and some five times as many
    evaluations; the estimate is then one Newton step from a point near the root.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng, *args)`, whose samples can be repeated at a second point
    x : number, array of shape (d,), tree of arrays, torch.nn.Module or Result, optional
        Without it at a problem's start. Coordinates of a tree are those of its leaves, one after the other.
    args : tuple, passed on to the callable
    samples : int, at least 32 and 5 for each coordinate; rounded down to a multiple of a 128th of them
    confidence : float, probability that an interval contains its coordinate, for each interval by itself
    seed, rng : int or numpy.random.Generator, source of the samples

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
    if isinstance(x, Result) and any(finding.code == "composite-residual" for finding in x.findings):
        rule, remedy = "infer: x must be a root of F itself", "Where no constraint is active, pass result.x"
        raise CapabilityError(rule, "the result of a run with bounds or a prox", remedy)
    F, points, single = open_samples(oracle, x, seed=seed, purpose=Purpose.INFERENCE, owner="infer", args=args)
    if not single:
        rule, remedy = "infer: x must be one point, of shape (d,)", "Call it for each point, with a seed for each"
        raise ArgumentError(rule, f"shape {tuple(points.shape)}", remedy)
    d = points.shape[1]
    n = F.oracle.components if samples is None else samples
    if n is None:
        rule = "infer: samples can be left out only where the oracle is a finite sum"
        raise ArgumentError(rule, "no samples", "Pass samples=...")
    if d > MAX_DIMENSION:
        rule = f"infer: x may have {MAX_DIMENSION} coordinates at most, as the whole Jacobian is measured"
        raise CapabilityError(rule, f"{d} coordinates", "Use certify for a bound on the residual")
    least = max(MIN_SAMPLES, PER_COORDINATE * d)
    remedy = f"Take {least} or more" if samples is not None else f"The data must have {least} rows or more"
    n = check.count(n, "infer: samples", least, remedy=f"{remedy}, {PER_COORDINATE} for each coordinate")
    source = _Data(F, points, n) if samples is None else _Fresh(F, points, n)
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are handled below
        found = _infer(source, arrays.to_host(points)[0].astype(float), confidence)
    return replace(found, names=coordinate_names(x, "infer"))


class _Fresh(GroupedSamples):
    """Fresh samples; each group is one batch."""

    population = False

    def __init__(self, F: Session, x: Array, samples: int) -> None:
        super().__init__(F, x)
        self.size = max(1, samples // _GROUPS)
        self.groups = samples // self.size
        self.samples = self.groups * self.size
        self.degrees_of_freedom = self.groups - 1
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


class _Data(GroupedSamples):
    """All components of a finite sum; component i is in group i modulo the number of groups."""

    population = True

    def __init__(self, F: Session, x: Array, samples: int) -> None:
        super().__init__(F, x)
        self.groups = min(MIN_SAMPLES, samples)
        self.samples = samples
        self.degrees_of_freedom = samples - x.shape[1]

    def means(self, x: Array, groups: range) -> Array:
        sums = np.zeros((self.groups, x.size))
        for indices, values in self._components(x, groups):
            np.add.at(sums, indices % self.groups, values)
        # Scaled so that the mean over all groups is the mean over all components, though group sizes differ by one.
        return (sums * (self.groups / self.samples))[groups.start : groups.stop]

    def moments(self, x: Array) -> tuple[Array, Array]:
        all_groups = range(self.groups)
        mean = self.means(x, all_groups).mean(axis=0)
        products = sum((values - mean).T @ (values - mean) for _, values in self._components(x, all_groups))
        return mean, products / self.samples

    def _components(self, x: Array, groups: range) -> Iterator[tuple[Array, Array]]:
        """Indices and values of the components of some groups, a limited number at a time."""
        point, width = self._point(x)[0], max(self.groups, _COMPONENT_NUMBERS // x.size)
        for first in range(0, self.samples, width):
            indices = np.arange(first, min(first + width, self.samples))
            indices = indices[(indices % self.groups >= groups.start) & (indices % self.groups < groups.stop)]
            self.F.evals = self.F.evals + indices.size
            try:
                values = arrays.to_host(self.F.oracle.component_values(point, indices))
            except DualAnchorError:
                raise
            except Exception as error:
                raise raised(error, "evaluating components") from error
            yield indices, values.astype(float)


def _infer(source: GroupedSamples, start: Array, confidence: float) -> Inference:
    x = start
    for attempt in range(_JACOBIANS):
        mean, S = source.moments(x)
        if not np.isfinite(S).all():
            rule = "infer: samples at x must be finite"
            raise OracleError(rule, "infinite ones, or NaN", "Fix the sampler, or start elsewhere")
        error_of_mean = np.sqrt(np.diag(S) / source.samples)
        if not error_of_mean.any():
            rule, remedy = "infer: samples must be noisy", "Without noise a root has no standard error; see certify"
            raise ArgumentError(rule, "samples that all agree at x", remedy)
        source.F.checking = False  # the session has examined values at x; the code below examines the others
        steps, rough = difference_steps(source, x, error_of_mean)
        J_inverse = steps[:, None] * scaled_inverse(source, x, steps, S)
        x, done = _newton(source, x, mean, S, J_inverse, rough or 2 * attempt >= _JACOBIANS)
        if done:
            break
    else:
        rule = "infer: x must be near enough to a root for Newton's method to converge"
        received = f"steps that led from |x| = {np.linalg.norm(start):.3g} to {np.linalg.norm(x):.3g}"
        raise ArgumentError(rule, received, "Run longer before, or take more samples")
    _, S = source.moments(x)
    covariance = J_inverse @ S @ J_inverse.T / source.samples
    return Inference(
        estimate=x,
        std_errors=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        jacobian=np.linalg.inv(J_inverse),
        noise=S,
        samples=source.samples,
        population=source.population,
        degrees_of_freedom=source.degrees_of_freedom,
        confidence=confidence,
        evals=int(np.max(source.F.evals)),
    )


def _newton(
    source: GroupedSamples, x: Array, mean: Array, S: Array, J_inverse: Array, rough: bool
) -> tuple[Array, bool]:
    """Newton steps with a fixed Jacobian to the root of the mean of all samples, and whether they are done.

    They end when a step, in standard errors, is more than half as long as the one before. They are done if they have
    converged and the Jacobian is that of the root: the first step was short, or the second much shorter. The mean of
    rough samples jumps from point to point by about its noise: there a first step that is not long is the only one.
    """
    errors = np.sqrt(quadratic(J_inverse, S) / source.samples)
    lengths = [inf]
    start, first_mean = x, mean
    while True:
        step = J_inverse @ mean
        scale = errors + _ROUNDING * source.eps * np.abs(x) + check.SMALLEST
        lengths.append(float(np.max(np.abs(step) / scale)))
        if not lengths[-1] < inf or lengths[-1] > lengths[-2] / 2:
            break
        x = x - step
        if lengths[-1] <= _CONVERGED / 100:
            break
        mean = source.means(x, range(source.groups)).mean(axis=0)
    same_jacobian = lengths[1] <= _NEAR or lengths[:3][-1] <= _UNCHANGED * lengths[1]
    if min(lengths) <= _CONVERGED and same_jacobian:
        return x, True
    one_step = rough and lengths[1] <= _ONE_STEP
    return (start - J_inverse @ first_mean, True) if one_step else (x, False)
