"""What `solve` says beside its result: notes on what a reader would not see, and lines about progress."""

import re

import numpy as np
import pytest

import dualanchor as da
from dualanchor.run import loop


def sampled(**constants):
    def sample(x, n, rng):
        return 2 * (x - 1) + rng.normal(size=(n, 2)).mean(axis=0)

    return da.Problem(da.Sampler(sample), np.zeros(2), constants=da.Constants(L=2.0, **constants))


@pytest.mark.parametrize(("sigma", "said"), [(1.5, "sigma = 1.5"), (None, "the noise of one sample")])
def test_batches_of_one_by_default(sigma, said):
    (note,) = da.solve(sampled(sigma=sigma), budget=50).notes
    assert note == (
        f"batches of 1 leave a residual of the order of {said} whatever the budget; da.root, or method='auto', do not"
    )


def test_nothing_is_said_where_the_residual_is_seen_or_the_method_was_chosen():
    assert not da.solve(sampled(sigma=0.0), budget=50).notes
    assert not da.solve(sampled(sigma=1.5), "s-dual-ohm", budget=50).notes
    assert not da.solve(sampled(sigma=1.5), "auto", budget=50).notes
    assert not da.solve(da.problems.affine(dimension=4), budget=50).notes


def test_rounds_of_one_sample_leave_workers_idle():
    with da.engines.Local(workers=2, kind="threads") as engine:
        (note,) = da.solve(sampled(), da.DualOHM(0.5, 20), engine=engine).notes
        assert note == "rounds of 1 sample keep one of 2 workers busy; use larger batches"
        assert not da.solve(sampled(), da.DualOHM(0.5, 20, 8), engine=engine).notes
        assert not da.solve(sampled(), "auto", budget=50, engine=engine).notes
    with da.engines.Local(workers=1, kind="threads") as engine:
        assert not da.solve(sampled(), da.DualOHM(0.5, 20), engine=engine).notes


@pytest.mark.parametrize("door", ["solve", "root"])
def test_progress_true_writes_a_line_now_and_then(door, monkeypatch, capsys):
    clock = iter(range(10**9))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(clock)))
    if door == "solve":
        da.solve(da.problems.affine(dimension=4), budget=500, progress=True)
    else:
        da.root(lambda x, n, rng: x, [1.0], budget=500, L=1.0, progress=True)
    out, err = capsys.readouterr()
    word = "step" if door == "solve" else "round"
    assert out == ""
    assert re.fullmatch(rf"( *\d+%, {word} [\d,]+, [\d,]+ evaluations, \d+ s\n)+", err)


def test_progress_false_says_nothing(capsys):
    da.solve(da.problems.affine(dimension=4), budget=500, progress=False)
    assert capsys.readouterr() == ("", "")
