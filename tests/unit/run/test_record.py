"""The recorder by itself."""

import itertools

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.result import History
from dualanchor.run.record import Recorder


def points(record, lengths, until):
    """Where something is recorded in a run that stops wherever the recorder says."""
    recorder, k, seen = Recorder(record, lengths), 0, []
    while k <= until:
        if recorder.wants(k):
            seen.append(k)
        k = recorder.next_after(k)
    return seen


def test_steps_at_which_something_is_recorded():
    assert points(4, [20], 20) == [0, 5, 10, 15, 20]
    assert points(1, [20], 20) == [0, 20]
    assert points(100, [3], 3) == [0, 1, 2, 3]
    assert points(0, [20], 20) == []
    assert points(False, [20], 20) == []
    assert points("all", [20], 4) == [0, 1, 2, 3, 4]
    assert points([7, 2, 2], [20], 20) == [2, 7]
    assert points([0], [], 20) == [0]
    assert points(2, [10, 4], 10) == [0, 2, 4, 5, 10]
    assert len(points(None, [6400], 6400)) == 65
    assert points(None, [0], 0) == [0]


def test_samples_of_compiled_steps_give_no_estimates():
    """So their run is not divided for them."""
    assert len(points("samples", [6400], 6400)) == 25
    recorder = Recorder("samples", [6400], compiled=True)
    assert recorder.wants(0)
    assert recorder.next_after(0) > 6400


def test_wants_agrees_with_next_after():
    for record, lengths in ((5, [33]), ("all", []), (None, []), ([1, 4], []), (3, [7, 100])):
        recorder = Recorder(record, lengths)
        wanted = [k for k in range(200) if recorder.wants(k)]
        for before, after in itertools.pairwise(wanted):
            for k in range(before, after):
                assert recorder.next_after(k) == after


def test_without_a_known_end_points_grow_apart_and_never_end():
    seen = points(None, [], 100_000)
    assert seen[:9] == list(range(9))
    gaps = np.diff(seen)
    assert (np.diff(gaps) >= 0).all()
    assert gaps.max() <= seen[-1] / 8
    other = Recorder(None, [])
    assert other.wants(seen[-1]), "where they lie does not depend on where the run has stopped before"
    assert not other.wants(seen[-1] - 1)


def test_lines_are_sorted_by_row_and_step():
    recorder = Recorder("all", [])
    recorder.add(np.array([0, 1]), 0, 0, 0, np.array([1.0, 2.0]))
    recorder.add(np.array([1]), 5, np.array([7]), 8, np.array([0.5]))
    recorder.add(np.array([0]), 3, 4, 5, np.array([0.25]))
    history = recorder.history()
    assert history.row.tolist() == [0, 0, 1, 1]
    assert history.k.tolist() == [0, 3, 0, 5]
    assert history.draws.tolist() == [0, 4, 0, 7]
    assert history.residual.tolist() == [1.0, 0.25, 2.0, 0.5]
    again = Recorder("all", [])
    again.restore(history)
    again.add(np.array([0]), 9, 9, 9, np.array([0.125]))
    assert again.history().of(0).k.tolist() == [0, 3, 9]


def test_lines_without_residuals():
    recorder = Recorder("all", [])
    assert len(recorder.history()) == 0
    recorder.add(np.array([0]), 0, 0, 0, None)
    history = recorder.history()
    assert "residual" not in history.columns()
    again = Recorder("all", [])
    again.restore(History(**{name: getattr(history, name) for name in ("row", "k", "draws", "evals", "residual")}))
    assert len(again.history()) == 1


@pytest.mark.parametrize(
    ("record", "error", "match"),
    [
        ("some", da.errors.ArgumentError, "'some'"),
        (-1, da.errors.ArgumentError, "at least 0"),
        ([3, -1], da.errors.ArgumentError, "at least 0"),
        (2.5, da.errors.ArgumentTypeError, r"2\.5"),
        (["a"], da.errors.ArgumentTypeError, "'a'"),
        ([None], da.errors.ArgumentTypeError, "None"),
    ],
)
def test_what_cannot_be_recorded_is_refused(record, error, match):
    with pytest.raises(error, match=match):
        da.solve(da.problems.affine(dimension=4), "sgda", budget=9, record=record)
