"""The report as one self-contained page: the data for the templates, and interactive figures for plotly.js."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

import numpy as np

from dualanchor.core.citations import CITATIONS
from dualanchor.core.errors import optional_module
from dualanchor.core.result import jsonable
from dualanchor.core.types import Array
from dualanchor.methods import registry
from dualanchor.report.formats import FILTERS
from dualanchor.report.panel_data import Band, PanelData, anchor_comparison
from dualanchor.report.styles import BLACK, MARKERS, Style
from dualanchor.studies.study import Study

VERDICTS = {"reproduced": ("✓", "good"), "not reproduced": ("✗", "bad"), "depends": ("≈", "mixed")}
"""Symbol and CSS class of each verdict."""
_HOVER = "%{y:.4~g}  [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]"


def render_page(study: Study, panels: Sequence[PanelData], pictures: Mapping[str, bytes]) -> str:
    """The whole page; `pictures` are SVG figures by name, shown in print and where scripts do not run."""
    results = jsonable(study.results)
    compared = anchor_comparison(panels)
    figures = {panel.name: interactive_figure(panel) for panel in panels}
    figures |= {f"appendix-{panel.name}": interactive_figure(panel) for panel in compared}
    verdicts = Counter(claim["verdict"] for claim in results["claims"])
    anchors = {panel.id: f"panel-{panel.name}" for panel in panels}
    template = _environment().get_template("page.html")
    return str(
        template.render(
            results=results,
            notes=study.notes,
            panels=panels,
            compared=compared,
            methods=list(dict.fromkeys(method for panel in panels for method in panel.methods)),
            anchors={**anchors, "appendix": "appendix"} if compared else anchors,
            tuned_on=results.get("tune_seeds", results["seeds"]),
            verdicts={name: verdicts[name] for name in (*VERDICTS, *verdicts) if verdicts[name]},
            citations=_citations(results),
            pictures={name: base64.b64encode(svg).decode() for name, svg in pictures.items()},
            figures=figures,
            plotly=plotly_script(),
        )
    )


def _environment() -> Any:
    """Jinja's environment: expressions are escaped, and an undefined name is an error."""
    jinja2 = optional_module("jinja2", "report", "A report")
    layout = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=jinja2.PackageLoader("dualanchor.report"), autoescape=True, **layout)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters.update(FILTERS)
    environment.globals.update(VERDICTS=VERDICTS, MARKERS=MARKERS, BLACK=BLACK)
    return environment


def _citations(results: dict[str, Any]) -> str:
    used = {row.get("method", name) for panel in results["panels"].values() for name, row in panel["methods"].items()}
    known = registry.all()
    keys = dict.fromkeys(["dualanchor", *(known[name].citation for name in sorted(used) if name in known)])
    return "\n\n".join(CITATIONS[key] for key in keys if key in CITATIONS)


def plotly_script() -> str:
    """The source of plotly.js, included in the page so that it works offline."""
    return str(optional_module("plotly.offline", "report", "A report").get_plotlyjs())


def interactive_figure(panel: PanelData) -> dict[str, Any]:
    """Traces and layout of a panel: bands first, then the lines above them; `meta` of a trace is its method."""
    order = panel.order()
    bands = [_area(name, panel.bands[name], panel.styles[name]) for name in order]
    lines = [_line(name, panel.label(name), panel.bands[name], panel.styles[name]) for name in order]
    return {"data": bands + lines, "layout": _layout(panel)}


def _line(name: str, label: str, band: Band, style: Style) -> dict[str, Any]:
    width, symbol = 1.3 * style.width, MARKERS[style.marker].symbol
    dash = ",".join(f"{width * length:.1f}px" for length in style.dash)
    shown = escape(label, quote=False)  # plotly reads some HTML in names
    trace = {"type": "scatter", "mode": "lines+markers", "name": shown, "meta": name, "hovertemplate": _HOVER}
    return trace | {
        "x": _rounded(band.evals),
        "y": _rounded(band.mean),
        "customdata": list(zip(_rounded(band.low), _rounded(band.high), strict=True)),
        "line": {"color": style.colour, "width": width, "dash": dash or "solid"},
        "marker": {"symbol": symbol, "size": 9 if style.emphasised else 7, "color": style.colour, "maxdisplayed": 9},
    }


def _area(name: str, band: Band, style: Style) -> dict[str, Any]:
    """The band as closed outlines, one for each range of points without a gap."""
    x: list[float | None] = []
    y: list[float | None] = []
    present = np.isfinite(band.low) & np.isfinite(band.high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], present, [False]]).astype(int)))
    for start, stop in edges.reshape(-1, 2):
        evals, low, high = (_rounded(values[start:stop]) for values in (band.evals, band.low, band.high))
        x += [*evals, *reversed(evals), evals[0], None]
        y += [*low, *reversed(high), low[0], None]
    red, green, blue = (int(style.colour[i : i + 2], 16) for i in (1, 3, 5))
    trace = {"type": "scatter", "mode": "lines", "meta": name, "hoverinfo": "skip", "x": x, "y": y}
    fill = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},0.16)"}
    return trace | fill | {"line": {"width": 0, "color": style.colour}}


def _layout(panel: PanelData) -> dict[str, Any]:
    low, high = (float(end) for end in np.log10(panel.limits()))
    ticks = "D1" if high - low < 1 else "D2" if high - low < 2.5 else 1
    return {
        "xaxis": _axis("operator evaluations", range=[0, panel.end()], tickformat=",d"),
        "yaxis": _axis("residual ‖F(x)‖", range=[low, high], tickformat="~g", type="log", dtick=ticks),
        "hovermode": "x unified",
        "showlegend": False,
    }


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "zeroline": False, **more}


def _rounded(values: Array) -> list[float | None]:
    """Five significant digits; NaN as None."""
    return [float(f"{value:.5g}") if isfinite(value) else None for value in np.asarray(values, float).tolist()]
