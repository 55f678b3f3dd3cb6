"""The weights with which rounds enter the last iterate and its bound; N is the horizon, k = 0 .. N - 2 a round."""

from functools import lru_cache
from typing import Any

import numpy as np

from dualanchor.core.types import Array

_EXACT = 4096  # H_N is added up to here and continued by its expansion, which is exact to rounding there


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
    r"""How much of a change in round s < k is left at most at :math:`x_k`: :math:`\rho_{s,k}` of Lemma A.2, solved."""
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
    free = first_undamped(tau)
    if free == 2:
        return np.where(N >= 2, 1 - 1 / np.maximum(N, 1.0), 0.0)[()]
    from scipy.special import digamma  # here, since it is slow to import

    tail = np.where(free <= N, 1 / (free - 1) - 1 / N, 0.0)
    last = np.minimum(N, free - 1)  # 1/(m(m-1)) (2m-1) = 1/m + 1/(m-1)
    head = np.where(last >= 2, 2 * (digamma(last + 1) + np.euler_gamma) - 1 - 1 / last, 0.0)
    return np.where(N >= 2, tail + tau / 6 * head, 0.0)[()]


@lru_cache(maxsize=1)
def _first_sums() -> tuple[Array, Array]:
    """The sums over m = 2 .. N of 1/sqrt(m(m-1)) and of sqrt(1/m + 1/(m-1)), for N = 0 .. _EXACT."""
    m = np.arange(2, _EXACT + 1, dtype=float)
    terms = (1 / np.sqrt(m * (m - 1)), np.sqrt(1 / m + 1 / (m - 1)))
    full, damped = (np.concatenate([[0.0, 0.0], np.cumsum(one)]) for one in terms)
    return full, damped


def root_sum(N: Any, tau: float = 2.0) -> Any:
    r"""The sum :math:`H_N = \sum_{m=2}^N \sqrt{\kappa_m/(m(m-1))}`: :math:`\ln N` plus 0.014 to 0.020 at tau = 2.

    At most :math:`\ln(N\tau/3) + 2` for tau up to 1 and N from 3/tau on.
    """
    N = np.asarray(N, dtype=float)
    if (free := first_undamped(tau)) == 2:
        return _undamped_sum(N)[()]
    last = np.minimum(N, free - 1)  # here kappa/(m(m-1)) = tau/6 (1/m + 1/(m-1))
    p = np.maximum(last, _EXACT)
    roots = np.sqrt(p) - np.sqrt(_EXACT) + (_EXACT**-1.5 - p**-1.5) / 32  # of sqrt(2/u) (1 + 1/(8u^2)), u = m - 1/2
    far = np.sqrt(8.0) * roots
    damped = _first_sums()[1][np.clip(last, 0, _EXACT).astype(int)] + far
    return (np.sqrt(tau / 6) * damped + np.where(free <= N, _undamped_sum(N) - _undamped_sum(free - 1), 0.0))[()]


def _undamped_sum(N: Any) -> Any:
    p = np.maximum(N, _EXACT)
    far = np.log(p / _EXACT) + (1 / _EXACT**2 - 1 / p**2) / 48  # 1/16 of the sum of cubes, less 1/24 of the logarithm's
    return _first_sums()[0][np.clip(N, 0, _EXACT).astype(int)] + far


def contraction_sum(k: Any, rho: Any, N: Any = np.inf) -> Any:
    r"""The sum :math:`R_k = \sum_{i<k} \rho^i (1 - (i+1)/N)` of Theorem C; at rho = 1 it is k(2N - k - 1)/(2N)."""
    k, rho, N = (np.asarray(value, dtype=float) for value in (k, rho, N))
    gap = 1 - rho
    near = k * gap < 1e-4  # here the closed forms cancel; two terms of their expansion are exact to rounding
    safe = np.where(near, 1.0, gap)
    power = np.where(rho > 0, np.exp(k * np.log1p(-np.where(rho > 0, gap, 0.0))), np.where(k == 0, 1.0, 0.0))
    plain = np.where(near, k - gap * k * (k - 1) / 2 + gap**2 * k * (k - 1) * (k - 2) / 6, (1 - power) / safe)
    rising = np.where(
        near,
        k * (k + 1) / 2 - gap * (k - 1) * k * (k + 1) / 3 + gap**2 * (k - 2) * (k - 1) * k * (k + 1) / 8,
        (plain - k * power) / safe,
    )
    return (plain - rising / N)[()]
