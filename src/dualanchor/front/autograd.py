"""The field of a function of two players, by automatic differentiation."""

import sys
from collections.abc import Callable
from math import prod
from typing import Any

from dualanchor.core import check
from dualanchor.core.errors import ArgumentTypeError, OracleError
from dualanchor.core.oracle import Oracle
from dualanchor.core.types import Array
from dualanchor.front.layout import Layout
from dualanchor.oracles.sampler import Sampler


def differentiated(phi: Callable[..., Any], x0: Any, args: tuple[Any, ...]) -> tuple[Oracle, Layout, Array]:
    """The oracle of (gradient in u, minus gradient in v) of `phi(u, v, n, rng, *args)`, from tensors of PyTorch."""
    check.function(phi, "saddle: phi", f"phi(u, v, n, rng{', *args' if args else ''})", 4 + len(args))
    layout, start = Layout.of(x0, "saddle", blocks=2)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(start, torch.Tensor):
        rule = "saddle: one function of both players is differentiated by PyTorch, so the start must be tensors"
        raise ArgumentTypeError(rule, type(start).__name__, "Start from tensors, or pass sample_u, sample_v, (u0, v0)")
    size_u, split = prod(layout.shapes[0]), layout.split

    def field(x: Any, n: int, rng: Any) -> Any:
        return field_of(lambda flat, random: phi(*split(flat), n, random, *args), x, size_u, rng, "saddle: phi")

    return Sampler(field, name="saddle: phi"), layout, start


def field_of(value_of: Callable[..., Any], x: Any, size_u: int, rng: Any, owner: str, device: Any = None) -> Any:
    """The gradient of `value_of(x, generator)` at a tensor x (d,), with the other sign behind `size_u`; one pass."""
    torch: Any = sys.modules["torch"]
    generator = torch.Generator(x.device if device is None else device).manual_seed(int(rng.integers(2**63)))
    with torch.enable_grad():
        flat = x.detach().requires_grad_()
        value = value_of(flat, generator)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            remedy = "Return a tensor made from u and v"
            received = type(value).__name__
            if isinstance(value, torch.Tensor):
                received = "a number without a graph"
                if value.numel() != 1:
                    received, remedy = f"shape {tuple(value.shape)}", "Take the mean or sum"
            raise OracleError(f"{owner} must return one number", received, remedy)
        (gradient,) = torch.autograd.grad(value, flat)
    gradient[size_u:].neg_()
    return gradient
