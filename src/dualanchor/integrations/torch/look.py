"""How steep a field of gradients is, from a few batches."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, AssumptionWarning, explain

_ROUNDS, _RELATIVE = 8, 1e-3  # gradients per batch; length of a difference, relative to 1 + |x|
_FLAT = 0.01  # of the largest steepness: a group below has no curvature of its own to speak of
_AGAINST = -0.9  # the cosine of a change of the field and the direction of the change: it decreases
_FEW = 8  # tensors that are looked at one by one


class Look:
    """The field of gradients of parameters, at the point where they are, on a few batches.

    Each batch is taken as a whole, whose constant is smaller than that of its rows: batches must have the size that
    they have in the loop. Parameters, buffers of modules and PyTorch's generator are in the end as they were before.
    """

    def __init__(self, groups: list[dict[str, Any]], look: Any, owner: str) -> None:
        if not (isinstance(look, tuple) and len(look) == 2 and callable(look[0]) and isinstance(look[1], Iterable)):
            rule, received = f"{owner} must be a pair: a function and a few batches", type(look).__name__
            remedy = "Pass look=(loss, batches): loss(batch) is what is differentiated"
            raise ArgumentTypeError(rule, received, remedy)
        self._loss, self._batches, self._owner = look[0], list(look[1]), owner
        own = [[p for p in group["params"] if p.requires_grad] for group in groups]
        self._params = [p for params in own for p in params]
        self._signs = [-1.0 if group["maximize"] else 1.0 for group, ps in zip(groups, own, strict=True) for _ in ps]
        self._x = torch.cat([p.detach().reshape(-1) for p in self._params])
        self._random = torch.random.get_rng_state()
        self._decay = self._spread([float(g["weight_decay"]) for g, ps in zip(groups, own, strict=True) for _ in ps])
        self._sizes = [len(params) for params in own]

    def steepness(self) -> list[float]:
        """M for each group, so that steps c/M, c <= 1, are short enough for the fields of all batches together.

        M = |G(x + d) - G(x)| / |d| along power iterations, largest over the batches: for each group by itself, whose
        steps are a change of units, and then for all of them in these units.
        """
        with self._undone():
            several = len(self._sizes) > 1
            blocks = self._blocks() if several else [[True] * len(self._params)]
            own = [self._slope(self._spread(map(float, block)), block) for block in blocks] if several else [1.0]
            if not several and 1 < len(self._params) <= _FEW:
                for i in range(len(self._params)):
                    block = [i == j for j in range(len(self._params))]
                    self._slope(self._spread(map(float, block)), block)
            own = [one if one > _FLAT * max(own) else max(own) or 1.0 for one in own]
            units = [one**-0.5 for one, count in zip(own, self._sizes, strict=True) for _ in range(count)]
            joint = self._slope(self._spread(units), None if several else blocks[0])
        if not 0 < joint < float("inf"):
            rule = f"{self._owner} must show how fast gradients change"
            remedy = "Check that loss(batch) depends on the parameters and is finite, or pass lr as a number"
            raise ArgumentError(rule, f"a largest slope of {joint}", remedy)
        return [joint * one for one in own]

    def _slope(self, units: Tensor, block: list[bool] | None) -> float:
        """The steepness where coordinates are measured in these units, 0 for those left out; warns of a decrease."""
        largest, cosines = 0.0, list[float]()
        length = _RELATIVE * (1 + float(self._x.norm()))
        for batch in self._batches:
            here = self._field(self._x, batch)
            direction = torch.randn(self._x.shape, generator=torch.Generator().manual_seed(0)).to(self._x)
            direction = torch.where(units > 0, direction, 0.0)
            for _ in range(_ROUNDS):
                direction = direction / direction.norm()
                move = units * direction
                step = length / float(move.norm())
                change = units * (self._field(self._x + step * move, batch) - here) / step
                slope = float(change.norm())
                cosine, direction = float(change @ direction) / (slope or 1.0), change
                largest = max(largest, slope)
                if not 0 < slope < float("inf"):
                    break
            cosines.append(cosine)
        if block is not None and largest > 0 and max(cosines, default=0.0) < _AGAINST:
            self._warn_of_decrease(block)
        return largest

    def _field(self, x: Tensor, batch: Any) -> Tensor:
        torch.random.set_rng_state(self._random)  # the same dropout at all points
        _assign(self._params, x)
        with torch.enable_grad():
            gradients = torch.autograd.grad(self._loss(batch), self._params, allow_unused=True)
        each = zip(self._params, self._signs, gradients, strict=True)
        parts = [torch.zeros_like(p) if g is None else sign * g for p, sign, g in each]
        return torch.cat([part.reshape(-1) for part in parts]) + self._decay * x

    def _blocks(self) -> list[list[bool]]:
        """For each group, which parameters are in it."""
        ends = [sum(self._sizes[: i + 1]) for i in range(len(self._sizes))]
        return [[end - size <= i < end for i in range(ends[-1])] for end, size in zip(ends, self._sizes, strict=True)]

    def _spread(self, values: Iterable[float]) -> Tensor:
        """A vector like x with one number for each parameter."""
        each = zip(self._params, values, strict=True)
        return torch.cat([torch.full((p.numel(),), value) for p, value in each]).to(self._x)

    def _warn_of_decrease(self, block: list[bool]) -> None:
        shapes = [str(tuple(p.shape)) for p, inside in zip(self._params, block, strict=True) if inside]
        more = "" if len(shapes) <= 3 else f" and {len(shapes) - 3} more"
        rule = f"{self._owner}: along their steepest direction the loss of parameters that descend must curve upwards"
        received = f"a loss that curves downwards for those of shape {', '.join(shapes[:3])}{more}"
        remedy = 'If they are to ascend, put them into a group with "maximize": True, else out of it'
        warnings.warn(explain(rule, received, remedy), AssumptionWarning, stacklevel=5)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Everything that the loss may change is put back: parameters, the generator, buffers such as BatchNorm's."""
        buffers: dict[tuple[int, str], Any] = {}

        def note(module: torch.nn.Module, inputs: Any) -> None:
            for name, buffer in module.named_buffers(recurse=False):
                if (id(module), name) not in buffers:
                    buffers[id(module), name] = module, buffer, buffer.detach().clone()

        handle = register_module_forward_pre_hook(note)
        try:
            yield
        finally:
            handle.remove()
            _assign(self._params, self._x)
            torch.random.set_rng_state(self._random)
            for (_, name), (module, buffer, value) in buffers.items():
                buffer.copy_(value)
                module._buffers[name] = buffer


def _assign(params: list[Tensor], x: Tensor) -> None:
    with torch.no_grad():
        for p, values in zip(params, x.split([p.numel() for p in params]), strict=True):
            p.copy_(values.reshape(p.shape))
