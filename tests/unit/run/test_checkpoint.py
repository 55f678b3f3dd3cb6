"""Checkpoint files: which are taken up, which are refused."""

import shutil
import tempfile
from functools import partial

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentError, CheckpointError, OracleError
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.run.checkpoint import digest

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
    assert header["run"]["status"]
    assert not header["run"]["active"]
    refuse(saved, header, arrays)
    refuse_with(saved, with_run(header, status=[["SLEEPING"] * 2]), arrays)
    header, arrays = interrupted(saved)
    assert not header["run"]["status"]
    (rows,) = header["run"]["active"]
    refuse(saved, header, arrays)
    for name in rows:
        refuse_with(saved, with_run(header, active=[without(rows, name)]), arrays)


def with_run(header, **changes):
    return {**header, "run": {**header["run"], **changes}}


def without(table, name):
    return {key: value for key, value in table.items() if key != name}


def refuse(saved, header, arrays):
    for name in without(arrays, "sample"):
        refuse_with(saved, header, without(arrays, name), f": no '{name}'")
    for name in ("active", "status", "arrays"):
        refuse_with(saved, {**header, "run": without(header["run"], name)}, arrays, f": no '{name}'")
    for name in ("notes", "run", "digest"):
        refuse_with(saved, without(header, name), arrays, sign=name != "digest")


def refuse_with(saved, header, arrays, received="", sign=True):
    unsigned = without(header, "digest")
    write_arrays(saved, {**unsigned, "digest": digest(unsigned, arrays)} if sign else unsigned, arrays)
    with pytest.raises(da.errors.CheckpointError, match=f"everything that the run had written. Got .*{received}"):
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


def test_of_two_methods_only_the_difference_is_named(saved):
    with pytest.raises(da.errors.CheckpointError) as caught:
        da.solve(PROBLEM, da.DualOHM(0.5, 30), reps=2, checkpoint=saved)
    assert "Got method.parameters.step_size = 1.0 there and 0.5 here. Give" in str(caught.value)
    with pytest.raises(da.errors.CheckpointError, match=r"Got method.id = 's-dual-ohm' there and 's-ohm' here"):
        da.solve(PROBLEM, da.OHM(1.0), stop=da.Steps(3), reps=2, checkpoint=saved)


def test_more_time_may_be_given_later(tmp_path):
    path, endless = tmp_path / "run", da.SGDA(0.1)
    first = da.solve(PROBLEM, endless, budget=50, stop=da.WallTime(0.0), checkpoint=path)
    assert (first.status, first.nit) == (da.Status.WALL_TIME, 0)
    second = da.solve(PROBLEM, endless, budget=50, stop=da.WallTime(3600.0), checkpoint=path)
    np.testing.assert_array_equal(second.x, da.solve(PROBLEM, endless, budget=50).x)
    np.testing.assert_array_equal(da.solve(PROBLEM, endless, budget=50, checkpoint=path).x, second.x)


def test_what_does_not_change_the_run_may_change(saved):
    expected = da.solve(PROBLEM, METHOD, reps=2).x
    np.testing.assert_array_equal(resume(saved, record=3, check=False, progress=lambda where: None).x, expected)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda folder: da.Checkpoint(folder / "nowhere" / "run"), "folder that exists"),
        (lambda folder: da.Checkpoint(folder), "path must lead to a plain file, or be new"),
        (lambda folder: da.Checkpoint("a\0b"), "path must be valid"),
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
        written.append([rows["k"] for rows in header["run"]["active"]])
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
    with pytest.warns(RuntimeWarning, match="no space left") as warned:
        result = da.solve(PROBLEM, METHOD, reps=2, checkpoint=da.Checkpoint(path, 0), callback=lambda x: None)
    monkeypatch.undo()
    assert len(warned) == 1
    assert [one.code for one in result.findings].count("checkpoint-not-written") == 1
    np.testing.assert_array_equal(result.x, da.solve(PROBLEM, METHOD, reps=2).x)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    np.testing.assert_array_equal(resume(path).x, da.solve(PROBLEM, METHOD, reps=2).x)


# -- when to stop ------------------------------------------------------------------------------------------------


def stop_at(step):
    return lambda intermediate_result: intermediate_result.nit.max() >= step


@pytest.mark.parametrize("method", [da.DualOHM(1.0, 60), da.SGDA(0.1)], ids=["horizon", "endless"])
def test_a_run_that_a_callback_has_stopped_goes_on_without_it(method, tmp_path):
    options = {"reps": 2, "record": 5, "budget": 50}
    stopped = da.solve(PROBLEM, method, checkpoint=tmp_path / "run", callback=stop_at(20), **options)
    assert (stopped.status == da.Status.CALLBACK).all()
    assert (stopped.nit == 20).all()
    assert_same(da.solve(PROBLEM, method, checkpoint=tmp_path / "run", **options), da.solve(PROBLEM, method, **options))


def assert_same(one, other):
    for name in ("x", "nit", "nfev", "draws"):
        np.testing.assert_array_equal(one[name], other[name])
    assert np.array_equal(one.status, other.status)
    for name, column in vars(one.history).items():
        np.testing.assert_array_equal(column, getattr(other.history, name))


@pytest.mark.parametrize(
    "stops",
    [
        [da.Steps(10), da.Steps(30)],
        [da.Budget(10), da.Budget(11), da.Steps(40)],
        [da.Target(1.5), da.Steps(30)],
        [da.Steps(5) | da.WallTime(1e9), da.Draws(30)],
    ],
    ids=str,
)
def test_a_run_goes_on_with_another_stop(stops, tmp_path):
    endless, path = da.SGDA(0.1), tmp_path / "run"
    for stop in stops:
        last = da.solve(PROBLEM, endless, reps=3, stop=stop, checkpoint=path)
        again = da.solve(PROBLEM, endless, reps=3, stop=stop, checkpoint=path)
        assert np.array_equal(last.x, again.x)
        assert np.array_equal(last.status, again.status)
    whole = da.solve(PROBLEM, endless, reps=3, stop=stops[-1])
    np.testing.assert_array_equal(last.x, whole.x)
    np.testing.assert_array_equal(last.nfev, whole.nfev)
    with pytest.raises(CheckpointError, match="not with fewer"):
        da.solve(PROBLEM, endless, reps=3, stop=da.Steps(2), checkpoint=path)


def test_a_method_that_depends_on_the_budget_is_another_run(tmp_path):
    da.solve(PROBLEM, "s-dual-ohm", budget=50, checkpoint=tmp_path / "run")
    with pytest.raises(CheckpointError) as caught:
        da.solve(PROBLEM, "s-dual-ohm", budget=60, checkpoint=tmp_path / "run")
    _, received, remedy = caught.value.parts
    assert "method.parameters.horizon = 50 there and 60 here" in received
    assert "depends on when to stop (budget = 50 there and 60 here)" in remedy


# -- files that cannot be written --------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written_to_is_an_error_before_anything_is_spent(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError("no")

    def sample(x, n, rng):
        raise AssertionError("a sample was spent")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(ArgumentError, match="can be written to"):
        da.solve(da.Problem(da.Sampler(sample), np.ones(2)), da.SGDA(0.1), budget=9, checkpoint=tmp_path / "run")
    with pytest.raises(ArgumentError, match="can be written to"):
        da.root(sample, np.ones(2), budget=900, checkpoint=tmp_path / "run")


def test_a_folder_that_is_removed_costs_the_checkpoint_and_not_the_run(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def remove(x):
        shutil.rmtree(folder, ignore_errors=True)

    with pytest.warns(RuntimeWarning, match="checkpoint-not-written") as warned:
        result = da.solve(PROBLEM, METHOD, reps=2, checkpoint=da.Checkpoint(folder / "run", 0), callback=remove)
    assert len(warned) == 1
    assert [one.code for one in result.findings] == ["checkpoint-not-written"]
    np.testing.assert_array_equal(result.x, da.solve(PROBLEM, METHOD, reps=2).x)


def test_an_error_of_the_user_is_not_hidden_behind_one_of_the_checkpoint(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def sample(x, n, rng):
        if x[0] < 0.8:
            shutil.rmtree(folder, ignore_errors=True)
            raise ZeroDivisionError("my own")
        return x

    with pytest.raises(OracleError, match="my own") as caught:
        da.solve(da.Problem(da.Sampler(sample), np.ones(2)), da.SGDA(0.1), budget=9, checkpoint=folder / "run")
    assert caught.value.result.findings[-1].code == "checkpoint-not-written"


def test_what_a_killed_process_has_left_is_cleared_away(tmp_path):
    (tmp_path / ".run.0123.part").write_bytes(b"half")
    (tmp_path / ".other.0123.part").write_bytes(b"of somebody else")
    da.solve(PROBLEM, METHOD, checkpoint=tmp_path / "run")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".other.0123.part", "run"]


# -- functions that have changed ---------------------------------------------------------------------------------


def pull(target):
    def sample(x, n, rng):
        return x - target + 0.1 * rng.normal(size=x.size) / n**0.5

    return sample


def pull_elsewhere(x, n, rng):
    return x - np.where(x < 0.5, 1.0, 2.0) + 0.1 * rng.normal(size=x.size) / n**0.5


class Pull:
    def __init__(self, target):
        self.target = target

    def __call__(self, x, n, rng):
        return x - self.target + 0.1 * rng.normal(size=x.size) / n**0.5


def solved(sample, path, **options):
    problem = da.Problem(da.Sampler(sample, **options), np.zeros(2))
    return da.solve(problem, da.SGDA(0.1), budget=30, checkpoint=path)


MADE = {
    "closure": (pull, 2.0),
    "object": (Pull, 2.0),
    "partial": (lambda target: partial(lambda target, x, n, rng: x - target + 0 * rng.normal(), target), 2.0),
    "array": (lambda target: pull(np.full(2, target)), 2.0),
    "one at a time": (lambda target: da.each(lambda x, rng: x - target + rng.normal(size=2)), 2.0),
}


@pytest.mark.parametrize("name", MADE)
def test_other_data_in_a_function_is_noticed_by_its_samples(name, tmp_path):
    make, other = MADE[name]
    first = solved(make(1.0), tmp_path / "run")
    np.testing.assert_array_equal(solved(make(1.0), tmp_path / "run").x, first.x)
    with pytest.raises(CheckpointError, match="gives another sample at the start"):
        solved(make(other), tmp_path / "run")


def test_other_code_is_noticed_where_samples_at_the_start_are_the_same(tmp_path):
    solved(pull(1.0), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"whose code was another.*check_code=False"):
        solved(pull_elsewhere, tmp_path / "run")
    solved(pull_elsewhere, da.Checkpoint(tmp_path / "run", check_code=False))


def test_other_code_is_noticed_where_samples_do_not_repeat(tmp_path):
    own = np.random.default_rng(7)
    solved(lambda x, n, rng: x - 1 + own.normal(size=2), tmp_path / "run")
    solved(lambda x, n, rng: x - 1 + own.normal(size=2), tmp_path / "run")
    with pytest.raises(CheckpointError, match="whose code was another"):
        solved(lambda x, n, rng: x - 2 + own.normal(size=2), tmp_path / "run")


def test_a_simulator_of_few_values_is_not_taken_for_another(tmp_path):
    """Its first two samples may be the same by chance."""
    values = iter([1.0, 1.0, *[0.0] * 30, 5.0, *[0.0, 1.0] * 99])
    for _ in range(3):
        result = solved(lambda x, n, rng: x - next(values), tmp_path / "run")
    assert result.status is da.Status.BUDGET


def test_a_function_that_failed_may_be_fixed(tmp_path):
    def broken(x, n, rng):
        return pull(1.0)(x, n, rng) if x[0] < 0.5 else 1 / 0

    with pytest.raises(OracleError, match="ZeroDivisionError"):
        solved(broken, tmp_path / "run")
    np.testing.assert_array_equal(solved(pull(1.0), tmp_path / "run").x, solved(pull(1.0), tmp_path / "new").x)
