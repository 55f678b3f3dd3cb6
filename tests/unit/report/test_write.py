"""A study in a folder: all files or none, and the same again from them."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from tests.unit.report.small import small_study

from dualanchor.core.errors import ArgumentError, CheckpointError, MissingExtraError
from dualanchor.core.result import jsonable
from dualanchor.report import load_study, write_report
from dualanchor.report.figures import _legend
from dualanchor.report.folder import write_files


@pytest.fixture(scope="module")
def study():
    return small_study()


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    return write_report(study, tmp_path_factory.mktemp("report")).parent


@pytest.mark.slow
def test_all_files_are_there_and_not_empty(folder, study):
    figures = {f"{name}.{kind}" for name in ("exp1", "own", "appendix") for kind in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == figures | {"results.json", "curves.csv", "report.html"}
    for name in figures:
        content = (folder / name).read_bytes()
        assert len(content) > 10_000
        if name.endswith("png"):
            assert content.startswith(b"\x89PNG")
        else:
            lines = [e for e in ET.fromstring(content).iter() if e.get("id", "").startswith("line2d")]
            assert len(lines) > 10
    results = json.loads((folder / "results.json").read_text())
    assert results["panels"]["exp1"]["methods"]["explosive"]["final"]["mean"] is None
    assert (folder / "curves.csv").read_text() == study.curves_csv()


@pytest.mark.slow
def test_a_report_can_be_made_again_from_its_folder(folder, study, tmp_path):
    loaded = load_study(folder)
    assert loaded.results == jsonable(study.results)
    assert loaded.notes == study.notes
    for panel, curves in study.curves.items():
        for method, curve in curves.items():
            for name, column in vars(curve).items():
                np.testing.assert_array_equal(getattr(loaded.curves[panel][method], name), column)
    with matplotlib.rc_context({"font.size": 31}):
        before = dict(matplotlib.rcParams)
        write_report(loaded, tmp_path)
        assert dict(matplotlib.rcParams) == before
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
def test_a_full_disk_leaves_old_files_as_they_were(folder, tmp_path):
    pytest.importorskip("resource")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes() if path.suffix in (".json", ".csv") else b"old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    script = (
        "import resource, sys\n"
        "from dualanchor.report import load_study, write_report\n"
        "study = load_study(sys.argv[1])\n"
        "study.results['version'] = 'another'\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
        "write_report(study, sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(r"ArgumentError: A report needs a folder .* Got .*File too large. Make room", last), done.stderr
    assert str(tmp_path) in last
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_one_is_refused(study, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for target in (file, file / "below"):
        with pytest.raises(ArgumentError, match=re.escape(str(target))):
            write_report(study, target)
    assert file.read_text() == "mine"


def test_a_write_protected_folder_is_refused(study, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ArgumentError, match="write-protected"):
        write_report(study, tmp_path)


@pytest.mark.slow
def test_missing_packages_are_named(study, tmp_path, monkeypatch):
    for module in ("matplotlib", "plotly.offline", "jinja2"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match=rf"{module.split('.')[0]}.*dualanchor\[report\]"):
                write_report(study, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_a_file_changes_nothing(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("old")
    with pytest.raises(ArgumentError, match="b, a folder"):
        write_files(tmp_path, {"a": b"new", "b": b"new"})
    assert (tmp_path / "a").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_files_get_the_permissions_of_new_files(tmp_path):
    write_files(tmp_path, {"a": b"new"})
    (tmp_path / "other").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("results.json", lambda text: None, "no such file"),
        ("curves.csv", lambda text: None, "no such file"),
        ("results.json", lambda text: text[:-10], "not JSON"),
        ("results.json", lambda text: "[]", "instead of an object"),
        (
            "results.json",
            lambda text: text.replace('"p95"', '"p94"'),
            "no field 'p95' in final of s-dual-ohm of methods",
        ),
        (
            "results.json",
            lambda text: text.replace('"budget": 60', '"budget": "60"'),
            "'60' instead of a count: budget of exp1",
        ),
        ("curves.csv", lambda text: text.replace("seed", "sead"), "a first line"),
        ("curves.csv", lambda text: text.replace(",0,0,0,", ",0,0,none,", 1), "in line 2"),
        ("curves.csv", lambda text: text[: len(text) // 2].rsplit(",", 2)[0], "line"),
    ],
)
def test_files_that_are_not_a_study_s_are_refused(folder, tmp_path, name, change, complaint):
    for file in ("results.json", "curves.csv"):
        text = (folder / file).read_text()
        text = change(text) if file == name else text
        if text is not None:
            (tmp_path / file).write_text(text)
    with pytest.raises(CheckpointError, match=re.escape(complaint)) as caught:
        load_study(tmp_path)
    assert str(caught.value).count(str(tmp_path / name)) == 1


def test_a_legend_takes_the_columns_that_fit_and_shortens_what_does_not():
    assert _legend(["sgda", "seg", "rain", "auto", "s-ohm"], 7.4)[1] == 4
    assert _legend(["a-really-rather-long-method-name-number-0", "a-short-one"], 7.4)[1] == 1
    (shown,), columns = _legend(["x" * 200], 7.4)
    assert columns == 1
    assert len(shown) < 100
    assert shown.endswith("…")
