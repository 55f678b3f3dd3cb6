"""OC-Halpern, the optimal Halpern method for contractions, and Dual-OC-Halpern, its H-dual."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.rowwise import number
from dualanchor.core.types import Array
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.ohm import OHM
from dualanchor.theory.bounds import contraction


def anchor_weight(k: Any, factor: Any) -> Any:
    r"""The anchor's weight :math:`1/\varphi_k`, :math:`\varphi_k = \sum_{i=0}^k \gamma^{-2i}`, gamma the factor."""
    rate = np.maximum(-2 * np.log(factor), 1e-30)  # so small a rate gives 1/(k+1) to rounding
    return number(np.exp(-k * rate) * np.expm1(-rate) / np.expm1(-(k + 1) * rate))


class Contractive(Method):
    """A method for maps T with Lipschitz constant `contraction`, by default what the problem's constants imply."""

    positive = ("step_size", "contraction")
    contraction: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if (largest := np.max(self.contraction)) > 1:
            rule = f"{type(self).__name__}: contraction must be at most 1"
            raise ArgumentError(rule, largest, "Use 1.0 for a map that is merely nonexpansive")

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        chosen, known = super().defaults(problem, budget, given), problem.constants
        step = given.get("step_size", problem.step_size)
        square = 1.0 if step is None or known.L is None else contraction(step, known.L, known.mu)
        return {**chosen, "contraction": sqrt(min(1.0, max(1e-12, square)))}


@dataclass(frozen=True)
class OCHalpern(Contractive, OHM):
    r"""Optimal Halpern method for contractive :math:`T = I - \alpha F`, as strongly monotone operators have it.

    Halpern's step with an anchor that fades geometrically. Anytime. With samples it is experimental.
    Park and Ryu 2022.

    .. math:: x_{k+1} = \frac{1}{\varphi_{k+1}} x_0 + \Bigl(1 - \frac{1}{\varphi_{k+1}}\Bigr)
        \bigl(x_k - \alpha F_{B_k}(x_k)\bigr), \qquad \varphi_k = \sum_{i=0}^k \gamma^{-2i}

    Guarantee without noise, T with Lipschitz constant :math:`\gamma`, every N:
    :math:`\|x_{N-1} - Tx_{N-1}\| \le (1+\gamma) D / \sum_{i<N} \gamma^{-i}`. None known with samples.

    Parameters
    ----------
    step_size, horizon, batch_size, estimator : as for `OHM`
    contraction : float, :math:`\gamma` in (0, 1]; by name :math:`\sqrt{1 - \alpha\mu(2 - \alpha L)}`; 1 gives `OHM`

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(mu=0.1, sigma=0.0), "oc-halpern", budget=100)
    >>> bool(result.residual < 0.01)
    True
    """

    contraction: Any = 1.0

    id = "oc-halpern"
    title = "OC-Halpern, Halpern's method for contractions (experimental with samples)"
    citation = "oc-halpern"
    compared = False

    def update(self, k: int, s: State, G: Array) -> None:
        alpha, weight = self.step_size, anchor_weight(k + 1, self.contraction)
        s.x -= alpha * G
        s.x *= 1 - weight
        s.x += weight * s.anchor


@dataclass(frozen=True)
class DualOCHalpern(Contractive, DualOHM):
    r"""Dual optimal Halpern method for contractive :math:`T = I - \alpha F`, as strongly monotone operators have it.

    To `OCHalpern` what `DualOHM` is to `OHM`. Not anytime. With samples `RestartedDualOHM` is better.
    Yoon, Kim, Suh, Ryu 2024; Park and Ryu 2022.

    .. math:: x_{k+1} = x_k + \Bigl(1 - \frac{1}{\varphi_{N-k-1}}\Bigr) \bigl(T_k - T_{k-1}\bigr), \qquad
        T_k = x_k - \alpha F_{B_k}(x_k), \quad T_{-1} = x_0, \quad \varphi_k = \sum_{i=0}^k \gamma^{-2i}

    Guarantee without noise: that of `OCHalpern`. With Assumption 3.1, batches of size B: the root mean square is at
    most that plus :math:`\alpha\sigma\sqrt{(1+\gamma)/((1-\gamma)B)}`, several times too large in experiments. Not in
    the paper.

    Parameters
    ----------
    step_size, horizon, batch_size, estimator : as for `DualOHM`
    contraction : float in (0, 1], as for `OCHalpern`. With 1 the method is `DualOHM`

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(mu=0.1, sigma=0.0), "dual-oc-halpern", budget=100)
    >>> bool(result.residual < 0.01)
    True
    """

    contraction: Any = 1.0

    id = "dual-oc-halpern"
    title = "Dual-OC-Halpern, Dual-OHM for contractions (experimental with samples)"
    citation = "h-duality"
    step_rule = "T is nonexpansive"
    compared = False

    def update(self, k: int, s: State, G: Array) -> None:
        alpha, weight = self.step_size, anchor_weight(self.horizon - k - 1, self.contraction)
        s.z *= 1 - weight  # z_{k+1} = (1 - 1/phi) z_k - alpha G_k / phi
        s.z -= weight * alpha * G
        s.x -= alpha * G + s.z
