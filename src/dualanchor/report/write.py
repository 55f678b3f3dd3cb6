"""A study, written to a folder: numbers, figures and the page; all files or none."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from dualanchor.core.errors import ArgumentError
from dualanchor.core.files import replacing
from dualanchor.core.result import to_json
from dualanchor.report.figures import draw
from dualanchor.report.page import render_page
from dualanchor.report.panel_data import anchor_comparison, panels_of
from dualanchor.studies.study import Study


def write_report(study: Study, folder: str | Path) -> Path:
    """Write results.json, curves.csv, figures as PNG and SVG, and report.html; returns the path of the last.

    Everything is computed first and then written next to the files it replaces, so that an error such as a full disk
    leaves them unchanged. A missing folder is created.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError("it is write-protected")
    except FileExistsError as error:
        raise _refusal(folder, NotADirectoryError("it is a file")) from error
    except OSError as error:
        raise _refusal(folder, error) from error
    panels = panels_of(study)
    drawn = {panel.name: draw([panel]) for panel in panels}
    if compared := anchor_comparison(panels):
        drawn["appendix"] = draw(compared, columns=2)
    page = render_page(study, panels, {name: pictures["svg"] for name, pictures in drawn.items()})
    results = {**study.results, "notes": study.notes} if study.notes else study.results
    files = {
        "results.json": to_json(results, indent=1).encode(),
        "curves.csv": study.curves_csv().encode(),
        **{f"{name}.{kind}": picture for name, pictures in drawn.items() for kind, picture in pictures.items()},
        "report.html": page.encode(),
    }
    write_files(folder, files)
    return folder / "report.html"


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder; if one cannot be written, none of them changes."""
    try:
        with ExitStack() as stack:
            for name, content in files.items():
                file = stack.enter_context(replacing(folder / name))
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise _refusal(folder, error) from error


def _refusal(folder: Path, error: OSError) -> ArgumentError:
    rule = "A report needs a folder that it can write to, with room for about 8 MB"
    remedy = "Make room or give another folder; files that were there are unchanged"
    return ArgumentError(rule, f"{folder}: {error.strerror or error}", remedy)
