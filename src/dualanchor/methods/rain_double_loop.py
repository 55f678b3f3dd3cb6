"""RAIN in the double-loop form that its theorem is about."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, log2
from typing import Any, NamedTuple

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Cost, State
from dualanchor.core.oracle import Session
from dualanchor.core.problem import Problem
from dualanchor.core.types import Array
from dualanchor.methods.extragradient import TwoCall
from dualanchor.methods.lipschitz import lipschitz


class Epoch(NamedTuple):
    """A number of steps of one length in one stage; `last` of its stage or not."""

    stage: int
    length: int
    factor: float
    last: bool


class Loops(NamedTuple):
    """The loop lengths of a run: anchor weight, and per stage epoch length, epochs and halvings."""

    anchor_weight: float
    lengths: tuple[int, ...]
    epochs: tuple[int, ...]
    halvings: tuple[int, ...]

    @property
    def steps(self) -> int:
        """Steps of all epochs; each costs two operator calls."""
        stages = zip(self.lengths, self.epochs, self.halvings, strict=True)
        return sum(T * (N + sum(2 ** (r + 2) for r in range(1, K + 1))) for T, N, K in stages)


@dataclass(frozen=True)
class RAINDoubleLoop(TwoCall):
    r"""Recursive anchored iteration with Epoch-SEG as its inner loop, for monotone Lipschitz operators.

    Each stage adds a pull towards the point where the one before ended, twice as strong as the last, and solves what
    comes out of it by epochs of stochastic extragradient; the mean of an epoch is the start of the next. Not anytime:
    all loop lengths are fixed in advance.

    Update
    ------
    Stage s = 0, 1, .. works on

    .. math:: F^{(s)}(z) = F(z) + \sum_{i \le s} \lambda_i (z - z_i), \qquad \lambda_i = 2^i \lambda,

    with :math:`z_s` its start, by steps :math:`z_{t+1/2} = z_t - \eta \hat F^{(s)}(z_t)`,
    :math:`z_{t+1} = z_t - \eta \hat F^{(s)}(z_{t+1/2})`: first :math:`N_s` epochs of :math:`T_s` steps with
    :math:`\eta = 1/(4M_s)`, then epochs r = 1 .. :math:`K_s` of :math:`2^{r+2} T_s` steps with
    :math:`\eta = 1/(2^{r+3}M_s)`, where :math:`M_s = M + \sum_{i \le s} \lambda_i`, 1/(4M) = `step_size`,
    :math:`\lambda` = `anchor_weight`, :math:`T_s` = `lengths`, :math:`N_s` = `epochs` and :math:`K_s` = `halvings`.

    Guarantee
    ---------
    :math:`\tilde O(\epsilon^{-2})` samples for the last stage's end (Chen and Luo 2024), with the loop lengths of
    `loops_for_accuracy`; see the notes. None known for the loop lengths that a budget implies.

    Cost
    ----
    2B draws and 2B evaluations per step.

    Parameters
    ----------
    step_size : float
        1/(4M). No rule is enforced, as for `RAIN`.
    anchor_weight : float
        :math:`\lambda`.
    lengths, epochs, halvings : tuple of int
        :math:`T_s`, :math:`N_s` and :math:`K_s` of each stage.
    batch_size : int
        Samples per operator call.

    Notes
    -----
    The index convention of the later epochs is not confirmed: the source may begin with steps of :math:`1/(8M_s)`. The
    source starts each epoch from a random iterate of the one before; here it is the mean of its half steps. A merely
    monotone F gets its first pull, :math:`\lambda(z - z_0)`, as stage 0 of the sum.

    By name, for a budget Q: :math:`\lambda = M/2^S`, :math:`T_s = \lceil 8M_s/\lambda_s \rceil`, three epochs in each
    of S stages with the largest S for which these cost at most Q/4, then the largest number of halvings, the same for
    all stages, that fits. Budgets too small for three epochs of one stage have fewer.

    References
    ----------
    Chen and Luo 2024.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=0.1)
    >>> result = da.solve(problem, "rain-double-loop", budget=5000, seed=1)
    >>> result.status.name, bool(result.residual < 0.1)
    ('HORIZON', True)
    """

    step_size: Any
    anchor_weight: Any
    lengths: Any
    epochs: Any
    halvings: Any
    batch_size: Any = 1

    id = "rain-double-loop"
    title = "RAIN, recursive anchored iteration, double loop"
    citation = "rain"
    anytime = False
    compared = False

    def __post_init__(self) -> None:
        self._require_positive("anchor_weight")
        for name, least in (("lengths", 1), ("epochs", 1), ("halvings", 0)):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or not all(isinstance(value, int) and value >= least for value in values):
                raise ArgumentError(
                    f"{type(self).__name__}: {name} must be ints >= {least}, one per stage", values, f"Mend {name}"
                )
        if not len(self.lengths) == len(self.epochs) == len(self.halvings):
            raise ArgumentError(
                f"{type(self).__name__}: lengths, epochs and halvings must have one entry per stage",
                f"{len(self.lengths)}, {len(self.epochs)} and {len(self.halvings)} entries",
                "Give as many of each",
            )
        super().__post_init__()

    @cached_property
    def plan(self) -> list[Epoch]:
        """All epochs in order."""
        found = []
        for stage, (T, N, K) in enumerate(zip(self.lengths, self.epochs, self.halvings, strict=True)):
            both = [(T, 1.0)] * N + [(2 ** (r + 2) * T, 0.5 ** (r + 1)) for r in range(1, K + 1)]
            found += [Epoch(stage, length, factor, i == N + K) for i, (length, factor) in enumerate(both, start=1)]
        return found

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(epoch.length for epoch in self.plan)]

    @cached_property
    def horizon(self) -> int:
        """One more than the steps of all epochs."""
        return 1 + self._starts[-1]

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), mean=arrays.copy(x0), centre=arrays.copy(x0))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        if k >= self.horizon - 1:
            raise self._past_horizon(k)
        number = bisect_right(self._starts, k) - 1
        epoch, t = self.plan[number], k - self._starts[number]
        pull = self.anchor_weight * (2 ** (epoch.stage + 1) - 1)  # the sum of all lambda_i, towards their mean
        eta = epoch.factor * self.step_size / (1 + 4 * self.step_size * pull)
        half = s.x - eta * (F(s.x, F.draw(self.batch(k))) + pull * (s.x - s.centre))
        move = eta * (F(half, F.draw(self.batch(k))) + pull * (half - s.centre))
        s.mean += (half - s.mean) / (t + 1)
        s.x -= move
        if t + 1 == epoch.length:
            s.x = arrays.assign(s.x, s.mean)
            if epoch.last:  # z_{s+1} joins the anchors with the weight 2^(s+1) of the sum 2^(s+2) - 1
                s.centre += 2 ** (epoch.stage + 1) / (2 ** (epoch.stage + 2) - 1) * (s.x - s.centre)

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return self.twice(k)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        M, step = lipschitz(problem.constants), given.get("step_size")
        if M is None:
            if step is None:
                return {"step_size": None}
            M = 1 / (4 * step)
        chosen = {"step_size": 1 / (4 * M)}
        if {"lengths", "epochs", "halvings"} <= given.keys():
            return {**chosen, "anchor_weight": M / 2 ** len(tuple(given["lengths"]))}
        if budget is None:
            raise ArgumentError(
                f"{cls.id}: loop lengths follow from a budget",
                "no budget",
                "Pass one, or lengths, epochs and halvings, perhaps those of loops_for_accuracy",
            )
        return {**chosen, **loops_for_budget(budget, M, given.get("batch_size", 1))._asdict()}


def loops_for_accuracy(eps: float, M: float, D: float, sigma: float) -> Loops:
    """The source's loop lengths for a mean residual of at most eps, for a merely monotone operator."""
    weight = min(eps / D, M)
    S = max(1, floor(log2(M / weight)))
    first = max(1, ceil(log2(512 * (weight * S * D / eps) ** 2)))
    halvings = []
    for s in range(S):
        ratio = 2048 * 2**s * weight * (S * sigma / eps) ** 2 / M
        halvings.append(max(0, ceil(log2(ratio))) if ratio > 0 else 0)
    return Loops(weight, _lengths(M, weight, S), (first, *[3] * (S - 1)), tuple(halvings))


def loops_for_budget(budget: int, M: float, batch_size: Any = 1) -> Loops:
    """Loop lengths whose cost is within a budget, as the notes of `RAINDoubleLoop` say."""
    steps = budget // (2 * (batch_size if isinstance(batch_size, int) else 1))

    def loops(S: int, epochs: int, halvings: int) -> Loops:
        weight = M / 2**S
        return Loops(weight, _lengths(M, weight, S), (epochs,) * S, (halvings,) * S)

    S = 1
    while loops(S + 1, 3, 0).steps <= steps // 4:
        S += 1
    if loops(S, 3, 0).steps > steps:
        return loops(1, max(1, steps // loops(1, 1, 0).steps), 0)
    halvings = 0
    while loops(S, 3, halvings + 1).steps <= steps:
        halvings += 1
    return loops(S, 3, halvings)


def _lengths(M: float, weight: float, stages: int) -> tuple[int, ...]:
    return tuple(ceil(8 * (M + weight * (2 ** (s + 1) - 1)) / (weight * 2**s) - 1e-9) for s in range(stages))
