"""What is sampled: additive noise, finite sums, a user's own sampler."""

from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.oracles.finite_sum import FiniteSum
from dualanchor.oracles.sampler import Sampler, each

__all__ = ["AdditiveNoise", "FiniteSum", "Sampler", "each"]
