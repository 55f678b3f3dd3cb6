"""OC-Halpern, the optimal Halpern method for contractions."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.rowwise import number
from dualanchor.core.types import Array
from dualanchor.methods.ohm import OHM
from dualanchor.theory.bounds import contraction


def anchor_weight(k: Any, factor: Any) -> Any:
    r"""The anchor's weight :math:`1/\varphi_k`, :math:`\varphi_k = \sum_{i=0}^k \gamma^{-2i}`, gamma the factor."""
    rate = np.maximum(-2 * np.log(factor), 1e-300)  # so small a rate gives 1/(k+1) to rounding
    return number(np.exp(-k * rate) * np.expm1(-rate) / np.expm1(-(k + 1) * rate))


def contraction_for(problem: Problem, given: dict[str, Any]) -> float:
    """The factor by which T contracts according to the problem's constants; 1 where they say nothing."""
    step, known = given.get("step_size", problem.step_size), problem.constants
    if step is None or known.L is None:
        return 1.0
    return sqrt(min(1.0, max(1e-12, contraction(step, known.L, known.mu))))


def check_contraction(method: Method, factor: Any) -> None:
    """Raise unless the factor, positive by an earlier check, is at most 1."""
    if np.max(factor) > 1:
        raise ArgumentError(
            f"{type(method).__name__}: contraction must be at most 1",
            np.max(factor),
            "Use 1.0 for a map that is merely nonexpansive",
        )


@dataclass(frozen=True)
class OCHalpern(OHM):
    r"""Optimal Halpern method for contractive :math:`T = I - \alpha F`, as strongly monotone operators have it.

    Halpern's step with an anchor that fades geometrically. Anytime. A method for exact evaluations; with samples it is
    experimental.

    Update
    ------
    .. math:: x_{k+1} = \frac{1}{\varphi_{k+1}} x_0 + \Bigl(1 - \frac{1}{\varphi_{k+1}}\Bigr)
        \bigl(x_k - \alpha F_{B_k}(x_k)\bigr), \qquad \varphi_k = \sum_{i=0}^k \gamma^{-2i}

    with :math:`\alpha` = `step_size`, :math:`\gamma` = `contraction` and :math:`B_k` from `batch_size` (or G from
    `estimator`).

    Guarantee
    ---------
    Noiseless, T with Lipschitz constant :math:`\gamma`:
    :math:`\|x_{N-1} - Tx_{N-1}\| \le (1+\gamma) D / \sum_{i<N} \gamma^{-i}` for every N (Park and Ryu 2022). None known
    with samples.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L.
    horizon : int, optional
        Stop after horizon - 1 steps.
    batch_size : int, Schedule or list of int
        Samples per step.
    estimator : Estimator, optional
        Estimates F instead of a fresh batch; `batch_size` is not used then.
    contraction : float
        :math:`\gamma` in (0, 1]; by name :math:`\sqrt{1 - \alpha\mu(2 - \alpha L)}`. With 1 the method is `OHM`.

    Notes
    -----
    The source writes :math:`1/\gamma` for the Lipschitz constant of T.

    References
    ----------
    Park and Ryu 2022.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(mu=0.1, sigma=0.0)
    >>> fading, plain = (da.solve(problem, name, budget=100).residual for name in ("oc-halpern", "s-ohm"))
    >>> bool(fading < 0.1 * plain)
    True
    """

    contraction: Any = 1.0

    id = "oc-halpern"
    title = "OC-Halpern, Halpern's method for contractions (experimental with samples)"
    citation = "oc-halpern"
    compared = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("contraction")
        check_contraction(self, self.contraction)

    def update(self, k: int, s: State, G: Array) -> None:
        alpha, weight = self.step_size, anchor_weight(k + 1, self.contraction)
        s.x -= alpha * G
        s.x *= 1 - weight
        s.x += weight * s.anchor

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        return {**super().defaults(problem, budget, given), "contraction": contraction_for(problem, given)}
