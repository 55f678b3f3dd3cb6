"""Machine code that was compiled once is read by the next process, and by nobody who should not trust it."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")
from dualanchor.fast import kept

RUN = """
import sys
import dualanchor as da
from dualanchor.fast import code
code._Machine._compiled, compile_ = lambda *a: (print("compiled"), compile_(*a))[1], code._Machine._compiled
result = da.solve(da.problems.huber_minimax(), da.DualOHM(step_size=0.05, horizon=50), fast=True)
print(result.x.tobytes().hex())
"""


def run(folder):
    """How many functions a new process compiles, and what it finds."""
    environment = {**os.environ, "DUALANCHOR_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    *compiled, found = done.stdout.split()
    return len(compiled), found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALANCHOR_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_the_next_process_compiles_nothing_and_finds_the_same(folder):
    first, found = run(folder)
    assert first == len(list(folder.iterdir())) >= 3  # an operator, an update, and the loop around them
    assert run(folder) == (0, found)
    nothing_kept = run("")
    assert nothing_kept == (first, found)


def test_a_damaged_file_is_compiled_again(folder):
    _, found = run(folder)
    one, other, *_ = sorted(folder.iterdir())
    one.write_bytes(one.read_bytes()[:-1])
    other.write_bytes(b"")
    assert run(folder) == (2, found)
    assert run(folder) == (0, found)


def test_code_under_the_name_of_other_code_is_compiled_again(folder):
    _, found = run(folder)
    one, other, *_ = sorted(folder.iterdir())
    other.write_bytes(one.read_bytes())
    assert run(folder) == (1, found)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_file_that_others_can_write_to_or_that_is_none_is_not_trusted(folder):
    mask = os.umask(0)
    try:
        kept.write("one", b"code")
    finally:
        os.umask(mask)
    assert (folder / "one").stat().st_mode & 0o077 == 0
    assert kept.read("one") == b"code"
    (folder / "one").chmod(0o666)
    assert kept.read("one") is None
    os.mkfifo(folder / "pipe", 0o600)
    assert kept.read("pipe") is None


def test_what_is_written_is_read(folder):
    code = np.random.default_rng(0).bytes(1000)
    assert kept.read("one") is None
    kept.write("one", code)
    assert kept.read("one") == code
    assert kept.read("other") is None
    assert [path.name for path in folder.iterdir()] == ["one"]
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_folder_that_others_can_write_to_is_not_trusted(folder):
    kept.write("one", b"code")
    folder.chmod(0o777)
    assert kept.read("one") is None
    kept.write("other", b"code")
    assert not (folder / "other").exists()


def test_without_a_place_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for place in ("", str(tmp_path / "file" / "folder")):
        monkeypatch.setenv("DUALANCHOR_CACHE", place)
        kept.write("one", b"code")
        assert kept.read("one") is None


@pytest.mark.parametrize(
    ("platform", "variable", "place"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("darwin", None, "Library/Caches"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
    ],
)
def test_the_usual_place_of_the_system(tmp_path, monkeypatch, platform, variable, place):
    monkeypatch.delenv("DUALANCHOR_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(kept.Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert kept._folder() == tmp_path / place / "dualanchor"
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path / "own"))
        assert kept._folder() == tmp_path / "own" / "dualanchor"


def test_without_a_home_nothing_is_kept(monkeypatch):
    def home():
        raise RuntimeError("no home")

    monkeypatch.delenv("DUALANCHOR_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(kept.Path, "home", home)
    assert kept._folder() is None
