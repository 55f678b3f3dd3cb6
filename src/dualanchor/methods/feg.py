"""FEG, the fast extragradient method."""

from dataclasses import dataclass

from dualanchor.methods.eag import EAG


@dataclass(frozen=True)
class FEG(EAG):
    r"""Fast extragradient method for monotone Lipschitz operators.

    Anchored extragradient with a longer step than `EAG`. Anytime. With samples it is experimental.
    The first value of the first step is not used. Lee and Kim 2021.

    .. math::
        z_{k+1/2} &= z_k + \beta_k(z_0 - z_k) - (1 - \beta_k)\alpha F_{B_k}(z_k), \\
        z_{k+1} &= z_k + \beta_k(z_0 - z_k) - \alpha F_{B'_k}(z_{k+1/2}), \qquad \beta_k = \tfrac{1}{k+1}

    Guarantee without noise, :math:`\alpha = 1/M`: :math:`\|F(z_k)\|^2 \le 4M^2D^2/k^2`. None known with samples.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, at most 1/M
    batch_size : as for `EAG`

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(sigma=0.0), da.FEG(step_size=1.0), stop=da.Steps(100))
    >>> bool(result.residual <= 2 / 100)
    True
    """

    id = "feg"
    title = "FEG, fast extragradient (experimental with samples)"
    citation = "feg"
    step_rule = "Lee and Kim 2021"
    longest = (1.0, "M", "1/M")

    def weights(self, k: int) -> tuple[float, float]:
        return 1 / (k + 1), 1 - 1 / (k + 1)
