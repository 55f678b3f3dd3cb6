"""How methods estimate F(x_k): they see samples through the Session and nothing else."""

from dualanchor.estimators.minibatch import Minibatch
from dualanchor.estimators.page import PAGE

__all__ = ["PAGE", "Minibatch"]
