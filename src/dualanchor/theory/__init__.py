"""Theory as functions: numbers in, numbers out.

`bounds` has the right-hand sides of the theorems, `weights` what they are made of, `schedules` the best horizons and
batch sizes, `confidence` upper bounds from samples, `complexity` the table of methods.
"""

from dualanchor.theory import bounds, complexity, confidence, schedules, weights

__all__ = ["bounds", "complexity", "confidence", "schedules", "weights"]
