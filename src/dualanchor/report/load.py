"""A study read back from the folder it was written to."""

import csv
import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dualanchor.core.errors import CheckpointError
from dualanchor.studies.study import Curve, Study

_COLUMNS = ("panel", "method", "seed", "k", "evals", "residual")


def load_study(folder: str | Path) -> Study:
    """Read results.json and curves.csv from the folder that `write_report` wrote to: all that a report shows."""
    folder = Path(folder)
    results = _read_results(folder / "results.json")
    notes = results.pop("notes", [])
    return Study(results, _read_curves(folder / "curves.csv"), panels={}, notes=notes)


def _read_results(path: Path) -> dict[str, Any]:
    """The content of results.json, with everything that a report relies on."""

    def need(value: Any, where: str, **fields: type) -> None:
        if not isinstance(value, dict):
            _refuse(path, f"{value!r:.60} instead of an object: {where}")
        for name, kind in fields.items():
            if name not in value:
                _refuse(path, f"no field {name!r} in {where}")
            kinds = (int, float, type(None)) if kind is float else kind
            if not isinstance(value[name], kinds):
                _refuse(path, f"{value[name]!r:.60} as {name!r} in {where}")

    try:
        results = json.loads(_text(path))
    except ValueError as error:
        _refuse(path, f"text that is not JSON ({error})")
    need(results, "the file", version=str, seeds=list, panels=dict, claims=list)
    for name, panel in results["panels"].items():
        need(panel, f"panel {name}", budget=int, methods=dict)
        for method, row in panel["methods"].items():
            where = f"{method} of panel {name}"
            need(row, where, selected=dict, final=dict, evals=int, grid=list)
            need(row["final"], f"final of {where}", mean=float, p5=float, p95=float, per_seed=list)
            for point in row["grid"]:
                need(point, f"grid of {where}", params=dict, mean=float, per_seed=list)
    for claim in results["claims"]:
        need(claim, "a claim", id=str, panel=str, text=str, verdict=str, evidence=str)
    return dict(results)


def _read_curves(path: Path) -> dict[str, dict[str, Curve]]:
    lines = csv.reader(_text(path).splitlines())
    if (header := tuple(next(lines, ()))) != _COLUMNS:
        _refuse(path, f"a first line {','.join(header)!r} instead of {','.join(_COLUMNS)!r}")
    columns: dict[tuple[str, str], list[tuple[int, int, int, float]]] = {}
    for number, line in enumerate(lines, 2):
        try:
            panel, method, seed, k, evals, residual = line
            columns.setdefault((panel, method), []).append((int(seed), int(k), int(evals), float(residual)))
        except ValueError:
            _refuse(path, f"{','.join(line)!r} in line {number}")
    curves: dict[str, dict[str, Curve]] = {}
    for (panel, method), rows in columns.items():
        curves.setdefault(panel, {})[method] = Curve(*(np.array(column) for column in zip(*rows, strict=True)))
    return curves


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        _refuse(path, "no such file")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(path, str(error))


def _refuse(path: Path, received: str) -> NoReturn:
    rule = "A report is made from results.json and curves.csv as `dualanchor reproduce --out DIR` writes them"
    raise CheckpointError(rule, f"{path}: {received}", "Give the folder of a finished study, or run it again")
