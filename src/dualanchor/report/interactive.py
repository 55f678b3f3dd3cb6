"""Interactive figures, as plain data for plotly.js; its code comes with the plotly package."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from dualanchor.core.errors import missing_extra
from dualanchor.report.formats import rounded
from dualanchor.report.looks import Look
from dualanchor.report.views import Band, View

_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "P": "cross",
    "X": "x",
    "p": "pentagon",
    "h": "hexagon",
    "H": "hexagon2",
    "8": "octagon",
    "d": "diamond-tall",
    "*": "star",
}
_HOVER = "%{y:.4~g}  [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]"


def plotly_script() -> str:
    """The source of plotly.js, for a page that works offline."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise missing_extra("plotly", "report", "A report") from None
    return str(get_plotlyjs())


def figure(view: View) -> dict[str, Any]:
    """Traces and layout of a panel: bands below, lines above, each with its method as `meta`."""
    order = view.order()
    bands = [_area(name, view.bands[name], view.looks[name]) for name in order]
    lines = [_line(name, view.label(name), view.bands[name], view.looks[name]) for name in order]
    return {"data": bands + lines, "layout": _layout(view)}


def _line(name: str, label: str, band: Band, look: Look) -> dict[str, Any]:
    width = 1.3 * look.width
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape(label, quote=False),  # plotly reads some HTML in names
        "meta": name,
        "x": rounded(band.evals),
        "y": rounded(band.mean),
        "customdata": list(zip(rounded(band.low), rounded(band.high), strict=True)),
        "hovertemplate": _HOVER,
        "line": {
            "color": look.colour,
            "width": width,
            "dash": ",".join(f"{width * length:.1f}px" for length in look.dash) or "solid",
        },
        "marker": {
            "symbol": _SYMBOLS[look.marker],
            "size": 9 if look.emphasised else 7,
            "color": look.colour,
            "maxdisplayed": 9,
        },
    }


def _area(name: str, band: Band, look: Look) -> dict[str, Any]:
    """The band as closed outlines, one for each stretch without a gap."""
    x: list[float | None] = []
    y: list[float | None] = []
    for stretch in _stretches(np.isfinite(band.low) & np.isfinite(band.high)):
        evals, low, high = (rounded(values[stretch]) for values in (band.evals, band.low, band.high))
        x += [*evals, *reversed(evals), evals[0], None]
        y += [*low, *reversed(high), low[0], None]
    red, green, blue = (int(look.colour[i : i + 2], 16) for i in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": name,
        "hoverinfo": "skip",
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.16)",
        "line": {"width": 0, "color": look.colour},
    }


def _stretches(present: Any) -> list[slice]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], present, [False]]).astype(int)))
    return [slice(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _layout(view: View) -> dict[str, Any]:
    low, high = np.log10(view.limits())
    end = max((float(band.evals[-1]) for band in view.bands.values()), default=1.0)
    return {
        "xaxis": {"title": {"text": "operator evaluations"}, "range": [0, end], "tickformat": ",d", "zeroline": False},
        "yaxis": {
            "title": {"text": "residual ‖F(x)‖"},
            "type": "log",
            "range": [float(low), float(high)],
            "dtick": "D1" if high - low < 1 else "D2" if high - low < 2.5 else 1,
            "tickformat": "~g",
            "zeroline": False,
        },
        "hovermode": "x unified",
        "showlegend": False,
    }
