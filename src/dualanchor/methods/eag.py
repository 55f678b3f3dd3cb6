"""EAG-C, the extra anchored gradient method with a constant step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import Cost, State
from dualanchor.core.oracle import Session
from dualanchor.core.types import Array
from dualanchor.methods.extragradient import TwoCall
from dualanchor.methods.lipschitz import Lipschitz


class AnchoredExtragradient(Lipschitz, TwoCall):
    """An extragradient step that is pulled back towards the start."""

    def init(self, x0: Array) -> State:
        s = super().init(x0)
        s.anchor = arrays.copy(x0)
        return s

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return self.twice(k)


@dataclass(frozen=True)
class EAG(AnchoredExtragradient):
    r"""Extra anchored gradient method with a constant step, for monotone Lipschitz operators.

    Extragradient in which both half steps are pulled back towards the start, a little less each time. Anytime. A method
    for exact evaluations; with samples it is experimental.

    Update
    ------
    .. math::
        z_{k+1/2} &= z_k + \tfrac{1}{k+2}(z_0 - z_k) - \alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_k + \tfrac{1}{k+2}(z_0 - z_k) - \alpha F_{B'_k}(z_{k+1/2})

    with :math:`\alpha` = `step_size` and both batches of size `batch_size`.

    Guarantee
    ---------
    Noiseless, :math:`0 < \alpha \le 1/(8M)`, every k:
    :math:`\|F(z_k)\|^2 \le \frac{4(1 + \alpha M + \alpha^2M^2)}{\alpha^2(1 + \alpha M)} D^2/(k+1)^2`, which is
    :math:`260 M^2D^2/(k+1)^2` for the largest step (Yoon and Ryu 2021). None known with samples.

    Cost
    ----
    2B draws and 2B evaluations per step.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 1/(8M).
    batch_size : int, Schedule or list of int
        Samples per operator call.

    Notes
    -----
    The two batches of a step are independent. Where M is not declared L stands in for it.

    References
    ----------
    Yoon and Ryu 2021.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=0.0)
    >>> result = da.solve(problem, da.EAG(step_size=1 / 8), stop=da.Steps(100))
    >>> bool(result.residual**2 <= 260 * problem.constants.D**2 / 101**2)
    True
    """

    step_size: Any
    batch_size: Any = 1

    id = "eag-c"
    title = "EAG-C, extra anchored gradient (experimental with samples)"
    citation = "eag"
    step_rule = "Yoon and Ryu 2021"
    divisor = 8
    compared = False

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        alpha = self.step_size
        pulled = (s.anchor - s.x) / (k + 2)
        pulled += s.x
        half = pulled - alpha * F(s.x, F.draw(self.batch(k)))
        s.x = arrays.assign(s.x, pulled - alpha * F(half, F.draw(self.batch(k))))
