"""Checkpoints at the front doors: what is spent before and after the run is spent once."""

import os
import signal
from contextlib import suppress

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import CheckpointError
from dualanchor.core.files import read_arrays


class Killed(BaseException):
    """Ends a call as abruptly as a test can: nothing of the library catches it."""


class Simulator:
    """x - 1 with noise, from `rng` or from randomness of its own; something happens at a call with a given number."""

    def __init__(self, own=None, at=None, then=None):
        self.rng, self.at, self.then, self.calls = own, at, then, 0

    def __call__(self, x, n, rng):
        self.calls += 1
        if self.calls == self.at:
            self.then()
        return x - 1 + (self.rng or rng).normal(size=x.shape) / n**0.5


def kill():
    raise Killed


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def root(sample, path, **keywords):
    return da.root(sample, np.zeros(2), checkpoint=path, **{"budget": 3000, **keywords})


def calls_of(**keywords):
    """Calls of a run without checkpoint: those of the calibration, and all."""
    simulator, first = Simulator(), []
    da.root(simulator, np.zeros(2), callback=lambda x: first.append(simulator.calls), **{"budget": 3000, **keywords})
    return first[0] - 1, simulator.calls


def assert_same(one, other):
    for name in ("x", "nit", "nfev", "draws", "success"):
        np.testing.assert_array_equal(one[name], other[name])
    assert np.array_equal(one.status, other.status)
    assert str(one.claim) == str(other.claim)
    assert repr(one.calibration) == repr(other.calibration)
    assert repr(one.certificate) == repr(other.certificate)


KEYWORDS = {
    "budget": {},
    "guarantee": {"guarantee": True, "L": 1.0, "D": 2.0},
    "eps": {"budget": None, "eps": 0.2},
    "replications": {"reps": 3},
    "planned": {"budget": None, "eps": 0.3, "L": 1.0, "sigma": 1.5, "D": 2.0},
    "probability": {"budget": None, "eps": 0.4, "L": 1.0, "sigma": 1.5, "D": 2.0, "confidence": 0.9},
    "prox": {"L": 1.0, "prox": da.prox.box(0, 3)},
    "prox, replications": {"L": 1.0, "prox": da.prox.box(0, 3), "reps": 2},
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", KEYWORDS)
@pytest.mark.slow
def test_a_call_that_is_killed_anywhere_ends_as_if_undisturbed(name, tmp_path):
    keywords = KEYWORDS[name]
    simulator = Simulator()
    whole = root(simulator, None, **keywords)
    for part in (0.02, 0.1, 0.5, 0.9, 0.99) if name == "budget" else (0.1, 0.5, 0.99):
        path = tmp_path / f"{part}"
        with pytest.raises(Killed):
            root(Simulator(at=max(3, int(part * simulator.calls)), then=kill), da.Checkpoint(path, 0), **keywords)
        assert_same(root(Simulator(), path, **keywords), whole)
        again = Simulator()
        assert_same(root(again, path, **keywords), whole)
        assert again.calls == 1, "one sample shows whether F has changed; nothing is spent again"


@pytest.mark.no_cover
@pytest.mark.parametrize("name", KEYWORDS)
@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
@pytest.mark.slow
def test_a_simulator_with_randomness_of_its_own_is_resumed(name, tmp_path):
    own = np.random.default_rng(7)
    keywords, simulator = KEYWORDS[name], Simulator(own)
    root(simulator, None, **keywords)
    for part in (0.1, 0.4, 0.7):
        path = tmp_path / f"{part}"
        with suppress(Killed):  # unless it ends before: its samples are others each time
            root(Simulator(own, at=int(part * simulator.calls), then=kill), da.Checkpoint(path, 0), **keywords)
        saved = read_arrays(path)[0]["notes"].get("calibration") if path.exists() else None
        result = root(Simulator(own), path, **keywords)
        assert all(np.atleast_1d([one.ended_as_asked for one in np.atleast_1d(result.status)]))
        assert saved is None or result.calibration.facts() == saved["value"]
        np.testing.assert_array_equal(root(Simulator(own), path, **keywords).x, result.x)


@pytest.mark.slow
def test_the_calibration_is_in_the_file_before_the_first_round(tmp_path):
    calibration, _ = calls_of()
    with pytest.raises(Killed):  # two samples more, which tell whether F has changed
        root(Simulator(at=calibration + 3, then=kill), tmp_path / "run")
    header, _ = read_arrays(tmp_path / "run")
    assert header["run"] is None
    assert list(header["notes"]) == ["calibration"]


@pytest.mark.slow
def test_a_run_is_not_repeated_when_the_call_was_killed_in_its_certificate(tmp_path):
    whole, in_run = Simulator(), []
    da.root(whole, np.zeros(2), budget=3000, callback=lambda x: in_run.append(whole.calls))
    with pytest.raises(Killed):
        root(Simulator(at=whole.calls + 1, then=kill), tmp_path / "run")
    again = Simulator()
    assert_same(root(again, tmp_path / "run"), root(Simulator(), None))
    certificate = whole.calls - in_run[-1]
    assert again.calls <= certificate + 3  # the sample that is compared with that of the checkpoint
    assert 10 * certificate < 2 * in_run[-1]


@pytest.mark.slow
@pytest.mark.parametrize("keywords", [{}, {"reps": 3}, {"L": 1.0, "prox": da.prox.box(0, 3)}], ids=str)
@pytest.mark.parametrize("checkpoint", [True, False])
def test_ctrl_c_in_the_calibration_returns_x0(keywords, checkpoint, tmp_path):
    path = tmp_path / "run" if checkpoint else None
    result = root(Simulator(at=30, then=interrupt), path, **keywords)
    assert (np.asarray(result.status) == da.Status.INTERRUPTED).all()
    assert not np.any(result.success)
    assert result.x.shape == ((3, 2) if "reps" in keywords else (2,))
    assert not result.x.any()
    spent = 30 - 2 * checkpoint + (59 if "prox" in keywords else 0)  # the start of an inclusion is one call for 60
    assert np.all(result.nfev == spent)
    assert result.findings[-1].code == "interrupted-before-run"
    assert "interrupted" in repr(result)
    assert result.cite()
    assert_same(root(Simulator(), path, **keywords), root(Simulator(), None, **keywords))


def test_ctrl_c_in_a_certificate_at_x0_returns_x0(tmp_path):
    """The start may already be good enough: that is looked at before the run."""
    planned, at_root = {"eps": 1.0, "L": 1.0, "sigma": 1.5, "D": 2.0}, Simulator()
    whole = da.root(at_root, np.ones(2), **planned)
    assert whole.nit == 0
    result = da.root(Simulator(at=at_root.calls - 1, then=interrupt), np.ones(2), **planned)
    assert result.status is da.Status.INTERRUPTED
    assert 0 < result.nfev <= whole.nfev
    np.testing.assert_array_equal(result.x, 1.0)


def test_a_second_ctrl_c_in_the_calibration_ends_it_at_once():
    def twice():
        interrupt()
        interrupt()

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        root(Simulator(at=30, then=twice), None)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_the_calibration_shows_progress(monkeypatch):
    monkeypatch.setattr("dualanchor.run.observe._PROGRESS_SECONDS", -1.0)
    shown, (calibration, _) = [], calls_of()
    result = da.root(Simulator(), np.zeros(2), budget=3000, progress=shown.append)
    early = [one for one in shown if one.k == 0]
    assert len(early) == calibration
    assert [one.evals for one in early] == sorted(one.evals for one in early)
    assert early[-1].evals == result.calibration.evals
    assert all(one.fraction == 0 and one.rows == 1 for one in early)


def test_a_call_that_a_callback_has_stopped_goes_on_without_it(tmp_path):
    path = tmp_path / "run"
    stopped = root(Simulator(), path, callback=lambda intermediate_result: intermediate_result.nit >= 5)
    assert (stopped.status, stopped.nit) == (da.Status.CALLBACK, 5)
    assert stopped.certificate is not None
    assert_same(root(Simulator(), path), root(Simulator(), None))


def test_another_budget_is_another_method_unless_it_is_not(tmp_path):
    root(Simulator(), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"depends on when to stop \(budget = 3000 there and 4000 here\)"):
        root(Simulator(), tmp_path / "run", budget=4000)
    with pytest.raises(CheckpointError, match=r"method.*eps = None there and 0.1 here"):
        root(Simulator(), tmp_path / "run", budget=None, eps=0.1)
    more = {"method": da.SGDA(0.1), "check": False}
    first = root(Simulator(), tmp_path / "own", **more)
    second = root(Simulator(), tmp_path / "own", **more, budget=4000)
    assert second.nit > first.nit
    assert_same(second, root(Simulator(), None, **more, budget=4000))


def test_constants_that_are_given_belong_to_the_call(tmp_path):
    root(Simulator(), tmp_path / "run", L=1.0)
    with pytest.raises(CheckpointError, match=r"L = 1.0 there and 2.0 here"):
        root(Simulator(), tmp_path / "run", L=2.0)
    with pytest.raises(CheckpointError, match="start = "):
        da.root(Simulator(), np.ones(2), budget=3000, L=1.0, checkpoint=tmp_path / "run")


def test_a_prox_that_has_changed_is_noticed(tmp_path):
    root(Simulator(), tmp_path / "run", L=1.0, prox=lambda z, step: np.maximum(z, 0))
    root(Simulator(), tmp_path / "run", L=1.0, prox=lambda z, step: np.maximum(z, 0))
    with pytest.raises(CheckpointError, match="code was another"):
        root(Simulator(), tmp_path / "run", L=1.0, prox=lambda z, step: np.maximum(z, 1))
