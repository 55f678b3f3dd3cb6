"""Theory as functions: numbers in, numbers out."""

from dualanchor.theory import bounds, complexity, confidence, schedules, weights

__all__ = ["bounds", "complexity", "confidence", "schedules", "weights"]
