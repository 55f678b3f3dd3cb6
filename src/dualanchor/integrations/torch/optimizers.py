"""Optimisers of PyTorch for saddle problems and other fields of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, HorizonError
from dualanchor.core.method import steps_exist
from dualanchor.integrations.torch.field import Each, FieldOptimizer, Group, each_of


class DualAnchor(FieldOptimizer):
    r"""S-Dual-OHM as an optimiser: accelerated, one gradient per step, with a guarantee for the last iterate.

    The method of `dualanchor.DualOHM`, along the field of gradients of one or several players. The horizon is fixed
    in advance, and the guarantee is for the point after its last step.

    Update
    ------
    .. math:: w_{k+1} = w_k + \frac{G_k - w_k}{N-k}, \qquad x_{k+1} = x_k - \alpha (G_k - w_{k+1}), \qquad
        w_0 = 0, \quad k = 0, \dots, N-2

    with :math:`\alpha` = `lr`, N = `horizon`, and :math:`G_k` the gradient, or minus the gradient where `maximize` is
    set.

    Guarantee
    ---------
    For a field that is 1/L-cocoercive in expectation and gradients from batches of size B with variance
    :math:`\sigma^2/B`: :math:`\mathbb E \|G(x_{N-1})\|^2 \le 4D^2/(\alpha^2 N^2) + 6\sigma^2/B` when
    :math:`\alpha \le 2/L` is the same number in all groups and all steps (Theorem 4.1). None for other fields, such as
    those of neural networks, and none when a scheduler changes `lr`.

    Parameters
    ----------
    params : iterable
        Parameters, or groups of them with settings of their own: `{"params": ..., "maximize": True}`.
    lr : float
        :math:`\alpha`. Read at every step.
    horizon : int
        N; N - 1 steps exist, a further one raises `HorizonError`. Where groups differ, the shortest ends the run.
    maximize : bool
        Whether these parameters ascend.
    foreach : bool, optional
        Whether operations go over lists of tensors at once; None: where the tensors are plain ones.

    Notes
    -----
    w is the z of `DualOHM` divided by :math:`-\alpha`, a weighted mean of the gradients so far: the same iterates with
    three passes over memory and no temporaries, one vector of state.

    All parameters share one k. One whose `grad` is None is left as it is in that round, as in `torch.optim`;
    `zero_grad(set_to_none=False)` makes a missing gradient count as zero, which is what the theorem means by it.

    A group that is added after k steps takes the k of the others. Its steps are those of a run with horizon N - k from
    where it is, and end with theirs. The theorem is about one field from the first step on: `restart` after adding.

    References
    ----------
    Yoon and Loizou, Direct Acceleration of Stochastic Root-Finding Without Variance Reduction and Regularization.

    Examples
    --------
    >>> import torch
    >>> u, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> players = [{"params": u}, {"params": v, "maximize": True}]
    >>> optimizer = DualAnchor(players, lr=0.5, horizon=100)
    >>> for _ in range(99):
    ...     optimizer.zero_grad()
    ...     (u @ u / 2 + u @ v - v @ v / 2).backward()
    ...     optimizer.step()
    >>> bool(u.norm() < 0.01)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        horizon: int,
        maximize: bool = False,
        *,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(params, lr, maximize, foreach, horizon=horizon, k=0)

    def restart(self, horizon: int | None = None) -> None:
        """Begin again from where the parameters are, with the same horizon or another one for all groups."""
        if horizon is not None:
            self.defaults["horizon"] = _as_horizon(horizon)  # for groups that are added later
        for group in self.param_groups:
            group["horizon"] = group["horizon"] if horizon is None else self.defaults["horizon"]
            group["k"] = 0
        self.state.clear()

    def _settings(self, group: Group) -> Group:
        return {**super()._settings(group), "horizon": _as_horizon(group["horizon"])}

    def _before_step(self) -> None:
        for group in self.param_groups:
            N, k = group["horizon"], group["k"]
            if k >= N - 1:
                raise HorizonError(
                    f"DualAnchor: {steps_exist(N - 1)} for horizon N = {N}",
                    f"k = {k}",
                    "Stop here, at the point that the guarantee is for; go on from it with restart(), or use a "
                    "larger horizon",
                )

    def _update(self, group: Group, x: list[Tensor], g: list[Tensor], alpha: float, each: Each) -> None:
        N, k = group["horizon"], group["k"]
        w = self._buffers(x, "mean", torch.zeros_like)
        each("lerp_", w, g, 1 / (N - k))
        each("add_", x, g, alpha=-alpha)
        each("add_", x, w, alpha=alpha)
        group["k"] = k + 1


def _as_horizon(horizon: Any) -> int:
    if not isinstance(horizon, Integral) or isinstance(horizon, bool):
        raise ArgumentTypeError(
            "DualAnchor: horizon must be an int", repr(horizon), "Use one more than the number of steps"
        )
    if horizon < 1:
        raise ArgumentError("DualAnchor: horizon must be at least 1", horizon, "Use one more than the number of steps")
    return int(horizon)


class OHM(FieldOptimizer):
    r"""The optimal Halpern method as an optimiser: each step pulls back towards the start.

    The method of `dualanchor.OHM`, along the field of gradients of one or several players. Anytime. Under noise with
    constant batches errors accumulate, where those of `DualAnchor` do not.

    Update
    ------
    .. math:: x_{k+1} = \frac{1}{k+2} x_0 + \frac{k+1}{k+2} \bigl(x_k - \alpha G_k\bigr)

    with :math:`\alpha` = `lr`, and :math:`G_k` the gradient, or minus the gradient where `maximize` is set.

    Guarantee
    ---------
    Exact gradients of a 1/L-cocoercive field, :math:`0 < \alpha \le 2/L`: :math:`\|G(x_{N-1})\| \le 2D/(\alpha N)` for
    every N (Proposition 3.3). None for constant batches.

    Parameters
    ----------
    params, lr, maximize, foreach
        As in `DualAnchor`.

    Notes
    -----
    The start :math:`x_0` of a parameter is its value when it first has a gradient.

    References
    ----------
    Halpern 1967; Lieder 2021; Kim 2021.

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

    def __init__(
        self, params: Iterable[Any], lr: float, maximize: bool = False, *, foreach: bool | None = None
    ) -> None:
        super().__init__(params, lr, maximize, foreach, k=0)

    def restart(self) -> None:
        """Begin again from where the parameters are: they become the anchor."""
        for group in self.param_groups:
            group["k"] = 0
        self.state.clear()

    def _update(self, group: Group, x: list[Tensor], g: list[Tensor], alpha: float, each: Each) -> None:
        anchor = self._buffers(x, "anchor", torch.clone)
        each("add_", x, g, alpha=-alpha)
        each("lerp_", x, anchor, 1 / (group["k"] + 2))
        group["k"] += 1


class ExtraGradient(FieldOptimizer):
    r"""Extragradient as an optimiser: look ahead, and step from where one was with the gradient found there.

    The method of `dualanchor.SEG`, for fields that are monotone and Lipschitz, cocoercive or not. Two gradients per
    step.

    Update
    ------
    .. math:: x_{k+1/2} = x_k - \alpha G(x_k), \qquad x_{k+1} = x_k - \alpha G(x_{k+1/2})

    with :math:`\alpha` = `lr`, and G the gradient, or minus the gradient where `maximize` is set.

    Guarantee
    ---------
    With exact gradients of a monotone M-Lipschitz field the iterates converge for :math:`\alpha < 1/M` (Korpelevich).
    None known for the last iterate under noise.

    Parameters
    ----------
    params, lr, maximize, foreach
        As in `DualAnchor`.

    Notes
    -----
    `step(closure)` calls the closure twice and returns the loss of the first call, at :math:`x_k`. By hand: `backward`,
    `extrapolate()`, `zero_grad()`, `backward` again, `step()`. Draw a new batch for the second gradient.

    References
    ----------
    Korpelevich 1976; Gorbunov, Berard, Gidel, Loizou 2022.

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

    def __init__(
        self, params: Iterable[Any], lr: float, maximize: bool = False, *, foreach: bool | None = None
    ) -> None:
        super().__init__(params, lr, maximize, foreach, ahead=False)

    def extrapolate(self) -> None:
        """Go to the point ahead, along the gradients at hand."""
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
                    self._go_back(group, each_of(group))
            raise
        return loss

    def _require_at_iterate(self) -> None:
        if self._is_ahead():
            raise ArgumentError(
                "ExtraGradient: extrapolate() and step(closure) begin a step",
                "parameters that are at the point ahead already",
                "End the step that was begun: zero_grad(), backward(), step()",
            )

    def _before_step(self) -> None:
        if not self._is_ahead():
            raise ArgumentError(
                "ExtraGradient: step() without a closure ends a step that extrapolate() began",
                "no step begun",
                "Call extrapolate() first and compute the gradients again, or pass a closure",
            )

    def _is_ahead(self) -> bool:
        return any(group["ahead"] for group in self.param_groups)

    def _look_ahead(self, group: Group, x: list[Tensor], g: list[Tensor], alpha: float, each: Each) -> None:
        each("copy_", self._buffers(group["params"], "origin", torch.empty_like), group["params"])
        each("add_", x, g, alpha=-alpha)
        group["ahead"] = True

    def _go_back(self, group: Group, each: Each) -> None:
        if group["ahead"]:
            each("copy_", group["params"], self._buffers(group["params"], "origin", torch.clone))
            group["ahead"] = False

    def _update(self, group: Group, x: list[Tensor], g: list[Tensor], alpha: float, each: Each) -> None:
        self._go_back(group, each)
        each("add_", x, g, alpha=-alpha)


class OptimisticGradient(FieldOptimizer):
    r"""The optimistic gradient method, or past extragradient: the last gradient stands in for the one ahead.

    For fields that are monotone and Lipschitz, cocoercive or not. One gradient per step.

    Update
    ------
    .. math:: x_{k+1} = x_k - 2 \alpha G_k + \alpha G_{k-1}, \qquad G_{-1} = G_0

    with :math:`\alpha` = `lr`, and :math:`G_k` the gradient, or minus the gradient where `maximize` is set.

    Guarantee
    ---------
    With exact gradients of a monotone M-Lipschitz field the iterates converge for :math:`\alpha < 1/(3M)` (Popov). None
    known for the last iterate under noise with constant batches.

    Parameters
    ----------
    params, lr, maximize, foreach
        As in `DualAnchor`.

    Notes
    -----
    In Popov's form these are the points at which gradients are taken. The first step is a plain gradient step.

    References
    ----------
    Popov 1980; Daskalakis, Ilyas, Syrgkanis, Zeng 2018.

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

    def __init__(
        self, params: Iterable[Any], lr: float, maximize: bool = False, *, foreach: bool | None = None
    ) -> None:
        super().__init__(params, lr, maximize, foreach)

    def _update(self, group: Group, x: list[Tensor], g: list[Tensor], alpha: float, each: Each) -> None:
        previous = self._buffers(x, "previous", lambda p: p.grad.clone())
        each("add_", x, g, alpha=-2 * alpha)
        each("add_", x, previous, alpha=alpha)
        each("copy_", previous, g)
