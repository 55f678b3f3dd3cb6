"""The paper's experiments: its panels are run, and its claims judged."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dualanchor.studies.panel import Panel
from dualanchor.studies.study import Event, Study, run_study


def reproduce(
    panels: Sequence[Panel],
    folder: Path,
    *,
    seeds: int | None = None,
    tune_seeds: str = "same",
    quick: bool = False,
    readings: bool = False,
    fresh: bool = False,
    jobs: int | None = None,
    progress: Callable[[Event], None] | None = None,
) -> Study:
    """Run the panels, store finished pieces in the folder, and judge the paper's claims.

    `seeds` is ten by default, three if `quick`, which also says that the grids are coarse. With `readings`, claims are
    judged under every reading of the paper's open details. Other arguments are those of `run_study`.
    """
    seeds = seeds if seeds is not None else 3 if quick else 10
    run = partial(run_study, seeds=seeds, folder=folder / "store", fresh=fresh, jobs=jobs, progress=progress)
    study = run(panels, tune_seeds=tune_seeds)
    if quick:
        reason = "--quick has few seeds and leaves out values of the grids"
        study.notes.append(f"The paper's claims are not judged: {reason}.")
        return study
    # Imported here: these need SciPy, which takes long to import.
    from dualanchor.paper.claims import judge
    from dualanchor.paper.readings import with_readings

    study.results["claims"] = with_readings(study, run) if readings else judge(study)
    return study
