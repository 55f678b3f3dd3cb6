"""The report as one page that needs nothing but itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from dualanchor.core.citations import CITATIONS
from dualanchor.core.result import jsonable
from dualanchor.methods import registry
from dualanchor.report import formats, tables
from dualanchor.report.charts import chart, image
from dualanchor.report.interactive import figure
from dualanchor.report.markup import Markup, element, embedded_json, joined
from dualanchor.report.views import View, appendix
from dualanchor.studies.panel import PAPER
from dualanchor.studies.study import Study

_SAME_SEEDS = (
    "Parameters were selected on the seeds that are reported, as in the paper. "
    "This favours methods with large grids a little."
)
_OTHER_SEEDS = "Parameters were selected on other seeds than those that are reported."


def interactive_figures(panels: Sequence[View]) -> Markup:
    """The data of all interactive figures of a page with these panels."""
    figures = {view.name: figure(view) for view in panels}
    figures |= {f"appendix-{view.name}": figure(view) for view in appendix(panels)}
    return embedded_json(figures)


def page(study: Study, panels: Sequence[View], pictures: Mapping[str, bytes], figures: Markup, plotly: str) -> str:
    """The whole page.

    Parameters
    ----------
    study : Study
        What was found.
    panels : list of View
        Its panels.
    pictures : dict of bytes
        SVG figures by name, shown where scripts do not run and on paper.
    figures : Markup
        What `interactive_figures` makes of the panels.
    plotly : str
        The source of plotly.js.
    """
    results = jsonable(study.results)
    compared = appendix(panels)
    sections = {"summary": ("Summary", _summary(panels))}
    sections |= {f"panel-{view.name}": (view.title, _panel(view, pictures)) for view in panels}
    if compared:
        sections["appendix"] = ("Appendix: anchor and dual anchor", _appendix(compared, pictures["appendix"]))
    sections["claims"] = ("Claims", _claims(results["claims"], panels))
    sections["cite"] = ("How to cite", _cite(results))
    sections["settings"] = ("Settings", _settings(results, panels))
    links = [element("li", element("a", title, href=f"#{name}")) for name, (title, _) in sections.items()]
    body = [element("section", element("h2", title), content, id=name) for name, (title, content) in sections.items()]
    return Template(_part("report.html")).substitute(
        title=joined([_title(panels)]),
        style=_part("report.css"),
        header=_header(results, panels, study.notes),
        contents=element("ul", *links),
        sections=joined(body, "\n"),
        footer=joined([f"Made with dualanchor {results['version']}."]),
        figures=figures,
        plotly=plotly,
        script=_part("report.js"),
    )


def _part(name: str) -> str:
    return resources.files("dualanchor.report").joinpath(name).read_text(encoding="utf-8")


def _title(panels: Sequence[View]) -> str:
    if panels and all(view.id in PAPER for view in panels):
        return "Experiments on stochastic root-finding, run again"
    return "Methods for stochastic root-finding compared"


def _header(results: dict[str, Any], panels: Sequence[View], notes: Sequence[str]) -> Markup:
    lead = (
        "Every method was tuned over its grid and run under the same budget of operator evaluations on "
        "independent seeds. What counts is the norm of F at the last iterate: smaller is better."
    )
    if any(view.id in PAPER for view in panels):
        lead += " The panels exp1 to exp3 are those of Yoon and Loizou (2026), who introduced S-Dual-OHM."
    facts = {
        "dualanchor": results["version"],
        "Seeds": formats.integers(results["seeds"]),
        "Tuning seeds": formats.integers(results.get("tune_seeds", results["seeds"])),
        "Budget unit": "operator evaluations",
        "Budgets": ", ".join(f"{view.id} {formats.count(view.panel['budget'])}" for view in panels),
    }
    verdicts = Counter(claim["verdict"] for claim in results["claims"])
    parts = [element("h1", _title(panels)), element("p", lead, class_="lead"), _list(facts)]
    if verdicts:
        known = [*tables.VERDICTS, *(name for name in verdicts if name not in tables.VERDICTS)]
        shown = (joined([f"{verdicts[name]} ", tables.verdict(name)]) for name in known if verdicts[name])
        parts.append(element("p", element("a", "Claims", href="#claims"), ": ", joined(shown, ", "), class_="verdicts"))
    parts += [element("p", note, class_="note") for note in notes]
    return joined(parts, "\n")


def _summary(panels: Sequence[View]) -> Markup:
    if not panels:
        return element("p", "The study has no panels.", class_="note")
    return joined([tables.summary(panels), _ours(panels)], "\n")


def _ours(panels: Sequence[View]) -> Markup:
    """What the asterisk stands for, where there is one."""
    marked = [row for view in panels for name, row in view.panel["methods"].items() if view.looks[name].ours]
    if not marked:
        return Markup("")
    tuned = "" if any(row.get("grid") for row in marked) else ", untuned"
    return element("p", f"* This library's own methods{tuned}; they are not in the paper.", class_="note")


def _panel(view: View, pictures: Mapping[str, bytes]) -> Markup:
    start = view.panel.get("initial_residual")
    facts = [f"Budget {formats.count(view.panel['budget'])} operator evaluations"]
    facts += (
        [f"residual at the start {formats.residual(start)} on average"]
        if start is not None
        else ["final residuals are estimated from fresh samples, those that come out negative are shown as 0"]
    )
    return joined(
        [
            element("p", "; ".join(facts), ". ", _problem(view)),
            chart(view, view.name, pictures[view.name]),
            element("h3", "Selected parameters and final residuals"),
            tables.methods(view),
            _ours([view]),
            tables.grids(view),
        ],
        "\n",
    )


def _problem(view: View) -> str:
    problem = dict(view.panel.get("problem") or {})
    name = problem.pop("name", "not described")
    return f"Problem: {name}" + (f" with {formats.parameters(problem)}." if problem else ".")


def _appendix(panels: Sequence[View], picture: bytes) -> Markup:
    text = (
        "S-OHM twice: with the batch size selected for S-Dual-OHM, and with one selected for itself. "
        "What remains is the difference between the anchor and the dual anchor."
    )
    charts = [element("div", element("h3", view.title), chart(view, f"appendix-{view.name}", None)) for view in panels]
    links = joined((element("a", kind.upper(), href=f"appendix.{kind}") for kind in ("png", "svg")), ", ")
    parts = [
        element("p", text, " As a file: ", links, "."),
        element("div", *charts, class_="pair"),
        image(picture, panels),
        tables.appendix(panels),
    ]
    return joined(parts, "\n")


def _claims(found: Sequence[dict[str, Any]], panels: Sequence[View]) -> Markup:
    if not found:
        return element("p", "No claims were checked in this study.", class_="note")
    return tables.claims(found, panels)


def _cite(results: dict[str, Any]) -> Markup:
    used = {row.get("method", name) for panel in results["panels"].values() for name, row in panel["methods"].items()}
    known = registry.all()
    keys = dict.fromkeys(["dualanchor", *(known[name].citation for name in sorted(used) if name in known)])
    text = "\n\n".join(CITATIONS[key] for key in keys if key in CITATIONS)
    return joined(
        [element("p", "The library and the sources of the methods shown:"), element("pre", text, tabindex="0")]
    )


def _settings(results: dict[str, Any], panels: Sequence[View]) -> Markup:
    tuned_on = results.get("tune_seeds", results["seeds"])
    facts = {
        "Version": results["version"],
        "Reported seeds": formats.integers(results["seeds"]),
        "Tuning seeds": formats.integers(tuned_on),
        "Selection": _SAME_SEEDS if tuned_on == results["seeds"] else _OTHER_SEEDS,
        "Budget": "Operator evaluations: a batch of size B costs B at each point where it is evaluated.",
        "Randomness": "Instance, start and noise are drawn anew for each seed and shared by all methods of that seed.",
        "Percentiles": "5th and 95th over seeds, with linear interpolation.",
        "Diverged": "A run whose iterates left the range of floating-point numbers; its method ranks last.",
    }
    facts |= {view.id: _problem(view) for view in panels}
    files = [element("a", name, href=name) for name in ("results.json", "curves.csv")]
    return joined([_list(facts), element("p", "All numbers: ", joined(files, ", "), ".")])


def _list(facts: Mapping[str, str]) -> Markup:
    pairs = (element("div", element("dt", name), element("dd", text)) for name, text in facts.items())
    return element("dl", *pairs)
