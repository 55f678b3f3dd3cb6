"""What the optimisers share: players, gradients, and one pass over many tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, unknown_name

_ANY_GROUP = ("params", "param_names", "name", "initial_lr")  # what PyTorch and its schedulers know
_OWN_COUNTS = ("k", "ahead")  # where a run stands, which a saved state brings back
_OF_OTHERS = {"weight_decay", "differentiable", "horizon", *_OWN_COUNTS}  # what tells other optimisers' states apart

Group = dict[str, Any]
Each = Callable[..., None]


class FieldOptimizer(Optimizer):  # type: ignore[misc]
    """An optimiser that follows the field G = gradient for players who minimise, minus gradient for those who maximise.

    A subclass gives `_update`. A parameter without a gradient is left as it is.
    """

    def __init__(self, params: Iterable[Any], lr: float, maximize: bool, foreach: bool | None, **own: Any) -> None:
        super().__init__(params, {"lr": lr, "maximize": maximize, "foreach": foreach, **own})

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with settings of their own; also called for every group at the start.

        In mid-run they join where the others are, as if they had been there without gradients.
        """
        for name in param_group:
            if name not in self.defaults and name not in _ANY_GROUP:
                known = [one for one in self.defaults if one not in _OWN_COUNTS]
                raise unknown_name(f"{type(self).__name__}: setting of a group", name, known)
        settings = self._settings({**self.defaults, **param_group})
        for group in self.param_groups[:1]:  # all groups stand where the first one does
            settings |= {name: group[name] for name in _OWN_COUNTS if name in group}
        super().add_param_group(param_group | settings)
        if any(p.is_complex() for p in self.param_groups[-1]["params"]):
            self.param_groups.pop()
            raise ArgumentTypeError(
                f"{type(self).__name__}: parameters must be real",
                "a complex one",
                "Make its real and its imaginary part two parameters",
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that an optimiser of the same kind saved."""
        for group in state_dict["param_groups"]:
            missing = [name for name in self.defaults if name not in group]
            foreign = [name for name in group if name in _OF_OTHERS and name not in self.defaults]
            if missing or foreign:
                without = f"without {', '.join(missing)}" if missing else f"with {', '.join(foreign)}"
                raise ArgumentError(
                    f"{type(self).__name__}: load_state_dict takes what a {type(self).__name__} saved",
                    f"groups {without}, as of another optimiser",
                    "Load it into an optimiser of the kind that saved it, or begin anew without it",
                )
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step along the gradients at hand; a closure is called first, to compute them.

        Returns
        -------
        What the closure returned, or None.
        """
        self._before_step()
        loss = None if closure is None else self._evaluate(closure)
        self._apply(self._update)
        return loss

    def _before_step(self) -> None:
        """Raise if there is no further step, before anything is computed."""

    def _update(self, group: Group, x: list[Tensor], g: list[Tensor], alpha: float, each: Each) -> None:
        """Move the parameters x of a group in place, given their gradients g; alpha is lr, negative when maximising."""
        raise NotImplementedError

    def _settings(self, group: Group) -> Group:
        """The numbers of a group, checked, as Python's own: a saved state holds nothing else beside tensors."""
        lr, name = group["lr"], type(self).__name__
        if not isinstance(lr, Real) or isinstance(lr, bool):
            raise ArgumentTypeError(f"{name}: lr must be a number", repr(lr), "Use a positive float")
        if not 0 < float(lr) < inf:
            raise ArgumentError(f"{name}: lr must be positive and finite", lr, "Use a positive float")
        for switch in ("maximize", "foreach"):
            value = group[switch]
            if not isinstance(value, (bool, np.bool_)) and not (switch == "foreach" and value is None):
                raise ArgumentTypeError(f"{name}: {switch} must be True or False", repr(value), "Use a bool")
        return {"lr": float(lr), "maximize": bool(group["maximize"])}

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            return closure()

    def _apply(self, update: Callable[..., None]) -> None:
        with torch.no_grad():
            gradients = [self._gradients(group) for group in self.param_groups]  # refused before anything has moved
            for group, (x, g) in zip(self.param_groups, gradients, strict=True):
                update(group, x, g, -group["lr"] if group["maximize"] else group["lr"], each_of(group))

    def _gradients(self, group: Group) -> tuple[list[Tensor], list[Tensor]]:
        x = [p for p in group["params"] if p.grad is not None]
        g = [p.grad for p in x]
        for one in g:
            if one.layout is not torch.strided:
                raise ArgumentTypeError(
                    f"{type(self).__name__}: gradients must be dense",
                    f"a gradient of layout {one.layout}",
                    "Use sparse=False in embeddings",
                )
        return x, g

    def _buffers(self, params: list[Tensor], name: str, make: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """What is remembered of each parameter, made when it is first needed."""
        buffers = []
        for p in params:
            state = self.state[p]
            if name not in state:
                state[name] = make(p)
            buffers.append(state[name])
        return buffers


def each_of(group: Group) -> Each:
    """An operation in place on many tensors: `each("add_", xs, ys, alpha=2)` is `x.add_(y, alpha=2)` for each pair."""
    foreach = group["foreach"]
    if foreach is None:  # subclasses of Tensor may not know the operations on lists
        foreach = all(type(p) in (Tensor, torch.nn.Parameter) for p in group["params"])

    def each(operation: str, xs: list[Tensor], ys: list[Tensor], *args: float, **options: float) -> None:
        if foreach and xs:
            getattr(torch, f"_foreach_{operation}")(xs, ys, *args, **options)
            return
        for x, y in zip(xs, ys, strict=True):
            getattr(x, operation)(y, *args, **options)

    return each
