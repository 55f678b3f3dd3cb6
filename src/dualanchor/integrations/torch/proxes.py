"""A prox on a tensor, whichever library it is written for."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dualanchor.core.errors import OracleError
from dualanchor.prox import Resolvent


def moved(prox: Callable[..., Any], x: Tensor, step: Any) -> Tensor:
    """The prox of a tensor; one of `dualanchor.prox` takes all its numbers as one vector of NumPy."""
    if isinstance(prox, Resolvent):
        value = prox(x.detach().reshape(-1).cpu().numpy(), float(step))
        return torch.from_numpy(value).reshape(x.shape).to(x)
    value = prox(x, step)
    if not isinstance(value, Tensor) or value.shape != x.shape:
        received = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        rule = f"prox must return a tensor of shape {tuple(x.shape)}, that of its point"
        raise OracleError(rule, received, "Return the point that the prox gives")
    return value
