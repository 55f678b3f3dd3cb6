"""The report as one self-contained page: the data for the templates."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dualanchor.core.citations import CITATIONS
from dualanchor.core.errors import missing_extra
from dualanchor.core.result import jsonable
from dualanchor.methods import registry
from dualanchor.report.formats import FILTERS
from dualanchor.report.interactive import interactive_figure, plotly_script
from dualanchor.report.panel_data import PanelData, anchor_comparison
from dualanchor.report.styles import BLACK, MARKERS
from dualanchor.studies.study import Study

VERDICTS = {"reproduced": ("✓", "good"), "not reproduced": ("✗", "bad"), "depends": ("≈", "mixed")}
"""Symbol and CSS class of each verdict."""


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
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise missing_extra("jinja2", "report", "A report") from None
    layout: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=PackageLoader("dualanchor.report"), autoescape=True, **layout)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters.update(FILTERS)
    environment.globals.update(VERDICTS=VERDICTS, MARKERS=MARKERS, BLACK=BLACK)
    return environment


def _citations(results: dict[str, Any]) -> str:
    used = {row.get("method", name) for panel in results["panels"].values() for name, row in panel["methods"].items()}
    known = registry.all()
    keys = dict.fromkeys(["dualanchor", *(known[name].citation for name in sorted(used) if name in known)])
    return "\n\n".join(CITATIONS[key] for key in keys if key in CITATIONS)
