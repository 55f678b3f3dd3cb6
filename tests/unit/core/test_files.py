"""Files: whole or not at all, and readable only if they are ours."""

import contextlib
import json
import os

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core import files
from dualanchor.core.files import read_arrays, write_arrays

ARRAYS = {
    "x": np.arange(6.0).reshape(2, 3),
    "n": np.array(5),
    "flags": np.array([True, False]),
    "single": np.ones(2, np.float32),
    "nested/name": np.array([np.inf, np.nan, -0.0]),
    "empty": np.empty((0, 3)),
}
HEADER = {"format": "test", "list": [1, "zwei", None], "text": "αβ"}


def test_what_is_written_is_read(tmp_path):
    path = write_arrays(tmp_path / "file", HEADER, ARRAYS)
    assert path == tmp_path / "file"
    header, arrays = read_arrays(path)
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], value)
        assert arrays[name].dtype == value.dtype
        assert arrays[name].shape == value.shape


def test_a_file_is_overwritten_as_a_whole(tmp_path):
    path = tmp_path / "file"
    write_arrays(path, HEADER, ARRAYS)
    write_arrays(str(path), {"second": True}, {"y": np.ones(3)})
    header, arrays = read_arrays(path)
    assert header == {"second": True}
    assert list(arrays) == ["y"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


class Spoiled:
    """Makes `np.savez` fail half way."""

    def __array__(self, dtype=None, copy=None):
        raise OSError("no space left on device")


@pytest.mark.parametrize(
    ("header", "arrays", "error"),
    [
        (HEADER, {"x": np.ones(10_000), "y": Spoiled()}, OSError),
        ({"bad": object()}, ARRAYS, TypeError),
        (HEADER, {"x": np.array([object()])}, Exception),
    ],
    ids=["disk full", "header", "objects"],
)
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function ZipFile.__del__")  # by savez before NumPy 2
def test_a_failure_leaves_the_old_file_and_nothing_else(header, arrays, error, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_arrays(path, HEADER, ARRAYS)
    before = path.read_bytes()
    if error is Exception:  # objects would be pickled; refused when reading, so they must not be written
        monkeypatch.setattr(np, "savez", lambda *args, **kwargs: (_ for _ in ()).throw(ValueError("pickle")))
    with pytest.raises(error):
        write_arrays(path, header, arrays)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failing_replacement_leaves_no_part_behind(tmp_path, monkeypatch):
    def no(*args):
        raise PermissionError("not allowed")

    monkeypatch.setattr("os.replace", no)
    with pytest.raises(PermissionError):
        write_arrays(tmp_path / "file", HEADER, ARRAYS)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_no_part_behind(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_arrays(tmp_path / "file", HEADER, ARRAYS)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "nothing")


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "file"
    whole = write_arrays(path, HEADER, {"x": np.arange(8.0)}).read_bytes()
    for length in [0, 1, 3, *range(4, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(da.errors.CheckpointError, match="Got"):
            read_arrays(path)


def test_damage_is_noticed_or_harmless(tmp_path):
    """Whatever byte is changed, the answer is our error or the content; nothing else escapes."""
    path = tmp_path / "file"
    whole = write_arrays(path, HEADER, {"x": np.arange(8.0)}).read_bytes()
    expected = read_arrays(path)[1]["x"]
    for position in range(0, len(whole), 2):
        damaged = bytearray(whole)
        damaged[position] ^= (0xFF, 0x01, 0x08)[position // 2 % 3]
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(da.errors.CheckpointError):
            for value in read_arrays(path)[1].values():
                np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"PK\x03\x04", b"\x80\x04\x95", json.dumps(HEADER).encode(), b"\x93NUMPY\x01\x00"],
    ids=["empty", "text", "zip", "pickle", "json", "npy"],
)
def test_foreign_files_are_refused(content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(da.errors.CheckpointError, match="file"):
        read_arrays(path)


def test_other_numpy_files_are_refused(tmp_path):
    np.save(tmp_path / "array.npy", np.ones(3))
    np.savez(tmp_path / "arrays.npz", x=np.ones(3))
    np.savez(tmp_path / "listed.npz", **{"header.json": np.frombuffer(b"[1, 2]", np.uint8)})
    np.savez(tmp_path / "broken.npz", **{"header.json": np.frombuffer(b"\xff{", np.uint8)})
    np.savez(tmp_path / "objects.npz", **{"header.json": np.frombuffer(b"{}", np.uint8), "x": np.array([None])})
    for path in tmp_path.iterdir():
        with pytest.raises(da.errors.CheckpointError):
            read_arrays(path)
    with pytest.raises(da.errors.CheckpointError):
        read_arrays(tmp_path)


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_file_is_written_without_a_name_where_that_is_possible(unnamed, tmp_path, monkeypatch):
    if not unnamed:
        monkeypatch.setattr(files, "_DESCRIPTORS", "/nowhere")
    (tmp_path / "file").write_bytes(b"old")
    with files.replacing(tmp_path / "file") as file:
        file.write(b"new")
        file.flush()
        others = [entry.name for entry in tmp_path.iterdir() if entry.name != "file"]
        if unnamed and hasattr(os, "O_TMPFILE"):
            assert others == []
        assert (tmp_path / "file").read_bytes() == b"old"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
