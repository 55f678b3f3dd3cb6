"""PyTorch: optimisers for saddle problems, and oracles from functions that autograd can differentiate."""

from dualanchor.core.errors import missing_extra

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise missing_extra("torch", "torch", "dualanchor.integrations.torch") from None

from dualanchor.integrations.torch.batches import TaperedBatches, tapered_batches
from dualanchor.integrations.torch.dual_anchor import DualAnchor
from dualanchor.integrations.torch.optimizers import OHM, ExtraGradient, OptimisticGradient
from dualanchor.integrations.torch.regularised import RegularisedDualAnchor
from dualanchor.integrations.torch.saddle import SaddleOracle, saddle_oracle

__all__ = [
    "DualAnchor",
    "OHM",
    "ExtraGradient",
    "OptimisticGradient",
    "RegularisedDualAnchor",
    "SaddleOracle",
    "TaperedBatches",
    "saddle_oracle",
    "tapered_batches",
]
