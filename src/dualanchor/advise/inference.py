"""`Inference`: an estimated root with its covariance, the result of `infer`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.files import jsonable
from dualanchor.core.problem import as_reals
from dualanchor.core.types import Array

_MAX_PRINTED = 20  # coordinates in the printed form


@dataclass(frozen=True, repr=False)
class Inference:
    r"""The estimate of a root :math:`x_\star` of F, asymptotically normal, with standard errors.

    Attributes
    ----------
    estimate : array (d,), the root of the mean of n samples, found by Newton steps from x
    std_errors : array (d,), the root of the diagonal of `covariance`
    covariance : array (d, d), of the estimate: :math:`J^{-1} S J^{-\top}/n`
    jacobian, noise : arrays (d, d), J of F and the covariance S of one sample, both at the estimate
    samples : int, n, the number of fresh samples or of rows of data
    population : bool, whether the samples are the data, so that :math:`x_\star` is the parameter of their distribution
    degrees_of_freedom : int, of Student's t in the intervals
    confidence : float, default confidence of the intervals
    evals : int, evaluations of single samples
    names : tuple of str, of the coordinates of a tree: its keys and the index in each leaf; empty for an array

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> found = da.infer(da.AdditiveNoise(lambda x: 2 * x - 2, sigma=1.0), np.zeros(2), samples=10_000)
    >>> found.estimate.round(1), found.std_errors.shape
    (array([1., 1.]), (2,))
    """

    estimate: Array
    std_errors: Array
    covariance: Array
    jacobian: Array
    noise: Array
    samples: int
    population: bool
    degrees_of_freedom: int
    confidence: float
    evals: int
    names: tuple[str, ...] = ()

    def interval(self, a: Any = None, confidence: float | None = None) -> Array:
        r"""Confidence intervals (lower, upper): of each coordinate, (d, 2), or of :math:`a^\top x_\star`.

        Parameters
        ----------
        a : array of shape (d,) for an interval of shape (2,), or (m, d) for m of them, (m, 2)
        confidence : float, of each interval by itself; by default that of the inference

        Examples
        --------
        >>> import numpy as np, dualanchor as da
        >>> oracle = da.AdditiveNoise(lambda x: 2 * x - 2, sigma=1.0)
        >>> found = da.infer(oracle, np.zeros(2), samples=10_000)
        >>> lower, upper = found.interval([1.0, -1.0])  # of the difference of the coordinates, which is 0
        >>> bool(lower < 0 < upper)
        True
        """
        from scipy.special import stdtrit

        level = check.probability(self.confidence if confidence is None else confidence, "interval: confidence")
        rows = np.eye(self.estimate.size) if a is None else as_reals(a)
        if rows is None or not np.isfinite(rows).all():
            raise ArgumentTypeError("interval: a must be real numbers", repr(a)[:80], "Pass floats")
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.estimate.size:
            rule = f"interval: a must have shape ({self.estimate.size},) or (m, {self.estimate.size})"
            raise ArgumentError(rule, f"shape {rows.shape}", "Pass one coefficient for each coordinate")
        margin = stdtrit(self.degrees_of_freedom, (1 + level) / 2) * np.sqrt(quadratic(rows, self.covariance))
        return np.stack([rows @ self.estimate - margin, rows @ self.estimate + margin], axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {name: jsonable(getattr(self, name)) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        source = "rows of data: the parameter of their distribution" if self.population else "fresh samples"
        lines = [f"Inference: the root of F from {self.samples:,} {source}"]
        shown = min(self.estimate.size, _MAX_PRINTED)
        names = self.names[:shown] or [f"x[{i}]" for i in range(shown)]
        width = max(8, *map(len, names))
        table = zip(names, self.estimate, self.std_errors, self.interval(), strict=False)
        level = f"{100 * self.confidence:g} % interval (asymptotic)"
        lines.append(f"{'':>{width}} {'estimate':>12} {'std error':>10}   {level}")
        lines += [f"{name:>{width}} {x:12.6g} {s:10.3g}   [{low:.6g}, {high:.6g}]" for name, x, s, (low, high) in table]
        if (more := self.estimate.size - shown) > 0:
            lines.append(f"{'':>{width}} and {more} more coordinates")
        return "\n".join(lines)


def quadratic(rows: Array, matrix: Array) -> Array:
    """The values a' M a for rows a (m, d), (m,), or for a single a (d,)."""
    return np.asarray(np.einsum("...i,ij,...j->...", rows, matrix, rows))
