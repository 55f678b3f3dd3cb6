"""Figures; the only place that imports matplotlib."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, missing_extra
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.report.views import View

_STYLE: dict[str, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # nothing stands in its way, which matplotlib would look for at every drawing
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.handlelength": 3.6,
    "text.parse_math": False,  # names come from users
    "svg.hashsalt": "dualanchor",  # the same study gives the same bytes
}
_DPI = 160
_SIZES = {1: (7.4, 4.6), 2: (5.0, 3.5)}  # inches per panel, by the number of columns
_MARGINS = {"left": 0.8, "right": 0.36, "top": 0.35, "bottom": 0.55}  # inches around each panel
_LEGEND = {"row": 0.21, "sign": 0.84, "letter": 0.0725}  # inches
_COLUMNS, _ROOMY = 4, 3  # of a legend, at most; its rows for which a figure has room, before it grows
_MARKERS = 9  # per curve
_ALONE = threading.Lock()  # matplotlib's settings are those of all threads


def prepare() -> None:
    """Import what drawing needs, which takes a while; for a thread of its own while others compute."""
    import_module("matplotlib.figure")
    import_module("matplotlib.backends.backend_agg")
    import_module("matplotlib.backends.backend_svg")


def draw(panels: Sequence[View], columns: int = 1) -> dict[str, bytes]:
    """Draw panels with one legend below them; returns the picture as PNG and as SVG.

    Neither pyplot nor anybody's settings are touched.

    Parameters
    ----------
    panels : list of View
        What to draw, row by row.
    columns : 1 or 2
        How many stand side by side.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "report", "A report") from None
    rows = -(-len(panels) // columns)
    width, height = _SIZES[columns]
    with _ALONE, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
        labels = list(dict.fromkeys(view.label(name) for view in panels for name in view.bands))
        shown, across = _legend(labels, columns * width)
        lines_of_legend = -(-len(shown) // across)
        more = _LEGEND["row"] * max(0, lines_of_legend - _ROOMY)
        figure = Figure(figsize=(columns * width, rows * height + more), dpi=_DPI)
        axes = _arranged(figure, rows, columns, _LEGEND["row"] * lines_of_legend)
        lines: dict[str, Any] = {}
        for ax, view in zip(axes, panels, strict=False):
            lines |= _draw_panel(ax, view)
        for ax in axes[len(panels) :]:
            ax.remove()
        if labels:
            figure.legend([lines[one] for one in labels], shown, loc="lower center", ncols=across, borderaxespad=0.2)
        return _saved(figure)


def _legend(labels: Sequence[str], width: float) -> tuple[list[str], int]:
    """The labels, shortened if one alone is too long, and in how many columns they fit side by side."""
    most = int((width - _LEGEND["sign"]) / _LEGEND["letter"])
    shown = [label if len(label) <= most else f"{label[: most - 1]}…" for label in labels]
    shown = [f" {label}" if label.startswith("_") else label for label in shown]  # else matplotlib leaves it out
    for columns in range(min(_COLUMNS, len(shown)), 1, -1):
        rows = -(-len(shown) // columns)
        longest = [max(map(len, shown[i : i + rows])) for i in range(0, len(shown), rows)]
        if sum(_LEGEND["sign"] + _LEGEND["letter"] * length for length in longest) <= width:
            return shown, columns
    return shown, 1


def _arranged(figure: Any, rows: int, columns: int, legend: float) -> list[Any]:
    """Axes with given margins, above room for a legend; to have the best ones found takes as long as drawing."""
    width, height = figure.get_size_inches()
    each = width / columns, (height - legend) / rows
    axes = []
    for i in range(rows * columns):
        left = (i % columns) * each[0] + _MARGINS["left"]
        bottom = legend + (rows - 1 - i // columns) * each[1] + _MARGINS["bottom"]
        size = each[0] - _MARGINS["left"] - _MARGINS["right"], each[1] - _MARGINS["bottom"] - _MARGINS["top"]
        axes.append(figure.add_axes((left / width, bottom / height, size[0] / width, size[1] / height)))
    return axes


def _draw_panel(ax: Any, view: View) -> dict[str, Any]:
    """Draw the curves; returns each method's line by its label."""
    lines = {}
    low, high = view.limits()
    for rank, name in enumerate(view.order()):
        band, look = view.bands[name], view.looks[name]
        style = {
            "color": look.colour,
            "marker": look.marker,
            "markersize": 6.5 if look.emphasised else 5.5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.3,
            "zorder": 3 + rank,
        }
        ax.fill_between(band.evals, band.low, band.high, color=look.colour, alpha=0.16, linewidth=0, zorder=2)
        (lines[view.label(name)],) = ax.plot(
            band.evals,
            band.mean,
            linewidth=look.width,
            linestyle=(0, look.dash) if look.dash else "-",
            markevery=_every(band.evals, rank, len(view.bands)),
            **style,
        )
        if low <= band.mean[-1] <= high:
            ax.plot(band.evals[-1], band.mean[-1], clip_on=False, **style)
    ax.set(yscale="log", ylim=(low, high), title=view.title)
    ax.set_xlim(0, max((band.evals[-1] for band in view.bands.values()), default=1))
    ax.set(xlabel="operator evaluations", ylabel="residual ‖F(x)‖")
    _mark_axes(ax, decades=np.log10(high / low))
    return lines


def _mark_axes(ax: Any, decades: float) -> None:
    """Plain numbers at both axes, and between powers of ten where there are few of them."""
    from matplotlib.markers import TICKLEFT
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if ax.get_xlim()[1] < 5e6 else "{x:g}"))
    between = (2.0, 3.0, 5.0) if decades < 1 else (2.0, 5.0) if decades < 2.5 else ()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, *between)) if decades > 0.35 else MaxNLocator(5))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    # The small ticks as one line of markers: as ticks, each of them is an artist that is placed again and again.
    low, high = ax.get_ylim()
    small = [value for value in ax.yaxis.get_minorticklocs() if low <= value <= high]
    ax.yaxis.set_minor_locator(NullLocator())
    look = {"color": "black", "markersize": 2.0, "markeredgewidth": 0.6, "zorder": 2.01, "clip_on": False}
    ax.plot(np.zeros(len(small)), small, linestyle="", marker=TICKLEFT, transform=ax.get_yaxis_transform(), **look)


def _every(evals: Array, rank: int, curves: int) -> tuple[int, int]:
    """Which points carry a marker: a few, and not above those of the next curve."""
    step = max(1, len(evals) // _MARKERS)
    return (rank * step // max(1, curves), step)


def _saved(figure: Any) -> dict[str, bytes]:
    """The figure in both formats."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    png, svg = io.BytesIO(), io.BytesIO()
    agg: Any = FigureCanvasAgg(figure)
    agg.print_png(png, pil_kwargs={"compress_level": 3})  # quicker, for 6 % more bytes
    vectors: Any = FigureCanvasSVG(figure)
    vectors.print_svg(svg, metadata={"Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}


def plot_result(result: Result, ax: Any = None) -> Any:
    """Plot residuals against operator evaluations: the mean, and the 5th to 95th percentile band; and the certificate.

    Parameters
    ----------
    result : Result
        A result with residuals, recorded or estimated on the way, or with a certificate; configurations become one
        curve each.
    ax : matplotlib axes, optional
        Where to draw; a new figure if left out.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise missing_extra("matplotlib", "plot", "Result.plot") from None
    history = result.history
    if not history.residual.size and result.certificate is None:
        raise ArgumentError(
            "Result.plot shows recorded residuals, or a certificate",
            "a result without any",
            "Solve a problem whose operator is known, with record=64, or use a front door such as root",
        )
    if ax is None:
        _, ax = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    replications = result.shape[-1] if result.shape else 1
    configuration = history.row // replications
    by_stages = bool(history.residual.size) and result.residual_kind == "estimated"  # rows go their own ways
    for row in np.unique(history.row) if by_stages else ():
        own = history.of(row)
        ax.plot(own.evals, own.residual, "C0.-", linewidth=1, label="" if row else "estimates after stages")
    for number in np.unique(configuration) if history.residual.size and not by_stages else ():
        chosen = configuration == number
        evals, mean, low, high = _over_rows(history.evals[chosen], history.k[chosen], history.residual[chosen])
        label = result.labels()[number]
        (line,) = ax.plot(evals, mean, label=label)
        if replications > 1:
            ax.fill_between(evals, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if result.certificate is not None:
        _add_certificate(ax, result)
    ax.set_yscale("log", nonpositive="mask")
    ax.set_xlabel("operator evaluations")
    ax.set_ylabel("residual ‖F(x)‖")
    ax.set_title(result.problem["name"])
    ax.legend()
    ax.grid(True, which="major", alpha=0.3)
    return ax


def _add_certificate(ax: Any, result: Result) -> None:
    """At the end of each replication the estimate and, above it, the upper confidence bound."""
    facts = result.certificate if isinstance(result.certificate, dict) else result.certificate.to_dict()
    residual, upper = (np.atleast_1d(np.array(facts[name], dtype=float)) for name in ("residual", "upper"))
    evals = np.broadcast_to(np.atleast_1d(result.nfev), upper.shape)
    look = {"color": "black", "linestyle": "", "zorder": 4}
    level = f"{100 * facts['confidence']:g} %"
    ax.plot(evals, upper, marker="v", label=f"upper bound, confidence {level}", **look)
    ax.plot(evals, residual, marker="o", markerfacecolor="white", label="estimate on fresh samples", **look)
    ax.vlines(evals, np.maximum(residual, 1e-2 * upper), upper, color="black", linewidth=1)


def _over_rows(evals: Array, k: Array, residual: Array) -> tuple[Array, Array, Array, Array]:
    """Mean and percentiles over the rows that were recorded at each step."""
    groups = [(evals[k == step], residual[k == step]) for step in np.unique(k)]
    columns = [(e.mean(), r.mean(), np.percentile(r, 5), np.percentile(r, 95)) for e, r in groups]
    mean_evals, mean, low, high = np.array(columns).T
    return mean_evals, mean, low, high
