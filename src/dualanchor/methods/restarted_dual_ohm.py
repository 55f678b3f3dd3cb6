"""Dual-OHM in stages: the same iteration, started anew where the one before ended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Estimator, State
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.schedule import Stages
from dualanchor.core.types import Array
from dualanchor.estimators.minibatch import Minibatch
from dualanchor.methods.anchored import Anchored
from dualanchor.theory.schedules import Run, Setting, restarts_for_accuracy


@dataclass(frozen=True)
class RestartedDualOHM(Anchored):
    r"""Dual-OHM restarted at the end of each of its stages, for operators with :math:`\mu > 0`.

    A stage divides the residual by a constant, so the number of stages grows with :math:`\log(1/\epsilon)` and the
    last of them decides the cost. Not anytime: all stages are fixed in advance, the guarantee is for their ends.

    Update
    ------
    That of `DualOHM` with the horizon N of the present stage and k counted from its start, where z is 0 again.

    Guarantee
    ---------
    Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`, :math:`\mathrm{dist}(x, \text{roots}) \le \|F(x)\|/\mu`: a
    stage that starts with root mean square residual r ends with at most :math:`A + \sqrt{A^2 + W}`,
    :math:`A = r/(\alpha\mu N)` and W of Theorem A. Tapered batches need about
    :math:`\frac{16}{3}\ln^2(4\kappa)\,\sigma^2/\epsilon^2` samples for accuracy :math:`\epsilon`. Not in the paper.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L.
    horizons : tuple of int
        N of each stage; a stage takes N - 1 steps.
    batch_sizes : tuple of (int, Schedule or list of int)
        Batch sizes of each stage.

    Notes
    -----
    Made by name for a budget, stages and batches are those of the smallest bound; that needs mu, sigma and D.

    References
    ----------
    Built on Yoon and Loizou, Direct Acceleration of Stochastic Root-Finding Without Variance Reduction and
    Regularization; the restarts are this library's.

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.05, L=1.0, mu=0.1, D=1.0, sigma=0.1)
    >>> result = da.solve(da.problems.affine(mu=0.1, sigma=0.1), plan.method())
    >>> int(result.nfev) == plan.samples, bool(result.residual < 0.1)
    (True, True)
    """

    step_size: Any
    horizons: Any
    batch_sizes: Any

    id = "restarted-dual-ohm"
    title = "Dual-OHM with restarts"
    citation = "yoon-loizou"
    step_rule = "Theorem A"
    anytime = False
    compared = False

    def __post_init__(self) -> None:
        for name in ("horizons", "batch_sizes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        super().__post_init__()
        _ = self.stages  # complains about lengths and sizes

    @cached_property
    def stages(self) -> Stages:
        """Horizons and batch sizes, stage by stage."""
        return Stages(self.horizons, self.batch_sizes)

    @cached_property
    def horizon(self) -> int:
        """One more than the steps of all stages."""
        return 1 + int(self.stages.starts[-1])

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return Minibatch(self.stages)

    def init(self, x0: Array) -> State:
        s = super().init(x0)
        s.z = arrays.zeros_like(x0)
        return s

    def update(self, k: int, s: State, G: Array) -> None:
        stage, k = self.stages.locate(k)
        N, alpha = self.horizons[stage], self.step_size
        s.z *= (N - k - 1) / (N - k) if k > 0 else 0.0  # each stage has an anchor of its own
        s.z -= alpha / (N - k) * G
        s.x -= alpha * G + s.z

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        if "horizons" in given and "batch_sizes" in given:
            return {"step_size": problem.step_size}
        known = problem.constants
        step = given.get("step_size", None if known.L is None else 2 / known.L)
        if budget is None or not known.mu or step is None or known.sigma is None or known.D is None:
            raise ArgumentError(
                f"{cls.id}: stages follow from a budget and from mu > 0, L, sigma and D",
                f"budget {budget} and {known}",
                "Pass horizons and batch_sizes, or a problem with these constants, or use dualanchor.plan",
            )
        runs = stages_for_budget(budget, step, known)
        return {
            "step_size": step,
            "horizons": tuple(run.horizon for run in runs),
            "batch_sizes": tuple(run.batch_size for run in runs),
        }


def stages_for_budget(budget: int, step_size: float, known: Constants) -> list[Run]:
    """Stages whose samples are within a budget, for the smallest accuracy that they can promise."""
    assert known.D is not None
    assert known.sigma is not None
    setting = Setting(step_size, known.D, known.sigma, step_size * known.L if known.L else 2.0)
    high = 2 * known.D / step_size * (1 - 1e-9)  # the start has it
    low, runs = high, restarts_for_accuracy(high, setting, known.mu)
    if sum(run.samples for run in runs) > budget:
        raise ArgumentError(
            "restarted-dual-ohm: the budget must pay for a first stage", budget, "Use a larger budget or s-dual-ohm"
        )
    while low > 1e-12 * high:
        low /= 4
        tried = restarts_for_accuracy(low, setting, known.mu)
        if sum(run.samples for run in tried) > budget:
            break
        high, runs = low, tried
    for _ in range(24):
        middle = (low * high) ** 0.5
        tried = restarts_for_accuracy(middle, setting, known.mu)
        if sum(run.samples for run in tried) <= budget:
            high, runs = middle, tried
        else:
            low = middle
    return runs
