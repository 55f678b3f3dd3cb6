"""Figures; the only place that imports matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, explain, missing_extra
from dualanchor.core.result import Result
from dualanchor.core.types import Array


def plot_result(result: Result, ax: Any = None) -> Any:
    """Plot recorded residuals against operator evaluations: the mean, and the 5th to 95th percentile band.

    Parameters
    ----------
    result : Result
        A result with a recorded residual; configurations become one curve each.
    ax : matplotlib axes, optional
        Where to draw; a new figure if left out.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise missing_extra("matplotlib", "plot", "Result.plot") from None
    history = result.history
    if not history.residual.size:
        raise ArgumentError(
            explain(
                "Result.plot shows recorded residuals",
                "a result without any",
                "Solve a problem whose operator is known, with record=64",
            )
        )
    if ax is None:
        _, ax = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    replications = result.shape[-1] if result.shape else 1
    configuration = history.row // replications
    for number in np.unique(configuration):
        chosen = configuration == number
        evals, mean, low, high = _band(history.evals[chosen], history.k[chosen], history.residual[chosen])
        label = result.method["id"] + (f" #{number}" if len(result.shape) == 2 else "")
        (line,) = ax.plot(evals, mean, label=label)
        if replications > 1:
            ax.fill_between(evals, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set_yscale("log")
    ax.set_xlabel("operator evaluations")
    ax.set_ylabel("residual ‖F(x)‖")
    ax.set_title(result.problem["name"])
    ax.legend()
    ax.grid(True, which="major", alpha=0.3)
    return ax


def _band(evals: Array, k: Array, residual: Array) -> tuple[Array, Array, Array, Array]:
    """Mean and percentiles over the rows that were recorded at each step."""
    groups = [(evals[k == step], residual[k == step]) for step in np.unique(k)]
    columns = [(e.mean(), r.mean(), np.percentile(r, 5), np.percentile(r, 95)) for e, r in groups]
    mean_evals, mean, low, high = np.array(columns).T
    return mean_evals, mean, low, high
