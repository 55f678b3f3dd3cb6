"""A study written to a folder: numbers, figures and the page; all of it or nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from dualanchor.core.errors import ArgumentError
from dualanchor.core.result import to_json
from dualanchor.report.figures import draw
from dualanchor.report.html import interactive_figures, page
from dualanchor.report.interactive import plotly_script
from dualanchor.report.views import View, appendix, views
from dualanchor.studies.processes import spread
from dualanchor.studies.study import Study

Figures: TypeAlias = "dict[str, tuple[list[View], int]]"


def write_report(study: Study, folder: str | Path, *, anew: bool = True, jobs: int = 1) -> Path:
    """Write results.json, curves.csv, figures as PNG and SVG, and report.html; returns the path of the last.

    Everything is made first and then written beside the files it replaces, so that an error (a full disk, say) leaves
    them as they were.

    Parameters
    ----------
    study : Study
        What to show.
    folder : path
        Where to; made if it is not there.
    anew : bool
        Whether to draw everything again although the folder holds the figures and the page of these very numbers.
    jobs : int
        With several, the largest figure is drawn by one of the processes that the study used.
    """
    folder = Path(folder)
    _make_folder(folder)
    panels = views(study)
    figures: Figures = {view.name: ([view], 1) for view in panels}
    if compared := appendix(panels):
        figures["appendix"] = (compared, 2)
    files = {} if anew or not (folder / "report.html").is_file() else _numbers(study)
    if files and _is_there(folder, files, list(figures)):
        return folder / "report.html"
    files = files or _numbers(study)
    drawn = _drawn(figures, jobs)
    vectors = {name: pictures["svg"] for name, pictures in drawn.items()}
    html = page(study, panels, vectors, interactive_figures(panels), plotly_script())
    for name, pictures in drawn.items():
        files |= {f"{name}.{kind}": picture for kind, picture in pictures.items()}
    files["report.html"] = html.encode()
    write_files(folder, files)
    return folder / "report.html"


def _drawn(figures: Figures, jobs: int) -> dict[str, dict[str, bytes]]:
    """Every figure as PNG and SVG; the one with most panels elsewhere, meanwhile."""
    largest = max(figures, key=lambda name: len(figures[name][0]), default=None)
    if largest is None:
        return {}
    elsewhere = spread(draw, [figures[largest]], jobs if len(figures) > 2 else 1, least=1, here=True)
    drawn = {name: {} if name == largest else draw(*figures[name]) for name in figures}
    ((_, drawn[largest]),) = elsewhere
    return drawn


def _numbers(study: Study) -> dict[str, bytes]:
    results = {**study.results, "notes": study.notes} if study.notes else study.results
    return {"results.json": to_json(results, indent=1).encode(), "curves.csv": study.curves_csv().encode()}


def _is_there(folder: Path, numbers: Mapping[str, bytes], figures: Sequence[str]) -> bool:
    """Whether the folder holds these numbers, and the figures and the page that were written with them."""
    drawn = [folder / f"{name}.{kind}" for name in figures for kind in ("png", "svg")]
    same = all((folder / name).is_file() and (folder / name).read_bytes() == data for name, data in numbers.items())
    return same and all(path.is_file() for path in (*drawn, folder / "report.html"))


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder; if one cannot be written, none of them changes."""
    parts: dict[Path, Path] = {}
    try:
        for name, content in files.items():
            part = folder / f".{name}.{secrets.token_hex(4)}.part"
            parts[folder / name] = part
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        if blocked := next((path for path in parts if path.is_dir()), None):
            raise IsADirectoryError(f"{blocked.name} is a folder")
        for path, part in parts.items():
            part.replace(path)
    except OSError as error:
        raise _refusal(folder, error) from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise _refusal(folder, NotADirectoryError("it is a file")) from error
    except OSError as error:
        raise _refusal(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refusal(folder, PermissionError("it is write-protected"))


def _refusal(folder: Path, error: OSError) -> ArgumentError:
    return ArgumentError(
        "A report needs a folder that it can write to, with room for about 8 MB",
        f"{folder}: {error.strerror or error}",
        "Make room or give another folder; files that were there are unchanged",
    )
