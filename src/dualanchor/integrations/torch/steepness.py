"""How steep a field of gradients is, from a few batches: what `lr="auto"` is made of."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, AssumptionWarning, explain
from dualanchor.integrations.torch.field import Group, warn_caller

_POWER_ITERATIONS = 8  # each takes one gradient on each batch
_RELATIVE_DISTANCE = 1e-3  # between the two points of a difference of gradients, relative to 1 + |x|
_FLAT = 0.01  # times the largest steepness of a group: groups below get that of the steepest one
_DECREASING = -0.9  # cosine of a move and the change of the field, below which the field decreases along the move
_MAX_TENSORS = 8  # a single group with at most this many tensors is checked tensor by tensor for a decrease


class Steepness:
    """The steepness of the field of gradients at the present parameters, on a few batches.

    A batch counts as a whole, and is less steep than its rows: batches must have the size that they have in the loop.
    Parameters, buffers of modules and PyTorch's generator are left as they were.
    """

    def __init__(self, groups: list[Group], look: Any, owner: str) -> None:
        if not (isinstance(look, tuple) and len(look) == 2 and callable(look[0]) and isinstance(look[1], Iterable)):
            rule, received = f"{owner} must be a pair: a function and a few batches", type(look).__name__
            remedy = "Pass look=(loss, batches): loss(batch) is what is differentiated"
            raise ArgumentTypeError(rule, received, remedy)
        self._loss, self._batches, self._owner = look[0], list(look[1]), owner
        players = [(i, p) for i, group in enumerate(groups) for p in group["params"] if p.requires_grad]
        self._groups = len(groups)
        self._group_of = [i for i, _ in players]  # the number of the group of each parameter
        self._params = [p for _, p in players]
        self._signs = [-1.0 if groups[i]["maximize"] else 1.0 for i in self._group_of]
        self._x = torch.cat([p.detach().reshape(-1) for p in self._params])
        self._weight_decay = self._spread(float(groups[i]["weight_decay"]) for i in self._group_of)
        self._generator_state = torch.random.get_rng_state()

    def of_groups(self) -> list[float]:
        """M for each group: steps of at most 1/M are short enough for the fields of all batches.

        M = |G(x + d) - G(x)| / |d| along power iterations, the largest over the batches: first for each group alone,
        then for all of them together in units in which they are equally steep.
        """
        with self._restoring():
            if self._groups > 1:
                alone = [self._measured(i == group for i in self._group_of) for group in range(self._groups)]
                steepest = max(alone)
                alone = [M if _FLAT * steepest < M else steepest or 1.0 for M in alone]
                joint = self._largest_slope(self._spread(alone[i] ** -0.5 for i in self._group_of))[0]
            else:
                if 1 < len(self._params) <= _MAX_TENSORS:
                    for i in range(len(self._params)):  # only for the warnings
                        self._measured(i == j for j in range(len(self._params)))
                alone, joint = [1.0], self._measured(True for _ in self._params)
        if not 0 < joint < inf:
            rule = f"{self._owner} must show how fast gradients change"
            remedy = "Check that loss(batch) depends on the parameters and is finite, or pass lr as a number"
            raise ArgumentError(rule, f"a largest slope of {joint}", remedy)
        return [joint * M for M in alone]

    def _measured(self, chosen: Iterable[bool]) -> float:
        """The steepness along some of the parameters; warns if the field decreases along their steepest direction."""
        mask = list(chosen)
        steepness, cosine = self._largest_slope(self._spread(map(float, mask)))
        if steepness > 0 and cosine < _DECREASING:
            shapes = [str(tuple(p.shape)) for p, is_chosen in zip(self._params, mask, strict=True) if is_chosen]
            more = "" if len(shapes) <= 3 else f" and {len(shapes) - 3} more"
            rule = (
                f"{self._owner}: along their steepest direction the loss of parameters that descend must curve upwards"
            )
            received = f"a loss that curves downwards for those of shape {', '.join(shapes[:3])}{more}"
            remedy = 'If they are to ascend, put them into a group with "maximize": True, else out of it'
            warn_caller(explain(rule, received, remedy), AssumptionWarning)
        return steepness

    def _largest_slope(self, units: Tensor) -> tuple[float, float]:
        """The steepness with coordinates in these units, (d,), 0 for those that stay; the largest cosine of batches."""
        largest, cosines = 0.0, list[float]()
        distance = _RELATIVE_DISTANCE * (1 + float(self._x.norm()))
        for batch in self._batches:
            here = self._field(self._x, batch)
            direction = torch.randn(self._x.shape, generator=torch.Generator().manual_seed(0)).to(self._x)
            direction = torch.where(units > 0, direction, 0.0)
            for _ in range(_POWER_ITERATIONS):
                direction = direction / direction.norm()
                move = units * direction
                step = distance / float(move.norm())
                change = units * (self._field(self._x + step * move, batch) - here) / step
                slope = float(change.norm())
                cosine = float(change @ direction) / (slope or 1.0)
                largest = max(largest, slope)
                direction = change
                if not 0 < slope < inf:
                    break
            cosines.append(cosine)
        return largest, max(cosines, default=0.0)

    def _field(self, x: Tensor, batch: Any) -> Tensor:
        torch.random.set_rng_state(self._generator_state)  # the same dropout at all points
        _assign(self._params, x)
        with torch.enable_grad():
            loss = self._loss(batch)
            gradients = torch.autograd.grad(loss, self._params, allow_unused=True)
        if x is self._x and not torch.isfinite(loss).all():
            remedy = "Check loss(batch) at the parameters as they are, or pass lr as a number"
            raise ArgumentError(f"{self._owner}: the loss must be finite", f"a loss of {loss.detach()}", remedy)
        each = zip(self._params, self._signs, gradients, strict=True)
        parts = [torch.zeros_like(p) if g is None else sign * g for p, sign, g in each]
        return torch.cat([part.reshape(-1) for part in parts]) + self._weight_decay * x

    def _spread(self, values: Iterable[float]) -> Tensor:
        """A vector like x, from one number for each parameter."""
        each = zip(self._params, values, strict=True)
        return torch.cat([torch.full((p.numel(),), value) for p, value in each]).to(self._x)

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore at the end what the loss may change: parameters, the generator, buffers such as BatchNorm's."""
        buffers: dict[tuple[int, str], Any] = {}

        def save(module: torch.nn.Module, inputs: Any) -> None:
            for name, buffer in module.named_buffers(recurse=False):
                if (id(module), name) not in buffers:
                    buffers[id(module), name] = module, buffer, buffer.detach().clone()

        handle = register_module_forward_pre_hook(save)
        try:
            yield
        finally:
            handle.remove()
            _assign(self._params, self._x)
            torch.random.set_rng_state(self._generator_state)
            for (_, name), (module, buffer, value) in buffers.items():
                buffer.copy_(value)
                module._buffers[name] = buffer


def _assign(params: list[Tensor], x: Tensor) -> None:
    with torch.no_grad():
        for p, values in zip(params, x.split([p.numel() for p in params]), strict=True):
            p.copy_(values.reshape(p.shape))
