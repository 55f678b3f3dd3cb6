"""What the optimisers share: players, gradients, and operations on many tensors at once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, unknown_name

_ANY_GROUP = ("params", "param_names", "name", "initial_lr")  # what PyTorch and its schedulers know
_COUNTERS = ("k", "ahead")  # where a run stands, which a saved state brings back
_OF_OTHERS = {"weight_decay", "differentiable", "horizon", *_COUNTERS}  # settings that show another optimiser's state

Group = dict[str, Any]


class TensorList:
    """A list of tensors that a method's `update` takes for one vector: every operation is in place, on all of them.

    A factor is only noted until the list is added to another one: `x -= alpha * G` is one pass without temporaries.
    """

    __slots__ = ("factor", "foreach", "tensors")

    def __init__(self, tensors: list[Tensor], foreach: bool, factor: float = 1.0) -> None:
        self.tensors, self.foreach, self.factor = tensors, foreach, factor

    def __rmul__(self, number: float) -> Self:
        return type(self)(self.tensors, self.foreach, number * self.factor)

    def __truediv__(self, number: float) -> Self:
        return type(self)(self.tensors, self.foreach, self.factor / number)

    def __imul__(self, number: float) -> Self:
        return self._each("mul_", number)

    def __iadd__(self, other: Self) -> Self:
        return self._each("add_", other.tensors, alpha=other.factor)

    def __isub__(self, other: Self) -> Self:
        return self._each("add_", other.tensors, alpha=-other.factor)

    def copy_(self, other: Self) -> Self:
        """Take the values of another list, whatever its factor."""
        return self._each("copy_", other.tensors)

    def _each(self, operation: str, operand: Any, **options: float) -> Self:
        if self.foreach and self.tensors:
            getattr(torch, f"_foreach_{operation}")(self.tensors, operand, **options)
            return self
        each = operand if isinstance(operand, list) else [operand] * len(self.tensors)
        for tensor, other in zip(self.tensors, each, strict=True):
            getattr(tensor, operation)(other, **options)
        return self


class FieldOptimizer(Optimizer):  # type: ignore[misc]
    """An optimiser along the field G: the gradient, or minus it where `maximize` is set; a subclass gives `_update`."""

    _own: Mapping[str, Any] = {}  # settings and counters of a subclass, with their values at the start
    _buffer: str  # the name of what is remembered of each parameter

    def __init__(
        self, params: Iterable[Any], lr: float, maximize: bool = False, *, foreach: bool | None = None
    ) -> None:
        super().__init__(params, {"lr": lr, "maximize": maximize, "foreach": foreach, **self._own})

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with settings of their own; in mid-run they join where the others are."""
        for name in param_group:
            if name not in self.defaults and name not in _ANY_GROUP:
                known = [one for one in self.defaults if one not in _COUNTERS]
                raise unknown_name(f"{type(self).__name__}: setting of a group", name, known)
        settings = self._settings({**self.defaults, **param_group})
        for group in self.param_groups[:1]:  # all groups stand where the first one does
            settings |= {name: group[name] for name in _COUNTERS if name in group}
        super().add_param_group(param_group | settings)
        if any(p.is_complex() for p in self.param_groups[-1]["params"]):
            self.param_groups.pop()
            remedy = "Make its real and its imaginary part two parameters"
            raise ArgumentTypeError(f"{type(self).__name__}: parameters must be real", "a complex one", remedy)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that an optimiser of the same kind saved."""
        name = type(self).__name__
        groups, memory = state_dict["param_groups"], state_dict["state"].values()
        missing = {setting for group in groups for setting in self.defaults if setting not in group}
        foreign = {setting for group in groups for setting in group if setting in _OF_OTHERS - self.defaults.keys()}
        foreign |= {buffer for buffers in memory for buffer in buffers if buffer != self._buffer}
        if missing or foreign:
            seen = f"without {', '.join(sorted(missing))}" if missing else f"with {', '.join(sorted(foreign))}"
            rule = f"{name}: load_state_dict takes what a {name} saved"
            remedy = "Load it into an optimiser of the kind that saved it, or begin anew without it"
            raise ArgumentError(rule, f"groups {seen}, as of another optimiser", remedy)
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step along the gradients; a closure that computes them is called first, its value returned."""
        self._before_step()
        loss = None if closure is None else self._evaluate(closure)
        self._apply(self._update)
        return loss

    def _before_step(self) -> None:
        """Raise if there is no further step, before anything is computed."""

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        """Move the parameters x of a group in place along the field G."""
        raise NotImplementedError

    def _settings(self, group: Group) -> Group:
        """The numbers of a group, checked, as Python's own: a saved state holds only these and tensors."""
        name = type(self).__name__
        if group["foreach"] is not None:
            check.switch(group["foreach"], f"{name}: foreach")
        lr = check.number(group["lr"], f"{name}: lr", positive=True, remedy="Use a positive float")
        return {"lr": lr, "maximize": check.switch(group["maximize"], f"{name}: maximize")}

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            return closure()

    def _apply(self, update: Callable[[Group, TensorList, TensorList], None]) -> None:
        moving = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        for p in (p for params in moving for p in params):  # refused before anything has moved
            if p.grad.layout is not torch.strided:
                rule, remedy = f"{type(self).__name__}: gradients must be dense", "Use sparse=False in embeddings"
                raise ArgumentTypeError(rule, f"a gradient of layout {p.grad.layout}", remedy)
        with torch.no_grad():
            for group, params in zip(self.param_groups, moving, strict=True):
                x, sign = tensors_of(group, params), -1.0 if group["maximize"] else 1.0
                update(group, x, TensorList([p.grad for p in params], x.foreach, sign))

    def _buffers(self, x: TensorList, make: Callable[[Tensor], Tensor]) -> TensorList:
        """What is remembered of each parameter, made when it is first needed."""
        for p in x.tensors:
            if self._buffer not in self.state[p]:
                self.state[p][self._buffer] = make(p)
        return TensorList([self.state[p][self._buffer] for p in x.tensors], x.foreach)


def tensors_of(group: Group, tensors: list[Tensor]) -> TensorList:
    """Tensors of a group as one vector: in one call where the group says so, or where its parameters are plain."""
    foreach = group["foreach"]
    if foreach is None:  # subclasses of Tensor may not know the operations on lists
        foreach = all(type(p) in (Tensor, torch.nn.Parameter) for p in group["params"])
    return TensorList(tensors, foreach)
