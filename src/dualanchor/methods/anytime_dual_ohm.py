"""Dual-OHM that can be stopped at any moment: stages of doubling length."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Tapered
from dualanchor.core.session import Session
from dualanchor.core.staged import Stage, Staged
from dualanchor.core.types import Array, IntArray
from dualanchor.methods._bases import LimitedStep, required
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.theory.weights import root_sum

SHORTEST = 8  # first stage: from here on the stages after it lose little by its noise


@dataclass(frozen=True)
class AnytimeDualOHM(Staged, LimitedStep):
    r"""Dual-OHM in stages that double in length, for operators 1/L-cocoercive in expectation.

    Each stage starts where the one before ended; the end of the last finished stage is returned. Anytime.
    Stages up to j take at most :math:`\frac43 b N_j^2 H_{N_j}^2 + 2N_j` samples.

    The update of `DualOHM`, restarted in stages of horizon :math:`N_j = 2^j N_0` with batches `Tapered(C)`,
    :math:`C = b N_j^2 H_{N_j}`, :math:`H_N = \sum_{m=2}^N 1/\sqrt{m(m-1)} \approx \ln N`, b = `batch_scale` and
    :math:`N_0` = `first_stage`.

    Guarantee under Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`, at the end of each stage:
    :math:`\mathbb E \|F(x)\|^2 \le (P_j + \sqrt{P_j^2 + 2\sigma^2/b})^2 / N_j^2` with :math:`P_j = D_j/\alpha`,
    :math:`D_0 = D` and :math:`D_{j+1}^2 = D_j^2 + \frac{\alpha^2\sigma^2}{2} \sum_k 1/B_k` over the rounds of stage
    j: in the number Q of samples :math:`O(\log^2 Q\,\log\log Q / Q)`, for any b. Not in the paper.

    Parameters
    ----------
    step_size : float, at most 2/L; 2/L by name
    batch_scale : float, b; :math:`\alpha^2\sigma^2/(4D^2)` by name; ten times off costs about half as much again
    first_stage : int, at least 8

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), "anytime-dual-ohm", budget=10_000)
    >>> bool(result.residual < 0.02)
    True
    """

    step_size: Any
    batch_scale: Any
    first_stage: Any = SHORTEST

    id = "anytime-dual-ohm"
    title = "Anytime Dual-OHM, stages of doubling length"
    citation = "yoon-loizou"
    step_rule = "Theorem A"
    compared = False
    positive = ("step_size", "batch_scale")
    counts = ("first_stage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.min(self.first_stage) < SHORTEST:
            rule = f"{type(self).__name__}: first_stage must be at least {SHORTEST}"
            raise ArgumentError(rule, self.first_stage, f"Use first_stage={SHORTEST}")

    def batches(self, horizon: int) -> Tapered:
        """The batch sizes of the stage with this horizon."""
        return Tapered(float(self.batch_scale) * horizon**2 * float(root_sum(horizon)))

    def stage(self, number: int, memory: State) -> Stage:
        N = int(self.first_stage) << number
        method = DualOHM(self.step_size, N, self.batches(N))
        return Stage(method, method.init(memory.x), N - 1)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        memory.x = s.x
        return np.full(len(s.x), number + 1)

    def point(self, number: int, memory: State, s: State) -> Array:
        return memory.x  # the end of the last finished stage

    def steps_within(self, budget: int) -> int:
        steps, N = 0, int(self.first_stage)
        while (spent := int(np.sum(self.batches(N).size(np.arange(N - 1), N)))) <= budget:
            steps, budget, N = steps + N - 1, budget - spent, 2 * N
        return steps + int(np.searchsorted(np.cumsum(self.batches(N).size(np.arange(N - 1), N)), budget, side="right"))

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        step = cls.step_for(problem, given)
        if step is None or "batch_scale" in given:
            return {"step_size": step}
        rule = "batch_scale follows from sigma and D"
        remedy = "Declare what is missing, or pass batch_scale; sigma^2 / |F(x0)|^2 is large enough"
        sigma, D = required(cls, problem, rule, remedy, sigma=problem.constants.sigma, D=problem.constants.D)
        best = (step * sigma / (2 * D)) ** 2 if D > 0 else 1.0
        return {"step_size": step, "batch_scale": max(best, check.SMALLEST)}
