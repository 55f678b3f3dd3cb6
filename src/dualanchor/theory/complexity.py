"""What is known about each method: the paper's Table 1 as data, with certified sample counts where there are any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from dualanchor.theory.schedules import Setting, constant_for_accuracy, tapered_for_accuracy


@dataclass(frozen=True)
class Known:
    """One line of the table.

    Attributes
    ----------
    method : str
        Its id in the library, or its name.
    complexity : str
        Order of samples for accuracy eps, for a 1/L-cocoercive operator.
    exponent : float
        Power of 1/eps in it, up to logarithms.
    last_iterate, variance_reduction_free, single_loop : bool
        The paper's three ticks.
    parameters, requirements : str
        What must be set to run it, and what must be known for its guarantee.
    in_paper : bool
        Whether the line is in the paper's table.
    samples : callable or None
        `samples(eps, L, D, sigma)` certified by a proof with constants; None where the source has only an order.
    note : str
        What the count rests on.
    """

    method: str
    complexity: str
    exponent: float
    last_iterate: bool
    variance_reduction_free: bool
    single_loop: bool
    parameters: str
    requirements: str
    in_paper: bool = True
    samples: Callable[[float, float, float, float], float] | None = None
    note: str = ""


def paper_samples(eps: float, L: float, D: float, sigma: float) -> float:
    """S-Dual-OHM with a constant batch by Theorem 4.1, integer optimum."""
    return constant_for_accuracy(eps, Setting(2 / L, D, sigma, bound="paper")).samples


def sharp_samples(eps: float, L: float, D: float, sigma: float) -> float:
    """S-Dual-OHM with a constant batch by Theorem A, integer optimum."""
    return constant_for_accuracy(eps, Setting(2 / L, D, sigma)).samples


def tapered_samples(eps: float, L: float, D: float, sigma: float) -> float:
    """Dual-OHM with tapered batches by Theorem A."""
    return tapered_for_accuracy(eps, Setting(2 / L, D, sigma)).samples


def anchored_plan(eps: float, L: float, D: float, sigma: float) -> tuple[int, float]:
    """Horizon and rate c of S-OHM's batches ceil(c(k+1)): half of eps for the anchor, half for the noise."""
    N = max(2, ceil(4 * L * D / eps))  # step 1/L
    return N, max(1e-12, 2 * sigma**2 / eps**2)


def anchored_samples(eps: float, L: float, D: float, sigma: float) -> float:
    """S-OHM with growing batches: the sum of ceil(c(k+1)) over k = 0 .. N - 2, at most."""
    if eps >= L * D:
        return 0
    N, c = anchored_plan(eps, L, D, sigma)
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


TABLE: tuple[Known, ...] = (
    Known(
        "dual-ohm, tapered",
        "Õ(ε⁻²)",
        2,
        True,
        True,
        True,
        "L, N, C",
        "D, σ",
        False,
        tapered_samples,
        "Theorems A and B, not in the paper",
    ),
    Known(
        "s-dual-ohm",
        "O(ε⁻³)",
        3,
        True,
        True,
        True,
        "L, B, N",
        "D, σ",
        True,
        paper_samples,
        "Theorem 4.1; half as many by Theorem A",
    ),
    Known(
        "halpern-page",
        "O(ε⁻³)",
        3,
        True,
        False,
        True,
        "L, p_k, S1, S2",
        "D, σ",
        note="order only (Cai, Song, Guzmán, Diakonikolas 2022)",
    ),
    Known(
        "halpern-vr-finite",
        "Õ(n + √n ε⁻¹)",
        1,
        True,
        False,
        True,
        "L, B, λ_k; p_k or M_k",
        "D, n",
        note="order only, finite sums only (Cai, Alacaoglu, Diakonikolas 2024)",
    ),
    Known(
        "rain",
        "Õ(ε⁻²)",
        2,
        True,
        True,
        False,
        "L, λ, γ, N_s, K_s",
        "D, σ",
        note="order only, double loop (Chen, Luo 2024)",
    ),
    Known(
        "s-ohm",
        "O(ε⁻⁴)",
        4,
        True,
        True,
        True,
        "L, c",
        "D, σ",
        False,
        anchored_samples,
        "growing batches ⌈c(k+1)⌉ (Proposition 3.4); constants by our bound",
    ),
    Known(
        "sgda",
        "O(ε⁻⁴)",
        4,
        False,
        True,
        True,
        "L, B",
        "D, σ",
        True,
        sgda_samples,
        "a random iterate; constants by our bound",
    ),
    Known("seg", "O(ε⁻⁴)", 4, False, True, True, "L, B", "D, σ", note="order only, a random iterate (Gorbunov 2022)"),
)
"""The paper's Table 1, and beside it what this library adds (`in_paper` False)."""
