"""A study in a folder: written with its figures and the page, all files or none, and read again."""

import csv
import io
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, CheckpointError
from dualanchor.core.files import replacing, require_plain, to_json
from dualanchor.report.figures import draw
from dualanchor.report.page import render_page
from dualanchor.report.panel_data import anchor_comparison, panels_of
from dualanchor.studies.study import CURVE_COLUMNS, Curve, Study

_FINAL = {"mean": float, "p5": float, "p95": float, "per_seed": [float]}
_METHOD: dict[str, Any] = {"selected": dict, "final": _FINAL, "evals": int, "method?": str, "ours?": bool}
_METHOD["grid"] = [{"params": dict, "mean": float, "per_seed": [float]}]
_PANEL = {"budget": int, "title?": str, "problem?": dict, "initial_residual?": float, "methods": {"*": _METHOD}}
_CLAIM: dict[str, Any] = {"id": str, "panel": str, "text": str, "verdict": str, "evidence": str}
_CLAIM["readings?"] = [{"reading?": str, "verdict?": str}]
_RESULTS: dict[str, Any] = {"version": str, "seeds": [int], "tune_seeds?": [int], "notes?": [str]}
_RESULTS |= {"panels": {"*": _PANEL}, "claims": [_CLAIM]}
_JSON_TYPES: dict[Any, Any] = {float: (int, float, type(None))}  # null stands for a number that is not finite
_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a count",
    float: "a number",
    bool: "true or false",
}


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
        raise _not_writable(folder, NotADirectoryError("it is a file")) from error
    except OSError as error:
        raise _not_writable(folder, error) from error
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
        raise _not_writable(folder, error) from error


def _not_writable(folder: Path, error: OSError) -> ArgumentError:
    rule = "A report needs a folder that it can write to, with room for about 8 MB"
    remedy = "Make room or give another folder; files that were there are unchanged"
    return ArgumentError(rule, f"{folder}: {error.strerror or error}", remedy)


def load_study(folder: str | Path) -> Study:
    """Read results.json and curves.csv, as `write_report` wrote them: everything that a report shows."""
    folder = Path(folder)
    results = _read_results(folder / "results.json")
    notes = results.pop("notes", [])
    return Study(results, _read_curves(folder / "curves.csv"), panels={}, notes=notes)


def _read_results(path: Path) -> dict[str, Any]:
    """The content of results.json; raises unless it has everything that a report needs."""
    text = _text(path)
    try:
        results = json.loads(text)
        to_json(results).encode()  # raises for an escaped lone surrogate, which could not be written again
        _require(results, _RESULTS, "the file")
    except (ValueError, RecursionError) as error:
        _refuse(path, f"text that is not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error))
    return dict(results)


def _require(value: Any, form: Any, where: str) -> None:
    """Raise ValueError unless a JSON value has this form: a type, [form] or {name: form}.

    A name "*" stands for every field; a name that ends in "?" is optional.
    """
    kind = _JSON_TYPES.get(form, form) if isinstance(form, type) else type(form)
    fits = isinstance(value, kind) and (form is bool or not isinstance(value, bool))
    if not fits or (form is int and not 0 <= value <= check.LARGEST_COUNT):
        raise ValueError(f"{value!r:.60} instead of {_TYPE_NAMES[form if isinstance(form, type) else kind]}: {where}")
    if isinstance(form, list):
        for item in value:
            _require(item, form[0], f"an entry of {where}")
    elif isinstance(form, dict):
        for name, inner in form.items():
            field = name.rstrip("?")
            if field == name != "*" and name not in value:
                raise ValueError(f"no field {name!r} in {where}")
            for key in value if name == "*" else {field} & value.keys():
                _require(value[key], inner, f"{key} of {where}")


def _read_curves(path: Path) -> dict[str, dict[str, Curve]]:
    lines = csv.reader(io.StringIO(_text(path), newline=""))
    columns: dict[tuple[str, str], list[tuple[int, int, int, float]]] = {}
    try:
        if (header := next(lines, [])) != CURVE_COLUMNS:
            _refuse(path, f"a first line {','.join(header)!r} instead of {','.join(CURVE_COLUMNS)!r}")
        for line in lines:
            panel, method, *numbers, residual = line
            seed, k, evals = (check.count(int(number), "a number", 0) for number in numbers)
            columns.setdefault((panel, method), []).append((seed, k, evals, float(residual)))
    except (ValueError, csv.Error) as error:
        if isinstance(error, CheckpointError):
            raise
        _refuse(path, f"{error} in line {lines.line_num}")
    curves: dict[str, dict[str, Curve]] = {}
    for (panel, method), rows in columns.items():
        curves.setdefault(panel, {})[method] = Curve(*(np.array(column) for column in zip(*rows, strict=True)))
    return curves


def _text(path: Path) -> str:
    try:
        require_plain(path)
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        _refuse(path, "no such file")
    except (OSError, ValueError) as error:
        _refuse(path, str(error))


def _refuse(path: Path, received: str) -> NoReturn:
    rule = "A report is made from results.json and curves.csv as `dualanchor reproduce --out DIR` writes them"
    raise CheckpointError(rule, f"{path}: {received}", "Give the folder of a finished study, or run it again")
