"""Panels as they are drawn: for each method the mean over seeds and a band, on one grid of operator evaluations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from dualanchor.core.result import jsonable
from dualanchor.core.types import Array
from dualanchor.report.styles import Style, assign_styles
from dualanchor.studies.study import Curve, Study

GRID_POINTS = 200  # of a curve
_HEADROOM = 100.0  # the figure ends at this multiple of the start; curves above it are cut off
_ANCHORS = ("s-dual-ohm", "s-ohm", "s-ohm-tuned")
_RESERVED = ("appendix",)  # file names that no panel may take
_LONGEST_NAME = 100  # characters of the name of a file; file systems take up to 255, with suffixes


class Band(NamedTuple):
    """Mean and 5th and 95th percentile over seeds; NaN where there is nothing to draw on a logarithmic axis."""

    evals: Array
    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class PanelData:
    """One panel, ready to be shown."""

    id: str
    name: str  # the id in a form for file names and links
    title: str
    panel: dict[str, Any]  # its part of results.json; a number that is not finite is None
    bands: dict[str, Band]  # curves by method
    styles: dict[str, Style]

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        return dict(self.panel["methods"])

    def only(self, methods: Sequence[str]) -> Self:
        chosen = {name: row for name, row in self.methods.items() if name in methods}
        bands = {name: band for name, band in self.bands.items() if name in methods}
        return replace(self, panel={**self.panel, "methods": chosen}, bands=bands)

    def label(self, method: str) -> str:
        row = self.methods.get(method)
        diverged = row is not None and row["final"]["mean"] is None
        return self.styles[method].label + (" (diverged)" if diverged else "")

    def order(self) -> list[str]:
        """Methods in the order in which they are drawn: emphasised ones on top."""
        return sorted(self.bands, key=lambda name: self.styles[name].emphasised)

    def best(self) -> float | None:
        """The smallest mean final residual."""
        means = [row["final"]["mean"] for row in self.methods.values()]
        return min((mean for mean in means if mean is not None), default=None)

    def winners(self) -> list[str]:
        """The labels of the methods with the smallest mean final residual."""
        best = self.best()
        rows = self.methods.items() if best is not None else ()
        return [self.styles[name].label for name, row in rows if row["final"]["mean"] == best]

    def limits(self) -> tuple[float, float]:
        """The ends of the vertical axis."""
        bands = [band for band in self.bands.values() if np.isfinite(band.mean).any()]
        if not bands:
            return 0.1, 1.0
        low = min(np.nanmin([band.mean, band.low]) for band in bands)
        high = max(np.nanmax([band.mean, band.high]) for band in bands)
        start = max(band.mean[np.isfinite(band.mean)][0] for band in bands)
        high = max(min(high, _HEADROOM * start), 1.01 * low)
        margin = (high / low) ** 0.05
        return float(low / margin), float(high * margin)

    def end(self) -> float:
        """The end of the horizontal axis, in operator evaluations."""
        return max((float(band.evals[-1]) for band in self.bands.values()), default=1.0)


def panels_of(study: Study) -> list[PanelData]:
    """Every panel of a study, in its order."""
    panels = jsonable(study.results)["panels"]
    styles = assign_styles(method for panel in panels.values() for method in panel["methods"])
    names = _file_names(list(panels))
    drawn_panels = []
    for identity, panel in panels.items():
        curves = study.curves.get(identity, {})
        drawn = {name: curves[name] for name in panel["methods"] if name in curves and curves[name].evals.size}
        end = max([panel["budget"], *(int(curve.evals.max()) for curve in drawn.values())])
        bands = {method: band_of(curve, end) for method, curve in drawn.items()}
        drawn_panels.append(PanelData(identity, names[identity], panel.get("title") or identity, panel, bands, styles))
    return drawn_panels


def anchor_comparison(panels: Sequence[PanelData]) -> list[PanelData]:
    """The panels in which S-OHM was also tuned by itself, reduced to S-Dual-OHM and the two S-OHM."""
    return [panel.only(_ANCHORS) for panel in panels if "s-ohm-tuned" in panel.methods]


def band_of(curve: Curve, end: int) -> Band:
    """Mean and percentiles over seeds at evenly spaced numbers of operator evaluations up to `end`."""
    first = max(curve.evals[curve.seed == seed].min() for seed in np.unique(curve.seed))
    grid = np.unique(np.linspace(0, end, GRID_POINTS + 1).round())
    grid = np.unique(np.append(grid[grid >= first], first))
    values = curve.on(grid)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.mean(axis=0)
        low, high = np.percentile(values, [5, 95], axis=0)
    return Band(grid, *(np.where(np.isfinite(curve) & (curve > 0), curve, np.nan) for curve in (mean, low, high)))


def _file_names(panels: Sequence[str]) -> dict[str, str]:
    """A name for each panel: its id without characters that a file system or a link may refuse; all are different."""
    names: dict[str, str] = {}
    taken = set(_RESERVED)
    for identity in panels:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", identity)[:_LONGEST_NAME].strip(".-") or "panel"
        candidates = (stem, *(f"{stem}-{number}" for number in range(2, len(panels) + 2)))
        names[identity] = next(name for name in candidates if name.lower() not in taken)
        taken.add(names[identity].lower())
    return names
