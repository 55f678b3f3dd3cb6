"""`certify_gap`: an upper confidence bound on the gap of a variational inequality, from fresh samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dualanchor.advise.certify import MIN_SAMPLES, group_means, group_sizes
from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.files import jsonable
from dualanchor.core.render import span
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.prox import Resolvent, box, simplex
from dualanchor.prox.resolvent import as_parameter
from dualanchor.theory.confidence import group_moments, student


@dataclass(frozen=True, repr=False)
class GapCertificate:
    r"""The gap :math:`\sup_{y \in C} \langle F(x), x - y\rangle` at a point of a set, with an upper confidence bound.

    Attributes
    ----------
    gap : float or array, the estimate, from the mean of all samples; too large rather than too small
    upper : float or array, the upper bound, which holds with probability `confidence` for each point by itself
    confidence : float
    samples, groups : int, samples at each point, and the number of groups that they were cut into

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: x - 0.5, sigma=0.1)
    >>> found = da.certify_gap(oracle, np.full(2, 0.5), da.prox.box(0.0, 1.0), samples=1024)
    >>> found.holds_for(0.1)
    True
    """

    gap: Any
    upper: Any
    confidence: float
    samples: int
    groups: int

    def holds_for(self, eps: float) -> Any:
        """Whether the certificate says that the gap is at most `eps`; an array for several points."""
        return bool(self.upper <= eps) if np.ndim(self.upper) == 0 else np.asarray(self.upper) <= eps

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; an infinite number is None."""
        return {name: jsonable(getattr(self, name)) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        bound = f"gap <= {span(self.upper, '.4g')} with confidence {100 * self.confidence:g} % (asymptotic)"
        return f"GapCertificate: {bound}; estimate {span(self.gap, '.4g')} from {self.samples:,} fresh samples"


def certify_gap(
    oracle: Source,
    x: Any,
    prox: Resolvent,
    *,
    args: Sequence[Any] = (),
    samples: int,
    confidence: float = 0.95,
    seed: int = 0,
    rng: np.random.Generator | None = None,
) -> GapCertificate:
    r"""Bound the gap :math:`\sup_{y \in C} \langle F(x), x - y\rangle` at x in a bounded set C from fresh samples.

    The gap is 0 if and only if x solves the variational inequality. For a matrix game it is what the two players could
    gain together by deviating, see `exploitability`; for a saddle function, at least what they could.

    The samples are cut into groups as in `certify`. For the y that attains the gap, a fixed point, the mean of
    :math:`\langle\hat F, x - y\rangle` is below the gap by more than Student's quantile times its standard error with
    probability 1 - confidence; the bound is the largest such value over all y, so no correction for their number is
    needed. It is computed exactly for a simplex, bounded by sums over blocks and over the coordinates of a box and by
    the largest eigenvalue of the covariance times the diameter, whichever is smaller. Asymptotic in the group size.

    Parameters
    ----------
    oracle, args, confidence, seed, rng : as in `certify`
    x : array of shape (d,) or (rows, d), tree of arrays, or Result; points of the set
    prox : Resolvent, the projection onto C: a box, a ball, a simplex, or a product of them
    samples : int, samples at each point, at least 16, better 256 or more

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: x - 0.5, sigma=0.1)
    >>> found = da.certify_gap(oracle, np.array([0.5, 1.0]), da.prox.box(0, 1), samples=4096)  # the gap is 1/2
    >>> 0.5 < found.upper < 0.52
    True
    """
    check.count(samples, "certify_gap: samples", MIN_SAMPLES)
    if not isinstance(prox, Resolvent):
        remedy = "Use a box, ball or simplex of dualanchor.prox, or a product of them"
        raise ArgumentTypeError("certify_gap: prox must be a set of dualanchor.prox", repr(prox), remedy)
    seed = check.seed(seed, rng, "certify_gap")
    F, points, single = open_samples(oracle, x, seed=seed, purpose=Purpose.GAP, owner="certify_gap", args=args)
    return gap_from_session(F, points, prox, samples, confidence=confidence, single=single)


def gap_from_session(
    F: Session, x: Array, prox: Resolvent, samples: int, *, confidence: float, single: bool = False
) -> GapCertificate:
    """As `certify_gap`, for points (rows, d), from a session with streams that are independent of x."""
    points = arrays.to_host(x).astype(np.float64)
    prox.support(points[:1])  # raises if the set is unbounded, before anything is drawn
    if not np.all(prox.contains(points, tol=1e-5)):
        raise ArgumentError("certify_gap: x must be in the set", f"a point outside of {prox}", "Pass prox(x)")
    groups, size = group_sizes(check.count(samples, "certify_gap: samples", MIN_SAMPLES), x.shape[1])
    c = student(groups, 1 - check.probability(confidence, "certify_gap: confidence"))
    means = arrays.to_host(group_means(F, x, groups, size)).astype(np.float64)
    with np.errstate(all="ignore"):  # infinite samples get an infinite bound
        bounds = [_gap_and_bound(prox, f, point, c) for f, point in zip(means, points, strict=True)]
    gap, upper = np.where(np.isnan(bounds), np.inf, bounds).T
    gap, upper = (float(gap[0]), float(upper[0])) if single else (gap, upper)
    return GapCertificate(gap, upper, confidence, groups * size, groups)


def _gap_and_bound(prox: Resolvent, f: Array, x: Array, c: float) -> tuple[float, float]:
    """The gap of the mean of the group means f (groups, d) at x (d,), and the upper bound."""
    if not np.isfinite(f).all():
        return np.inf, np.inf
    gap, upper = _by_covariance(prox, f, x, c)
    by_blocks = sum(_block_bound(block, f[:, part], x[part], c) for part, block in prox.blocks_of(x.size))
    return gap, min(upper, by_blocks)


def _by_covariance(prox: Resolvent, f: Array, x: Array, c: float) -> tuple[float, float]:
    """The gap of the mean, and the bound by the largest eigenvalue of the covariance times the diameter."""
    diameter = prox.diameter(x.size)
    assert diameter is not None
    mean, moments = f.mean(axis=0), group_moments(f)
    gap = float(mean @ x + prox.support(-mean))
    return gap, gap + c * diameter * sqrt(float(moments.largest) / len(f))


def _block_bound(prox: Resolvent, f: Array, x: Array, c: float) -> float:
    """A bound on the largest mean of <f, x - y> plus c standard errors over y in the set of one block."""

    def upper(values: Array) -> Array:
        return values.mean(axis=0) + c * values.std(axis=0, ddof=1) / sqrt(len(values))

    bound = _by_covariance(prox, f, x, c)[1]
    if isinstance(prox, simplex):  # a convex function of y is largest at a vertex
        bound = min(bound, float(upper((f @ x)[:, None] - prox.total * f).max()))
    elif isinstance(prox, box):
        bound = min(bound, float(np.maximum(upper(f * (x - prox.lower)), upper(f * (x - prox.upper))).sum()))
    return bound


def exploitability(A: ArrayLike, u: ArrayLike, v: ArrayLike) -> float:
    """The total gain that both players of min over u, max over v of <u, A v> have from deviating: the gap of (u, v).

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> (
    ...     float(da.exploitability(pennies, [0.5, 0.5], [0.5, 0.5])),
    ...     float(da.exploitability(pennies, [1.0, 0.0], [0.5, 0.5])),
    ... )
    (0.0, 1.0)
    """
    a: Array = as_parameter(A, "exploitability: A", finite=True, shape="(m, d)")
    players = {
        name: np.atleast_1d(as_parameter(strategy, f"exploitability: {name}", finite=True))
        for name, strategy in (("u", u), ("v", v))
    }
    if tuple(strategy.size for strategy in players.values()) != a.shape:
        rule = "exploitability: A must be a matrix, u a vector for its rows and v one for its columns"
        shapes = " and ".join(str(strategy.shape) for strategy in players.values())
        raise ArgumentError(rule, f"shapes {a.shape}, {shapes}", "Check the sizes")
    for name, strategy in players.items():
        if strategy.min() < -1e-9 or abs(strategy.sum() - 1) > 1e-6:
            received = f"a sum of {strategy.sum():.6g}, the least {strategy.min():.3g}"
            raise ArgumentError(f"exploitability: {name} must be probabilities", received, "Divide by the sum")
    return float(np.max(players["u"] @ a) - np.min(a @ players["v"]))
