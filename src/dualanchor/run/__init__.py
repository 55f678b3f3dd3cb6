"""What runs a method on a problem: the loop, when it stops, what it records, how it is resumed."""

from dualanchor.run.checkpoint import Checkpoint
from dualanchor.run.solve import solve
from dualanchor.run.stop import Budget, Draws, Steps, Target, WallTime

__all__ = ["Budget", "Checkpoint", "Draws", "Steps", "Target", "WallTime", "solve"]
