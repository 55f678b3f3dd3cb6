"""Sample complexities as in the paper's Table 1, with certified sample counts where proofs give them."""

from collections.abc import Callable
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from dualanchor.theory.monotone import seg_samples
from dualanchor.theory.schedules import Run, Setting, constant_for_accuracy, rain_samples, tapered_for_accuracy

Samples = Callable[[float, float, float, float], float]


class Complexity(NamedTuple):
    """A row of the table: a method, the order of its samples, and `samples(eps, L, D, sigma)`, proved as `note` says.

    `samples` is None where the source has only an order.
    """

    method: str
    complexity: str
    samples: Samples | None
    note: str


def _certified(plan: Callable[[float, Setting], Run], bound: str) -> Samples:
    """The samples of the best run of Dual-OHM by Theorem A ("sharp") or 4.1 ("paper")."""
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
    room = eps**2 - sigma**2 / B
    return ceil(L**2 * D**2 / room) * B if room > 0 else inf


_GROWING = "growing batches ⌈c(k+1)⌉ (Proposition 3.4); constants by our bound"
_RAIN = Complexity("rain", "Õ(ε⁻²)", rain_samples, "double loop, its authors' constants (Chen, Luo 2024)")
TABLE: tuple[Complexity, ...] = (
    Complexity(
        "dual-ohm, tapered", "Õ(ε⁻²)", _certified(tapered_for_accuracy, "sharp"), "Theorems A and B, not in the paper"
    ),
    Complexity(
        "s-dual-ohm", "O(ε⁻³)", _certified(constant_for_accuracy, "paper"), "Theorem 4.1; half as many by Theorem A"
    ),
    Complexity("halpern-page", "O(ε⁻³)", None, "order only (Cai, Song, Guzmán, Diakonikolas 2022)"),
    Complexity(
        "halpern-vr-finite", "Õ(n + √n ε⁻¹)", None, "order only, finite sums only (Cai, Alacaoglu, Diakonikolas 2024)"
    ),
    _RAIN,
    Complexity("s-ohm", "O(ε⁻⁴)", anchored_samples, _GROWING),
    Complexity("sgda", "O(ε⁻⁴)", sgda_samples, "a random iterate; constants by our bound"),
    Complexity("seg", "O(ε⁻⁴)", None, "order only, a random iterate (Gorbunov 2022)"),
)
MONOTONE_TABLE: tuple[Complexity, ...] = (
    _RAIN,
    Complexity("seg", "O(ε⁻⁴)", seg_samples, "a random iterate; constants by our bound"),
)
"""The table for operators that are merely monotone, with M in place of L."""
