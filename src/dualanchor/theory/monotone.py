r"""Bounds of regularised, extragradient and averaged runs for monotone, Lipschitz operators (cocoercive or not).

Letters as in `bounds`. A3, one sample at two points: :math:`\mathbb E\|\hat F(x;\xi)-\hat F(y;\xi)\|^2 \le
M^2\|x-y\|^2`; without it F itself is M-Lipschitz. :math:`\delta` is the weight of the regularisation
:math:`F_\delta(x) = F(x) + \delta(x - x_0)`. Nothing here is in the paper; proofs are in docs/theory_monotone.md.
"""

from typing import Any

import numpy as np

from dualanchor.theory.bounds import A1, COCOERCIVE, OURS, STEP, noise_term, solved, states
from dualanchor.theory.weights import round_weights

A3 = "A3: samples are M-Lipschitz in mean square"
MONOTONE = "F is monotone"
LIPSCHITZ = "F is M-Lipschitz"
AFFINE = "F is affine"
_BELOW_M = "0 < delta <= M"
_REGULARISED_STEP = "0 < step_size <= 2(delta+mu)/(M^2+delta^2+2 mu delta)"


@states("Lemma 1", OURS, A3, MONOTONE, _BELOW_M, bounds="L of F + delta(x - x0)")
def regularised_cocoercivity(delta: Any, M: Any, mu: Any = 0.0) -> Any:
    r"""The L of Assumption 3.2 for :math:`F_\delta`: :math:`(M^2+\delta^2+2\mu\delta)/(\delta+\mu)`."""
    return (M**2 + delta**2 + 2 * mu * delta) / (delta + mu)


@states("Lemma 2", OURS, MONOTONE, bounds="|F(x)|, at every x")
def back_to_F(residual: Any, delta: Any, D: Any) -> Any:
    r"""From :math:`F_\delta` back to F: :math:`\|F(x)\| \le \|F_\delta(x)\| + \delta D`; also with a prox."""
    return residual + delta * D


@states("Theorem M", OURS, A1, A3, MONOTONE, _BELOW_M, _REGULARISED_STEP)
def theorem_m(
    delta: Any, step_size: Any, M: Any, D: Any, sigma: Any, batch_sizes: Any, *, tau: float | None = None
) -> Any:
    r"""Dual-OHM on :math:`F_\delta`: :math:`(\delta D + A + \sqrt{A^2+W})^2`.

    :math:`\tau = \alpha(M+\delta)` in :math:`\kappa_m` by Lemma 3, unless another is given (2 with a prox).
    """
    sizes = np.asarray(batch_sizes, dtype=float)
    A = D / (step_size * (sizes.shape[-1] + 1))
    W = noise_term(sizes, sigma, min(2.0, step_size * (M + delta)) if tau is None else tau)
    return back_to_F(np.sqrt(solved(A, W)), delta, D) ** 2


@states("Noise that grows with the distance", OURS, "sd of a sample <= sigma + growth |x - x0|", bounds="sigma")
def sigma_of_growing_noise(sigma: Any, growth: Any, D: Any, step_size: Any, batch_sizes: Any) -> Any:
    r"""The sigma to plan with: :math:`(\sigma + 2gD)/(1 - g\alpha\sqrt{\sum_k 1/B_k})`, g = `growth`.

    Infinite where the denominator is not positive.
    """
    denominator = 1 - growth * step_size * np.sqrt((1 / np.asarray(batch_sizes, dtype=float)).sum(axis=-1))
    valid = denominator > 0
    return np.where(valid, (sigma + 2 * growth * D) / np.where(valid, denominator, 1.0), np.inf)[()]


@states("Lemma E", OURS, A1, "G is mu-strongly monotone and M-Lipschitz", "step_size M < 1", bounds="E|z+ - z*|^2")
def extragradient_step(square: Any, step_size: Any, M: Any, mu: Any, ahead: Any, update: Any) -> Any:
    r"""One step from a mean square distance s: :math:`(1-\rho)s + \alpha^2(cv + v')`, variances v ahead, v' update."""
    rho, c = contraction_rate(step_size, M, mu), ahead_noise(step_size, M, mu)
    return (1 - rho) * square + step_size**2 * (c * ahead + update)


def contraction_rate(step_size: Any, M: Any, mu: Any) -> Any:
    r"""Lemma E's :math:`\rho = 2\alpha\mu(1-\theta^2)/(1-\theta^2+2\alpha\mu)`, :math:`\theta = \alpha M`."""
    room, pull = 1 - (step_size * M) ** 2, 2 * step_size * mu
    return pull * room / (room + pull)


def ahead_noise(step_size: Any, M: Any, mu: Any) -> Any:
    r"""Lemma E's factor :math:`c = 2\theta + \theta^2 - 2\alpha\mu` on the variance of the extrapolation step."""
    theta = step_size * M
    return 2 * theta + theta**2 - 2 * step_size * mu


@states("Theorem R", OURS, A1, MONOTONE, LIPSCHITZ, bounds="E|F(z_{S+1})|^2")
def theorem_r(weights: Any, distances: Any, M: Any, D: Any) -> Any:
    r"""Recursive regularisation: :math:`(\nu_0D + \sum_s(\nu_s-\nu_{s-1})R_s + (M+\nu_S)R_{S+1})^2`.

    `weights` are :math:`\nu_0 < \dots < \nu_S`, `distances` the root mean square distances :math:`R_1, \dots,
    R_{S+1}` at the ends of the stages.
    """
    nu, R = np.asarray(weights, dtype=float), np.asarray(distances, dtype=float)
    return (nu[0] * D + (np.diff(nu) * R[:-1]).sum() + (M + nu[-1]) * R[-1]) ** 2


@states("Averaged extragradient", OURS, A1, AFFINE, MONOTONE, "step_size <= 1/M", bounds="E|F(mean of half-steps)|^2")
def averaged_extragradient(
    steps: Any, step_size: Any, M: Any, D: Any, sigma: Any, ahead: Any = 1, update: Any = 1
) -> Any:
    r"""The mean of n half-steps: :math:`4D^2/(\alpha n)^2 + (4/b' + \theta^2/b)\sigma^2/n`, :math:`\theta=\alpha M`."""
    n = np.asarray(steps, dtype=float)
    return 4 * (D / (step_size * n)) ** 2 + (4 / update + (step_size * M) ** 2 / ahead) * sigma**2 / n


@states("Theorem N", OURS, A1, COCOERCIVE, STEP)
def theorem_n(step_size: Any, D: Any, sigma: Any, batch_sizes: Any) -> Any:
    r"""Dual-OHM without A2: Theorem A with :math:`W = \sum_k (v_k + \sqrt{2v_kV_k})/(m(m-1))`.

    :math:`V_k = \sum_{t\ge k} v_t` are the variances of the rounds from k on, :math:`v_t = \sigma^2/B_t`.
    """
    v = np.asarray(sigma) ** 2 / np.asarray(batch_sizes, dtype=float)
    return solved(D / (step_size * (v.shape[-1] + 1)), noise_term_n(v))


def noise_term_n(v: Any) -> Any:
    """The W of Theorem N for variances of the rounds, k on the last axis."""
    V = np.flip(np.cumsum(np.flip(v, -1), axis=-1), -1)
    return ((v + np.sqrt(2 * v) * np.sqrt(V)) * round_weights(v.shape[-1] + 1)).sum(axis=-1)


@states("SEG, a random iterate", OURS, A1, MONOTONE, LIPSCHITZ, bounds="samples for E|F(x)|^2 <= eps^2")
def seg_samples(eps: Any, M: Any, D: Any, sigma: Any) -> Any:
    r"""Samples of steps 1/(2M), a random iterate: :math:`128M^2D^2\sigma^2/\epsilon^4` where noise dominates."""
    return 2 * np.ceil(32 / 3 * (M * D / eps) ** 2) * np.maximum(1.0, np.ceil(6 * (sigma / eps) ** 2))
