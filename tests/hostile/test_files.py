"""Damaged and forged files: each is refused in three parts, or is read as something that can be used in full."""

import os
import socket
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from tests.hostile.mutate import choose, damaged_array, damaged_json

import dualanchor as da
from dualanchor.cli.app import app
from dualanchor.core.errors import ArgumentError, CheckpointError, UnsuccessfulError
from dualanchor.core.files import read_arrays, write_arrays

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


@pytest.mark.parametrize("make", NOT_PLAIN)
def test_only_plain_files_are_written_over_and_read(make, tmp_path, monkeypatch, no_hang):
    monkeypatch.chdir(tmp_path)
    make(path := tmp_path / "there.npz")
    before = path.lstat()
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
    assert path.lstat() == before
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
