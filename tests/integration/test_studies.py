"""reproduce, compare and report from the command line: same numbers, resumed work, clear errors."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dualanchor as da
from dualanchor.cli.app import app
from dualanchor.core.result import to_json
from dualanchor.paper.panels import PAPER, panels_for, paper_panel
from dualanchor.studies.panel import Entry, load_panel, parse_panel
from dualanchor.studies.pieces import CACHED_NUMBERS, pieces_of

COMMAND = (sys.executable, "-m", "dualanchor")
SMALL = """
id = "small"
title = "A small panel"
problem = "affine"
budget = 60
seeds_per_block = 2
[options]
dimension = 6
[methods.s-dual-ohm.grid]
batch_size = [1, 5]
[methods.s-ohm]
like = "s-dual-ohm"
[methods.sgda.grid]
step_size = [0.1, 1.0, 50.0]
[methods.halpern-page.grid]
big_batch = [5]
small_batch = [1, 2]
"""


@pytest.fixture
def panel(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def results(folder):
    return json.loads((Path(folder) / "results.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The small panel with four seeds, and what the command printed. Only to be read."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(SMALL)
    text = run("reproduce", folder / "small.toml", "--seeds", 4, "--out", folder / "out", "--jobs", 1).output
    return folder / "out", text


@pytest.fixture
def out(finished, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(finished[0], tmp_path / "out")


@pytest.mark.parametrize("name", PAPER)
def test_every_point_of_the_paper_s_grids_makes_a_method(name):
    text = resources.files("dualanchor.paper.panels").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    assert parse_panel(text, name).entries == paper_panel(name).entries


def test_the_paper_s_panels_are_as_printed():
    sizes = {"exp1": 2000, "exp2": 2000, "exp3-low": 10000, "exp3-high": 10000}
    for name in PAPER:
        panel = paper_panel(name)
        assert panel.budget == sizes[name]
        points = {entry.id: len(entry.points()) for entry in panel.entries if not entry.ours}
        expected = {"s-dual-ohm": 5, "s-ohm": 1, "s-ohm-tuned": 5, "sgda": 5, "seg": 5, "rain": 80, "halpern-page": 20}
        assert points == expected | ({"halpern-vr-finite": 1} if name == "exp2" else {})
        assert {entry.id: entry.grid for entry in panel.entries if entry.ours} == {
            "averaged": {},
            "dual-ohm": {},
            "auto": {},
        }
    assert paper_panel("exp1").problem.describe() == {
        "name": "worst-case-nonexpansive",
        "dimension": 2001,
        "sigma": 0.1,
    }
    assert [panel.id for panel in panels_for([], False)] == list(PAPER)
    assert {len(panel.entries) for panel in panels_for(["appendix"], False)} == {3}


def test_outputs_are_complete_and_equal_the_library_s_numbers(finished):
    out, text = finished
    assert "s-dual-ohm" in text
    assert "report.html" in text
    for name in ("results.json", "curves.csv", "small.png", "small.svg", "report.html"):
        assert (out / name).stat().st_size > 0
    found = results(out)["panels"]["small"]
    assert found["budget"] == 60
    problem = da.problems.affine(dimension=6)
    grid = found["methods"]["sgda"]["grid"]
    assert [point["params"]["step_size"] for point in grid] == [0.1, 1.0, 50.0]
    for point in grid[:2]:
        alone = da.solve(problem, da.SGDA(point["params"]["step_size"]), budget=60, reps=4)
        np.testing.assert_array_equal(point["per_seed"], alone.residual)
        assert point["mean"] == pytest.approx(alone.residual.mean())
    best = min(grid[:2], key=lambda point: point["mean"])
    assert found["methods"]["sgda"]["selected"] == best["params"]
    assert found["methods"]["sgda"]["final"]["per_seed"] == best["per_seed"]
    assert found["methods"]["s-ohm"]["selected"] == found["methods"]["s-dual-ohm"]["selected"]
    assert found["methods"]["s-ohm"]["grid"] == []
    start = da.solve(problem, da.SGDA(1.0), stop=da.Steps(0), reps=4).residual
    assert found["initial_residual"] == pytest.approx(start.mean())


def test_curves_are_a_tidy_table(finished):
    pandas, (out, _) = pytest.importorskip("pandas"), finished
    curves = pandas.read_csv(out / "curves.csv")
    assert list(curves.columns) == ["panel", "method", "seed", "k", "evals", "residual"]
    assert set(curves.seed) == {0, 1, 2, 3}
    ends = curves.sort_values("k").groupby(["method", "seed"]).residual.last()
    for method, row in results(out)["panels"]["small"]["methods"].items():
        np.testing.assert_array_equal(ends[method].to_numpy(), row["final"]["per_seed"])


@pytest.mark.slow
def test_a_configuration_that_tuning_recorded_is_not_run_again(panel, finished, tmp_path):
    tuned = '[methods.s-ohm-tuned]\nmethod = "s-ohm"\ngrid.batch_size = [1, 5]\n'
    panel.write_text(SMALL.replace("[methods.sgda.grid]", tuned + "[methods.sgda.grid]"))
    run("reproduce", panel, "--seeds", 4, "--out", tmp_path / "both", "--jobs", 1)
    apart, both = (results(one)["panels"]["small"]["methods"]["s-ohm"] for one in (finished[0], tmp_path / "both"))
    assert apart == both
    stored = [np.load(path)["header.json"].tobytes() for path in (tmp_path / "both" / "store").glob("*.npz")]
    ohm = [piece for piece in (json.loads(text)["piece"] for text in stored) if piece["method"] == "s-ohm"]
    assert {len(piece["points"]) for piece in ohm} == {2}


@pytest.mark.slow
def test_jobs_store_and_fresh_do_not_change_the_numbers(panel, out, tmp_path):
    run("reproduce", panel, "--seeds", 4, "--out", tmp_path / "two", "--jobs", 2)
    first = results(out)
    assert first == results(tmp_path / "two")
    for name in ("curves.csv", "small.png", "small.svg", "report.html"):
        assert (out / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    before = {path.name: path.stat().st_mtime_ns for path in (out / "store").iterdir()}
    run("reproduce", panel, "--seeds", 4, "--out", out)
    assert {path.name: path.stat().st_mtime_ns for path in (out / "store").iterdir()} == before
    run("reproduce", panel, "--seeds", 4, "--out", out, "--fresh", "--jobs", 1)
    after = {path.name: path.stat().st_mtime_ns for path in (out / "store").iterdir()}
    assert set(after) == set(before)
    assert all(after[name] > before[name] for name in before)
    assert results(out) == first


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_the_same(tmp_path):
    panel = tmp_path / "slow.toml"
    panel.write_text(
        SMALL.replace("budget = 60", "budget = 4000").replace("seeds_per_block = 2", "seeds_per_block = 1")
    )
    words = [*COMMAND, "reproduce", str(panel), "--seeds", "5", "--jobs", "1", "--json", "--out"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen([*words, str(killed)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(list((killed / "store").glob("*.npz")) if (killed / "store").exists() else []) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None, "it should still be running"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in (killed / "store").glob("*.npz")}
    assert not (killed / "results.json").exists()
    for folder in (killed, whole):
        subprocess.run([*words, str(folder)], check=True, stdout=subprocess.DEVNULL)
    again = {path.name: path.stat().st_mtime_ns for path in (killed / "store").glob("*.npz")}
    assert all(again[name] == stamp for name, stamp in done.items())
    assert results(killed) == results(whole)


@pytest.mark.slow
def test_a_study_that_is_interrupted_says_what_is_kept(tmp_path):
    panel, out = tmp_path / "slow.toml", tmp_path / "out"
    panel.write_text(
        SMALL.replace("budget = 60", "budget = 100000").replace("seeds_per_block = 2", "seeds_per_block = 1")
    )
    words = [*COMMAND, "reproduce", str(panel), "--seeds", "8", "--jobs", "2"]
    process = subprocess.Popen(
        [*words, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    )
    deadline = time.monotonic() + 300
    while not list((out / "store").glob("*.npz")):
        assert time.monotonic() < deadline
        assert process.poll() is None, "it should still be running"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "the same command goes on" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_store_of_another_version_is_recomputed_and_said(panel, out):
    first = results(out)
    for path in list((out / "store").iterdir()):
        path.rename(path.with_stem(path.stem[:25] + "0" * 16))
    text = run("reproduce", panel, "--seeds", 4, "--out", out, "--jobs", 1).output
    assert "another version" in " ".join(text.split())
    assert results(out)["panels"] == first["panels"]
    text = run("reproduce", panel, "--seeds", 4, "--out", out, "--jobs", 1).output
    assert "another version" not in " ".join(text.split())  # said once, and gone


@pytest.mark.slow
def test_a_damaged_piece_is_computed_again(panel, out):
    first = results(out)
    damaged = sorted((out / "store").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:50])
    run("reproduce", panel, "--seeds", 4, "--out", out, "--jobs", 1)
    assert results(out) == first


@pytest.mark.slow
def test_a_full_disk_is_a_clear_error_and_leaves_the_store_intact(panel, out):
    before = {path.name: path.read_bytes() for path in (out / "store").iterdir()}
    report = (out / "report.html").read_bytes()

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [*COMMAND, "reproduce", str(panel), "--seeds", "5", "--out", str(out), "--jobs", "1"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Error" in done.stderr
    assert {name: (out / "store" / name).read_bytes() for name in before} == before
    assert not list(out.rglob("*.part"))
    assert (out / "report.html").read_bytes() == report


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (SMALL.replace("budget = 60", "budget = "), ("valid TOML", "line 5")),
        (SMALL.replace("budget = 60", 'budget = "many"'), ("line 5", "field budget", "'many'")),
        (SMALL.replace("budget = 60", "budget = 0"), ("line 5", "field budget", "0")),
        (SMALL.replace("budget = 60", "bugdet = 60"), ("line 5", "field bugdet", "budget")),
        (SMALL.replace('problem = "affine"', 'problem = "afine"'), ("line 4", "field problem", "affine")),
        (SMALL.replace("dimension = 6", "dimension = 0"), ("field problem", "dimension")),
        (SMALL.replace("batch_size = [1, 5]", "batch_size = 5"), ("line 10", "field batch_size", "list")),
        (SMALL.replace("batch_size = [1, 5]", "batch_size = [0]"), ("line 10", "field batch_size", "at least 1")),
        (SMALL.replace("batch_size = [1, 5]", "batchsize = [1]"), ("line 10", "field batchsize", "batch_size")),
        (SMALL.replace("[methods.sgda.grid]", "[methods.sgd.grid]"), ("field sgd", "sgda")),
        (SMALL.replace('like = "s-dual-ohm"', 'like = "nothing"'), ("line 12", "field like", "'nothing'")),
        (SMALL.replace('id = "small"', 'id = "../up"'), ("field id", "'../up'")),
        ('id = "x"', ("field budget", "must be given")),
    ],
)
def test_a_malformed_panel_names_line_and_field(text, parts):
    with pytest.raises(da.errors.ArgumentError) as caught:
        parse_panel(text, "mine.toml")
    message = str(caught.value)
    for part in ("mine.toml", "Got", *parts):
        assert part in message, message


def test_bad_input_of_the_commands(panel, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for words, parts in [
        (["reproduce", "exp9"], ("panel", "'exp9'", "Did you mean")),
        (["reproduce", tmp_path / "none.toml"], ("readable", "none.toml")),
        (["reproduce", panel, "--seeds", 0], ("seeds", "0")),
        (["reproduce", panel, "--seeds", 2, "--out", file], (str(file.name),)),
        (["report", tmp_path / "nowhere"], ("nowhere",)),
        (["compare", "affine", "--budget", 0], ("budget", "0")),
        (["compare", "affine", "--budget", 50, "--methods", "sgd"], ("'sgd'", "sgda")),
    ]:
        output = " ".join(run(*words, code=2).output.split())
        for part in parts:
            assert part in output, output
        assert "Traceback" not in output
    with pytest.raises(da.errors.ArgumentError, match="readable"):
        load_panel(tmp_path)


@pytest.mark.slow
def test_report_is_rendered_anew_from_the_files(out):
    before = results(out)
    for name in ("report.html", "small.png", "small.svg"):
        (out / name).unlink()
    run("report", out)
    assert (out / "report.html").exists()
    assert (out / "small.png").exists()
    assert results(out) == before


@pytest.mark.slow
def test_compare_on_a_problem_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np, dualanchor as da\n"
        "A = np.array([[1.0, 2.0], [-2.0, 1.0]])\n"
        "def sample(x, n, rng):\n"
        "    return A @ x + rng.normal(size=(n, 2)).mean(axis=0)\n"
        "problem = da.Problem(da.Sampler(sample), [3.0, 1.0], constants=da.Constants(L=5.0), name='mine')\n"
    )
    words = ["compare", f"{file}:problem", "--budget", 60, "--methods", "sgda,s-dual-ohm", "--seeds", 2]
    out = json.loads(run(*words, "--out", tmp_path / "out", "--json", "--jobs", 2).stdout)
    assert out["seeds"] == [0, 1]
    assert set(out["tune_seeds"]).isdisjoint(out["seeds"])
    assert set(out["panels"]["mine"]["methods"]) == {"sgda", "s-dual-ohm"}
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_compare_without_L_says_what_is_missing():
    def sample(x, n, rng):
        return x - 1 + rng.normal(size=(n, 2)).mean(axis=0)

    problem = da.Problem(da.Sampler(sample), np.zeros(2))
    with pytest.raises(ValueError, match=r"without L, methods need.*Got auto on .*\. Declare .*Constants\(L=\.\.\.\)"):
        da.compare(problem, [da.SGDA(0.1), "auto"], budget=100, seeds=2, jobs=1)
    assert da.compare(problem, [da.SGDA(0.1)], budget=100, seeds=2, jobs=1).best == "sgda"


def test_a_configuration_that_runs_to_where_the_function_raises_loses():
    def sample(x, n, rng):
        if np.abs(x).max() > 1e3:
            raise FloatingPointError("out of range")
        return 3 * x - 3 + rng.normal(size=(n, 2))

    problem = da.Problem(da.Sampler(sample), np.zeros(2), constants=da.Constants(L=0.3))
    row = da.compare(problem, ["sgda"], budget=200, seeds=2, jobs=1).methods["sgda"]
    finals = [point["mean"] for point in row["grid"]]
    assert finals[-1] == np.inf
    assert row["selected"]["step_size"] < 2 / 3
    assert row["final"]["mean"] < 1
    with pytest.raises(da.errors.OracleError, match="out of range"):
        da.compare(problem, [da.SGDA(3.0)], budget=200, seeds=2, jobs=1)


def test_compare_takes_every_method_that_can_run():
    comparison = da.compare(da.problems.affine(dimension=4), budget=40, seeds=2, jobs=1)
    paper = {"s-dual-ohm", "s-ohm", "sgda", "seg", "rain", "halpern-page"}
    assert set(comparison.methods) == paper | {"averaged", "dual-ohm", "auto"}
    assert comparison.methods["averaged"]["grid"]  # averaging is tuned like the others
    assert comparison.best == next(iter(comparison.methods))
    assert repr(comparison).count("\n") == 9
    assert set(comparison.to_frame().method) == set(comparison.methods)


@dataclass(frozen=True)
class Half(da.SGDA):
    """A method of one's own: half the step."""

    id = "half"

    @classmethod
    def grid(cls, problem, budget):
        return {"step_size": [0.2, 1.0]}

    def update(self, k, s, G):
        s.x -= 0.5 * self.step_size * G


class Own(da.problems.Affine):
    """A problem of one's own."""

    id = "own"


@pytest.mark.slow
def test_methods_and_problems_of_one_s_own_are_compared_and_stored_like_ours(tmp_path):
    methods = [Half, da.SGDA(0.5), Entry("twice", Half, {"step_size": [2.0]}), "seg"]
    settings = {"budget": 60, "seeds": 3, "tune_seeds": "same", "folder": tmp_path}
    found = da.compare(Own(dimension=4), methods, jobs=2, **settings)
    assert set(found.methods) == {"half", "sgda", "twice", "seg"}
    assert found.methods["half"]["method"] == found.methods["twice"]["method"] == "half"
    assert [point["params"]["step_size"] for point in found.methods["half"]["grid"]] == [0.2, 1.0]
    ours = da.solve(da.problems.affine(dimension=4), [da.SGDA(0.5), da.SGDA(1.0)], budget=60, reps=3)
    half = [point for point in found.methods["half"]["grid"] if point["params"]["step_size"] == 1.0]
    np.testing.assert_array_equal(half[0]["per_seed"], ours.residual[0])
    np.testing.assert_array_equal(found.methods["sgda"]["final"]["per_seed"], ours.residual[0])
    np.testing.assert_array_equal(found.methods["twice"]["final"]["per_seed"], ours.residual[1])
    stored = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(stored) == 4
    again = da.compare(Own(dimension=4), methods, jobs=1, **settings)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stored
    assert to_json(again.study.results) == to_json(found.study.results)


@pytest.mark.parametrize(
    ("points", "dimension", "limit", "blocks"),
    [(1, 10, None, [10]), (80, 2001, None, [1] * 10), (5, 2001, None, [5, 5]), (5, 10, 3, [3, 3, 2, 2])],
)
def test_pieces_fit_the_cache_and_a_grid_stays_together(points, dimension, limit, blocks):
    problem = da.problems.affine(dimension=dimension)
    panel = replace(paper_panel("exp1"), problem=problem, seeds_per_block=limit)
    pieces = pieces_of(panel, panel.entry("sgda"), [{"step_size": 0.1}] * points, range(10), curves=False)
    assert [len(piece.seeds) for piece in pieces] == blocks
    assert sum((piece.seeds for piece in pieces), ()) == tuple(range(10))
    assert all(len(piece.points) == points for piece in pieces)
    assert all(len(piece.seeds) == 1 or points * len(piece.seeds) * dimension <= CACHED_NUMBERS for piece in pieces)


def test_quick_takes_points_of_the_paper_s_grids():
    for coarse, panel in zip(panels_for([], True), panels_for([], False), strict=True):
        theirs = [entry for entry in panel.entries if not entry.ours]
        for few, entry in zip(coarse.entries, theirs, strict=True):
            assert all(point in entry.points() for point in few.points())
            assert few.points()[0] == entry.points()[0]
            assert all(1 <= len(few.grid[name]) <= 3 for name in entry.grid)
    assert coarse.entry("s-dual-ohm").grid == {"batch_size": [1, 20, 100]}
    assert coarse.entry("rain").grid["step_size"] == [0.005, 0.05, 1.0]
    assert coarse.entry("rain").grid["growth"] == [0.001, 0.1]


@pytest.mark.slow
def test_quick_is_coarse_and_says_so(tmp_path):
    out = json.loads(run("reproduce", "exp2", "--quick", "--out", tmp_path, "--json").stdout)
    assert out["seeds"] == [0, 1, 2]
    assert len(out["panels"]["exp2"]["methods"]["rain"]["grid"]) == 12
    assert out["claims"] == []
