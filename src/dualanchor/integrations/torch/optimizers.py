"""Optimisers without a horizon: OHM, extragradient and the optimistic gradient method."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dualanchor.core.errors import ArgumentError
from dualanchor.integrations.torch.field import FieldOptimizer, Group, MethodAndState, TensorList, tensors_of, times_lr
from dualanchor.methods import ohm


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

    _extra_defaults: Mapping[str, Any] = {"k": 0}
    _buffer_names = ("anchor",)

    def restart(self) -> None:
        """Begin again from where the parameters are: they become the anchor."""
        for group in self.param_groups:
            group["k"] = 0
        self.state.clear()

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        both: Any = MethodAndState(x, anchor=self._buffers("anchor", x, torch.clone))
        ohm.OHM.update(both, group["k"], both, times_lr(group, G))  # type: ignore[arg-type]
        group["k"] += 1


class ExtraGradient(FieldOptimizer):
    r"""Extragradient as an optimiser: look ahead, and step from where one was with the gradient found there.

    .. math:: x_{k+1/2} = x_k - \alpha G(x_k), \qquad x_{k+1} = x_k - \alpha G(x_{k+1/2})

    The method of `dualanchor.SEG` with :math:`\alpha` = `lr`; parameters as in `DualAnchor`, without a horizon.
    `step(closure)` calls the closure twice and returns the loss of the first call. By hand: `backward`,
    `extrapolate()`, `zero_grad()`, `backward` on a new batch, `step()`. For monotone M-Lipschitz fields: with exact
    gradients it converges for :math:`\alpha < 1/M` (Korpelevich 1976); nothing is known under noise. Steps by
    `torch.amp.GradScaler`, which unscales one gradient per step, are refused.

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

    _extra_defaults: Mapping[str, Any] = {"ahead": False}
    _buffer_names = ("origin",)
    _step_supports_amp_scaling = True  # so that GradScaler sets found_inf, by which its steps are refused

    def extrapolate(self) -> None:
        """Move to the point ahead, along the present gradients."""
        self._require_at_iterate()
        self._apply(self._look_ahead)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a whole step, calling the closure twice; or, without one, end the step that `extrapolate` began."""
        self._require_no_scaler()
        if closure is None:
            self._require_ahead()
            return super().step()
        self._require_at_iterate()
        loss = self._evaluate(closure)
        self.extrapolate()
        try:
            self._evaluate(closure)
            super().step()
        except BaseException:  # a step that fails changes nothing
            self._undo()
            raise
        return loss

    def _undo(self) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                self._go_back(group)

    def _require_no_scaler(self) -> None:
        if getattr(self, "found_inf", None) is not None:
            del self.found_inf, self.grad_scale  # GradScaler does so only after a step
            self._undo()
            rule = "ExtraGradient: a step takes two gradients, and GradScaler unscales only one of them"
            remedy = "Use torch.autocast with bfloat16, which needs no GradScaler, or OptimisticGradient"
            raise ArgumentError(rule, "a step by GradScaler", remedy)

    def _require_at_iterate(self) -> None:
        if any(group["ahead"] for group in self.param_groups):
            rule = "ExtraGradient: extrapolate() and step(closure) begin a step"
            remedy = "End the step that was begun: zero_grad(), backward(), step()"
            raise ArgumentError(rule, "parameters that are at the point ahead already", remedy)

    def _require_ahead(self) -> None:
        if not any(group["ahead"] for group in self.param_groups):
            rule = "ExtraGradient: step() without a closure ends a step that extrapolate() began"
            remedy = "Call extrapolate() first and compute the gradients again, or pass a closure"
            raise ArgumentError(rule, "no step begun", remedy)

    def _look_ahead(self, group: Group, x: TensorList, G: TensorList) -> None:
        iterate = tensors_of(group, group["params"])
        self._buffers("origin", iterate, torch.empty_like).copy_(iterate)
        x -= times_lr(group, G)
        group["ahead"] = True

    def _go_back(self, group: Group) -> None:
        if group["ahead"]:
            iterate = tensors_of(group, group["params"])
            iterate.copy_(self._buffers("origin", iterate, torch.clone))
            group["ahead"] = False

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        self._go_back(group)
        x -= times_lr(group, G)


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

    _buffer_names = ("previous",)

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        gradient_of = dict(zip(map(id, x.tensors), G.tensors, strict=True))
        previous = self._buffers("previous", x, lambda p: gradient_of[id(p)].clone())
        x -= times_lr(group, 2 * G)
        x += times_lr(group, G.factor * previous)  # the buffers hold gradients: the factor makes them the field
        previous.copy_(G)
