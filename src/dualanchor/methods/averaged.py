"""Averaged SGDA: the plain iteration, of which the mean is returned."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Estimator, State
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import as_schedule
from dualanchor.core.types import Array
from dualanchor.estimators.minibatch import Minibatch
from dualanchor.methods.running import Running
from dualanchor.methods.sgda import SGDA

WEIGHTS = ("linear", "uniform")


def share(k: int, weights: str) -> float:
    """The part of the newest of k iterates in their mean: 2/(k+1) if they weigh 1, 2, .., k, and 1/k if equally."""
    return 2 / (k + 1) if weights == "linear" else 1 / k


def check_weights(weights: Any, owner: str) -> None:
    """Raise unless the weights are known by this name."""
    if weights not in WEIGHTS:
        raise ArgumentError(
            f"{owner}: weights must be one of {', '.join(WEIGHTS)}", repr(weights), "Use weights='linear'"
        )


@dataclass(frozen=True)
class AveragedSGDA(Running):
    r"""Averaged stochastic gradient descent-ascent, at its best on operators that are nearly affine.

    Plain steps of constant length, one sample each; what is returned is the mean of all iterates, in which their noise
    cancels. Anytime, and nothing to tune but the step. Where the operator bends within the reach of the noise the mean
    keeps a bias, and `DualOHM` is better.

    Update
    ------
    .. math:: y_{k+1} = y_k - \alpha F_{B_k}(y_k), \qquad
        x_n = \frac{\sum_{k=1}^n w_k y_k}{\sum_{k=1}^n w_k}, \qquad w_k = k \ \text{or}\ 1

    with :math:`\alpha` = `step_size`, :math:`B_k` from `batch_size` and :math:`w_k` by `weights`; kept as
    :math:`x_k = x_{k-1} + \frac{2}{k+1}(y_k - x_{k-1})`, or :math:`\frac1k` for equal weights.

    Guarantee
    ---------
    Affine F, :math:`T = I - \alpha F` nonexpansive (:math:`0 < \alpha \le 2/L`), Assumption 3.1, batches of size B,
    every n: :math:`\mathbb E \|F(x_n)\|^2 \le 16D^2/(\alpha^2 n^2) + 16\sigma^2/(nB)`, with equal weights 4 and 4. Not
    in the paper. None known for other operators.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`. No rule is enforced, as for `SGDA`.
    batch_size : int, Schedule or list of int
        Samples per step.
    weights : "linear" or "uniform"
        Whether iterate k has weight k, which forgets the start sooner, or all have the same.

    Notes
    -----
    The bound: :math:`F(x_n) = \sum_k w_k F(y_k)` with weights that sum to 1, in which the error of round j has the
    coefficient :math:`(I-T)\sum_{k>j} w_k T^{k-j-1}`. Summed by parts its norm is at most :math:`2w_n`, and so is
    that of :math:`\alpha^{-1}(y_0 - x_\star)`; errors of different rounds are uncorrelated, and :math:`w_n = 2/(n+1)`
    or 1/n.

    The mean begins with the first iterate, not with the start. Without a given step the default is min(the problem's
    step, 1/L).

    References
    ----------
    Polyak and Juditsky 1992; Bach and Moulines 2013.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=1.0)
    >>> plain, mean = (da.solve(problem, name, budget=5000) for name in ("sgda", "averaged"))
    >>> bool(mean.residual < plain.residual / 5)
    True
    """

    step_size: Any
    batch_size: Any = 1
    weights: str = "linear"

    id = "averaged"
    title = "Averaged SGDA, the mean of plain iterates"
    citation = "polyak-juditsky"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_schedule(self.batch_size, type(self).__name__)
        check_weights(self.weights, type(self).__name__)

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return Minibatch(self.batch_size)

    def update(self, k: int, s: State, G: Array) -> None:
        s.y -= self.step_size * G
        s.x += share(k + 1, self.weights) * (s.y - s.x)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        return SGDA.defaults(problem, budget, given)

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        return {"step_size": cls._steps_to_try(problem)}
