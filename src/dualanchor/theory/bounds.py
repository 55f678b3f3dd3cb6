r"""Right-hand sides of the theorems and lemmas, for numbers or arrays; each function has a `.statement`.

Letters: N horizon, `step_size` :math:`\alpha`, D distance from the start to a root, `sigma` root mean square noise of
one sample, B batch size, F 1/L-cocoercive, `mu` strong monotonicity. Batches are fresh and independent; N and all batch
sizes are fixed before the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dualanchor.core.types import Array
from dualanchor.theory.weights import (
    contraction_rest,
    contraction_sum,
    damping,
    leave_one_out,
    root_sum,
    round_weights,
    weight_sum,
)

F = TypeVar("F", bound=Callable[..., Any])

PAPER, OURS = "paper", "not in the paper"


@dataclass(frozen=True)
class ProvedBound:
    """The statement behind a function: name, source (PAPER or OURS), assumptions, and the bounded quantity."""

    name: str
    source: str
    assumptions: tuple[str, ...]
    bounds: str


STATEMENTS: dict[str, ProvedBound] = {}  # by the function's name


def states(name: str, source: str, *assumptions: str, bounds: str = "E|F(x_{N-1})|^2") -> Callable[[F], F]:
    """Attach a ProvedBound to a function."""

    def attach(function: F) -> F:
        statement = ProvedBound(name, source, assumptions, bounds)
        STATEMENTS[function.__name__] = function.statement = statement  # type: ignore[attr-defined]
        return function

    return attach


A1 = "A1: samples are unbiased with variance at most sigma^2"
A2 = "A2: F is 1/L-cocoercive in expectation"
COCOERCIVE = "F is 1/L-cocoercive"
STRONG = "F is mu-strongly monotone"
STEP = "0 < step_size <= 2/L"


@states("Proposition 3.3", PAPER, COCOERCIVE, STEP, "no noise", bounds="|F(y_{N-1})|^2")
def proposition_3_3(N: Any, step_size: Any, D: Any) -> Any:
    r"""OHM and Dual-OHM without noise: :math:`4D^2/(\alpha^2N^2)`."""
    return 4 * (D / (step_size * N)) ** 2


@states("Theorem 4.1", PAPER, A1, A2, STEP)
def theorem_4_1(N: Any, step_size: Any, D: Any, sigma: Any, B: Any) -> Any:
    r"""S-Dual-OHM with a constant batch: :math:`4D^2/(\alpha^2N^2) + 6\sigma^2/B`."""
    return proposition_3_3(N, step_size, D) + 6 * sigma**2 / B


@states("Lemma 4.3", PAPER, A1, A2, STEP, bounds="E[(N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1} - x_0>]")
def lemma_4_3(N: Any, step_size: Any, sigma: Any, B: Any, cross_term: Any = None) -> Any:
    r"""Lemma 4.2 with noise: :math:`\sum_j \lambda_{N,j} (\alpha\sigma^2/(2B) + c)`, c = `cross_term`."""
    c = lemma_4_4(step_size, sigma, B) if cross_term is None else cross_term
    return step_size * (N - 1) / 2 * (step_size * sigma**2 / (2 * B) + c)


@states("Lemma 4.4", PAPER, A1, A2, STEP, bounds="E<e_{j-1}, T x_{N-1}>")
def lemma_4_4(step_size: Any, sigma: Any, B: Any) -> Any:
    r"""The cross term of one round's error and the last iterate: :math:`\alpha\sigma^2/B`; Theorem A has half of it."""
    return step_size * sigma**2 / B


def contraction(step_size: Any, L: Any, mu: Any) -> Any:
    r"""The squared factor :math:`\gamma^2 = 1 - \alpha\mu(2 - \alpha L)` by which T contracts."""
    return 1 - step_size * mu * (2 - step_size * L)


@states("Lemma 4.6", PAPER, A1, COCOERCIVE, STRONG, "0 < step_size < 2/L", bounds="E|x_k - y_k|^2")
def lemma_4_6(step_size: Any, L: Any, mu: Any, sigma: Any, B: Any) -> Any:
    r"""Distance to the run without noise: :math:`\alpha^2\sigma^2/(B(1-\gamma^2))`."""
    return _divide(step_size**2 * sigma**2 / B, 1 - contraction(step_size, L, mu))


@states("Lemma 4.7", PAPER, COCOERCIVE, STRONG, "0 < step_size < 2/L", "no noise", bounds="|y_k - y_{N-1}|")
def lemma_4_7(k: Any, step_size: Any, L: Any, mu: Any, D: Any) -> Any:
    r"""Distance to the last iterate, no noise: :math:`\frac{1+\gamma}{1-\gamma}\gamma^k D`; a norm, not a square."""
    gamma = np.sqrt(np.maximum(0.0, contraction(step_size, L, mu)))
    return _divide((1 + gamma) * gamma**k * D, 1 - gamma)


@states("Theorem 4.5, first form", PAPER, A1, COCOERCIVE, STRONG, "0 < step_size < 2/L", bounds="E|x_k - y_{N-1}|^2")
def theorem_4_5_distance(k: Any, step_size: Any, L: Any, mu: Any, D: Any, sigma: Any, B: Any) -> Any:
    r"""Distance to the last iterate of the noiseless run: twice the square of Lemma 4.7 plus twice Lemma 4.6."""
    return 2 * lemma_4_7(k, step_size, L, mu, D) ** 2 + 2 * lemma_4_6(step_size, L, mu, sigma, B)


@states("Theorem 4.5", PAPER, A1, COCOERCIVE, STRONG, "step_size = 1/L", "k <= N - 1", bounds="E|F(x_k)|^2")
def theorem_4_5(N: Any, k: Any, L: Any, mu: Any, D: Any, sigma: Any, B: Any) -> Any:
    r"""Early stopping: :math:`8L^2D^2/N^2 + 64L^4\mu^{-2}e^{-k\mu/L}D^2 + 4L\sigma^2/(\mu B)`."""
    early = _divide(64 * L**4 * np.exp(-k * np.asarray(mu) / L) * D**2, mu * np.asarray(mu))
    return 8 * (L * D / N) ** 2 + early + _divide(4 * L * sigma**2 / B, mu)


@states("Lemma A.2", PAPER, A1, A2, STEP, bounds="E|x_k - x_k^(s)|^2")
def lemma_a2(N: Any, s: Any, k: Any, step_size: Any, sigma: Any, B: Any) -> Any:
    r"""Batch s < k replaced: :math:`\frac{\alpha^2\sigma^2}{B}(1 + \frac{(N-k)(N-k-1)}{(N-s)(N-s-1)})`."""
    return 2 * step_size**2 * sigma**2 / B * leave_one_out(N, s, k)


def noise_term(batch_sizes: Any, sigma: Any, tau: float = 2.0) -> Any:
    r"""The W of Theorem A: :math:`2\sigma^2 \sum_{k=0}^{N-2} \kappa_{N-k}/(B_k (N-k)(N-k-1))`, k on the last axis."""
    sizes = np.asarray(batch_sizes, dtype=float)
    N = sizes.shape[-1] + 1
    return 2 * np.asarray(sigma) ** 2 * (damping(np.arange(N, 1, -1), tau) * round_weights(N) / sizes).sum(axis=-1)


def solved(A: Any, W: Any, affine: bool = False) -> Any:
    r"""The largest s with :math:`s \le 2A\sqrt s + W`: :math:`(A + \sqrt{A^2+W})^2`; 4A^2 + W if F is affine."""
    return 4 * A**2 + W if affine else (A + np.sqrt(A**2 + W)) ** 2


@states("Lemma A.2, sharper", OURS, A1, A2, STEP, bounds="E|x_k - x_k^(s)|^2")
def leave_one_out_sharp(N: Any, s: Any, k: Any, step_size: Any, sigma: Any, B: Any) -> Any:
    r"""Lemma A.2 by the triangle inequality: :math:`2\alpha^2\rho_{s,k}^2\sigma^2/B`; at the end half of Lemma A.2."""
    return 2 * step_size**2 * sigma**2 / B * leave_one_out(N, s, k) ** 2


@states("Theorem A", OURS, A1, A2, STEP)
def theorem_a(step_size: Any, D: Any, sigma: Any, batch_sizes: Any, *, tau: float = 2.0, affine: bool = False) -> Any:
    r"""Dual-OHM with N - 1 batch sizes on the last axis: :math:`(A + \sqrt{A^2 + W})^2`, :math:`A = D/(\alpha N)`.

    `tau` is :math:`\alpha L` (2 is always valid); an affine F has :math:`4A^2 + W` and needs A1 only.
    """
    sizes = np.asarray(batch_sizes, dtype=float)
    return solved(D / (step_size * (sizes.shape[-1] + 1)), noise_term(sizes, sigma, tau), affine)


@states("Theorem A, constant batch", OURS, A1, A2, STEP)
def theorem_a_constant(
    N: Any, step_size: Any, D: Any, sigma: Any, B: Any, *, tau: float = 2.0, affine: bool = False
) -> Any:
    r"""Theorem A for one batch size: :math:`W = 2(1-1/N)\sigma^2/B` at the largest step."""
    return solved(D / (step_size * np.asarray(N)), 2 * sigma**2 * weight_sum(N, tau) / B, affine)


@states("Theorem B", OURS, A1, A2, STEP, "N > 2D/(step_size eps)", bounds="samples for E|F(x_{N-1})|^2 <= eps^2")
def theorem_b_samples(eps: Any, N: Any, step_size: Any, D: Any, sigma: Any) -> Any:
    r"""Upper bound on the samples: :math:`N - 1 + 2\sigma^2H_N^2/(\epsilon^2(1 - 2D/(\alpha\epsilon N)))`."""
    room = 1 - 2 * D / (step_size * eps * np.asarray(N, dtype=float))
    samples = N - 1 + _divide(2 * sigma**2 * root_sum(N) ** 2, eps**2 * np.maximum(room, 0))
    return np.where(room > 0, samples, np.inf)[()]


@states("Theorem C", OURS, A1, COCOERCIVE, STRONG, "0 < step_size < 2/L", "k <= N - 1", bounds="E|x_k - x*|^2")
def theorem_c_distance(k: Any, step_size: Any, L: Any, mu: Any, D: Any, sigma: Any, B: Any, N: Any = np.inf) -> Any:
    r"""Distance to the root after k steps: :math:`D^2(1 - (1-\rho)R_k) + \alpha^2R_k\sigma^2/B`; N = inf is SGDA."""
    rho = contraction(step_size, L, mu)
    return D**2 * contraction_rest(k, rho, N) + contraction_sum(k, rho, N) * step_size**2 * sigma**2 / B


@states("Theorem C", OURS, A1, COCOERCIVE, STRONG, "0 < step_size < 2/L", "k <= N - 1", bounds="E|F(x_k)|^2")
def theorem_c(k: Any, step_size: Any, L: Any, mu: Any, D: Any, sigma: Any, B: Any, N: Any = np.inf) -> Any:
    r"""Residual after k steps: :math:`L^2` times the distance; at mu = 0 the distance is the drift bound."""
    return L**2 * theorem_c_distance(k, step_size, L, mu, D, sigma, B, N)


@states("Drift bound", OURS, A1, "T is quasi-nonexpansive", bounds="E|x_k - x*|^2")
def drift(N: Any, k: Any, step_size: Any, D: Any, sigma: Any, B: Any) -> Any:
    r"""Distance to a root after k steps with a constant batch: :math:`D^2 + \frac{k(2N-k-1)}{2N}\alpha^2\sigma^2/B`."""
    return D**2 + contraction_sum(k, 1.0, N) * step_size**2 * sigma**2 / B


@states("Drift bound at the end", OURS, A1, "T is quasi-nonexpansive", bounds="E|x_{N-1} - x*|^2")
def drift_at_end(step_size: Any, D: Any, sigma: Any, batch_sizes: Any) -> Any:
    r"""Distance to a root at the end, any batch sizes: :math:`D^2 + \frac{\alpha^2}{2}\sigma^2\sum_k 1/B_k`."""
    return D**2 + step_size**2 / 2 * np.asarray(sigma) ** 2 * (1 / np.asarray(batch_sizes, dtype=float)).sum(axis=-1)


@states("Restarts", OURS, A1, A2, STEP, "dist(x, roots) <= |F(x)|/mu (sharpness, or strong monotonicity)")
def restart(residual: Any, N: Any, step_size: Any, mu: Any, W: Any) -> Any:
    r"""One epoch of N - 1 rounds from a point with root mean square `residual` r: Theorem A with D = r/mu."""
    return solved(_divide(residual, mu * step_size * np.asarray(N, dtype=float)), W)


@states("Anytime, stage ends", OURS, A1, A2, STEP)
def anytime_stage(N: Any, step_size: Any, D_stage: Any, sigma: Any, b: Any) -> Any:
    r"""End of a stage: :math:`(P + \sqrt{P^2 + 2\sigma^2/b})^2/N^2`, P = D/alpha, batches bN^2 or Tapered(bN^2H_N)."""
    return solved(D_stage / step_size, 2 * sigma**2 / b) / N**2


@states("Backward-forward", OURS, "A1 and A2 on the domain of G", STEP, bounds="E|F(x) + g|^2, g in G(x)")
def composite(step_size: Any, D: Any, sigma: Any, batch_sizes: Any, first_batch: Any = np.inf) -> Any:
    r"""Theorem A for :math:`0 \in F(x) + G(x)` from :math:`z_0 = x_0 - \alpha F_{B_0}(x_0)`."""
    return theorem_a(step_size, np.sqrt(D**2 + step_size**2 * sigma**2 / first_batch), sigma, batch_sizes)


def composite_modulus(step_size: Any, mu: Any) -> Any:
    r"""The constant that replaces mu in restarts of a backward-forward run: :math:`\mu/(1+\alpha\mu)`."""
    return mu / (1 + step_size * mu)


def composite_strength(step_size: Any, mu: Any) -> Any:
    """Strong monotonicity of the backward-forward operator, 0.19 to 0.5 of mu (proof in docs/constraints.md)."""
    t = step_size * mu
    return (1 + t - np.sqrt(1 + t**2)) / (2 * step_size)


@states("Model bias", OURS, "A1 and A2 for a nearby operator, |F~ - F| <= bias", STEP)
def model_bias(step_size: Any, D: Any, sigma: Any, batch_sizes: Any, bias: Any) -> Any:
    r"""Samples of a nearby operator: :math:`(\beta + A_b + \sqrt{A_b^2 + W + 2\beta A' + \beta^2})^2`."""
    sizes = np.asarray(batch_sizes, dtype=float)
    N = sizes.shape[-1] + 1
    A_b = (D / step_size + bias) / N
    A_drift = np.sqrt(drift_at_end(step_size, D, sigma, sizes)) / (step_size * N)  # A' of the formula
    return (bias + A_b + np.sqrt(A_b**2 + noise_term(sizes, sigma) + 2 * bias * A_drift + bias**2)) ** 2


@states("Any bias", OURS, "A1 and A2 up to a bias field of norm at most bias", STEP)
def any_bias(step_size: Any, L: Any, D: Any, sigma: Any, batch_sizes: Any, bias: Any) -> Any:
    r"""An arbitrary bias on top: Theorem A's root plus :math:`\frac{\alpha L}{2}(N-1)\beta`, squared."""
    sizes = np.asarray(batch_sizes, dtype=float)
    return (np.sqrt(theorem_a(step_size, D, sigma, sizes)) + step_size * L / 2 * sizes.shape[-1] * bias) ** 2


@states("Noise bounded at the root only", OURS, "A2, and E|F^(x*)|^2 <= sigma_root^2", "constant batch", STEP)
def multiplicative_noise(N: Any, step_size: Any, L: Any, D: Any, sigma_root: Any, B: Any) -> Any:
    r"""Theorem A with :math:`\sigma^2 \to 2\sigma_\star^2 + L^2G/2`; infinite unless :math:`(N-1)\alpha^2L^2 < 4B`."""
    N = np.asarray(N, dtype=float)
    c = (N - 1) * step_size**2 * L**2 / (4 * B)
    G = _divide(D**2 + (N - 1) * step_size**2 * sigma_root**2 / B, np.maximum(0.0, 1 - c))
    return theorem_a_constant(N, step_size, D, np.sqrt(2 * sigma_root**2 + L**2 * G / 2), B)


@states("Cocoercivity of a batch", OURS, "A2 with L for one sample, mean operator 1/L_mean-cocoercive", bounds="L_B")
def batch_cocoercivity(B: Any, L: Any, L_mean: Any) -> Any:
    r"""The constant of a mean of B samples: :math:`L_B = L/B + (1 - 1/B)L_F`; steps up to 2/L_B are admissible."""
    return L / B + (1 - 1 / np.asarray(B, dtype=float)) * L_mean


@states("S-OHM", OURS, A1, COCOERCIVE, STEP)
def s_ohm(step_size: Any, L: Any, D: Any, sigma: Any, batch_sizes: Any) -> Any:
    r"""S-OHM, any batch sizes: :math:`(\frac{2D}{\alpha N} + \frac{\alpha L}{N}\sqrt{\sum_k(k+1)^2\sigma^2/B_k})^2`."""
    sizes = np.asarray(batch_sizes, dtype=float)
    N = sizes.shape[-1] + 1
    noise = np.sqrt((np.arange(1.0, N) ** 2 / sizes).sum(axis=-1)) * sigma
    return (2 * D / (step_size * N) + step_size * L * noise / N) ** 2


@states("SGDA", OURS, A1, COCOERCIVE, "0 < step_size < 2/L", bounds="mean of E|F(x_k)|^2 over k = 0 .. K - 1")
def sgda_average(steps: Any, step_size: Any, L: Any, D: Any, sigma: Any, B: Any) -> Any:
    r"""A random iterate of SGDA: :math:`(D^2/K + \alpha^2\sigma^2/B) / (\alpha(2/L - \alpha))`."""
    return (D**2 / steps + step_size**2 * sigma**2 / B) / (step_size * (2 / L - step_size))


@states("Averaging of affine operators", OURS, A1, "F is affine and T nonexpansive", bounds="E|F(mean)|^2")
def averaged_affine(steps: Any, step_size: Any, D: Any, sigma: Any, B: Any = 1, *, weights: str = "linear") -> Any:
    r"""The mean of SGDA's iterates: :math:`\frac{16}{(n+1)^2}(D^2/\alpha^2 + n\sigma^2/B)`; equal weights 4/n^2."""
    n = np.asarray(steps, dtype=float)
    scale = 16 / (n + 1) ** 2 if weights == "linear" else 4 / n**2
    return scale * (D**2 / step_size**2 + n * sigma**2 / B)


def _divide(numerator: Any, denominator: Any) -> Any:
    """The quotient, with 0/0 = 0 and x/0 = inf."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    out: Array = np.full(numerator.shape, np.inf)
    out[(numerator == 0) & (denominator == 0)] = 0.0
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out[()]
