"""Damaged and forged files: each is refused in three parts, or is read as something that can be used in full."""

import json
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from tests.hostile.mutate import choose, damaged_array, damaged_json
from tests.unit.report.small import small_study

import dualanchor as da
from dualanchor.cli.app import app
from dualanchor.core.errors import ArgumentError, CheckpointError, UnsuccessfulError
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.report import write_report
from dualanchor.studies.panel import load_panel

PROBLEM = da.problems.affine(dimension=4, sigma=0.1)


@cache
def saved(folder):
    """Honest results of every form, saved: one run, replications and one of them, a grid, roots, a saddle point."""

    def pull_one(x, n, rng):
        return x + rng.normal(size=2) / n**0.5

    def pull(u, v, n, rng):
        return u + rng.normal(size=u.shape) / n**0.5

    results = (
        da.solve(PROBLEM, da.DualOHM(1.0, 20), record=4),
        da.solve(PROBLEM, da.DualOHM(1.0, 20), reps=3, record=4),
        da.solve(PROBLEM, da.DualOHM(1.0, 20), reps=3, record=4).row(2),
        da.solve(PROBLEM, [da.SGDA(0.1), da.SGDA(1e12, 3)], budget=50, reps=2, record=4, check=False),
        da.root(pull_one, np.ones(2), eps=0.3, L=1.0),
        da.root(pull_one, np.ones(2), budget=2000, L=1.0, reps=2),
        da.root(pull_one, np.ones(2), eps=0.3, L=1.0, D=2.0, sigma=1.5, confidence=0.9),
        da.saddle(pull, lambda u, v, n, rng: -v, (np.ones(2), np.ones(1)), budget=500, L=1.0),
    )
    return [result.save(folder / f"{i}.npz") for i, result in enumerate(results)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("saved"))


def forge(rng, source, path):
    """A damaged copy of a saved result."""
    header, arrays = read_arrays(source)
    kind = rng.integers(5)
    if kind < 3:
        header = damaged_json(rng, header)
    if kind in (2, 3):
        name = choose(rng, list(arrays))
        array = arrays.pop(name)
        if rng.integers(4):
            arrays[choose(rng, [name, name, name, f"history/{name}", "x/7"])] = damaged_array(rng, array)
    write_arrays(path, header, arrays)
    if kind == 4:
        content = bytearray(path.read_bytes())
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(len(content))] = rng.integers(256)
        path.write_bytes(content[: rng.integers(len(content))] if rng.integers(2) else content)


def use(result, path):
    """All that can be done with a result."""
    assert all(isinstance(text, str) for text in (repr(result), result._repr_html_(), result.message, result.cite()))
    assert len(result.labels()) == (result.shape[0] if len(result.shape) == 2 else 1)
    assert len(result.to_frame()) == len(result.history)
    if len(result.shape) == 1:
        da.Result.load(result.row(0).save(path))
    result.plot(Figure().subplots()) if result.residual is not None else None
    try:
        result.raise_for_status()
    except UnsuccessfulError as error:
        str(error)
    da.Result.load(result.save(path))


def test_forged_results(results, cases, no_hang, tmp_path):
    read = 0
    for seed in cases(40, 300):
        rng = np.random.default_rng(seed)
        forge(rng, choose(rng, results), path := tmp_path / "forged.npz")
        with no_hang():
            done = CliRunner().invoke(
                app, ["certify", "affine", "-o", "dimension=4", "-o", "sigma=0.1", "-n", "64", "--point", str(path)]
            )
            assert done.exit_code in (0, 2), seed
            assert isinstance(done.exception, (SystemExit, type(None))), seed
            with suppress(CheckpointError):
                use(da.Result.load(path), tmp_path / "again.npz")
                read += 1
    assert read  # some damage is none


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("shape", [2]),
        ("shape", [1, 1, 1]),
        ("status", ["LUCKY"]),
        ("blocks", 3),
        ("form", {"tuple": [0, 1]}),
        ("form", {"set": [0]}),
        ("form", -1),
        ("seed", -1),
        ("problem", None),
        ("method", {"id": "x"}),
        ("plan", [1]),
        ("residual_kind", "guessed"),
        ("certificate", {"upper": 0}),
        ("claim", {"kind": "certain"}),
        ("findings", [{"code": "resumed", "severity": "note", "values": {}}]),
        ("findings", [{"code": "unheard-of", "severity": "note", "values": {}}]),
        ("x/0", np.ones(4, complex)),
        ("x/0", None),
        ("nit", np.array(-1)),
        ("nfev", np.array(1.5)),
        ("success", np.array(7)),
        ("residual", np.array(np.nan)),
        ("history/k", np.zeros(1, int)),
        ("history/row", None),
        ("history/more", np.zeros(3)),
        ("history/row", -np.ones(2, int)),
    ],
)
def test_a_result_whose_parts_do_not_fit_is_refused(part, value, tmp_path):
    problem = da.problems.affine(dimension=4, sigma=0.1)
    header, arrays = read_arrays(da.solve(problem, da.SGDA(0.1), budget=5).save(tmp_path / "run.npz"))
    if part in header:
        header[part] = value
    elif value is None:
        del arrays[part]
    else:
        arrays[part] = value
    path = write_arrays(tmp_path / "forged.npz", header, arrays)
    with pytest.raises(
        CheckpointError, match=r"its parts must fit together. Got .*forged.npz: .*\. Save the result again"
    ):
        da.Result.load(path)
    done = CliRunner().invoke(app, ["certify", "affine", "-n", "64", "--point", str(path)])
    assert done.exit_code == 2


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)  # in the current folder: the name of a socket must be short


def make_loop(path):
    path.symlink_to(path.name)


def make_link_to_device(path):
    path.symlink_to(os.devnull)


NOT_PLAIN = [os.mkfifo, os.mkdir, make_socket, make_loop, make_link_to_device]


def _identity(path: Path) -> tuple[int, ...]:
    """What a file is and when it was changed last; not when it was read, which reading changes."""
    found = path.lstat()
    return (found.st_mode, found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns)


@pytest.mark.parametrize("make", NOT_PLAIN)
def test_only_plain_files_are_written_over_and_read(make, tmp_path, monkeypatch, no_hang):
    monkeypatch.chdir(tmp_path)
    make(path := tmp_path / "there.npz")
    before = _identity(path)
    result = da.solve(PROBLEM, da.SGDA(0.1), budget=5)
    with no_hang():
        with pytest.raises(ArgumentError, match=r"there\.npz"):
            result.save(path)
        with pytest.raises((CheckpointError, OSError), match=r"there\.npz"):
            da.Result.load(path)
        for words in (["solve", "affine", "-b", "9", "--save"], ["certify", "affine", "-n", "64", "--point"]):
            done = CliRunner().invoke(app, [*words, str(path)])
            assert done.exit_code == 2
            assert "there.npz" in done.stderr
            assert not done.stdout  # before anything ran
    assert _identity(path) == before
    assert [one.name for one in tmp_path.iterdir()] == ["there.npz"]


@pytest.mark.parametrize("name", ["", ".", "/", "no/such/folder/run.npz", "file/run.npz"])
def test_paths_of_no_file_are_refused_before_the_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = da.solve(PROBLEM, da.SGDA(0.1), budget=5)
    with pytest.raises(ArgumentError):
        result.save(name)
    with pytest.raises(ArgumentError):
        result.save(f"{name}\0")
    done = CliRunner().invoke(app, ["solve", "affine", "-b", "9", "--save", name])
    assert (done.exit_code, done.stdout) == (2, "")
    assert isinstance(done.exception, SystemExit)


def test_a_symbolic_link_stays_and_the_file_behind_it_is_replaced(tmp_path):
    (folder := tmp_path / "folder").mkdir()
    result = da.solve(PROBLEM, da.SGDA(0.1), budget=5)
    for name in ("first", "link"):  # a file that is not there yet, then through another link
        (tmp_path / name).symlink_to("folder/real.npz" if name == "first" else "first")
        before = (folder / "real.npz").stat().st_ino if name == "link" else None
        result.save(tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert (folder / "real.npz").stat().st_ino != before
        assert da.Result.load(folder / "real.npz").nit == result.nit
    assert os.listdir(folder) == ["real.npz"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a small study, and its results."""
    folder = tmp_path_factory.mktemp("study")
    write_report(small_study(), folder)
    return folder, json.loads((folder / "results.json").read_text(encoding="utf-8"))


def damage_study(rng, folder, results):
    """Damage results.json, or curves.csv."""
    curves = (folder / "curves.csv").read_text(encoding="utf-8")
    if rng.random() < 0.75:
        return json.dumps(damaged_json(rng, results)), curves
    lines = curves.splitlines(keepends=True)
    at = rng.integers(len(lines))
    words = lines[at].split(",")
    words[rng.integers(len(words))] = choose(rng, ["", "x", "-1", "1e400", "nan", "9" * 30, '"', "a\rb", "1.5", "\n"])
    lines[at] = ",".join(words)
    return json.dumps(results), "".join(lines)


def test_damaged_studies(study, cases, no_hang, tmp_path):
    folder, results = study
    codes = []
    for seed in cases(4, 150):
        rng = np.random.default_rng(seed)
        texts = damage_study(rng, folder, results)
        for name, text in zip(("results.json", "curves.csv"), texts, strict=True):
            (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        with no_hang():
            done = CliRunner().invoke(app, ["report", str(tmp_path)])
        assert isinstance(done.exception, (SystemExit, type(None))), seed
        codes.append(done.exit_code)
    assert set(codes) <= {0, 2}
    assert 2 in codes


PANEL = {
    "id": "own",
    "title": "A panel",
    "problem": "affine",
    "budget": 9,
    "options": {"dimension": 3, "sigma": 0.1},
    "methods": {
        "s-dual-ohm": {"grid": {"batch_size": [1, 2]}},
        "second": {"method": "sgda", "grid": {"step_size": [0.1, 0.2]}, "unit": "draws", "budget_factor": 2},
        "third": {"method": "s-ohm", "like": "s-dual-ohm", "fixed": {"step_size": 0.5}, "ours": True},
    },
}


def toml(value):
    """A value as TOML; what TOML has not becomes text that is none."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def test_damaged_panels(cases, no_hang, tmp_path):
    codes = []
    for seed in cases(40, 350):
        rng = np.random.default_rng(seed)
        text = "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in damaged_json(rng, PANEL).items())
        if rng.random() < 0.1:
            at = rng.integers(len(text))
            text = text[:at] + choose(rng, ["[", "\0", "\r", '"', "=", ""]) + text[at + rng.integers(20) :]
        (path := tmp_path / "panel.toml").write_text(text, encoding="utf-8", newline="")
        with no_hang():
            try:
                load_panel(path)
            except ArgumentError:
                codes.append(2)
            else:
                codes.append(0)
    assert set(codes) == {0, 2}


def test_a_panel_that_can_be_read_can_be_run_or_is_refused(cases, no_hang, tmp_path):
    for seed in cases(1, 40):
        rng = np.random.default_rng(seed)
        panel = damaged_json(rng, PANEL) if seed else PANEL
        text = "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in panel.items())
        (path := tmp_path / "panel.toml").write_text(text, encoding="utf-8", newline="")
        words = ["reproduce", str(path), "--seeds", "1", "--jobs", "1", "--json", "--out", str(tmp_path / str(seed))]
        with no_hang():
            done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, (SystemExit, type(None))), seed
        assert done.exit_code in (0, 2), seed
        if done.exit_code == 0:
            assert CliRunner().invoke(app, ["report", str(tmp_path / str(seed))]).exit_code == 0


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "", "a\x1cb", "a\u2028b"])
def test_a_name_that_curves_csv_cannot_hold_is_refused(name, tmp_path):
    panel = {**PANEL, "methods": {name: {"method": "sgda", "fixed": {"step_size": 0.1}}}}
    (path := tmp_path / "panel.toml").write_text("\n".join(f"{key} = {toml(value)}" for key, value in panel.items()))
    with pytest.raises(ArgumentError, match="must be printable"):
        load_panel(path)
