"""Halpern-VR-Finite: Halpern's method with variance reduction for finite sums."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np

from dualanchor.core.method import Cost, Estimator, State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows
from dualanchor.estimators.page import PAGE
from dualanchor.methods._bases import LimitedStep, OfFiniteSum, RemembersStart


@dataclass(frozen=True)
class _FullPassPAGE(PAGE):
    """PAGE whose fresh estimate is a pass over all n components, with the source's probabilities."""

    needs: ClassVar[frozenset[str]] = frozenset({"replay", "full-pass"})

    def probability(self, k: Any) -> Any:
        k, root = np.asarray(k), sqrt(self.big_batch)
        late = np.where(k - 1 <= root, 4.0 / (k + 4.0), 4.0 / (root + 5.0))
        return np.where(k <= 1, 1.0, np.minimum(1.0, late))

    def cost(self, k: Any, horizon: Any, coin: Any) -> Cost:
        return Cost(np.where(coin, 0, self.small_batch), np.where(coin, self.big_batch, 2 * self.small_batch))

    def fresh(self, F: Session, x: Array, rows: Rows) -> Array:
        return F(x, F.full_batch())


@dataclass(frozen=True)
class HalpernVRFinite(OfFiniteSum, RemembersStart, LimitedStep):
    r"""Halpern iteration with recursive variance reduction for finite sums of n cocoercive operators.

    Anytime. A round takes n evaluations and no draws, or b draws and 2b evaluations: the budget must be many times n.
    Cai, Alacaoglu, Diakonikolas 2024, Algorithm 1.

    .. math:: u_{k+1} = \lambda_k u_0 + (1 - \lambda_k) u_k - \eta G_k, \qquad \lambda_k = \frac{2}{k+4}

    with :math:`\eta` = `step_size`. :math:`G_k` is that of `PAGE` with full passes: both first rounds, then with
    probability :math:`4/(k+4)` while :math:`k - 1 \le \sqrt n`, then :math:`4/(\sqrt n + 5)`.

    Guarantee: :math:`\tilde O(n + \sqrt n\, \epsilon^{-1})` evaluations, last iterate, :math:`\eta = 1/(4L)`.

    Parameters
    ----------
    step_size : float, at most 1/(4L)
    components : int, n
    small_batch : int, optional, b; None stands for :math:`\lceil \sqrt n \rceil`

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.finite_sum_cocoercive(components=25, dimension=10, rank=9)
    >>> da.solve(problem, "halpern-vr-finite", budget=1000).nfev <= 1000
    True
    """

    step_size: Any
    components: Any
    small_batch: Any = None

    id = "halpern-vr-finite"
    title = "Halpern-VR-Finite, variance-reduced Halpern for finite sums"
    citation = "halpern-vr-finite"
    step_rule = "Cai et al. 2024"
    longest = (0.25, "L", "1/(4L)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.small_batch is not None:
            self.require_counts("small_batch")

    @cached_property
    def estimator_in_use(self) -> Estimator:
        b = ceil(sqrt(self.components)) if self.small_batch is None else self.small_batch
        return _FullPassPAGE(self.components, b)

    def update(self, k: int, s: State, G: Array) -> None:
        weight = 2 / (k + 4)
        s.x *= 1 - weight
        s.x += weight * s.anchor - self.step_size * G

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        return {**super().defaults(problem, budget, given), "step_size": cls.step_for(problem, given)}
