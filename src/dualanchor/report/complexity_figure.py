"""The picture of `dualanchor verify --complexity`: samples against accuracy, planned and measured, with slopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualanchor.core.errors import missing_extra
from dualanchor.paper.verify.complexity import Curve
from dualanchor.report.figures import _DPI, _STYLE, _saved
from dualanchor.report.looks import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Look

LOOKS = (
    Look("S-OHM, growing batches", BLUE, (5.0, 1.5), "s"),
    Look("S-Dual-OHM, constant batch", ORANGE, (2.5, 1.2), "v"),
    Look("Dual-OHM, tapered batches", VERMILLION, (), "o", emphasised=True),
    Look("S-Dual-OHM, early stopping", BLACK, (1.0, 1.3), "X"),
    Look("SGDA, large batch", GREEN, (), "^"),
    Look("Dual-OHM, restarts", VERMILLION, (), "D", emphasised=True),
)

_CAPTION = "filled: the residual that runs reached; hollow: the accuracy they were planned for; grey: slopes claimed"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_complexity(curves: Sequence[Curve]) -> dict[str, bytes]:
    """Draw one panel for each operator; returns the picture as PNG and as SVG.

    Filled markers stand where a run ended: samples against one over the residual reached. Hollow ones stand where it
    was planned to end. Grey lines have the slopes that are claimed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "plot", "The picture of --complexity") from None
    operators = list(dict.fromkeys(curve.operator for curve in curves))
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
        figure = Figure(figsize=(4.6 * len(operators), 5.6), dpi=_DPI, layout="constrained")
        axes = figure.subplots(1, len(operators), squeeze=False)[0]
        for ax, operator in zip(axes, operators, strict=True):
            _draw_panel(ax, [curve for curve in curves if curve.operator == operator], operator)
        figure.supxlabel(_CAPTION, fontsize=8.5, color="#606060")
        return _saved(figure)


def _draw_panel(ax: Any, curves: Sequence[Curve], operator: str) -> None:
    by_label = {look.label: look for look in LOOKS}
    for curve in curves:
        look = by_label[curve.method]
        samples = np.array([point.samples for point in curve.points], float)
        reached = 1 / np.array([point.reached for point in curve.points])
        planned = 1 / np.array([point.eps for point in curve.points])
        dashes = (0, look.dash) if look.dash else "-"
        fit = curve.measured
        label = f"{look.label}: {fit.exponent:.2f} ({fit.low:.2f} to {fit.high:.2f})"
        style = {"color": look.colour, "marker": look.marker, "markersize": 5.5}
        ax.plot(planned, samples, linestyle="none", markerfacecolor="white", markeredgewidth=0.9, zorder=3, **style)
        ax.plot(reached, samples, linestyle=dashes, linewidth=0.75 * look.width, label=label, zorder=4, **style)
        middle = len(samples) // 2
        line = samples[middle] * (reached / reached[middle]) ** curve.claim
        ax.plot(reached, line, color=GREY, linewidth=0.8, zorder=2)
        ax.annotate(
            f"slope {curve.claim:g}",
            (reached[-1], line[-1]),
            xytext=(4, 0),
            textcoords="offset points",
            color="#606060",
            fontsize=8,
            va="center",
            annotation_clip=False,
        )
    ax.set(xscale="log", yscale="log", title=operator, xlabel="1 / root mean square residual", ylabel="samples")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(_power_of_ten)
        axis.set_minor_formatter("")
    low, high = ax.get_xlim()
    ax.set_xlim(low, high * 2.5)  # room for the slopes' names
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), title="measured exponent, 95 % interval")


def _power_of_ten(value: float, _: int) -> str:
    return "10" + str(round(np.log10(value))).translate(_SUPERSCRIPTS)
