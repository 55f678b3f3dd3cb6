"""Checkpoint files: which are taken up, which are refused."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.files import read_arrays, write_arrays

PROBLEM, METHOD = da.problems.affine(dimension=4), da.DualOHM(1.0, 30)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run"
    da.solve(PROBLEM, METHOD, reps=2, checkpoint=path)
    return path


def resume(path, **changes):
    return da.solve(PROBLEM, METHOD, **{"reps": 2, "checkpoint": path, **changes})


def test_a_path_or_a_checkpoint_will_do(saved, tmp_path):
    expected = da.solve(PROBLEM, METHOD, reps=2).x
    for checkpoint in (saved, str(saved), da.Checkpoint(saved), da.Checkpoint(str(saved), 5)):
        np.testing.assert_array_equal(resume(checkpoint).x, expected)
    assert da.Checkpoint("name").seconds == 30.0


def test_unreadable_truncated_and_foreign_files_are_refused(saved, tmp_path):
    whole = saved.read_bytes()
    for content in (b"", b"not a checkpoint", whole[:-1], whole[: len(whole) // 2]):
        saved.write_bytes(content)
        with pytest.raises(da.errors.CheckpointError, match="can be deleted to start anew"):
            resume(saved)
        assert saved.read_bytes() == content, "a file that is refused is left alone"
    da.solve(PROBLEM, METHOD).save(saved)
    with pytest.raises(da.errors.CheckpointError, match="must be a file written by a run"):
        resume(saved)


def test_a_checkpoint_that_lacks_a_part_is_refused(saved):
    """Every array and every entry of the header, for a run that has ended and for one on its way."""
    header, arrays = read_arrays(saved)
    assert header["status"]
    assert not header["active"]
    refuse(saved, header, arrays)
    refuse_with(saved, {**header, "status": [["SLEEPING"] * 2]}, arrays)
    header, arrays = interrupted(saved)
    assert not header["status"]
    (rows,) = header["active"]
    refuse(saved, header, arrays)
    for name in rows:
        refuse_with(saved, {**header, "active": [without(rows, name)]}, arrays)


def without(table, name):
    return {key: value for key, value in table.items() if key != name}


def refuse(saved, header, arrays):
    for name in arrays:
        refuse_with(saved, header, without(arrays, name), f"a file without '{name}'")
    for name in ("active", "status", "foreign", "arrays"):
        refuse_with(saved, without(header, name), arrays, f"a file without '{name}'")


def refuse_with(saved, header, arrays, received=""):
    write_arrays(saved, header, arrays)
    with pytest.raises(da.errors.CheckpointError, match=f"everything that the run had written. Got {received}"):
        resume(saved)


def interrupted(path):
    """Header and arrays of a run that was ended abruptly."""
    path.unlink()

    def callback(x):
        if path.exists():
            raise InterruptedError

    with pytest.raises(InterruptedError):
        resume(da.Checkpoint(path, 0), callback=callback)
    return read_arrays(path)


def test_the_difference_to_another_run_is_named(saved):
    with pytest.raises(da.errors.CheckpointError, match=r"seed = 0 there and 1 here"):
        resume(saved, seed=1)
    with pytest.raises(da.errors.CheckpointError, match="reps"):
        resume(saved, reps=3)
    with pytest.raises(da.errors.CheckpointError, match=r"stop = 'None' there.* or pass the same stop and budget"):
        resume(saved, stop=da.Steps(3))


def test_of_two_methods_only_the_difference_is_named(saved):
    with pytest.raises(da.errors.CheckpointError) as caught:
        da.solve(PROBLEM, da.DualOHM(0.5, 30), reps=2, checkpoint=saved)
    assert "Got method.parameters.step_size = 1.0 there and 0.5 here. Give" in str(caught.value)
    with pytest.raises(da.errors.CheckpointError, match=r"Got method.id = 's-dual-ohm' there and 's-ohm' here, stop"):
        da.solve(PROBLEM, da.OHM(1.0), stop=da.Steps(3), reps=2, checkpoint=saved)


def test_more_time_may_be_given_later(tmp_path):
    path, endless = tmp_path / "run", da.SGDA(0.1)
    first = da.solve(PROBLEM, endless, budget=50, stop=da.WallTime(0.0), checkpoint=path)
    assert (first.status, first.nit) == (da.Status.WALL_TIME, 0)
    second = da.solve(PROBLEM, endless, budget=50, stop=da.WallTime(3600.0), checkpoint=path)
    np.testing.assert_array_equal(second.x, da.solve(PROBLEM, endless, budget=50).x)
    with pytest.raises(da.errors.CheckpointError, match="WallTime"):
        da.solve(PROBLEM, endless, budget=50, checkpoint=path)


def test_what_does_not_change_the_run_may_change(saved):
    expected = da.solve(PROBLEM, METHOD, reps=2).x
    np.testing.assert_array_equal(resume(saved, record=3, check=False, progress=lambda where: None).x, expected)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda folder: da.Checkpoint(folder / "nowhere" / "run"), "existing folder"),
        (lambda folder: da.Checkpoint(folder), "must be a file"),
        (lambda folder: da.Checkpoint(folder / "run", -1.0), "seconds must be non-negative and finite"),
        (lambda folder: da.Checkpoint(folder / "run", float("nan")), "seconds must be non-negative and finite"),
    ],
)
def test_where_and_how_often(make, match, tmp_path):
    with pytest.raises(da.errors.ArgumentError, match=match):
        make(tmp_path)


def test_it_is_written_when_it_is_time_and_at_the_end(tmp_path, monkeypatch):
    written = []

    def count(path, header, arrays):
        written.append([rows["k"] for rows in header["active"]])
        write_arrays(path, header, arrays)

    monkeypatch.setattr("dualanchor.run.checkpoint.write_arrays", count)
    da.solve(PROBLEM, METHOD, checkpoint=da.Checkpoint(tmp_path / "seldom", 1e9))
    assert written == [[]]
    written.clear()
    da.solve(PROBLEM, METHOD, checkpoint=da.Checkpoint(tmp_path / "often", 0), callback=lambda x: None)
    assert written[:29] == [[k] for k in range(1, 30)]


def test_a_disk_that_is_full_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path, calls = tmp_path / "run", []

    def full(file, **arrays):
        calls.append(1)
        if len(calls) > 5:
            raise OSError("no space left on device")
        savez(file, **arrays)

    savez = np.savez
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        da.solve(PROBLEM, METHOD, reps=2, checkpoint=da.Checkpoint(path, 0), callback=lambda x: None)
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    np.testing.assert_array_equal(resume(path).x, da.solve(PROBLEM, METHOD, reps=2).x)
