"""S-Dual-OHM with a pull towards the start, as an optimiser of PyTorch."""

from collections.abc import Iterable
from typing import Any

import torch

from dualanchor.core import check
from dualanchor.integrations.torch.dual_anchor import DualAnchor
from dualanchor.integrations.torch.field import Group, TensorList
from dualanchor.integrations.torch.steepness import Steepness


class RegularisedDualAnchor(DualAnchor):
    r"""`DualAnchor` with a pull towards the start, for games without curvature, such as bilinear ones.

    Update and guarantee are those of `dualanchor.RegularisedDualOHM`: the field is :math:`G(x) + \delta (x - x_0)`. For
    monotone fields that are M-Lipschitz in mean square, with
    :math:`\alpha \le 2\delta/(M^2+\delta^2)`. `dualanchor.plan(eps=..., M=..., D=..., sigma=...)` gives all numbers.

    Parameters
    ----------
    params, lr, horizon, maximize, and keywords : as for `DualAnchor`; `lr="auto"` is :math:`\delta/(M^2+\delta^2)` for
        all groups, half of the longest step of the theorem, with the M of all parameters together
    delta : float, :math:`\delta`, about half of the accuracy over the distance to a solution

    Notes
    -----
    One more vector of state: the start, which is the value of a parameter when it first has a gradient.

    Examples
    --------
    >>> import torch
    >>> u, v = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> players = [{"params": u}, {"params": v, "maximize": True}]
    >>> optimizer = RegularisedDualAnchor(players, lr=0.2, delta=0.1, total_steps=400)
    >>> for _ in range(400):
    ...     optimizer.zero_grad()
    ...     (u * v).sum().backward()
    ...     optimizer.step()
    >>> bool(u.abs() < 0.15 and v.abs() < 0.15)
    True
    """

    _buffer_names = (*DualAnchor._buffer_names, "anchor")

    def __init__(self, params: Iterable[Any], lr: Any, horizon: int | None = None, *, delta: float, **options: Any):
        self._extra_defaults = {"delta": delta}
        super().__init__(params, lr, horizon, **options)

    def _settings(self, group: Group) -> Group:
        return {**super()._settings(group), "delta": check.number(group["delta"], f"{type(self).__name__}: delta")}

    def _rates(self, steepness: Steepness) -> list[float]:
        M, deltas = steepness.of_all(), [group["delta"] for group in self.param_groups]
        return [min(delta / (M**2 + delta**2) for delta in deltas)] * len(deltas)

    def _field(self, group: Group, x: TensorList, G: TensorList) -> TensorList:
        return G + group["delta"] * (x - self._buffers("anchor", x, torch.clone))
