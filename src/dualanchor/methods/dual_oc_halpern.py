"""Dual-OC-Halpern, the H-dual of OC-Halpern."""

from dataclasses import dataclass
from typing import Any

from dualanchor.core.method import State
from dualanchor.core.types import Array
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.oc_halpern import Contractive, anchor_weight


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
