"""FEG, the fast extragradient method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.oracle import Session
from dualanchor.methods.eag import AnchoredExtragradient


@dataclass(frozen=True)
class FEG(AnchoredExtragradient):
    r"""Fast extragradient method for monotone Lipschitz operators.

    Anchored extragradient with a longer step than `EAG`, and the optimal order without noise. Anytime. A method for
    exact evaluations; with samples it is experimental.

    Update
    ------
    .. math::
        z_{k+1/2} &= z_k + \beta_k(z_0 - z_k) - (1 - \beta_k)\alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_k + \beta_k(z_0 - z_k) - \alpha F_{B'_k}(z_{k+1/2}), \qquad \beta_k = \tfrac{1}{k+1}

    with :math:`\alpha` = `step_size` and both batches of size `batch_size`.

    Guarantee
    ---------
    Noiseless, :math:`\alpha = 1/M`, every k: :math:`\|F(z_k)\|^2 \le 4M^2D^2/k^2` (Lee and Kim 2021). None known with
    samples.

    Cost
    ----
    2B draws and 2B evaluations per step.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 1/M.
    batch_size : int, Schedule or list of int
        Samples per operator call.

    Notes
    -----
    The case of a monotone operator; the source also covers negative comonotonicity. The first step evaluates the start
    twice and uses the second value only. Where M is not declared L stands in for it.

    References
    ----------
    Lee and Kim 2021.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=0.0)
    >>> result = da.solve(problem, da.FEG(step_size=1.0), stop=da.Steps(100))
    >>> bool(result.residual <= 2 * problem.constants.D / 100)
    True
    """

    step_size: Any
    batch_size: Any = 1

    id = "feg"
    title = "FEG, fast extragradient (experimental with samples)"
    citation = "feg"
    step_rule = "Lee and Kim 2021"
    compared = False

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        alpha, beta = self.step_size, 1 / (k + 1)
        pulled = beta * (s.anchor - s.x)
        pulled += s.x
        half = pulled - (1 - beta) * alpha * F(s.x, F.draw(self.batch(k)))
        s.x = arrays.assign(s.x, pulled - alpha * F(half, F.draw(self.batch(k))))
