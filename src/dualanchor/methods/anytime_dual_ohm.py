"""Dual-OHM that can be stopped at any moment: stages of doubling length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Estimator, State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import LARGEST, Schedule, whole
from dualanchor.core.types import Array
from dualanchor.estimators.minibatch import Minibatch
from dualanchor.methods.anchored import Anchored
from dualanchor.methods.running import Running
from dualanchor.theory import bounds
from dualanchor.theory.weights import root_sum

SHORTEST = 8
"""The shortest first stage: from here on the stages after it lose little by its noise."""


@dataclass(frozen=True)
class Doubling(Schedule):
    """Tapered batches in stages of length N_0, 2 N_0, 4 N_0, ..: stage j with scale C = b N_j^2 H_{N_j}."""

    scale: Any
    first: Any

    def locate(self, k: Any) -> tuple[Any, Any]:
        """The horizon of the stage that round k is in, and the round within it; k may be an array of rounds."""
        first = self.first
        if isinstance(k, int) and isinstance(first, int):
            j: Any = (k // first + 1).bit_length() - 1
        else:
            j = np.floor(np.log2(k / first + 1)).astype(np.int64)
        j = j + (k >= first * (2 ** (j + 1) - 1) - (j + 1))  # stage j begins with round N_0 (2^j - 1) - j
        return first * 2**j, k - (first * (2**j - 1) - j)

    def size(self, k: Any, horizon: Any) -> Any:
        N, inner = self.locate(k)
        if isinstance(N, int) and isinstance(self.scale, float):
            m = N - inner
            return min(LARGEST, max(1, ceil(_stage_scale(self.scale, N) / sqrt(m * (m - 1.0)))))
        m = np.asarray(N - inner, dtype=np.float64)
        return whole(_stage_scale.__wrapped__(self.scale, N) / np.sqrt(m * (m - 1.0)))


@lru_cache(maxsize=64)
def _stage_scale(b: Any, N: Any) -> Any:
    return b * np.asarray(N, dtype=np.float64) ** 2 * root_sum(N)


@dataclass(frozen=True)
class AnytimeDualOHM(Running, Anchored):
    r"""Dual-OHM in stages that double in length, for operators 1/L-cocoercive in expectation.

    Each stage starts where the one before ended, with tapered batches that grow with its length. The end of the last
    finished stage is what is returned, so the run may end at any moment and neither accuracy nor budget is needed in
    advance. Anytime.

    Update
    ------
    That of `DualOHM` in stages :math:`N_j = 2^j N_0`, k counted from the start of the stage, where z is 0 again:

    .. math:: z_{k+1} = \frac{(N_j-k-1) z_k - \alpha G_k}{N_j-k}, \quad y_{k+1} = y_k - \alpha G_k - z_{k+1}, \quad
        B_k = \max\left\{1, \left\lceil \frac{b N_j^2 H_{N_j}}{\sqrt{(N_j-k)(N_j-k-1)}} \right\rceil\right\}

    with :math:`\alpha` = `step_size`, b = `batch_scale`, :math:`N_0` = `first_stage`,
    :math:`H_N = \sum_{m=2}^N 1/\sqrt{m(m-1)} \approx \ln N`, and :math:`x = y_{N_j-1}` of the last finished stage.

    Guarantee
    ---------
    Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`, at the end of each stage:
    :math:`\mathbb E \|F(x)\|^2 \le (P_j + \sqrt{P_j^2 + 2\sigma^2/b})^2 / N_j^2` with :math:`P_j = D_j/\alpha`,
    :math:`D_0 = D` and :math:`D_{j+1}^2 = D_j^2 + \frac{\alpha^2\sigma^2}{2} \sum_k 1/B_k` over the rounds of stage
    j: in the number Q of samples :math:`O(\log^2 Q\,\log\log Q / Q)`, for any b. `stage_bounds` has the numbers.
    Not in the paper.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k; up to the end of stage j at most
    :math:`\frac43 b N_j^2 H_{N_j}^2 + 2N_j`.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L; 2/L by name.
    batch_scale : float
        b; :math:`\alpha^2\sigma^2/(4D^2)` by name, the best for equal batches. Ten times too much or too little costs
        about half as many samples again.
    first_stage : int
        :math:`N_0`, at least 8.

    Notes
    -----
    The running iterate is y. A row whose y leaves the finite numbers is found to have diverged when its stage ends.

    References
    ----------
    Built on Yoon and Loizou, Direct Acceleration of Stochastic Root-Finding Without Variance Reduction and
    Regularization; the stages are this library's.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=0.1)
    >>> ends = [da.solve(problem, "anytime-dual-ohm", budget=Q, reps=4).residual.mean() for Q in (100, 1000, 10000)]
    >>> ends == sorted(ends, reverse=True)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("batch_scale")
        self._require_count("first_stage")
        if np.min(self.first_stage) < SHORTEST:
            raise ArgumentError(
                f"{type(self).__name__}: first_stage must be at least {SHORTEST}",
                self.first_stage,
                f"Use first_stage={SHORTEST}",
            )

    @cached_property
    def schedule(self) -> Doubling:
        """Stages and batch sizes."""
        scale = self.batch_scale
        return Doubling(scale if isinstance(scale, np.ndarray) else float(scale), self.first_stage)

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return Minibatch(self.schedule)

    def init(self, x0: Array) -> State:
        s = super().init(x0)
        s.z = arrays.zeros_like(x0)
        return s

    def update(self, k: int, s: State, G: Array) -> None:
        alpha = self.step_size
        N, k = self.schedule.locate(k)
        s.z *= (N - k - 1) / (N - k) * (k > 0)  # each stage has an anchor of its own
        s.z -= alpha / (N - k) * G
        s.y -= alpha * G + s.z
        ended = k == N - 2
        if isinstance(ended, np.ndarray):  # of rows in stages of different lengths
            np.copyto(s.x, s.y, where=np.asarray(ended))
        elif ended:
            s.x = arrays.assign(s.x, s.y)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        known = problem.constants
        step = given.get("step_size", None if known.L is None else 2 / known.L)
        if step is None or "batch_scale" in given:
            return {"step_size": step}
        if missing := [name for name in ("sigma", "D") if getattr(known, name) is None]:
            raise ArgumentError(
                f"{cls.id}: batch_scale follows from sigma and D",
                f"problem {problem.name!r} without {' and '.join(missing)}",
                "Declare what is missing, or pass batch_scale; sigma^2 / |F(x0)|^2 is large enough",
            )
        assert known.D is not None
        assert known.sigma is not None
        best = (step * known.sigma / (2 * known.D)) ** 2 if known.D > 0 else 1.0
        return {"step_size": step, "batch_scale": max(best, float(np.finfo(float).tiny))}


class Stage(NamedTuple):
    """A stage of `AnytimeDualOHM`: its horizon, what has been spent at its end, and what is proved there.

    Attributes
    ----------
    horizon : int
        N of the stage.
    rounds, samples : int
        Rounds and samples from the start of the run to the end of the stage.
    D : float
        Root mean square distance from the start of the stage to a root, at most.
    bound : float
        Mean square of the residual at the end of the stage, at most.
    """

    horizon: int
    rounds: int
    samples: int
    D: float
    bound: float


def stage_bounds(method: AnytimeDualOHM, D: float, sigma: float, stages: int) -> list[Stage]:
    """What is proved at the ends of the first stages of a run from distance D with noise sigma per sample."""
    found: list[Stage] = []
    rounds = samples = 0
    for j in range(stages):
        N = int(method.first_stage) << j
        sizes = method.schedule.size(np.arange(rounds, rounds + N - 1), None)
        rounds, samples = rounds + N - 1, samples + int(sizes.sum())
        bound = float(bounds.anytime_stage(N, method.step_size, D, sigma, method.batch_scale))
        found.append(Stage(N, rounds, samples, D, bound))
        D = float(np.sqrt(bounds.drift_at_end(method.step_size, D, sigma, sizes)))
    return found
