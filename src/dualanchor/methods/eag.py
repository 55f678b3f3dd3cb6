"""EAG-C, the extra anchored gradient method with a constant step."""

from dataclasses import dataclass
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.session import Session
from dualanchor.methods._bases import Lipschitz, RemembersStart, TwoCall


@dataclass(frozen=True)
class EAG(Lipschitz, RemembersStart, TwoCall):
    r"""Extra anchored gradient method with a constant step, for monotone Lipschitz operators.

    Extragradient with both half steps pulled back towards the start. Anytime. With samples it is experimental.
    Yoon and Ryu 2021.

    .. math::
        z_{k+1/2} &= z_k + \tfrac{1}{k+2}(z_0 - z_k) - \alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_k + \tfrac{1}{k+2}(z_0 - z_k) - \alpha F_{B'_k}(z_{k+1/2})

    Guarantee without noise, :math:`0 < \alpha \le 1/(8M)`, every k:
    :math:`\|F(z_k)\|^2 \le \frac{4(1 + \alpha M + \alpha^2M^2)}{\alpha^2(1 + \alpha M)} D^2/(k+1)^2`, with 260M^2 at
    the largest step. None known with samples.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 1/(8M); L stands in for an M that is not declared
    batch_size : int, Schedule or list of int; size of each of the independent batches :math:`B_k, B'_k`

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.0), da.EAG(step_size=1 / 8), stop=da.Steps(100))
    >>> bool(result.residual**2 <= 260 / 101**2)
    True
    """

    step_size: Any
    batch_size: Any = 1

    id = "eag-c"
    title = "EAG-C, extra anchored gradient (experimental with samples)"
    citation = "eag"
    step_rule = "Yoon and Ryu 2021"
    longest = (1 / 8, "M", "1/(8M)")
    compared = False

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        alpha, (beta, first) = self.step_size, self.weights(k)
        pulled = beta * (s.anchor - s.x)
        pulled += s.x
        half = pulled - first * alpha * self.first_call(k, s.x, F)
        s.x = arrays.assign(s.x, pulled - alpha * self.second_call(k, half, F))

    def weights(self, k: int) -> tuple[float, float]:
        """The anchor's weight in step k, and the part of the step that the first half takes."""
        return 1 / (k + 2), 1.0
