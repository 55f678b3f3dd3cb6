"""What runs a method on a problem: the loop, when it stops, what it records, how it is resumed."""

from dualanchor.run.checkpoint import Checkpoint
from dualanchor.run.solve import solve
from dualanchor.run.stop import Budget, Steps, Target, WallTime

__all__ = ["Budget", "Checkpoint", "Steps", "Target", "WallTime", "solve"]
