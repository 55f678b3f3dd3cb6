"""What the optimisers share: players, gradients, and operations on many tensors at once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, unknown_name

_SET_BY_TORCH = (  # keys of a group that PyTorch and its schedulers write
    "params", "param_names", "name", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum",
)  # fmt: skip
_COUNTERS = ("k", "ahead")  # keys of a group that say where a run stands
_OF_OTHERS = {"nesterov", "betas", "differentiable", "horizon", "delta", *_COUNTERS}  # keys of other optimisers

Group = dict[str, Any]


class TensorList:
    """A list of tensors that a method's `update` treats as one vector: in-place operations work on all of them.

    Multiplication by a number only changes `factor`: `x -= alpha * G` is one pass over the tensors, no temporaries.
    """

    __slots__ = ("factor", "foreach", "tensors")

    def __init__(self, tensors: list[Tensor], foreach: bool, factor: Any = 1.0) -> None:
        self.tensors, self.foreach, self.factor = tensors, foreach, factor

    def __rmul__(self, number: Any) -> Self:
        return type(self)(self.tensors, self.foreach, number * self.factor)

    def __truediv__(self, number: Any) -> Self:
        return type(self)(self.tensors, self.foreach, self.factor / number)

    def __imul__(self, number: Any) -> Self:
        return self._each("mul_", number)

    def __iadd__(self, other: Self) -> Self:
        return self._add(other, other.factor)

    def __isub__(self, other: Self) -> Self:
        return self._add(other, -other.factor)

    def __add__(self, other: Self) -> Self:
        return self._new()._add(other, other.factor)

    def __sub__(self, other: Self) -> Self:
        return self._new()._add(other, -other.factor)

    def copy_(self, other: Self) -> Self:
        """Take the values of another list, without its factor."""
        return self._each("copy_", other.tensors)

    def lerp_(self, other: Self, share: float) -> Self:
        """Move by this share of the way to another list, without its factor."""
        return self._each("mul_", 1 - share)._add(other, share)

    def _new(self) -> Self:
        """The values, factor included, in new tensors."""
        if self.foreach and self.tensors:
            return type(self)(list(torch._foreach_mul(self.tensors, self.factor)), self.foreach)
        return type(self)([self.factor * tensor for tensor in self.tensors], self.foreach)

    def _add(self, other: Self, factor: Any) -> Self:
        if isinstance(factor, Tensor):  # in a compiled step, where products need no temporaries
            return self._each("add_", type(self)(other.tensors, other.foreach, factor)._new().tensors)
        return self._each("add_", other.tensors, alpha=factor)

    def _each(self, operation: str, operand: Any, **options: float) -> Self:
        if self.foreach and self.tensors:
            getattr(torch, f"_foreach_{operation}")(self.tensors, operand, **options)
            return self
        operands = operand if isinstance(operand, list) else [operand] * len(self.tensors)
        for tensor, own in zip(self.tensors, operands, strict=True):
            getattr(tensor, operation)(own, **options)
        return self


class MethodAndState:
    """What a method's `update` reads of the method and of its state. A plain class, which torch.compile can trace."""

    step_size = 1.0  # the field is a multiple of lr already

    def __init__(self, x: TensorList, *, anchor: Any = None, horizon: int = 0, z: Any = None) -> None:
        self.x, self.anchor, self.horizon, self.z = x, anchor, horizon, z


class FieldOptimizer(Optimizer):  # type: ignore[misc]
    """An optimiser along the field G: the gradient, or minus it where `maximize` is set; a subclass gives `_update`.

    With `weight_decay` the field has weight_decay * x added to it, for both kinds of players.
    """

    _extra_defaults: Mapping[str, Any] = {}  # settings and counters of a subclass, with their initial values
    _buffer_names: tuple[str, ...]  # the tensors that may be kept in the state of each parameter

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any,
        maximize: bool = False,
        *,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
    ) -> None:
        # momentum is there for OneCycleLR and CyclicLR, which write it; nothing reads it
        common = {"lr": lr, "maximize": maximize, "weight_decay": weight_decay, "foreach": foreach, "momentum": 0.0}
        super().__init__(params, {**common, **self._extra_defaults})

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with settings of their own; in mid-run they join where the others are."""
        for name in param_group:
            if name not in self.defaults and name not in _SET_BY_TORCH:
                known = [setting for setting in self.defaults if setting not in (*_COUNTERS, "momentum")]
                raise unknown_name(f"{type(self).__name__}: setting of a group", name, known)
        settings = self._settings({**self.defaults, **param_group})
        for group in self.param_groups[:1]:  # all groups stand where the first one does
            settings |= {name: group[name] for name in _COUNTERS if name in group}
        super().add_param_group(param_group | settings)
        try:
            self._check_parameters(self.param_groups[-1]["params"])
        except BaseException:
            self.param_groups.pop()
            raise

    def _check_parameters(self, params: list[Tensor]) -> None:
        name = type(self).__name__
        if not params:
            remedy = "Leave the group out; add_param_group takes it when there are parameters"
            raise ArgumentError(f"{name}: a group must have parameters", "an empty group", remedy)
        for p in params:
            if p.is_complex():
                remedy = "Make its real and its imaginary part two parameters"
                raise ArgumentTypeError(f"{name}: parameters must be real", "a complex one", remedy)
            if p.dtype not in (torch.float32, torch.float64):
                remedy = "Keep parameters in float32 and use torch.autocast: in half precision small steps vanish"
                raise ArgumentTypeError(f"{name}: parameters must be float32 or float64", f"one of {p.dtype}", remedy)
        if not any(p.requires_grad for p in params):
            rule = f"{name}: a group must have parameters that require gradients"
            remedy = "Call requires_grad_() on them, or add the group with add_param_group when they are unfrozen"
            raise ArgumentError(rule, f"a group whose {len(params)} parameters are all frozen", remedy)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that an optimiser of the same kind saved."""
        name = type(self).__name__
        groups, states = state_dict["param_groups"], state_dict["state"].values()
        saved = self.defaults.keys() - {"prox"}
        missing = {setting for group in groups for setting in saved if setting not in group}
        foreign = {setting for group in groups for setting in group if setting in _OF_OTHERS - self.defaults.keys()}
        foreign |= {buffer for state in states for buffer in state if buffer not in self._buffer_names}
        if missing or foreign:
            evidence = f"with {', '.join(sorted(foreign))}" if foreign else f"without {', '.join(sorted(missing))}"
            rule = f"{name}: load_state_dict takes a state saved by {name}"
            remedy = "Load it into an optimiser of the kind that saved it, or begin anew without it"
            raise ArgumentError(rule, f"groups {evidence}, as of another optimiser", remedy)
        super().load_state_dict(state_dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.defaults.pop("differentiable", None)  # PyTorch adds it for its own optimisers

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step along the gradients; a closure that computes them is called first, its value returned."""
        loss = None if closure is None else self._evaluate(closure)
        self._apply(self._update)
        return loss

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        """Move the parameters x of a group in place along the field G."""
        raise NotImplementedError

    def _settings(self, group: Group) -> Group:
        """The settings of a group, checked and converted to Python numbers or tensors, which a saved state can hold."""
        name = type(self).__name__
        if group["foreach"] is not None:
            check.switch(group["foreach"], f"{name}: foreach")
        remedy = "Use a positive float"
        if isinstance(group["lr"], str):
            remedy += '; lr="auto", with look, is for DualAnchor and RegularisedDualAnchor, for groups without an lr'
        number = check.number(group["lr"], f"{name}: lr", positive=True, remedy=remedy)
        return {
            "lr": group["lr"] if isinstance(group["lr"], Tensor) else number,
            "maximize": check.switch(group["maximize"], f"{name}: maximize"),
            "weight_decay": check.number(group["weight_decay"], f"{name}: weight_decay"),
        }

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            return closure()

    def _apply(self, update: Callable[[Group, TensorList, TensorList], None]) -> None:
        """Call `update(group, x, G)` for each group, with the parameters that have gradients and their field."""
        with_gradients = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        for params in with_gradients:  # all are checked before any parameter moves
            for p in params:
                require_dense(p.grad, type(self).__name__)
        with torch.no_grad():
            for group, params in zip(self.param_groups, with_gradients, strict=True):
                x = tensors_of(group, params)
                sign = -1.0 if group["maximize"] else 1.0
                G = TensorList([p.grad for p in params], x.foreach)
                if group["weight_decay"]:
                    G = G + sign * group["weight_decay"] * x
                G.factor = sign
                update(group, x, G)

    def _buffers(self, name: str, x: TensorList, make: Callable[[Tensor], Tensor]) -> TensorList:
        """The buffer with this name of each parameter of x, made by `make(p)` when it is first needed."""
        for p in x.tensors:
            if name not in self.state[p]:
                self.state[p][name] = make(p)
        return TensorList([self.state[p][name] for p in x.tensors], x.foreach)


def require_dense(gradient: Tensor, owner: str) -> None:
    """Raise unless a gradient is dense."""
    if gradient.layout is not torch.strided:
        rule, remedy = f"{owner}: gradients must be dense", "Use sparse=False in embeddings"
        raise ArgumentTypeError(rule, f"a gradient of layout {gradient.layout}", remedy)


def times_lr(group: Group, G: TensorList) -> TensorList:
    """G times the lr of its group. A tensor stays one in a compiled step, which then serves all values of lr."""
    lr = group["lr"]
    if isinstance(lr, Tensor) and not torch.compiler.is_compiling():
        lr = lr.item()
    return TensorList(G.tensors, G.foreach, lr * G.factor)


def tensors_of(group: Group, tensors: list[Tensor]) -> TensorList:
    """Tensors of a group as one vector, with the group's `foreach`; by default True if its parameters are plain."""
    foreach = group["foreach"]
    if foreach is None:  # subclasses of Tensor may lack the operations on lists
        foreach = all(type(p) in (Tensor, torch.nn.Parameter) for p in group["params"])
    return TensorList(tensors, foreach)
