"""Optimisers of PyTorch for saddle problems and other fields of gradients."""

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, HorizonError
from dualanchor.core.method import Method, State, steps_exist
from dualanchor.integrations.torch.field import FieldOptimizer, Group, TensorList, tensors_of
from dualanchor.methods import dual_ohm, ohm


class DualAnchor(FieldOptimizer):
    r"""S-Dual-OHM as an optimiser: accelerated, one gradient per step, with a guarantee for the last iterate.

    Update and guarantee are those of `dualanchor.DualOHM` with :math:`\alpha` = `lr` and N = `horizon`, along the field
    G: the gradient, or minus the gradient where `maximize` is set. The guarantee is for the point after the last step,
    for a field that is 1/L-cocoercive in expectation and one :math:`\alpha \le 2/L` in all groups and steps. There is
    none for other fields, such as those of neural networks, and none when a scheduler changes `lr`.

    Parameters
    ----------
    params : iterable, parameters, or groups of them with settings of their own: `{"params": ..., "maximize": True}`
    lr : float, :math:`\alpha`, read at every step
    horizon : int
        N; N - 1 steps exist, a further one raises `HorizonError`. Where groups differ, the shortest ends the run.
    maximize : bool, whether these parameters ascend
    foreach : bool, whether operations take a list of tensors at once; None: where the tensors are plain ones

    Notes
    -----
    The state is z, one vector. All parameters share one k, also those whose `grad` is None in some round, which stay as
    they are then, and those of a group that is added later; the theorem is about one field from the first step on.

    Examples
    --------
    >>> import torch
    >>> u, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> optimizer = DualAnchor([{"params": u}, {"params": v, "maximize": True}], lr=0.5, horizon=100)
    >>> for _ in range(99):
    ...     optimizer.zero_grad()
    ...     (u @ u / 2 + u @ v - v @ v / 2).backward()
    ...     optimizer.step()
    >>> bool(u.norm() < 0.01)
    True
    """

    _buffer = "z"

    def __init__(
        self, params: Iterable[Any], lr: float, horizon: int, maximize: bool = False, *, foreach: bool | None = None
    ) -> None:
        self._own = {"horizon": horizon, "k": 0}
        super().__init__(params, lr, maximize, foreach=foreach)

    def restart(self, horizon: int | None = None) -> None:
        """Begin again from where the parameters are, with the same horizon or another one for all groups."""
        changes = {"k": 0} if horizon is None else {"k": 0, "horizon": _as_horizon(horizon)}
        for settings in (self.defaults, *self.param_groups):  # the defaults are for groups that are added later
            settings.update(changes)
        self.state.clear()

    def _settings(self, group: Group) -> Group:
        return {**super()._settings(group), "horizon": _as_horizon(group["horizon"])}

    def _before_step(self) -> None:
        for group in self.param_groups:
            N, k = group["horizon"], group["k"]
            if k >= N - 1:
                ways = "go on from it with restart(), or use a larger horizon"
                remedy = f"Stop here, at the point that the guarantee is for; {ways}"
                raise HorizonError(f"DualAnchor: {steps_exist(N - 1)} for horizon N = {N}", f"k = {k}", remedy)

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        _take_step(dual_ohm.DualOHM, group, State(x=x, z=self._buffers(x, torch.zeros_like)), G)


def _as_horizon(horizon: Any) -> int:
    return check.count(horizon, "DualAnchor: horizon", remedy="Use one more than the number of steps")


def _take_step(method: type[Method], group: Group, s: State, G: TensorList) -> None:
    """The method's own update, with the settings of the group; not checked again, since a scheduler may change lr."""
    update: Any = method.update
    update(SimpleNamespace(step_size=group["lr"], horizon=group.get("horizon")), group["k"], s, G)
    group["k"] += 1


class OHM(FieldOptimizer):
    r"""The optimal Halpern method as an optimiser: each step pulls back towards the start.

    Update and guarantee are those of `dualanchor.OHM`; parameters as in `DualAnchor`, without a horizon. The start of a
    parameter is its value when it first has a gradient. Under noise with constant batches errors accumulate.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> optimizer = OHM([x], lr=1.0)
    >>> (x @ x / 2).backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5, 0.5]
    """

    _own: Mapping[str, Any] = {"k": 0}
    _buffer = "anchor"

    def restart(self) -> None:
        """Begin again from where the parameters are: they become the anchor."""
        for group in self.param_groups:
            group["k"] = 0
        self.state.clear()

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        _take_step(ohm.OHM, group, State(x=x, anchor=self._buffers(x, torch.clone)), G)


class ExtraGradient(FieldOptimizer):
    r"""Extragradient as an optimiser: look ahead, and step from where one was with the gradient found there.

    .. math:: x_{k+1/2} = x_k - \alpha G(x_k), \qquad x_{k+1} = x_k - \alpha G(x_{k+1/2})

    The method of `dualanchor.SEG` with :math:`\alpha` = `lr`; parameters as in `DualAnchor`, without a horizon.
    `step(closure)` calls the closure twice and returns the loss of the first call. By hand: `backward`,
    `extrapolate()`, `zero_grad()`, `backward` on a new batch, `step()`. For monotone M-Lipschitz fields: with exact
    gradients it converges for :math:`\alpha < 1/M` (Korpelevich 1976); nothing is known under noise.

    Examples
    --------
    >>> import torch
    >>> u, v = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> optimizer = ExtraGradient([{"params": u}, {"params": v, "maximize": True}], lr=0.5)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (u * v).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item(), u.item(), v.item()
    (1.0, 0.25, 1.25)
    """

    _own: Mapping[str, Any] = {"ahead": False}
    _buffer = "origin"

    def extrapolate(self) -> None:
        """Go to the point ahead, along the present gradients."""
        self._require_at_iterate()
        self._apply(self._look_ahead)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a whole step, calling the closure twice; or, without one, end the step that `extrapolate` began."""
        if closure is None:
            return super().step()
        self._require_at_iterate()
        loss = self._evaluate(closure)
        self.extrapolate()
        try:
            self._evaluate(closure)
            super().step()
        except BaseException:  # a step that fails has changed nothing
            with torch.no_grad():
                for group in self.param_groups:
                    self._go_back(group)
            raise
        return loss

    def _require_at_iterate(self) -> None:
        if any(group["ahead"] for group in self.param_groups):
            rule = "ExtraGradient: extrapolate() and step(closure) begin a step"
            remedy = "End the step that was begun: zero_grad(), backward(), step()"
            raise ArgumentError(rule, "parameters that are at the point ahead already", remedy)

    def _before_step(self) -> None:
        if not any(group["ahead"] for group in self.param_groups):
            rule = "ExtraGradient: step() without a closure ends a step that extrapolate() began"
            remedy = "Call extrapolate() first and compute the gradients again, or pass a closure"
            raise ArgumentError(rule, "no step begun", remedy)

    def _look_ahead(self, group: Group, x: TensorList, G: TensorList) -> None:
        everything = tensors_of(group, group["params"])
        self._buffers(everything, torch.empty_like).copy_(everything)
        x -= group["lr"] * G
        group["ahead"] = True

    def _go_back(self, group: Group) -> None:
        if group["ahead"]:
            everything = tensors_of(group, group["params"])
            everything.copy_(self._buffers(everything, torch.clone))
            group["ahead"] = False

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        self._go_back(group)
        x -= group["lr"] * G


class OptimisticGradient(FieldOptimizer):
    r"""The optimistic gradient method, or past extragradient: the last gradient replaces the one ahead.

    .. math:: x_{k+1} = x_k - 2 \alpha G_k + \alpha G_{k-1}, \qquad G_{-1} = G_0

    with :math:`\alpha` = `lr`; parameters as in `DualAnchor`, without a horizon. One gradient per step. For monotone
    M-Lipschitz fields: with exact gradients it converges for :math:`\alpha < 1/(3M)` (Popov 1980; Daskalakis, Ilyas,
    Syrgkanis, Zeng 2018); nothing is known for the last iterate under noise.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(1, requires_grad=True)
    >>> optimizer = OptimisticGradient([x], lr=0.25)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (x @ x / 2).backward()
    ...     optimizer.step()
    >>> x.item()
    0.625
    """

    _buffer = "previous"

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        alpha, previous = group["lr"], self._buffers(x, lambda p: p.grad.clone())
        x -= 2 * alpha * G
        x += alpha * G.factor * previous  # a gradient: the factor makes it the field
        previous.copy_(G)
