"""The rotation index: how much a Jacobian turns, from noisy images of random directions."""

from math import hypot, sqrt

import numpy as np

from dualanchor.advise.estimates import Estimate, mean_and_error, quantile
from dualanchor.advise.probes import Sketch
from dualanchor.core.types import Array

_MAX_ROTATION_WIDTH = 0.2  # a rotation index with a wider interval is not reported
_MIN_ROTATION = 1e-6  # a smaller rotation index is rounding


def rotation(sketch: Sketch) -> Estimate | None:
    """The rotation index of the Jacobian from random orthonormal directions v; None where noise leaves it open.

    |A|² = d E(v_i'Av_i)² + d(d-1) E(v_i'Av_j)², with products of two independent batches in place of squares.
    """
    p, d = sketch.random, sketch.directions.shape[1]
    if d == 1:
        return Estimate(0.0, 0.0, 0.0)
    if p < 2 or not (sketch.exact or len(sketch.images) > 2):
        return None
    mixed = sketch.directions[:p] @ sketch.images[:, :p].swapaxes(1, 2)  # v_i'Jv_j of each batch
    above_diagonal = np.triu_indices(p, 1)
    unseen = max(0.0, 1 - (p / d) ** 2)  # 0 if all d directions were used: then nothing is left to chance
    c = 2.0 if sketch.exact else float(quantile(0.0125, len(mixed) - 1))

    def squared_norm(sign: int) -> Estimate:
        """|J + J'|² for sign 1, |J - J'|² for sign -1."""
        a = mixed + sign * mixed.swapaxes(1, 2)
        off_diagonal = a[:, above_diagonal[0], above_diagonal[1]]
        diagonal = np.diagonal(a, axis1=1, axis2=2) if sign > 0 else np.zeros((len(a), 1))
        scaled = np.sqrt(d * (d - 1) / off_diagonal.shape[1]) * off_diagonal, sqrt(d / p) * diagonal
        square, error = _squared_mean(*scaled, unseen)
        least = 0.0
        if sign > 0:  # the trace is seen far better, and tr(S)²/d is never more than |S|²
            by_batch, by_direction = diagonal.mean(axis=1), diagonal.mean(axis=0)
            mean, mean_error = mean_and_error(by_direction if sketch.exact else by_batch)
            sampling_error = 0.0 if sketch.exact else mean_and_error(by_direction)[1] * sqrt(unseen)
            least = d * max(0.0, abs(mean) - c * hypot(mean_error, sampling_error)) ** 2
        # A negative square is noise: it must not make the upper end small.
        return Estimate(max(least, square), max(least, square - c * error), max(least, square, 0.0) + c * error)

    skew, symmetric = np.sqrt(squared_norm(-1)), np.sqrt(squared_norm(1))[[0, 2, 1]]  # low skew with high symmetric
    with np.errstate(invalid="ignore"):  # nan where neither is seen
        index, low, high = (skew / (skew + symmetric)).tolist()
    if not high - low <= _MAX_ROTATION_WIDTH:
        return None
    return Estimate(*(value if value > _MIN_ROTATION else 0.0 for value in (index, low, high)))


def _squared_mean(off_diagonal: Array, diagonal: Array, unseen: float) -> tuple[float, float]:
    """The squared norm of the mean over batches (rows), without the share of the noise, and its standard error."""
    rows = np.concatenate([off_diagonal, diagonal], axis=1)
    b, total = len(rows), rows.sum(axis=0)
    squares = np.einsum("ij,ij->i", rows, rows)
    square = float(total @ total - squares.sum()) / (b * (b - 1))
    parts = ((part, np.square(part.mean(axis=0)).sum()) for part in (off_diagonal, diagonal))
    sampling_variance = 2 * unseen * sum(float(np.square(size)) / part.shape[1] for part, size in parts)
    if b == 2:
        return square, sqrt(sampling_variance)
    others = total - rows  # the jackknife: each batch left out in turn
    without = (np.einsum("ij,ij->i", others, others) - (squares.sum() - squares)) / ((b - 1) * (b - 2))
    return square, sqrt((b - 1) / b * float(np.square(without - without.mean()).sum()) + sampling_variance)
