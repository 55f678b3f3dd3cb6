"""The loops of RAIN with Epoch-SEG (Chen, Luo 2024), for an accuracy or for a budget."""

from math import ceil, floor, log2
from typing import Any, NamedTuple


class Epoch(NamedTuple):
    """Steps of the same length, `factor` times the stage's first."""

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
    def plan(self) -> list[Epoch]:
        """All epochs in order."""
        found = []
        for stage, (T, N, K) in enumerate(zip(*self[1:], strict=True)):
            both = [(T, 1.0)] * N + [(2 ** (r + 1) * T, 0.5**r) for r in range(1, K + 1)]
            found += [Epoch(stage, length, factor, i == N + K) for i, (length, factor) in enumerate(both, start=1)]
        return found

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return sum(epoch.length for epoch in self.plan)


def loops_for_accuracy(eps: float, M: float, D: float, sigma: float) -> Loops:
    r"""Loops that end with a root mean square residual of at most eps, for a merely monotone operator.

    The source plans the pulled operator for some accuracy e and ends at 3e for F: hence e = eps/3. Stage s may end at a
    mean square distance of :math:`e^2/(16 S \lambda_s)^2`; half of it is for the
    :math:`8\sigma^2/(2^{K_s}\lambda_sM_s)` that its noise leaves.
    """
    e = eps / 3
    weight = min(e / D, M)
    S = max(1, floor(log2(M / weight)))
    first = max(1, ceil(log2(512 * (weight * S * D / e) ** 2)))
    sums = [M + weight * (2 ** (s + 1) - 1) for s in range(S)]
    room = [4096 * 2**s * weight * (S * sigma / e) ** 2 / M_s for s, M_s in enumerate(sums)]
    return _loops(M, weight, (first, *[3] * (S - 1)), tuple(ceil(log2(max(1.0, one))) for one in room))


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
    sums = [M + weight * (2 ** (s + 1) - 1) for s in range(len(epochs))]
    return Loops(weight, tuple(ceil(8 * M_s / (weight * 2**s) - 1e-9) for s, M_s in enumerate(sums)), epochs, halvings)
