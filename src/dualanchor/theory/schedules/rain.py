"""The loops of RAIN with Epoch-SEG (Chen, Luo 2024), for an accuracy or within a budget."""

from math import ceil, floor, log2
from typing import Any, NamedTuple


class RAINEpoch(NamedTuple):
    """Steps of one epoch, of size `factor` times the first of the stage; `last` of the stage or not."""

    stage: int
    length: int
    factor: float
    last: bool


class Loops(NamedTuple):
    """The loops of a run: anchor weight, and per stage epoch length, epochs and halvings."""

    anchor_weight: float
    lengths: tuple[int, ...]
    epochs: tuple[int, ...]
    halvings: tuple[int, ...]

    @property
    def plan(self) -> list[RAINEpoch]:
        """All epochs in order."""
        plan = []
        for stage, (T, N, K) in enumerate(zip(self.lengths, self.epochs, self.halvings, strict=True)):
            epochs = [(T, 1.0)] * N + [(2 ** (r + 1) * T, 0.5**r) for r in range(1, K + 1)]
            plan += [RAINEpoch(stage, length, factor, i == N + K) for i, (length, factor) in enumerate(epochs, start=1)]
        return plan

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return sum(epoch.length for epoch in self.plan)


def loops_for_accuracy(eps: float, M: float, D: float, sigma: float) -> Loops:
    r"""Loops that end with a root mean square residual of at most eps, for a merely monotone operator.

    The source plans the regularised operator for an accuracy e and proves 3e for F: hence e = eps/3. Stage s may end at
    a mean square distance of :math:`e^2/(16 S \lambda_s)^2`, half of which is for the noise term
    :math:`8\sigma^2/(2^{K_s}\lambda_sM_s)`.
    """
    e = eps / 3
    weight = min(e / D, M)
    S = max(1, floor(log2(M / weight)))
    first = max(1, ceil(log2(512 * (weight * S * D / e) ** 2)))
    noise_factors = [
        4096 * 2**s * weight * (S * sigma / e) ** 2 / M_s for s, M_s in enumerate(_lipschitz(M, weight, S))
    ]
    halvings = tuple(ceil(log2(max(1.0, factor))) for factor in noise_factors)
    return _loops(M, weight, (first, *[3] * (S - 1)), halvings)


def rain_samples(eps: float, M: float, D: float, sigma: float) -> int:
    """Certified samples of RAIN's double loop, two per step; none where x0 is good enough."""
    return 0 if eps >= M * D else 2 * loops_for_accuracy(eps, M, D, sigma).steps


def loops_for_budget(budget: int, M: float, batch_size: Any = 1) -> Loops:
    """Loops within a budget: S stages of three epochs that cost at most a quarter, then as many halvings as fit."""
    steps = budget // (2 * (batch_size if isinstance(batch_size, int) else 1))

    def loops(S: int, epochs: int, halvings: int) -> Loops:
        return _loops(M, M / 2**S, (epochs,) * S, (halvings,) * S)

    S, halvings = 1, 0
    while loops(S + 1, 3, 0).steps <= steps // 4:
        S += 1
    if loops(S, 3, 0).steps > steps:
        return loops(1, max(1, steps // loops(1, 1, 0).steps), 0)
    while loops(S, 3, halvings + 1).steps <= steps:
        halvings += 1
    return loops(S, 3, halvings)


def _loops(M: float, weight: float, epochs: tuple[int, ...], halvings: tuple[int, ...]) -> Loops:
    constants = _lipschitz(M, weight, len(epochs))
    lengths = tuple(ceil(8 * M_s / (weight * 2**s) - 1e-9) for s, M_s in enumerate(constants))
    return Loops(weight, lengths, epochs, halvings)


def _lipschitz(M: float, weight: float, stages: int) -> list[float]:
    """The Lipschitz constant of the regularised operator in each stage."""
    return [M + weight * (2 ** (s + 1) - 1) for s in range(stages)]
