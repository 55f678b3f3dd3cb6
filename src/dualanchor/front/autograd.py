"""The oracle of a saddle function of two players, by automatic differentiation with PyTorch or JAX."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentTypeError, OracleError
from dualanchor.core.oracle import Oracle
from dualanchor.core.types import Array
from dualanchor.oracles.layout import Layout, keyed_function, require_tuple
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.user_call import of_module, torch_generator


def differentiated(phi: Callable[..., Any], x0: Any, args: Any) -> tuple[Oracle, Layout, Array]:
    """The oracle of (gradient in u, minus gradient in v) of `phi(u, v, n, rng, *args)`, from tensors or JAX arrays."""
    require_tuple(args, "saddle")
    args = tuple(args)
    check.function(phi, "saddle: phi", f"phi(u, v, n, rng{', *args' if args else ''})", 4 + len(args))
    layout, start = Layout.of(x0, "saddle", players=True)
    if arrays.is_jax(start):
        gradient = _TracedGradient(phi, layout)
        compiled = keyed_function(gradient, start, None, args, "saddle: phi")
        return compiled or Sampler(gradient, args=args, name="saddle: phi"), layout, start
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(start, torch.Tensor):
        rule = "saddle: one function of both players is differentiated, so the start must be of PyTorch or JAX"
        remedy = "Start from tensors or JAX arrays, or pass sample_u, sample_v, (u0, v0)"
        raise ArgumentTypeError(rule, type(start).__name__, remedy)
    leaves_u = len(layout.players[0].shapes)

    def field(x: Any, n: int, rng: Any) -> Any:
        def value(leaves: Any, random: Any) -> Any:
            return phi(*layout.of_leaves(leaves), n, random, *args)

        return field_of(value, x, list(layout.leaves_of(x)), leaves_u, rng, "saddle: phi")

    return _Gradient(field, name="saddle: phi"), layout, start


class _Gradient(Sampler):
    returns_new = True


@dataclass(frozen=True)
class _TracedGradient:
    """The same of a function written in JAX, at flat points (d,); equal to that of the same function."""

    phi: Any
    layout: Layout

    def __call__(self, x: Array, n: Any, key: Any, *args: Any) -> Array:
        jax = sys.modules["jax"]

        def value(x: Any) -> Any:
            number = self.phi(*self.layout.split(x), n, key, *args)
            if isinstance(number, jax.Array) and number.size == 1:
                return number.reshape(())
            received, remedy = type(number).__name__, "Return a number made from u and v"
            if isinstance(number, jax.Array):
                received, remedy = f"shape {number.shape}", "Return the mean over the samples"
            raise OracleError("saddle: phi must return one number", received, remedy)

        gradient = jax.grad(value)(x)
        dimension_u = sum(map(prod, self.layout.players[0].shapes))
        return arrays.concatenate([gradient[:dimension_u], -gradient[dimension_u:]])


def field_of(value_of: Callable[..., Any], x: Any, leaves: Any, leaves_u: int, rng: Any, owner: str) -> Any:
    """The gradient of `value_of(leaves, generator)` as a vector like x (d,), negated for the second player.

    `leaves` are tensors with the numbers of x, the first `leaves_u` of them those of the first player; the generator,
    seeded from `rng`, is on their device.
    """
    torch: Any = sys.modules["torch"]
    generator = torch_generator(rng, leaves)
    with torch.enable_grad():
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        value = value_of(leaves, generator)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            remedy = "Return a tensor made from u and v"
            received = type(value).__name__
            if isinstance(value, torch.Tensor):
                received = "a number without a graph"
                if torch.is_inference_mode_enabled():
                    received += ", in torch.inference_mode()"
                    remedy = "Leave that mode: nothing can be differentiated in it, even with enable_grad()"
                if value.numel() != 1:
                    received, remedy = f"shape {tuple(value.shape)}", "Return the mean over the samples"
            raise OracleError(f"{owner} must return one number", received, remedy)
        gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    for player, own in (("u", gradients[:leaves_u]), ("v", gradients[leaves_u:])):
        if own and all(gradient is None for gradient in own):
            remedy = f"Compute it from the {player} that is passed; {of_module(player)}"
            raise OracleError(
                f"{owner} must depend on {player}", f"a number that is not computed from {player}", remedy
            )
    parts = [torch.zeros_like(leaf) if own is None else own for leaf, own in zip(leaves, gradients, strict=True)]
    joint = torch.cat([part.reshape(-1).to(x) for part in parts])
    joint[sum(leaf.numel() for leaf in leaves[:leaves_u]) :].neg_()
    return joint
