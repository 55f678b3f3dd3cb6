"""A scalar function of two players, differentiated by autograd, as an oracle."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Batch
from dualanchor.core.types import Array
from dualanchor.front.autograd import field_of
from dualanchor.oracles.sampler import Sampler


class SaddleOracle(Sampler):
    """The field (gradient in u, minus gradient in v) of a function of two players; `x0` (d,) is the start of both."""

    takes_vectors = True  # in NumPy, like x0; `unflatten` makes the players' tensors

    def __init__(self, phi: Callable[..., Any], u0: Any, v0: Any) -> None:
        check.function(phi, "saddle_oracle: phi", "phi(u, v, n, rng)", 4)
        self._leaves, self._tree = tree_flatten((u0, v0))
        for leaf in self._leaves:
            if not isinstance(leaf, Tensor) or leaf.dtype not in (torch.float32, torch.float64):
                raise _not_a_player(leaf)
        if len(devices := dict.fromkeys(str(leaf.device) for leaf in self._leaves)) > 1:
            rule, remedy = "saddle_oracle: u0 and v0 must be on one device", "Move all tensors to one of them"
            raise ArgumentError(rule, " and ".join(devices), remedy)
        self._phi = phi
        self._leaves_u = len(tree_flatten(u0)[0])
        self.x0 = self.flatten(u0, v0)
        super().__init__(self._field, name="saddle_oracle: phi")

    def flatten(self, u: Any, v: Any) -> Array:
        """Both players in one vector, like `x0`; float32 if all their tensors are."""
        return np.concatenate([leaf.detach().reshape(-1).cpu().numpy() for leaf in tree_flatten((u, v))[0]])

    def unflatten(self, x: Any) -> tuple[Any, Any]:
        """Both players from one vector, like u0 and v0; from several, (rows, d), each tensor has rows as first axis."""
        flat = x if isinstance(x, Tensor) else torch.tensor(np.asarray(x))
        return tree_unflatten(self._split(flat), self._tree)

    def _split(self, flat: Tensor) -> list[Tensor]:
        """The tensors of both players from one vector (d,) or several, (rows, d)."""
        self._require_point(tuple(flat.shape))
        pieces = zip(flat.split([leaf.numel() for leaf in self._leaves], dim=-1), self._leaves, strict=True)
        return [piece.reshape(flat.shape[:-1] + leaf.shape).to(leaf) for piece, leaf in pieces]

    def _require_point(self, shape: tuple[int, ...]) -> None:
        if shape[-1:] != self.x0.shape:
            rule = f"saddle_oracle: a point must have {self.x0.size} coordinates, those of u and then those of v"
            raise ArgumentError(rule, f"shape {shape}", "Use the x of a result, oracle.x0, or oracle.flatten(u, v)")

    def mean(self, x: Array, batch: Batch, n: Any = None, shard: int = 0) -> Array:
        self._require_point(x.shape[1:])
        return super().mean(x, batch, n, shard)

    def _field(self, x: Array, n: int, rng: np.random.Generator) -> Array:
        def value(leaves: list[Tensor], generator: torch.Generator) -> Any:
            return self._phi(*tree_unflatten(leaves, self._tree), n, generator)

        flat = torch.from_numpy(x)
        return field_of(value, flat, self._split(flat), self._leaves_u, rng, "saddle_oracle: phi").numpy()


def _not_a_player(leaf: Any) -> ArgumentTypeError:
    remedy = "Convert it, for instance with torch.as_tensor(value, dtype=torch.float64)"
    if isinstance(leaf, (torch.nn.Module, Iterator)):  # an iterator: parameters() or named_parameters()
        remedy = (
            "Pass a module's parameters by name, dict(module.named_parameters()), and evaluate it in phi with "
            "torch.func.functional_call(module, u, inputs)"
        )
    received = f"a tensor of {leaf.dtype}" if isinstance(leaf, Tensor) else type(leaf).__name__
    rule = "saddle_oracle: u0 and v0 must be tensors of float32 or float64, or dicts and lists of them"
    return ArgumentTypeError(rule, received, remedy)


def saddle_oracle(phi: Callable[..., Any], u0: Any, v0: Any) -> SaddleOracle:
    """Make an oracle of a function that u minimises and v maximises.

    It is for `root`, `solve` (in a `Problem`), `certify` and `calibrate`, from its `x0`; `unflatten(x)` gives u and v.

    Parameters
    ----------
    phi : callable
        `phi(u, v, n, rng)`: the mean over n independent samples as a scalar tensor, with all randomness from `rng`, a
        `torch.Generator`. u and v come in the shape of u0 and v0.
    u0, v0 : tensor, or dict or list of tensors
        The start of each player, in float32 or float64. `dict(model.named_parameters())` is one; in phi,
        `torch.func.functional_call(model, u, inputs)` evaluates the model with it.

    Notes
    -----
    The generator is seeded from the stream of the run. A phi with randomness of its own, such as dropout, works like
    a sampler that is not replayable. On a GPU only phi is computed there; the method itself runs in NumPy.

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
