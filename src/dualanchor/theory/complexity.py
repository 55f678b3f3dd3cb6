"""What is known about each method: the paper's Table 1 as data, with certified sample counts where there are any."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from dualanchor.theory.schedules import Run, Setting, constant_for_accuracy, tapered_for_accuracy

Samples = Callable[[float, float, float, float], float]


@dataclass(frozen=True)
class Known:
    """A method and its order of samples, the power `exponent` of 1/eps; the booleans are the paper's ticks.

    `samples(eps, L, D, sigma)` is certified by the proof that `note` names; None where the source has only an order.
    """

    method: str
    complexity: str
    exponent: float
    last_iterate: bool
    variance_reduction_free: bool
    single_loop: bool
    parameters: str
    requirements: str
    samples: Samples | None
    note: str
    in_paper: bool = True  # False: added by this library


def _certified(plan: Callable[[float, Setting], Run], bound: str) -> Samples:
    """The samples of the best run of Dual-OHM, in whole numbers, by Theorem A ("sharp") or 4.1 ("paper")."""
    return lambda eps, L, D, sigma: plan(eps, Setting(2 / L, D, sigma, bound=bound)).samples


def anchored_samples(eps: float, L: float, D: float, sigma: float) -> float:
    """S-OHM with growing batches ceil(c(k+1)) and step 1/L: half of eps for the anchor, half for the noise."""
    if eps >= L * D:
        return 0
    N, c = max(2, ceil(4 * L * D / eps)), max(1e-12, 2 * sigma**2 / eps**2)
    if N <= 100_000:
        return float(np.maximum(1, np.ceil(c * np.arange(1, N))).sum())
    return c * N * (N - 1) / 2 + N - 1


def sgda_samples(eps: float, L: float, D: float, sigma: float) -> float:
    """A random iterate of SGDA with step 1/L: K steps of B samples, half of eps squared for each term."""
    if eps >= L * D:
        return 0
    B = max(1, ceil(2 * sigma**2 / eps**2))
    left = eps**2 - sigma**2 / B
    return ceil(L**2 * D**2 / left) * B if left > 0 else inf


# fmt: off
TABLE: tuple[Known, ...] = (
    Known("dual-ohm, tapered", "Õ(ε⁻²)", 2, True, True, True, "L, N, C", "D, σ",
          _certified(tapered_for_accuracy, "sharp"), "Theorems A and B, not in the paper", in_paper=False),
    Known("s-dual-ohm", "O(ε⁻³)", 3, True, True, True, "L, B, N", "D, σ",
          _certified(constant_for_accuracy, "paper"), "Theorem 4.1; half as many by Theorem A"),
    Known("halpern-page", "O(ε⁻³)", 3, True, False, True, "L, p_k, S1, S2", "D, σ",
          None, "order only (Cai, Song, Guzmán, Diakonikolas 2022)"),
    Known("halpern-vr-finite", "Õ(n + √n ε⁻¹)", 1, True, False, True, "L, B, λ_k; p_k or M_k", "D, n",
          None, "order only, finite sums only (Cai, Alacaoglu, Diakonikolas 2024)"),
    Known("rain", "Õ(ε⁻²)", 2, True, True, False, "L, λ, γ, N_s, K_s", "D, σ",
          None, "order only, double loop (Chen, Luo 2024)"),
    Known("s-ohm", "O(ε⁻⁴)", 4, True, True, True, "L, c", "D, σ",
          anchored_samples, "growing batches ⌈c(k+1)⌉ (Proposition 3.4); constants by our bound", in_paper=False),
    Known("sgda", "O(ε⁻⁴)", 4, False, True, True, "L, B", "D, σ",
          sgda_samples, "a random iterate; constants by our bound"),
    Known("seg", "O(ε⁻⁴)", 4, False, True, True, "L, B", "D, σ",
          None, "order only, a random iterate (Gorbunov 2022)"),
)
# fmt: on
