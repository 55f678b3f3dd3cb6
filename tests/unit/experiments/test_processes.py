import os
import time

import pytest

from dualanchor.core.errors import OracleError
from dualanchor.experiments import processes
from dualanchor.experiments.processes import spread

KIN = ["a", "a", "b", "b", "c"]


def square(i):
    return i * i, os.getpid()


def broken(i):
    raise ValueError(f"call {i}")


@pytest.fixture
def claims(tmp_path, monkeypatch):
    """Claim calls as a process whose last call was of a kin, where others have claimed some."""

    def next_call(last, *claimed):
        for i in claimed:
            (tmp_path / str(i)).touch()
        monkeypatch.setattr(processes, "_last", last)
        i, (value, _) = processes._next(square, [(i,) for i in range(5)], KIN, str(tmp_path))
        assert value == i * i
        assert (tmp_path / str(i)).exists()
        assert processes._last == KIN[i]
        return i

    return next_call


def test_a_process_begins_with_the_first_call(claims):
    assert claims(None) == 0


def test_it_stays_at_its_kin(claims):
    assert claims("b", 0, 2) == 3


def test_then_it_takes_one_that_nobody_has_begun(claims):
    assert claims("b", 0, 2, 3) == 4


def test_and_then_what_is_left(claims):
    assert claims("b", 0, 2, 3, 4) == 1


def test_a_call_that_somebody_claims_at_the_same_moment_is_left_to_them(claims, tmp_path, monkeypatch):
    look, looks = os.listdir, []

    def slow(folder):
        found = look(folder)
        if not looks:
            (tmp_path / "0").touch()  # just after the first look
        looks.append(found)
        return found

    monkeypatch.setattr(processes.os, "listdir", slow)
    assert claims(None) == 2  # the other one is at a
    assert looks == [[], ["0"]]


@pytest.mark.parametrize("kin", [None, KIN])
@pytest.mark.parametrize("jobs", [1, 2])
def test_every_call_is_made_once_wherever(jobs, kin):
    found = list(spread(square, [(i,) for i in range(5)], jobs, kin=kin))
    assert sorted((i, value) for i, (value, _) in found) == [(i, i * i) for i in range(5)]
    assert all((process == os.getpid()) == (jobs == 1) for _, (_, process) in found)


def note(i, folder):
    (folder / str(i)).touch()


@pytest.mark.parametrize("kin", [None, KIN])
def test_processes_begin_before_anybody_asks_for_a_value(tmp_path, kin):
    found = spread(note, [(i, tmp_path) for i in range(5)], 2, kin=kin)
    end = time.monotonic() + 30
    while not any(tmp_path.iterdir()):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(list(found)) == 5


def failing(i):
    raise OracleError("F must be known", f"call {i}", "Mend it", row=3).located(7, 3, "row 3")


@pytest.mark.parametrize("kin", [None, KIN])
def test_errors_of_an_oracle_come_through_whole(kin):
    with pytest.raises(OracleError, match=r"Got call . at iteration 7, row 3. Mend it.") as caught:
        list(spread(failing, [(i,) for i in range(5)], 2, kin=kin))
    assert (caught.value.row, caught.value.iteration) == (3, 7)


@pytest.mark.parametrize("kin", [None, KIN])
def test_errors_come_through(kin):
    with pytest.raises(ValueError, match="call"):
        list(spread(broken, [(i,) for i in range(5)], 2, kin=kin))
