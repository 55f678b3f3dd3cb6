"""PyTorch: optimisers for saddle problems, and oracles from functions that autograd can differentiate."""

from dualanchor.core.errors import missing_extra

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise missing_extra("torch", "torch", "dualanchor.integrations.torch") from None

from dualanchor.integrations.torch.optimizers import OHM, DualAnchor, ExtraGradient, OptimisticGradient
from dualanchor.integrations.torch.saddle import SaddleOracle, saddle_oracle

__all__ = ["DualAnchor", "OHM", "ExtraGradient", "OptimisticGradient", "SaddleOracle", "saddle_oracle"]
