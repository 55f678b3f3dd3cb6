"""What `solve` says beside its result: notes on what a reader would not see, and a bar for progress."""

import os
import re
import signal

import numpy as np
import pytest
import tqdm
from tests.contract.driver import TickingClock

import dualanchor as da

UNCHECKED = da.Finding.of("not-checked")


def sampled(**constants):
    def sample(x, n, rng):
        return 2 * (x - 1) + rng.normal(size=(n, 2)).mean(axis=0)

    return da.Problem(da.Sampler(sample), np.zeros(2), constants=da.Constants(L=2.0, **constants))


@pytest.mark.parametrize(("sigma", "said"), [(1.5, "sigma = 1.5"), (None, "the noise of one sample")])
def test_batches_of_one_by_default(sigma, said):
    unchecked, found = da.solve(sampled(sigma=sigma), budget=50).findings
    assert unchecked == UNCHECKED
    assert found == da.Finding.of("batches-of-one", sigma=sigma)
    assert f"batches of 1 leave a residual of the order of {said} at any budget" in str(found)


def test_nothing_more_is_said_where_the_residual_is_seen_or_the_method_was_chosen():
    assert da.solve(sampled(sigma=0.0), budget=50).findings == (UNCHECKED,)
    assert da.solve(sampled(sigma=1.5), "s-dual-ohm", budget=50).findings == (UNCHECKED,)
    assert da.solve(sampled(sigma=1.5), "auto", budget=50).findings == (UNCHECKED,)
    assert not da.solve(da.problems.affine(dimension=4), budget=50).findings


def test_a_run_that_was_interrupted_is_not_said_to_have_ended_as_asked():
    def interrupt(x):
        os.kill(os.getpid(), signal.SIGINT)

    result = da.solve(sampled(sigma=1.5), "sgda", budget=50, callback=interrupt)
    assert result.status is da.Status.INTERRUPTED
    assert not result.success
    assert not result.findings
    assert "as asked" not in repr(result)


def test_rounds_of_one_sample_leave_workers_idle():
    with da.engines.Local(workers=2, kind="threads") as engine:
        _, found = da.solve(sampled(), da.DualOHM(0.5, 20), engine=engine).findings
        assert found == da.Finding.of("idle-workers", workers=2)
        assert da.solve(sampled(), da.DualOHM(0.5, 20, 8), engine=engine).findings == (UNCHECKED,)
        assert da.solve(sampled(), "auto", budget=50, engine=engine).findings == (UNCHECKED,)
    with da.engines.Local(workers=1, kind="threads") as engine:
        assert da.solve(sampled(), da.DualOHM(0.5, 20), engine=engine).findings == (UNCHECKED,)


@pytest.mark.parametrize(("door", "unit"), [("solve", "step"), ("root", "round")])
def test_progress_true_draws_a_bar_on_standard_error(door, unit, monkeypatch, capsys):
    class AtOnce(tqdm.tqdm):
        """A bar that does not wait for two seconds to pass."""

        def __init__(self, *args, delay, **options):
            assert delay == 2
            super().__init__(*args, mininterval=0, **options)

    monkeypatch.setattr("tqdm.tqdm", AtOnce)
    TickingClock(monkeypatch)
    if door == "solve":
        da.solve(da.problems.affine(dimension=4), budget=500, progress=True)
    else:
        da.root(lambda x, n, rng: x, [1.0], budget=500, L=1.0, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(rf"\r{door}: +\d+%\|.*\| \[.*, {unit} [\d,]+, [\d,]+ evaluations\]", err)
    percent = [int(found) for found in re.findall(r"(\d+)%", err)]
    assert percent == sorted(percent)
    assert 0 < percent[-1] <= 100
    assert err.endswith("\n"), "the bar is closed"


def test_progress_false_says_nothing(capsys):
    da.solve(da.problems.affine(dimension=4), budget=500, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("fast", [True, False])
def test_fast_has_no_effect_but_a_warning(fast):
    problem = da.problems.affine(dimension=4)
    with pytest.warns(DeprecationWarning, match="solve: fast has no effect") as caught:
        result = da.solve(problem, da.SGDA(0.1), budget=300, fast=fast)
    assert [one.filename for one in caught] == [__file__]
    np.testing.assert_array_equal(result.x, da.solve(problem, da.SGDA(0.1), budget=300).x)
