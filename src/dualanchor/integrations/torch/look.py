"""How steep a field of gradients is, from a few batches."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from dualanchor.core.errors import ArgumentError

_ROUNDS, _RELATIVE = 8, 1e-3  # gradients per batch; length of a difference, relative to 1 + |x|


def steepness(groups: list[dict[str, Any]], loss: Callable[[Any], Any], batches: Iterable[Any], owner: str) -> float:
    """The largest M over the batches, of M = |G(x + d) - G(x)| / |d| along power iterations, at the present point.

    G is the field of one batch as a whole, whose constant is smaller than that of its rows: batches must have the size
    that they have in the loop. The generator of PyTorch is as it was before.
    """
    players = [(p, -1.0 if group["maximize"] else 1.0) for group in groups for p in group["params"] if p.requires_grad]
    params = [p for p, _ in players]
    start = torch.cat([p.detach().reshape(-1) for p in params])
    random = torch.random.get_rng_state()

    def field(x: Tensor, batch: Any) -> Tensor:
        torch.random.set_rng_state(random)  # the same dropout at all points
        _assign(params, x)
        with torch.enable_grad():
            value = loss(batch)
            gradients = torch.autograd.grad(value, params, allow_unused=True)
        signed = zip(players, gradients, strict=True)
        parts = [torch.zeros_like(p) if g is None else sign * g for (p, sign), g in signed]
        return torch.cat([part.reshape(-1) for part in parts]) + decay * x

    decay = torch.cat(
        [torch.full((p.numel(),), float(g["weight_decay"])) for g in groups for p in g["params"] if p.requires_grad]
    ).to(start)
    largest, length = 0.0, _RELATIVE * (1 + float(start.norm()))
    try:
        for batch in batches:
            here = field(start, batch)
            direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(0)).to(start)
            for _ in range(_ROUNDS):
                direction /= direction.norm()
                direction = (field(start + length * direction, batch) - here) / length
                largest = max(largest, float(direction.norm()))
                if not 0 < largest < float("inf"):
                    break
    finally:
        _assign(params, start)
        torch.random.set_rng_state(random)
    if not 0 < largest < float("inf"):
        rule = f"{owner} must show how fast gradients change"
        remedy = "Check that loss(batch) depends on the parameters and is finite, or pass lr as a number"
        raise ArgumentError(rule, f"a largest slope of {largest}", remedy)
    return largest


def _assign(params: list[Tensor], x: Tensor) -> None:
    with torch.no_grad():
        for p, values in zip(params, x.split([p.numel() for p in params]), strict=True):
            p.copy_(values.reshape(p.shape))
