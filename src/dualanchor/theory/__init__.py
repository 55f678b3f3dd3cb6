"""The theory as functions of numbers: bounds, weights, schedules, confidence limits; and step tables of methods.

Examples
--------
>>> import dualanchor as da
>>> float(da.theory.weights.round_weights(4).sum())
0.75
"""

from dualanchor.theory import bounds, complexity, confidence, schedules, step_tables, weights
from dualanchor.theory.step_tables import step_table

__all__ = ["bounds", "complexity", "confidence", "schedules", "step_table", "step_tables", "weights"]
