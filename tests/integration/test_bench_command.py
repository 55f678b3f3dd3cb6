"""`dualanchor bench` and the guard: shapes and behaviour; nothing is timed."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import gather
from benchmarks.common import at_least, at_most, is_lower_limit, limit, not_measured, verdict
from click.testing import CliRunner

import dualanchor
from dualanchor.cli.app import app
from dualanchor.cli.bench import CHECKOUT, NAMES

KEYS = {"benchmark", "name", "measured", "against", "ratio", "target", "met"}


def made(row, benchmark="made-up"):
    return {"benchmark": benchmark, **row}


@pytest.mark.parametrize("name", NAMES)
def test_each_benchmark_imports_what_it_needs_of_the_library(name):
    try:
        importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if error.name.startswith(("dualanchor", "benchmarks")):
            raise
        pytest.skip(str(error))


# -- rows --------------------------------------------------------------------------------------------------------


def test_a_ratio_is_so_many_times_slower_or_so_many_times_faster():
    slower, faster = at_most("a", 3.0, 2.0, 1.6), at_least("b", 3.0, 12.0, 5.0)
    assert (slower["ratio"], slower["met"], limit(slower), verdict(slower)) == (1.5, True, "≤ 1.6", "met")
    assert (faster["ratio"], faster["met"], limit(faster), verdict(faster)) == (4.0, False, "≥ 5", "not met")


@pytest.mark.parametrize("measured", [1.0, 10.0])
def test_the_direction_of_a_target_is_known_whether_it_is_met_or_not(measured):
    assert not is_lower_limit(at_most("a", measured, 1.0, 5.0))
    assert is_lower_limit(at_least("a", 1.0, measured, 5.0))


def test_rows_of_numpy_numbers_can_be_written_as_json():
    rows = [at_most("a", np.float64(3.0), 2.0, 1.6), at_least("b", np.float64(3.0), 12.0, 5.0)]
    assert [row["met"] for row in json.loads(json.dumps(rows))] == [True, False]


def test_a_row_that_was_not_measured_says_why():
    row = not_measured("a", 2.0, "jaxopt is not installed")
    assert row["ratio"] is row["met"] is None
    assert verdict(row) == "jaxopt is not installed"


# -- the command -------------------------------------------------------------------------------------------------


def run(*words, code=0):
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.slow
def test_json_is_one_table_with_the_machine():
    found = json.loads(run("--only", "startup", "--quick", "--json").stdout)
    assert [row["benchmark"] for row in found["rows"]] == 3 * ["startup"]
    for row in found["rows"]:
        assert set(row) >= KEYS
        assert row["ratio"] > 0
    assert found["quick"] is True
    assert {"processor", "cores", "caches", "Python", "numpy"} <= set(found["machine"])


@pytest.mark.slow
def test_a_table_for_people_has_a_line_for_each_row():
    text = run("--only", "startup", "--quick").stdout
    assert "dualanchor --help, s" in text
    assert "≤ 0.25" in text


def test_an_unknown_name_is_turned_down():
    said = run("--only", "startup", "--only", "zzz", "--json", code=2).output
    assert said.startswith("Error: bench: --only must be a known name. Got 'zzz'. Choose one of ")
    assert "Did you mean startup?" in run("--only", "startu", code=2).output


def test_help_lists_the_benchmarks():
    assert gather.names() == NAMES
    assert gather.HERE.parent == CHECKOUT
    text = " ".join(run("--help").output.split())
    assert f"NAME is one of {', '.join(gather.names())}." in text


def test_without_a_checkout_it_says_so(tmp_path):
    """A copy of the package with nothing around it, as pip would install it."""
    package = Path(dualanchor.__file__).parent
    shutil.copytree(package, tmp_path / "lib" / "dualanchor", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    command = [sys.executable, "-m", "dualanchor", "bench"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "benchmarks/ of a source checkout" in done.stderr
    assert "Traceback" not in done.stderr


# -- the gatherer ------------------------------------------------------------------------------------------------


def script(folder, monkeypatch, text):
    """A folder of benchmarks with one of our own in it."""
    home = folder / "benchmarks"
    home.mkdir()
    for helper in gather.HELPERS:
        shutil.copy(gather.HERE / f"{helper}.py", home)
    (home / "own.py").write_text(text)
    monkeypatch.setattr(gather, "HERE", home)


def test_a_script_without_its_package_says_so(tmp_path, monkeypatch):
    script(tmp_path, monkeypatch, '"""Mine."""\nimport there_is_no_such_package.part\n')
    rows, tables, well = gather.run("own", quick=True)
    assert (rows[0]["name"], rows[0]["note"]) == ("own", "there_is_no_such_package is not installed")
    assert (tables, well) == ([], True)


def test_a_script_that_fails_is_not_taken_for_one_without_its_package(tmp_path, monkeypatch):
    script(tmp_path, monkeypatch, '"""Mine."""\nraise SystemExit("the two sides differ")\n')
    rows, _, well = gather.run("own", quick=True)
    assert rows[0]["note"] == "failed: the two sides differ"
    assert not well


def test_a_script_that_prints_no_rows_has_failed(tmp_path, monkeypatch):
    script(tmp_path, monkeypatch, '"""Mine."""\nprint("[info] nothing to see")\n')
    rows, _, well = gather.run("own", quick=True)
    assert rows[0]["note"] == "failed: it printed no rows"
    assert not well


def test_rows_are_found_among_what_libraries_say():
    assert gather.printed('[info] hello\n[\n {"name": "a"}\n]\nbye\n') == [{"name": "a"}]
    assert gather.printed("[info] hello\n") is None


def test_rows_and_tables_are_written_down(tmp_path, monkeypatch):
    printed = {
        "rows": [at_least("a against b, s", 1.0, 30.0, 25.0)],
        "tables": [{"title": "Where", "columns": ["panel", "all"], "lines": [["exp1", "2.00"]]}],
    }
    script(tmp_path, monkeypatch, f'"""Mine.\n\nMore."""\nimport json\nprint(json.dumps({printed!r}))\n')
    monkeypatch.setattr(gather, "STORED", tmp_path / "results.json")
    monkeypatch.setattr(gather, "RESULTS", tmp_path / "RESULTS.md")
    assert gather.names() == ["own"]
    gathered, well = gather.gather(["own"], quick=False)
    gather.write(gathered)
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert well
    assert "## own\n\nMine.\n\n|" in text
    assert "| a against b, s | 1 | 30 | 30 | ≥ 25 | met |" in text
    assert "| exp1 | 2.00 |" in text
    assert "1 of 1 targets are met." in text
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert stored["rows"] == [made(printed["rows"][0], "own")]
    (tmp_path / "benchmarks" / "other.py").write_text('"""Theirs."""')
    gather.write({**gathered, "rows": [made(at_most("c", 1.0, 1.0, 2.0), "other")], "tables": []})
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["benchmark"] for row in stored["rows"]] == ["other", "own"]  # what was not run again stays
    (tmp_path / "benchmarks" / "own.py").unlink()
    gather.write({**gathered, "rows": [made(at_most("c", 1.0, 1.0, 2.0), "other")], "tables": []})
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["benchmark"] for row in stored["rows"]] == ["other"]  # unless its script is gone


# -- the guard ---------------------------------------------------------------------------------------------------

STORED = [made(at_most("slower", 1.2, 1.0, 1.5)), made(at_least("faster", 1.0, 40.0, 25.0))]


@pytest.mark.parametrize(
    ("slower", "faster", "lost"),
    [
        (1.2, 40.0, []),
        (1.55, 31.0, []),  # a loss within 30 %
        (0.1, 400.0, []),  # a gain, however large
        (1.57, 40.0, ["slower"]),
        (1.2, 30.0, ["faster"]),  # still better than its target, but a loss
    ],
)
def test_the_guard_sees_losses_and_no_gains(slower, faster, lost):
    found = [made(at_most("slower", slower, 1.0, 1.5)), made(at_least("faster", 1.0, faster, 25.0))]
    losses, remarks = gather.compare(STORED, found)
    assert [text.split(":")[0] for text in losses] == lost
    assert remarks == []


def test_a_row_that_is_gone_is_a_loss_and_a_new_one_is_not():
    found = [STORED[0], made(at_most("fresh", 1.0, 1.0, 2.0))]
    assert gather.compare(STORED, found) == (["faster: missing"], ["fresh: new"])


def test_a_row_without_its_tool_is_a_remark():
    whole = [made(not_measured("made-up", None, "torch is not installed"))]
    losses, remarks = gather.compare(STORED, whole)
    assert losses == []
    assert remarks[1:] == ["slower: missing", "faster: missing"]
    found = [STORED[0], made(not_measured("faster", 25.0, "jaxopt is not installed"))]
    assert gather.compare(STORED, found) == ([], ["faster: jaxopt is not installed"])


def test_a_script_that_failed_loses_its_rows():
    whole = [made(not_measured("made-up", None, "failed: the two sides differ"))]
    assert gather.compare(STORED, whole)[0] == ["slower: missing", "faster: missing"]


def test_plain_seconds_are_those_of_a_machine():
    stored, found = made(at_most("clock, s", 1.0, None, 5.0)), made(at_most("clock, s", 4.0, None, 5.0))
    assert gather.compare([stored], [found]) == ([], [])


def test_of_two_measurements_the_better_counts():
    assert gather.better(at_most("a", 2.0, 1.0, 1.5), at_most("a", 1.0, 1.0, 1.5))["ratio"] == 1.0
    assert gather.better(at_least("a", 1.0, 20.0, 25.0), at_least("a", 1.0, 30.0, 25.0))["ratio"] == 30.0


@pytest.mark.parametrize(("now", "code"), [(30.0, 0), (10.0, 1)])
def test_the_guard_runs_what_is_stored_and_fails_on_a_loss(tmp_path, monkeypatch, capsys, now, code):
    stored = made(at_least("a against b, s", 1.0, 30.0, 25.0), "own")
    (tmp_path / "results.json").write_text(json.dumps({"quick": True, "rows": [stored], "tables": []}))
    monkeypatch.setattr(gather, "STORED", tmp_path / "results.json")
    rows = [at_least("a against b, s", 1.0, now, 25.0)]
    script(tmp_path, monkeypatch, f'"""Mine."""\nimport json\nprint(json.dumps({rows!r}))\n')
    assert gather.guard(gather.names()) == code
    assert f"{code} of 1 rows lost more than 30%" in capsys.readouterr().out
