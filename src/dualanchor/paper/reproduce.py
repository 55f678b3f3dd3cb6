"""The paper's numerical section: which panels are meant, how they are run, and what is said about the claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dualanchor.core.errors import ArgumentError, unknown_name
from dualanchor.studies.panel import PAPER, Panel, load_panel, paper_panel
from dualanchor.studies.store import Store
from dualanchor.studies.study import APPENDIX, QUICK_SEEDS, Event, Study, quick, run_study


@dataclass(frozen=True)
class Settings:
    """How a reproduction runs.

    Attributes
    ----------
    seeds : int or None
        Independent seeds; None for 10, or 3 if quick.
    tune_seeds : str
        "same", as in the paper, or "disjoint".
    quick : bool
        Whether grids are coarse.
    readings : bool
        Whether claims are judged under every reading of the paper's open details.
    fresh : bool
        Whether finished pieces are computed again.
    jobs : int or None
        Processes; None for one per core.
    """

    seeds: int | None = None
    tune_seeds: str = "same"
    quick: bool = False
    readings: bool = False
    fresh: bool = False
    jobs: int | None = None


def panels_for(names: Sequence[str], coarse: bool) -> list[Panel]:
    """The panels with these names: the paper's, "appendix", or panel files; all of the paper's if none is named."""
    wanted = list(names) or list(PAPER)
    panels: dict[str, Panel] = {}
    if "appendix" in wanted:
        panels = {name: paper_panel(name).only(APPENDIX) for name in PAPER}
    for name in sorted(wanted, key=lambda name: name.endswith(".toml")):  # so that a clash of ids is seen
        if name.endswith(".toml"):
            panel = load_panel(name)
            if panel.id in panels:
                raise ArgumentError(
                    "Panels of one run must have different ids", repr(panel.id), "Change the id in one file"
                )
            panels[panel.id] = panel
        elif name in PAPER:
            panels[name] = paper_panel(name)
        elif name != "appendix":
            raise unknown_name("panel", name, (*PAPER, "appendix"))
    return [quick(panel) if coarse else panel for panel in panels.values()]


def reproduce(
    panels: Sequence[Panel], folder: Path, settings: Settings, progress: Callable[[Event], None] | None = None
) -> Study:
    """Run the panels, keep finished pieces in the folder, and judge the paper's claims."""
    store = folder / "store"
    notes = []
    if stale := Store(store).prune():
        notes.append(f"{stale} finished pieces were of another version of the library and have been computed anew.")
    seeds = settings.seeds if settings.seeds is not None else QUICK_SEEDS if settings.quick else 10
    run = partial(run_study, seeds=seeds, folder=store, fresh=settings.fresh, jobs=settings.jobs, progress=progress)
    study = run(panels, tune_seeds=settings.tune_seeds)
    study.notes += notes
    if settings.quick:
        study.notes.append(
            "The paper's claims are not judged: --quick has few seeds and leaves out values of the grids."
        )
    else:
        study.results["claims"] = _claims(study, run, settings.readings)
    return study


def _claims(study: Study, run: Callable[..., Study], readings: bool) -> list[dict[str, Any]]:
    # Imported here: what judges needs SciPy, which a run without claims does not wait for.
    if readings:
        from dualanchor.paper.readings import with_readings

        return with_readings(study, run)
    from dualanchor.paper.claims import judge

    return judge(study)
