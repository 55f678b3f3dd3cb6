"""PyTorch: optimisers for saddle problems, and oracles from functions that autograd can differentiate.

`DualAnchor`, `OHM`, `ExtraGradient` and `OptimisticGradient` are optimisers like those of `torch.optim`;
`saddle_oracle` makes a scalar function of two players an `Oracle` for `solve`, `root` and `certify`.
"""

from dualanchor.core.errors import missing_extra

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise missing_extra("torch", "torch", "dualanchor.integrations.torch") from None

from dualanchor.integrations.torch.optimizers import OHM, DualAnchor, ExtraGradient, OptimisticGradient
from dualanchor.integrations.torch.saddle import SaddleOracle, saddle_oracle

__all__ = ["DualAnchor", "OHM", "ExtraGradient", "OptimisticGradient", "SaddleOracle", "saddle_oracle"]
