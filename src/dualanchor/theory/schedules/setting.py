"""What a run of Dual-OHM is planned for, and the run that is planned."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, sqrt
from typing import Any, Self

import numpy as np

from dualanchor.theory.weights import weight_sum


@dataclass(frozen=True)
class Run:
    """A planned run: horizon N (1: stay at the start), its N - 1 batch sizes and their sum, or an upper bound for it.

    The root mean square residual at the end is at most `bound`; `exact`: sums are exact, all candidates were tried.
    """

    horizon: int
    batch_size: Any
    samples: int
    bound: float
    exact: bool = True


@dataclass(frozen=True)
class Setting:
    """What a run is planned for. A round costs its samples and `round_cost`; P = `multiple` workers share a batch."""

    step_size: float
    D: float
    sigma: float
    tau: float = 2.0
    bound: str = "sharp"  # or "affine", both Theorem A, or "paper", Theorem 4.1 for constant batches
    round_cost: float = 0.0
    multiple: int = 1

    @cached_property
    def unit(self) -> Self:
        """The same with batches counted in multiples of P."""
        return replace(self, sigma=self.sigma / sqrt(self.multiple), multiple=1)

    def A(self, N: Any) -> Any:
        """The part of the bound that vanishes with the horizon."""
        return self.D / (self.step_size * N)

    def room(self, eps: float, N: Any) -> Any:
        """How large the noise term may be at horizon N; negative if N is too short."""
        A = self.A(N)
        return eps * (eps - 2 * A) if self.bound == "sharp" else eps**2 - 4 * A**2

    def noise(self, N: Any) -> Any:
        """The noise term of one sample per round."""
        return (6.0 if self.bound == "paper" else 2 * weight_sum(N, self.tau)) * self.sigma**2

    def value(self, N: Any, W: Any) -> Any:
        """The bound itself, as a root mean square."""
        A = self.A(N)
        return A + np.sqrt(A**2 + W) if self.bound == "sharp" else np.sqrt(4 * A**2 + W)

    def shortest(self, eps: float) -> float:
        """The horizon c = 2D/(alpha eps) that must be exceeded when there is noise."""
        return 2 * self.D / (self.step_size * eps)

    def at_least(self, eps: float) -> int:
        """The smallest whole horizon that is not below `shortest`."""
        return max(2, ceil(self.shortest(eps) * (1 - 1e-15)))

    def stays(self, eps: float) -> bool:
        """Whether the start is good enough as it is."""
        return self.A(1) * 2 <= eps

    def staying(self) -> Run:
        """The run that stays at the start."""
        return Run(1, 1, 0, 2 * self.A(1))

    def cost(self, N: Any, B: Any) -> Any:
        """What a run with a constant batch costs."""
        return (N - 1) * (B + self.round_cost)
