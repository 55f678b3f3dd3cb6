"""Weights of the rounds k = 0 .. N - 2 in the last iterate and in its bound; N is the horizon."""

from functools import lru_cache
from typing import Any

import numpy as np

from dualanchor.core.types import Array

_SUMMED = 4096  # H_N is summed up to here and continued by its expansion, which is exact to rounding from here on


def round_weights(N: int) -> Array:
    r"""Weight :math:`1/(m(m-1))`, m = N - k, of round k = 0 .. N - 2 in Theorem A; they sum to 1 - 1/N."""
    m = np.arange(N, 1, -1, dtype=float)
    return 1 / (m * (m - 1))


def dual_multipliers(N: int, step_size: float) -> Array:
    r"""Multipliers :math:`\lambda_{N,j} = N\alpha / (2(N-j)(N-j+1))`, j = 1 .. N - 1, of Lemma 4.2."""
    return N * step_size / 2 * round_weights(N)


def anchor_multipliers(N: int, step_size: float) -> Array:
    r"""Multipliers :math:`\nu_{j+1,j} = \alpha j(j+1)/(2N)`, j = 1 .. N - 1, of S-OHM's identity (section 4.1.1)."""
    j = np.arange(1, N, dtype=float)
    return step_size * j * (j + 1) / (2 * N)


def convex_weights(N: int, k: int) -> Array:
    r"""Weights of :math:`x_0, T_0, \dots, T_{k-1}` in :math:`x_k` (Lemma A.1); non-negative, and they sum to 1."""
    if k == 0:
        return np.ones(1)
    m = N - np.arange(k - 1, dtype=float)
    return np.concatenate([[1 / N], 1 / (m * (m - 1)), [(N - k) / (N - k + 1)]])


def leave_one_out(N: int, s: Any, k: Any) -> Any:
    r"""The largest effect of a change in round s < k on :math:`x_k`: :math:`\rho_{s,k}`, the solution of Lemma A.2."""
    k, s = np.asarray(k, dtype=float), np.asarray(s, dtype=float)
    return 0.5 * (1 + (N - k) * (N - k - 1) / ((N - s) * (N - s - 1)))


def damping(m: Any, tau: float = 2.0) -> Any:
    r"""Theorem A's factor :math:`\kappa_m = \min\{1, \tau(2m-1)/6\}` on weight m for a step :math:`\tau/L`."""
    return np.minimum(1.0, tau * (2 * np.asarray(m, dtype=float) - 1) / 6)


def first_undamped(tau: float) -> float:
    """The smallest m >= 2 whose factor `damping` is 1."""
    return float(max(2.0, np.ceil((6 / tau + 1) / 2 - 1e-12)))


def weight_sum(N: Any, tau: float = 2.0) -> Any:
    r"""The sum :math:`\sum_{m=2}^N \kappa_m/(m(m-1))` in closed form; 1 - 1/N at the largest step, tau = 2."""
    N = np.asarray(N, dtype=float)
    first = first_undamped(tau)
    if first == 2:
        return np.where(N >= 2, 1 - 1 / np.maximum(N, 1.0), 0.0)[()]
    from scipy.special import digamma  # imported here because it is slow to import

    undamped = np.where(first <= N, 1 / (first - 1) - 1 / N, 0.0)
    last = np.minimum(N, first - 1)  # up to here the terms are tau/6 (1/m + 1/(m-1))
    damped = np.where(last >= 2, 2 * (digamma(last + 1) + np.euler_gamma) - 1 - 1 / last, 0.0)
    return np.where(N >= 2, undamped + tau / 6 * damped, 0.0)[()]


@lru_cache(maxsize=1)
def _first_sums() -> tuple[Array, Array]:
    """The sums over m = 2 .. N of 1/sqrt(m(m-1)) and of sqrt(1/m + 1/(m-1)), for N = 0 .. _SUMMED."""
    m = np.arange(2, _SUMMED + 1, dtype=float)
    terms = (1 / np.sqrt(m * (m - 1)), np.sqrt(1 / m + 1 / (m - 1)))
    undamped, damped = (np.concatenate([[0.0, 0.0], np.cumsum(values)]) for values in terms)
    return undamped, damped


def root_sum(N: Any, tau: float = 2.0) -> Any:
    r"""The sum :math:`H_N = \sum_{m=2}^N \sqrt{\kappa_m/(m(m-1))}`: :math:`\ln N` plus 0.014 to 0.020 at tau = 2.

    At most :math:`\ln(N\tau/3) + 2` for tau up to 1 and N from 3/tau on.
    """
    N = np.asarray(N, dtype=float)
    if (first := first_undamped(tau)) == 2:
        return _undamped_sum(N)[()]
    last = np.minimum(N, first - 1)  # up to here kappa/(m(m-1)) = tau/6 (1/m + 1/(m-1))
    p = np.maximum(last, _SUMMED)
    # The integral of the expansion sqrt(2/u) (1 + 1/(8u^2)), u = m - 1/2.
    expansion = np.sqrt(8.0) * (np.sqrt(p) - np.sqrt(_SUMMED) + (_SUMMED**-1.5 - p**-1.5) / 32)
    damped = _first_sums()[1][np.clip(last, 0, _SUMMED).astype(int)] + expansion
    return (np.sqrt(tau / 6) * damped + np.where(first <= N, _undamped_sum(N) - _undamped_sum(first - 1), 0.0))[()]


def _undamped_sum(N: Any) -> Any:
    p = np.maximum(N, _SUMMED)
    # 1/48 is 1/16 for the sum of cubes less 1/24 for that of the logarithm.
    expansion = np.log(p / _SUMMED) + (1 / _SUMMED**2 - 1 / p**2) / 48
    return _first_sums()[0][np.clip(N, 0, _SUMMED).astype(int)] + expansion


def contraction_sum(k: Any, rho: Any, N: Any = np.inf) -> Any:
    r"""The sum :math:`R_k = \sum_{i<k} \rho^i (1 - (i+1)/N)` of Theorem C; at rho = 1 it is k(2N - k - 1)/(2N)."""
    _, plain, rising = _power_sums(k, rho)
    return (plain - rising / np.asarray(N, dtype=float))[()]


def contraction_rest(k: Any, rho: Any, N: Any = np.inf) -> Any:
    r"""The :math:`1 - (1-\rho)R_k` of Theorem C, as :math:`\rho^k + \frac{1-\rho}N\sum_{i<k} (i+1)\rho^i`.

    All terms are positive: this is exact to rounding where the first form cancels.
    """
    power, _, rising = _power_sums(k, rho)
    return (power + (1 - np.asarray(rho, dtype=float)) * rising / np.asarray(N, dtype=float))[()]


def _power_sums(k: Any, rho: Any) -> tuple[Array, Array, Array]:
    r"""The power :math:`\rho^k` and the sums of :math:`\rho^i` and of :math:`(i+1)\rho^i` over i < k."""
    k, rho = (np.asarray(value, dtype=float) for value in (k, rho))
    gap = 1 - rho
    near = k * gap < 1e-4  # the closed forms cancel here, where three terms of their expansion are exact to rounding
    divisor = np.where(near, 1.0, gap)
    power = np.where(rho > 0, np.exp(k * np.log1p(-np.where(rho > 0, gap, 0.0))), np.where(k == 0, 1.0, 0.0))
    plain = np.where(near, k - gap * k * (k - 1) / 2 + gap**2 * k * (k - 1) * (k - 2) / 6, (1 - power) / divisor)
    rising = np.where(
        near,
        k * (k + 1) / 2 - gap * (k - 1) * k * (k + 1) / 3 + gap**2 * (k - 2) * (k - 1) * k * (k + 1) / 8,
        (plain - k * power) / divisor,
    )
    return power, plain, rising
