"""Halpern-PAGE: Halpern's step with the PAGE estimator."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dualanchor.core.method import Estimator
from dualanchor.core.problem import Problem
from dualanchor.estimators.page import PAGE
from dualanchor.methods.ohm import HalpernStep


@dataclass(frozen=True)
class HalpernPAGE(HalpernStep):
    r"""Stochastic Halpern iteration with PAGE variance reduction for operators cocoercive in expectation.

    `OHM` with the estimator :math:`v_k` of `PAGE(big_batch, small_batch)`, for replayable oracles. Anytime. A round
    takes `big_batch` samples, or `small_batch` evaluated twice. Cai, Song, Guzmán, Diakonikolas 2022.

    .. math:: x_{k+1} = \frac{1}{k+2} x_0 + \frac{k+1}{k+2} (x_k - \alpha v_k)

    Guarantee: :math:`O(\epsilon^{-3})` samples for the last iterate with batch sizes that follow
    :math:`\|x_k - x_{k-1}\|` (Cai et al. 2022). None known for the constant sizes of the paper's experiments.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 2/L
    big_batch, small_batch : int
    horizon : int, optional; the method stops after horizon - 1 steps

    Examples
    --------
    >>> import dualanchor as da
    >>> da.solve(da.problems.affine(sigma=0.1), da.HalpernPAGE(1.0, big_batch=20), budget=1000).nfev <= 1000
    True
    """

    step_size: Any
    big_batch: Any = 10
    small_batch: Any = 1
    horizon: Any = None

    id = "halpern-page"
    title = "Halpern-PAGE, Halpern's method with variance reduction"
    citation = "halpern-page"
    counts = ("big_batch", "small_batch")
    kind: ClassVar[type[PAGE]] = PAGE

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return self.kind(self.big_batch, self.small_batch)

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        return {"big_batch": cls._batches_to_try(budget), "small_batch": [1, 5, 10, 20]}
