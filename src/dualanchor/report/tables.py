"""The tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualanchor.report import formats
from dualanchor.report.charts import key
from dualanchor.report.looks import Look
from dualanchor.report.markup import Markup, element, joined, number_cell, row, table
from dualanchor.report.views import View

VERDICTS = {
    "reproduced": ("✓", "good"),
    "not reproduced": ("✗", "bad"),
    "depends": ("≈", "mixed"),
}


def summary(panels: Sequence[View]) -> Markup:
    """Mean final residual of every method on every panel, the best of each panel marked."""
    methods = list(dict.fromkeys(method for view in panels for method in view.panel["methods"]))
    heads: list[object] = ["Method"]
    heads += [
        element("th", element("a", view.id, href=f"#panel-{view.name}"), scope="col", class_="number")
        for view in panels
    ]
    rows = [row(_named(panels[0].looks[name]), *(_final(view, name) for view in panels)) for name in methods]
    return table("Mean final residual by method and panel; the smallest of each panel is marked", heads, rows)


def methods(view: View) -> Markup:
    """What was selected for each method of a panel and where it ended, best first."""
    best = view.best()
    heads = [
        "Method",
        "Selected parameters",
        *(
            element("th", text, scope="col", class_="number")
            for text in ("Mean final residual", "5% to 95%", "Ratio to best", "Evaluations")
        ),
    ]
    ranked = sorted(view.panel["methods"].items(), key=lambda item: _rank(item[1]["final"]["mean"]))
    rows = []
    for name, result in ranked:
        final = result["final"]
        rows.append(
            row(
                _named(view.looks[name]),
                _selected(result["selected"]),
                _final(view, name),
                number_cell(formats.interval(final["p5"], final["p95"])),
                number_cell(formats.ratio(final["mean"], best)),
                number_cell(formats.count(result["evals"])),
            )
        )
    return table(f"{view.title}: selected parameters and final residuals, best first", heads, rows)


def grids(view: View) -> Markup:
    """The tuning grid of every tuned method of a panel, folded."""
    tuned = {name: result for name, result in view.panel["methods"].items() if result["grid"]}
    if not tuned:
        return Markup("")
    points = sum(len(result["grid"]) for result in tuned.values())
    folded = [
        element(
            "details",
            element("summary", f"{view.looks[name].label}: {_plural(len(result['grid']), 'point')}"),
            _grid(view.looks[name].label, result),
        )
        for name, result in tuned.items()
    ]
    return element("details", element("summary", f"Tuning grid: {_plural(points, 'point')}"), *folded, class_="grid")


def _grid(label: str, result: dict[str, Any]) -> Markup:
    names = list(dict.fromkeys(name for point in result["grid"] for name in point["params"]))
    numbers = ("Mean", "Smallest", "Largest")
    heads = ["Rank", *names, *(element("th", text, scope="col", class_="number") for text in numbers)]
    rows = []
    for place, point in enumerate(sorted(result["grid"], key=lambda point: _rank(point["mean"])), 1):
        seeds = point["per_seed"]
        ends = [min(seeds), max(seeds)] if seeds and None not in seeds else [None, None]
        chosen = point["params"] == result["selected"]
        rows.append(
            row(
                f"{place} ✓ selected" if chosen else place,
                *(formats.anything(point["params"].get(name, formats.NOTHING)) for name in names),
                number_cell(formats.residual(point["mean"])),
                *(number_cell(formats.NOTHING if end is None else formats.residual(end)) for end in ends),
                class_="best" if chosen else None,
            )
        )
    return table(f"{label}: final residual over the tuning seeds, best first", heads, rows)


def appendix(panels: Sequence[View]) -> Markup:
    """Selected batch sizes and final residuals of S-Dual-OHM and both S-OHM, by panel."""
    rows = []
    for view in panels:
        for name, result in view.panel["methods"].items():
            rows.append(
                row(
                    view.id,
                    _named(view.looks[name]),
                    _selected(result["selected"]),
                    _final(view, name),
                    number_cell(formats.interval(result["final"]["p5"], result["final"]["p95"])),
                )
            )
    numbers = ("Mean final residual", "5% to 95%")
    heads = ["Panel", "Method", "Selected", *(element("th", text, scope="col", class_="number") for text in numbers)]
    return table("Anchor and dual anchor: batch sizes and final residuals", heads, rows)


def claims(found: Sequence[dict[str, Any]], panels: Sequence[View]) -> Markup:
    """Every claim with its verdict and the numbers behind it."""
    anchors = {view.id: f"#panel-{view.name}" for view in panels}
    anchors["appendix"] = "#appendix"
    rows = []
    for claim in found:
        panel = claim["panel"]
        link = element("a", panel, href=anchors[panel]) if panel in anchors else panel
        cells = {
            "Panel": link,
            "Statement": claim["text"],
            "Verdict": verdict(claim["verdict"]),
            "Evidence": joined([element("p", claim["evidence"]), _readings(claim.get("readings") or [])]),
        }
        rows.append(
            row(
                element("code", claim["id"]),
                *(element("td", text, data_label=label) for label, text in cells.items()),
                id=f"claim-{claim['id']}",
            )
        )
    heads = ["Claim", "Panel", "Statement", "Verdict", "Evidence"]
    return table("Claims of the paper, and what came out here", heads, rows, class_="claims")


def verdict(text: str) -> Markup:
    """A verdict with a symbol and a colour."""
    symbol, kind = VERDICTS.get(text, ("?", "open"))
    return element("span", element("span", symbol, aria_hidden="true"), f" {text}", class_=f"verdict {kind}")


def _readings(found: Sequence[dict[str, Any]]) -> Markup:
    if not found:
        return Markup("")
    items = [
        element(
            "li",
            f"{one.get('reading', '')}: ",
            verdict(str(one.get("verdict", ""))),
            f" ({formats.anything(one['value'])})" if one.get("value") is not None else "",
        )
        for one in found
    ]
    return element("details", element("summary", _plural(len(found), "reading")), element("ul", *items))


def _final(view: View, name: str) -> Markup:
    result = view.panel["methods"].get(name)
    if result is None:
        return number_cell(element("span", formats.NOTHING, aria_label="not run"))
    mean = result["final"]["mean"]
    if mean is None:
        return number_cell(formats.diverged(result["final"]["per_seed"]) or "diverged", class_="number lost")
    if mean == view.best():
        star = element("span", "★", role="img", aria_label="smallest")
        return number_cell(star, " ", element("strong", formats.residual(mean)), class_="number best")
    return number_cell(formats.residual(mean))


def _named(look: Look) -> Markup:
    return element("span", key(look), look.label, class_="whole")


def _selected(values: dict[str, Any]) -> Markup:
    """Parameters in a line that breaks only between them."""
    pairs = (element("span", formats.parameters({name: value}), class_="whole") for name, value in values.items())
    return joined(pairs, ", ") or Markup("none")


def _rank(mean: float | None) -> float:
    return float("inf") if mean is None else mean


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
