"""Numbers and parameters as a reader wants to see them."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

import numpy as np

NOTHING = "–"


def residual(value: float | None) -> str:
    """Four significant digits; None stands for a number that is not finite."""
    if value is None:
        return "diverged"
    return _tidy(f"{value:#.4g}".rstrip(".")) if value else "0"


def interval(low: float | None, high: float | None) -> str:
    """Two residuals and what lies between."""
    if low is None and high is None:
        return NOTHING
    return " to ".join("∞" if end is None else residual(end) for end in (low, high))


def ratio(value: float | None, best: float | None) -> str:
    """How many times the best a value is."""
    if value is None or best is None or best == 0:
        return NOTHING
    return f"{value / best:,.2f}"


def count(value: int) -> str:
    """A whole number with thousands marked."""
    return f"{value:,}"


def diverged(per_seed: list[float | None]) -> str:
    """How many seeds diverged, or nothing if none did."""
    lost = sum(value is None for value in per_seed)
    return f"{lost} of {len(per_seed)} seeds diverged" if lost else ""


def parameters(values: dict[str, Any]) -> str:
    """Names and values of parameters in a line."""
    return ", ".join(f"{name} = {anything(value)}" for name, value in values.items()) or "none"


def anything(value: Any) -> str:
    """A value of any kind, numbers short."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value) if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _tidy(f"{value:.4g}")
    if isinstance(value, dict):
        return parameters(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(anything(item) for item in value) or "none"
    return str(value)


def integers(values: list[int]) -> str:
    """Whole numbers in a line, a run of them by its ends."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs) or "none"


def _tidy(text: str) -> str:
    return re.sub(r"\.?e\+?(-?)0*", r"e\1", text).replace("-", "−")


def rounded(values: Any) -> list[float | None]:
    """Five significant digits for a figure; NaN as None."""
    return [float(f"{value:.5g}") if isfinite(value) else None for value in np.asarray(values, float).tolist()]
