"""RAIN in the double-loop form that its theorem is about."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session
from dualanchor.core.types import Array
from dualanchor.methods._bases import TwoCall, lipschitz, set_tuples
from dualanchor.theory.schedules.rain import Loops, RAINEpoch, loops_for_budget


@dataclass(frozen=True)
class RAINDoubleLoop(TwoCall):
    r"""Recursive anchored iteration with Epoch-SEG as its inner loop, for monotone Lipschitz operators.

    Each stage adds a pull towards the point where the one before ended. Not anytime: all loops are fixed in advance.
    Chen and Luo 2024.

    Stage s = 0, 1, .. starts from :math:`z_s` and takes extragradient steps as in `SEG` on

    .. math:: F^{(s)}(z) = F(z) + \sum_{i \le s} \lambda_i (z - z_i), \qquad \lambda_i = 2^i \lambda, \qquad
        M_s = M + \sum_{i \le s} \lambda_i,

    first :math:`N_s` epochs of :math:`T_s` steps of :math:`1/(4M_s)`, then epochs r = 1 .. :math:`K_s` of
    :math:`2^{r+1} T_s` steps of :math:`1/(2^{r+2}M_s)`; the mean of an epoch's half steps starts the next.

    Guarantee: :math:`\tilde O(\epsilon^{-2})` samples with the loops of `theory.schedules.loops_for_accuracy`, which
    `theory.schedules.rain_samples` counts; none for others.

    Parameters
    ----------
    step_size : float, 1/(4M); no rule is enforced, as for `RAIN`
    anchor_weight : float, :math:`\lambda`
    lengths, epochs, halvings : tuple of int, :math:`T_s, N_s, K_s`, one per stage
    batch_size : int; per operator call

    Notes
    -----
    The source starts each epoch from a random iterate of the one before. A merely monotone F gets its first pull as
    stage 0. By name, for a budget Q: :math:`\lambda = M/2^S`, :math:`T_s = \lceil 8M_s/\lambda_s \rceil`, three epochs
    (or what Q allows) in each of S stages, the most that cost at most Q/4, then as many halvings as fit.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), "rain-double-loop", budget=5000, seed=1)
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
    positive = ("step_size", "anchor_weight")

    def __post_init__(self) -> None:
        set_tuples(self, "lengths", "epochs", "halvings")
        for name, least in (("lengths", 1), ("epochs", 1), ("halvings", 0)):
            values, stages = getattr(self, name), len(self.lengths)
            if not values or len(values) != stages or not all(isinstance(n, int) and n >= least for n in values):
                rule = f"{type(self).__name__}: {name} must be ints >= {least}, one per stage"
                remedy = "Pass lengths, epochs and halvings with one entry for each stage"
                raise ArgumentError(rule, f"{values} for {stages} lengths", remedy)
        super().__post_init__()

    @cached_property
    def plan(self) -> list[RAINEpoch]:
        """All epochs in order."""
        return Loops(self.anchor_weight, self.lengths, self.epochs, self.halvings).plan

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(epoch.length for epoch in self.plan))

    @cached_property
    def horizon(self) -> int:
        """One more than the steps of all epochs."""
        return 1 + self._ends[-1]

    def init(self, x0: Array) -> State:
        return State(x=arrays.copy(x0), mean=arrays.copy(x0), centre=arrays.copy(x0))

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        G, number = self.first_call(k, s.x, F), bisect_right(self._ends, k)
        epoch, t = self.plan[number], k - self._ends[number] + self.plan[number].length
        pull = self.anchor_weight * (2 ** (epoch.stage + 1) - 1)  # the sum of all lambda_i, towards their mean
        eta = epoch.factor * self.step_size / (1 + 4 * self.step_size * pull)
        half = s.x - eta * (G + pull * (s.x - s.centre))
        move = eta * (self.second_call(k, half, F) + pull * (half - s.centre))
        s.mean += (half - s.mean) / (t + 1)
        s.x -= move
        if t + 1 == epoch.length:
            s.x = arrays.assign(s.x, s.mean)
            if epoch.last:  # z_{s+1} joins the anchors with the weight 2^(s+1) of the sum 2^(s+2) - 1
                s.centre += 2 ** (epoch.stage + 1) / (2 ** (epoch.stage + 2) - 1) * (s.x - s.centre)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        step: Any = given.get("step_size")
        M = lipschitz(problem.constants) or (None if step is None else 1 / (4 * step))
        if M is None:
            return {"step_size": None}
        chosen = {"step_size": 1 / (4 * M)}
        if {"lengths", "epochs", "halvings"} <= given.keys():
            return {**chosen, "anchor_weight": M / 2 ** len(tuple(given["lengths"]))}
        if budget is None:
            remedy = "Pass one, or lengths, epochs and halvings, perhaps those of loops_for_accuracy"
            raise ArgumentError(f"{cls.id}: loop lengths follow from a budget", "no budget", remedy)
        return {**chosen, **loops_for_budget(budget, M, given.get("batch_size", 1))._asdict()}
