"""Panels as they are drawn: for each method the mean over seeds and the band around it, on one grid of samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.result import jsonable
from dualanchor.core.types import Array
from dualanchor.report.looks import Look, looks
from dualanchor.studies.study import APPENDIX, Curve, Study

GRID_POINTS = 200
_HEADROOM = 100.0  # a curve that grows beyond so many times the start leaves the figure
_RESERVED = ("appendix",)


class Band(NamedTuple):
    """Mean and 5th and 95th percentile over seeds; NaN where there is nothing to draw on a logarithmic axis."""

    evals: Array
    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class View:
    """One panel, ready to be shown.

    Attributes
    ----------
    id, name, title : str
        The panel's id, the same as a part of file names and anchors, and its heading.
    panel : dict
        Its part of results.json; a non-finite number is None.
    bands : dict of Band
        Curves by method.
    looks : dict of Look
        How methods are drawn.
    """

    id: str
    name: str
    title: str
    panel: dict[str, Any]
    bands: dict[str, Band]
    looks: dict[str, Look]

    def only(self, methods: Sequence[str]) -> View:
        """The same panel with a selection of its methods."""
        chosen = {name: row for name, row in self.panel["methods"].items() if name in methods}
        bands = {name: band for name, band in self.bands.items() if name in methods}
        return replace(self, panel={**self.panel, "methods": chosen}, bands=bands)

    def label(self, method: str) -> str:
        """What the legend calls a method."""
        row = self.panel["methods"].get(method)
        diverged = row is not None and row["final"]["mean"] is None
        return self.looks[method].label + (" (diverged)" if diverged else "")

    def order(self) -> list[str]:
        """Methods in the order in which they are drawn: emphasised ones on top."""
        return sorted(self.bands, key=lambda name: self.looks[name].emphasised)

    def best(self) -> float | None:
        """The smallest mean final residual, None if every method diverged."""
        means = [row["final"]["mean"] for row in self.panel["methods"].values()]
        return min((mean for mean in means if mean is not None), default=None)

    def limits(self) -> tuple[float, float]:
        """The range of residuals to show."""
        bands = [band for band in self.bands.values() if np.isfinite(band.mean).any()]
        if not bands:
            return 0.1, 1.0
        low = min(np.nanmin([band.mean, band.low]) for band in bands)
        high = max(np.nanmax([band.mean, band.high]) for band in bands)
        start = max(band.mean[np.isfinite(band.mean)][0] for band in bands)
        high = max(min(high, _HEADROOM * start), 1.01 * low)
        margin = (high / low) ** 0.05
        return float(low / margin), float(high * margin)


def views(study: Study) -> list[View]:
    """Every panel of a study, in its order."""
    results = jsonable(study.results)
    shown = looks(method for panel in results["panels"].values() for method in panel["methods"])
    names = _file_names(list(results["panels"]))
    found = []
    for identity, panel in results["panels"].items():
        curves = {method: study.curves.get(identity, {}).get(method) for method in panel["methods"]}
        present = {method: curve for method, curve in curves.items() if curve is not None and curve.evals.size}
        end = max([panel["budget"], *(int(curve.evals.max()) for curve in present.values())])
        bands = {method: band(curve, end) for method, curve in present.items()}
        title = panel.get("title") or identity
        found.append(View(identity, names[identity], title, panel, bands, shown))
    return found


def appendix(panels: Sequence[View]) -> list[View]:
    """The panels in which S-OHM was also tuned on its own, with the methods of the paper's appendix only."""
    return [view.only(APPENDIX) for view in panels if "s-ohm-tuned" in view.panel["methods"]]


def band(curve: Curve, end: int) -> Band:
    """What the seeds did, at evenly spaced numbers of operator evaluations up to `end`."""
    first = max(curve.evals[curve.seed == seed].min() for seed in np.unique(curve.seed))
    grid = np.unique(np.linspace(0, end, GRID_POINTS + 1).round())
    grid = np.unique(np.append(grid[grid >= first], first))
    values = curve.on(grid)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.mean(axis=0)
        low, high = np.percentile(values, [5, 95], axis=0)
    return Band(grid, _drawable(mean), _drawable(low), _drawable(high))


def _drawable(values: Array) -> Array:
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _file_names(panels: Sequence[str]) -> dict[str, str]:
    """A part of a file name for each panel: its id without characters that a file system or a link may refuse."""
    names: dict[str, str] = {}
    taken = {name.lower() for name in _RESERVED}
    for identity in panels:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", identity).strip(".-") or "panel"
        name, number = stem, 2
        while name.lower() in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name.lower())
        names[identity] = name
    return names
