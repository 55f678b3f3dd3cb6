"""The front doors: from a function that samples F, and a target, to a point with an error bar."""

from dualanchor.front.doors import fixed_point, inclusion, root, saddle

__all__ = ["fixed_point", "inclusion", "root", "saddle"]
