"""The picture of `dualanchor verify --complexity`: samples against accuracy, planned and measured, with slopes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualanchor.paper.verify.complexity import Curve
from dualanchor.report.figures import figure_style, render
from dualanchor.report.styles import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Style

STYLES = {
    style.name: style
    for style in (
        Style("S-OHM, growing batches", BLUE, (5.0, 1.5), "s"),
        Style("S-Dual-OHM, constant batch", ORANGE, (2.5, 1.2), "v"),
        Style("Dual-OHM, tapered batches", VERMILLION, (), "o", emphasised=True),
        Style("S-Dual-OHM, early stopping", BLACK, (1.0, 1.3), "X"),
        Style("SGDA, large batch", GREEN, (), "^"),
        Style("Dual-OHM, restarts", VERMILLION, (), "D", emphasised=True),
    )
}
_CAPTION = "filled: the residual that runs reached; hollow: the accuracy they were planned for; grey: slopes claimed"


def draw_complexity(curves: Sequence[Curve]) -> dict[str, bytes]:
    """One panel for each operator, samples against one over the residual; returns the picture as PNG and as SVG."""
    operators = list(dict.fromkeys(curve.operator for curve in curves))
    with figure_style("The picture of --complexity", "plot") as Figure:
        figure = Figure(figsize=(4.6 * len(operators), 5.6))
        axes = figure.subplots(1, len(operators), squeeze=False)[0]
        for ax, operator in zip(axes, operators, strict=True):
            for curve in curves:
                if curve.operator == operator:
                    _draw(ax, curve)
            ax.set(xscale="log", yscale="log", title=operator, xlabel="1 / root mean square residual", ylabel="samples")
            ax.set_xlim(right=2.5 * ax.get_xlim()[1])  # room for the slopes' names
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), title="measured exponent, 95 % interval")
        figure.supxlabel(_CAPTION, fontsize=8.5, color="#606060")
        return render(figure)


def _draw(ax: Any, curve: Curve) -> None:
    style, fit = STYLES[curve.method], curve.measured
    eps, reached, samples = np.transpose([(point.eps, point.reached, point.samples) for point in curve.points])
    label = f"{style.label}: {fit.exponent:.2f} ({fit.low:.2f} to {fit.high:.2f})"
    dashes = (0, style.dash) if style.dash else "-"
    drawn = {"color": style.colour, "marker": style.marker, "markersize": 5.5}
    ax.plot(1 / eps, samples, linestyle="none", markerfacecolor="white", markeredgewidth=0.9, zorder=3, **drawn)
    ax.plot(1 / reached, samples, linestyle=dashes, linewidth=0.75 * style.width, label=label, zorder=4, **drawn)
    middle = len(samples) // 2
    line = samples[middle] * (reached[middle] / reached) ** curve.claim
    ax.plot(1 / reached, line, color=GREY, linewidth=0.8, zorder=2)
    at = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    ax.annotate(f"slope {curve.claim:g}", (1 / reached[-1], line[-1]), color="#606060", fontsize=8, **at)
