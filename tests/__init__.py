"""A package, so that worker processes find it before any `tests` that a dependency has installed."""
