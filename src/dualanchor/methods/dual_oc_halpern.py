"""Dual-OC-Halpern, the H-dual of OC-Halpern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualanchor.core.method import State
from dualanchor.core.problem import Problem
from dualanchor.core.types import Array
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.oc_halpern import anchor_weight, check_contraction, contraction_for


@dataclass(frozen=True)
class DualOCHalpern(DualOHM):
    r"""Dual optimal Halpern method for contractive :math:`T = I - \alpha F`, as strongly monotone operators have it.

    To `OCHalpern` what `DualOHM` is to `OHM`. Not anytime. With samples it is experimental: for a certificate under
    strong monotonicity `RestartedDualOHM` is better.

    Update
    ------
    .. math:: x_{k+1} = x_k + \Bigl(1 - \frac{1}{\varphi_{N-k-1}}\Bigr) \bigl(T_k - T_{k-1}\bigr), \qquad
        T_k = x_k - \alpha F_{B_k}(x_k), \quad T_{-1} = x_0, \quad \varphi_k = \sum_{i=0}^k \gamma^{-2i}

    for k = 0 .. N - 2 with :math:`\alpha` = `step_size`, N = `horizon`, :math:`\gamma` = `contraction` and :math:`B_k`
    from `batch_size` (or G from `estimator`).

    Guarantee
    ---------
    Noiseless, T with Lipschitz constant :math:`\gamma`:
    :math:`\|x_{N-1} - Tx_{N-1}\| \le (1+\gamma) D / \sum_{i<N} \gamma^{-i}` (Yoon, Kim, Suh, Ryu 2024). Assumption
    3.1, batches of size B: the root mean square is at most that plus
    :math:`\alpha\sigma\sqrt{(1+\gamma)/((1-\gamma)B)}`. Not in the paper, and several times too large where it was
    looked at; no bound like Theorem A's is known.

    Cost
    ----
    :math:`B_k` draws and evaluations in step k.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L.
    horizon : int
        N; the method takes N - 1 steps.
    batch_size : int, Schedule or list of int
        Samples per step.
    estimator : Estimator, optional
        Estimates F instead of a fresh batch; `batch_size` is not used then.
    contraction : float
        :math:`\gamma` in (0, 1]; by name :math:`\sqrt{1 - \alpha\mu(2 - \alpha L)}`. With 1 the method is `DualOHM`.

    Notes
    -----
    Kept as x and :math:`z_{k+1} = (1 - 1/\varphi_{N-k-1}) z_k - \alpha G_k/\varphi_{N-k-1}`, :math:`z_0 = 0`. The
    source writes :math:`1/\gamma` for the Lipschitz constant of T.

    References
    ----------
    Yoon, Kim, Suh, Ryu 2024; Park and Ryu 2022.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(mu=0.1, sigma=0.0)
    >>> dual, primal = (da.solve(problem, name, budget=100).x for name in ("dual-oc-halpern", "oc-halpern"))
    >>> bool(abs(dual - primal).max() < 1e-12)
    True
    """

    contraction: Any = 1.0

    id = "dual-oc-halpern"
    title = "Dual-OC-Halpern, Dual-OHM for contractions (experimental with samples)"
    citation = "h-duality"
    step_rule = "T is nonexpansive"
    compared = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("contraction")
        check_contraction(self, self.contraction)

    def update(self, k: int, s: State, G: Array) -> None:
        N, alpha = self.horizon, self.step_size
        weight = anchor_weight(N - k - 1, self.contraction)
        s.z *= 1 - weight
        s.z -= weight * alpha * G
        s.x -= alpha * G + s.z

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        return {**super().defaults(problem, budget, given), "contraction": contraction_for(problem, given)}
