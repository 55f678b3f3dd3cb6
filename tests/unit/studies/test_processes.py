import os
import signal
import threading
import time

import pytest

from dualanchor.core.errors import OracleError
from dualanchor.studies import processes
from dualanchor.studies.processes import spread

KIN = ["a", "a", "b", "b", "c"]


def square(i):
    return i * i, os.getpid()


def broken(i):
    raise ValueError(f"call {i}")


def team(calls, **options):
    return processes._Team(square, [(i,) for i in range(calls)], KIN[:calls], 2, **options)


@pytest.fixture
def alone(monkeypatch):
    """A team whose calls are not begun by anybody."""
    monkeypatch.setattr(processes._Team, "_begin", lambda *_: None)
    monkeypatch.setattr(processes, "_LAST", {7: "b"})
    return team(5, here=True)


def test_a_process_stays_at_its_kin_then_takes_one_that_nobody_has_begun_and_then_what_is_left(alone):
    assert [alone._next(7) for _ in range(6)] == [2, 3, 0, 1, 4, None]


def test_it_leaves_what_others_have_begun_to_them(alone):
    assert [alone._next(8), alone._next(7), alone._next(7), alone._next(7)] == [0, 2, 3, 4]
    assert [alone._next(7), alone._next(8)] == [1, None]


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize("kin", [None, KIN])
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_every_call_is_made_once_wherever(jobs, kin, here):
    found = list(spread(square, [(i,) for i in range(5)], jobs, kin=kin, here=here))
    assert sorted((i, value) for i, (value, _) in found) == [(i, i * i) for i in range(5)]
    if jobs == 1 or not here:
        assert all((process == os.getpid()) == (jobs == 1) for _, (_, process) in found)


def slow_elsewhere(i, main):
    if os.getpid() != main:
        time.sleep(1)
    return os.getpid()


def test_this_process_takes_part_where_calls_are_made_here_too():
    found = dict(spread(slow_elsewhere, [(i, os.getpid()) for i in range(4)], 2, here=True))
    assert sorted(found) == [0, 1, 2, 3]
    assert os.getpid() in found.values()


def test_a_single_call_is_made_elsewhere():
    ((_, (_, process)),) = spread(square, [(3,)], 2, least=1, here=True)
    assert process != os.getpid()


def die(i):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kin", [None, KIN])
def test_a_process_that_dies_is_an_error_and_the_next_study_has_new_ones(kin):
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with pytest.raises(TerminatedWorkerError):
        list(spread(die, [(i,) for i in range(5)], 2, kin=kin))
    assert len(list(spread(square, [(i,) for i in range(5)], 2, kin=kin))) == 5


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


def pids(calls=4, jobs=2):
    return {process for _, (_, process) in spread(square, [(i,) for i in range(calls)], jobs)}


def test_processes_are_kept_for_the_next_calls():
    first = pids()
    assert pids() <= first or first <= pids()
    assert not pids(jobs=3) & first


def test_processes_that_died_meanwhile_are_replaced():
    for process in pids():
        os.kill(process, signal.SIGKILL)
    time.sleep(1)
    assert len(list(spread(square, [(i,) for i in range(5)], 2))) == 5


def test_several_threads_have_processes_of_their_own():
    found = []

    def go(jobs):
        found.append(sorted(i for i, _ in spread(slow_elsewhere, [(i, 0) for i in range(3)], jobs, here=True)))

    threads = [threading.Thread(target=go, args=(jobs,)) for jobs in (2, 3, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[0, 1, 2]] * 3


def test_a_team_that_is_left_early_is_ended():
    found = spread(slow_elsewhere, [(i, 0) for i in range(4)], 2)
    next(found)
    found.close()
    assert len(pids()) >= 1


def test_calls_that_nobody_asks_for_are_ended_when_they_are_given_up(tmp_path):
    found = spread(note_late, [(i, tmp_path) for i in range(20)], 2)
    found.close()
    there = len(list(tmp_path.iterdir()))
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) == there < 20


def note_late(i, folder):
    time.sleep(0.2)
    (folder / str(i)).touch()
