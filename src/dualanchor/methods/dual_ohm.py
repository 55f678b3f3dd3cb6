"""Dual-OHM and S-Dual-OHM, the centre of the library."""

from dataclasses import dataclass, field
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import Estimator, State
from dualanchor.core.types import Array
from dualanchor.methods._bases import Scheduled


@dataclass(frozen=True)
class DualOHM(Scheduled):
    r"""Dual optimal Halpern method (S-Dual-OHM with samples) for operators 1/L-cocoercive in expectation.

    The H-dual of `OHM`: errors do not accumulate, so a constant batch suffices. Not anytime: N is fixed in advance.
    Yoon and Loizou 2026; without noise Yoon, Kim, Suh, Ryu 2024.

    .. math:: x_{k+1} = x_k + \frac{N-k-1}{N-k} \bigl(T_k - T_{k-1}\bigr), \qquad
        T_k = x_k - \alpha F_{B_k}(x_k), \quad T_{-1} = x_0, \quad k = 0, \dots, N-2

    Guarantee under Assumptions 3.1 and 3.2, :math:`0 < \alpha \le 2/L`, batches of size B:
    :math:`\mathbb E \|F(x_{N-1})\|^2 \le 4D^2/(\alpha^2 N^2) + 6\sigma^2/B` (Theorem 4.1).
    With :math:`\mu > 0` and :math:`\alpha = 1/L` also for every k < N, without Assumption 3.2:
    :math:`8L^2D^2/N^2 + 64 L^4 \mu^{-2} e^{-k\mu/L} D^2 + 4L\sigma^2/(\mu B)` (Theorem 4.5).

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 2/L
    horizon : int, N; the method takes N - 1 steps. For a budget Q the paper's Q/B
    batch_size : int, Schedule or list of int, :math:`B_k`, samples of step k; `Tapered(C)` needs fewest for an accuracy
    estimator : Estimator, optional; in place of a fresh batch

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.1), da.DualOHM(step_size=1.0, horizon=100, batch_size=50))
    >>> result.nit, result.nfev, result.status.name
    (99, 4950, 'HORIZON')
    """

    step_size: Any
    horizon: Any = field()  # required: None would mean anytime
    batch_size: Any = 1
    estimator: Estimator | None = None

    id = "s-dual-ohm"
    title = "S-Dual-OHM, the dual optimal Halpern method"
    citation = "yoon-loizou"
    step_rule = "Theorem 4.1"
    anytime = False
    counts = ("horizon",)

    def init(self, x0: Array) -> State:
        return State(**vars(super().init(x0)), z=arrays.zeros_like(x0))

    def update(self, k: int, s: State, G: Array) -> None:
        N, alpha, x, z = self.horizon, self.step_size, s.x, s.z
        z *= (N - k - 1) / (N - k)  # paper, proof of Lemma 4.2; more accurate than T_k - T_{k-1}
        z = arrays.minus_multiple(z, alpha / (N - k), G)
        x = arrays.minus_multiple(x, alpha, G)
        x -= z
        s.x, s.z = x, z
