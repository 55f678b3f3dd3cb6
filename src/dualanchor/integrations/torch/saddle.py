"""A scalar function of two players, differentiated by autograd, as an oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.streams import Handle
from dualanchor.core.types import Array
from dualanchor.front.shapes import require_arguments
from dualanchor.oracles.each_row import each_row
from dualanchor.oracles.sampler import Sampler

_ARRAYS = {torch.float32: np.float32, torch.float64: np.float64}


class SaddleOracle(Sampler):
    """The field (gradient in u, minus gradient in v) of a function of two players; made by `saddle_oracle`.

    Attributes
    ----------
    x0 : array of shape (d,)
        The start, both players in one vector.
    """

    takes_vectors = True  # in NumPy, like x0: what players are made of is for `unflatten` to know

    def __init__(self, phi: Callable[..., Any], u0: Any, v0: Any) -> None:
        require_arguments(phi, 4, "phi(u, v, n, rng)", "saddle_oracle: phi")
        self._leaves, self._tree = tree_flatten((u0, v0))
        for leaf in self._leaves:
            if not isinstance(leaf, Tensor) or leaf.dtype not in _ARRAYS:
                raise _no_player(leaf)
        self._phi, self._size_u = phi, sum(leaf.numel() for leaf in tree_flatten(u0)[0])
        self.x0 = self.flatten(u0, v0)
        super().__init__(self._field)

    def flatten(self, u: Any, v: Any) -> Array:
        """Both players in one vector, like `x0`; float32 if all their tensors are."""
        parts = [leaf.detach().reshape(-1).cpu().numpy() for leaf in tree_flatten((u, v))[0]]
        return np.concatenate(parts)

    def unflatten(self, x: Any) -> tuple[Any, Any]:
        """Both players from one vector, shaped like u0 and v0, in their types and on their devices.

        From several vectors, of shape (rows, d) as in a result with replications, each tensor has rows as first axis.
        """
        flat = x if isinstance(x, Tensor) else torch.tensor(np.asarray(x))
        self._require_point(tuple(flat.shape))
        pieces = flat.split([leaf.numel() for leaf in self._leaves], dim=-1)
        leaves = [
            piece.reshape(flat.shape[:-1] + leaf.shape).to(leaf)
            for piece, leaf in zip(pieces, self._leaves, strict=True)
        ]
        return tree_unflatten(leaves, self._tree)

    def _require_point(self, shape: tuple[int, ...]) -> None:
        if shape[-1:] != self.x0.shape:
            raise ArgumentError(
                f"saddle_oracle: a point must have {self.x0.size} coordinates, those of u and then those of v",
                f"shape {shape}",
                "Use the x of a result, oracle.x0, or oracle.flatten(u, v)",
            )

    def _part(self, x: Array, n: int, handles: list[Handle], positions: Any, shard: int) -> Array:
        self._require_point(x.shape[1:])
        return each_row(
            lambda row: self._field(arrays.lent(x[row]), n, handles[row].generator(int(positions[row]), shard)),
            x,
            "saddle_oracle: phi",
        )

    def _field(self, x: Array, n: int, rng: np.random.Generator) -> Array:
        generator = torch.Generator(self._leaves[0].device).manual_seed(int(rng.integers(2**63)))
        with torch.enable_grad():
            flat = torch.from_numpy(x).requires_grad_()
            value = self._phi(*self.unflatten(flat), n, generator)
            if not isinstance(value, Tensor) or value.numel() != 1:
                received = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                remedy = "Take the mean or sum" if isinstance(value, Tensor) else "Return a tensor made from u and v"
                raise OracleError("saddle_oracle: phi must return one number", received, remedy)
            (gradient,) = torch.autograd.grad(value, flat)
        gradient[self._size_u :].neg_()
        return gradient.numpy()


def _no_player(leaf: Any) -> ArgumentTypeError:
    rule = "saddle_oracle: u0 and v0 must be tensors of float32 or float64, or dicts and lists of them"
    remedy = "Convert it, for instance with torch.as_tensor(value, dtype=torch.float64)"
    if isinstance(leaf, (torch.nn.Module, Iterator)):  # an iterator: parameters() or named_parameters()
        remedy = (
            "Pass a module's parameters by name, dict(module.named_parameters()), and evaluate it in phi with "
            "torch.func.functional_call(module, u, inputs)"
        )
    received = f"a tensor of {leaf.dtype}" if isinstance(leaf, Tensor) else type(leaf).__name__
    return ArgumentTypeError(rule, received, remedy)


def saddle_oracle(phi: Callable[..., Any], u0: Any, v0: Any) -> SaddleOracle:
    """Make an oracle of a function that u minimises and v maximises.

    Parameters
    ----------
    phi : callable
        `phi(u, v, n, rng)`: the mean over n independent samples as a scalar tensor, with all randomness from `rng`, a
        `torch.Generator`. u and v come in the shape of u0 and v0.
    u0, v0 : tensor, or dict or list of tensors
        The start of each player, in float32 or float64. `dict(model.named_parameters())` is one; in phi,
        `torch.func.functional_call(model, u, inputs)` evaluates the model with it.

    Returns
    -------
    SaddleOracle
        For `root`, `solve` (in a `Problem`), `certify` and `calibrate`; its `x0` is the start, its `unflatten(x)` gives
        u and v back.

    Notes
    -----
    The generator is seeded from the stream of the run, so that results depend on the seed alone, and one batch can be
    evaluated at two points. A phi with randomness of its own, such as dropout, works like a sampler that is not
    replayable. On a GPU only phi is computed there; the method itself runs in NumPy.

    Examples
    --------
    >>> import torch, dualanchor as da
    >>> def phi(u, v, n, rng):
    ...     noise = torch.randn(n, 2, generator=rng, dtype=torch.float64).mean(0)
    ...     return u @ u / 2 + u @ (v + noise) - v @ v / 2
    >>> start = torch.ones(2, dtype=torch.float64)
    >>> oracle = saddle_oracle(phi, start, start)
    >>> result = da.root(oracle, oracle.x0, eps=0.1, L=2.0, sigma=1.5, D=2.0)
    >>> u, v = oracle.unflatten(result.x)
    >>> bool(u.norm() < 0.1), result.success
    (True, True)
    """
    return SaddleOracle(phi, u0, v0)
