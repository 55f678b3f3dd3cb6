"""Numbers and parameters as text; the templates use these functions as filters."""

import re
from inspect import isfunction
from itertools import groupby
from typing import Any

NOTHING = "–"


def residual(value: float | None) -> str:
    """Four significant digits; None means a number that is not finite."""
    if value is None:
        return "diverged"
    return _tidy(f"{value:#.4g}".rstrip(".")) if value else "0"


def interval(low: float | None, high: float | None) -> str:
    """An interval of residuals; None is an end that is not finite."""
    if low is None and high is None:
        return NOTHING
    return " to ".join("∞" if end is None else residual(end) for end in (low, high))


def ratio(value: float | None, best: float | None) -> str:
    """A value as a multiple of the best."""
    return NOTHING if value is None or not best else f"{value / best:,.2f}"


def count(value: int) -> str:
    """A whole number with commas between thousands."""
    return f"{value:,}"


def plural(number: int, noun: str) -> str:
    """A number with its noun: "1 seed", "2 seeds"."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def diverged(per_seed: list[float | None]) -> str:
    """How many seeds diverged; empty if none did."""
    count = sum(value is None for value in per_seed)
    return f"{count} of {len(per_seed)} seeds diverged" if count else ""


def parameters(values: dict[str, Any]) -> str:
    """Names and values of parameters in one line."""
    return ", ".join(f"{name} = {anything(value)}" for name, value in values.items()) or "none"


def anything(value: Any) -> str:
    """A value of any type; numbers with four digits."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10_000:
        return count(value)
    if isinstance(value, float):
        return _tidy(f"{value:.4g}")
    if isinstance(value, dict):
        return parameters(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(anything(item) for item in value) or "none"
    return str(value)


def integers(values: list[int]) -> str:
    """Whole numbers in one line; consecutive ones as "0 to 9"."""
    groups = groupby(enumerate(values), lambda pair: pair[1] - pair[0])
    runs = [[value for _, value in group] for _, group in groups]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs) or "none"


def best_first(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points of a grid in the order of their means; diverged ones last."""
    return sorted(points, key=lambda point: (point["mean"] is None, point["mean"] or 0.0))


def ranked(methods: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Methods in the order of their mean final residuals; diverged ones last."""
    return sorted(methods.items(), key=lambda item: (item[1]["final"]["mean"] is None, item[1]["final"]["mean"] or 0.0))


def _tidy(text: str) -> str:
    return re.sub(r"\.?e\+?(-?)0*", r"e\1", text).replace("-", "−")


FILTERS = {name: value for name, value in list(globals().items()) if isfunction(value) and not name.startswith("_")}
