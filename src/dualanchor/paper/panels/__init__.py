"""The paper's four panels, one TOML file each, and selections of them."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from dualanchor.core.errors import ArgumentError, unknown_name
from dualanchor.studies.panel import Panel, load_panel, parse_panel

PAPER = ("exp1", "exp2", "exp3-low", "exp3-high")
APPENDIX = ("s-dual-ohm", "s-ohm", "s-ohm-tuned")  # what the paper's appendix compares, in all four panels


def paper_panel(name: str) -> Panel:
    """One of the paper's four panels."""
    if name not in PAPER:
        raise unknown_name("panel", name, (*PAPER, "appendix"))
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse_panel(text, f"{name}.toml", check=False)  # tests check these


def panels_for(names: Sequence[str], coarse: bool) -> list[Panel]:
    """The panels with these names: the paper's, "appendix", or panel files; all of the paper's if none is named."""
    wanted = list(names) or list(PAPER)
    panels = {name: paper_panel(name).only(APPENDIX) for name in PAPER if "appendix" in wanted}
    panels |= {name: paper_panel(name) for name in wanted if name != "appendix" and not name.endswith(".toml")}
    for name in wanted:
        if name.endswith(".toml"):
            panel = load_panel(name)
            if panel.id in panels:
                rule = "Panels of one run must have different ids"
                raise ArgumentError(rule, repr(panel.id), "Change the id in one file")
            panels[panel.id] = panel
    return [quick(panel) if coarse else panel for panel in panels.values()]


def quick(panel: Panel) -> Panel:
    """The panel with the paper's methods only, and of each grid the first, middle and last value.

    In grids of three or more parameters the last value is kept for the first parameter only.
    """
    entries = []
    for entry in panel.entries:
        coarse: dict[str, Sequence[Any]] = {}
        for name, values in entry.grid.items():
            indices = list(dict.fromkeys((0, len(values) // 2, len(values) - 1)))
            coarse[name] = [values[i] for i in (indices[:2] if coarse and len(entry.grid) > 2 else indices)]
        if not entry.ours:
            entries.append(replace(entry, grid=coarse))
    return replace(panel, entries=tuple(entries))
