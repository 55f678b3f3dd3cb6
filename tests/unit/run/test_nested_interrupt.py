"""Ctrl-C during a run that a sampler or a callback of another run makes: it ends both."""

import os
import signal

import numpy as np
import pytest

import dualanchor as da

INNER = da.problems.affine(dimension=4)


class Nested:
    """A sampler that solves a problem of its own; in call number `at` it is interrupted on the way."""

    def __init__(self, at=None, times=1):
        self.at, self.times, self.calls, self.inner = at, times, 0, []

    def __call__(self, x, n, rng):
        self.calls += 1
        result = da.solve(INNER, "sgda", budget=20, callback=self.interrupt if self.calls == self.at else None)
        self.inner.append(result.status)
        return x + result.x[0] + rng.normal(size=x.size) / n**0.5

    def interrupt(self, x):
        for _ in range(self.times):
            os.kill(os.getpid(), signal.SIGINT)


def problem(sample):
    return da.Problem(da.Sampler(sample), np.ones(3), constants=da.Constants(L=2.0))


METHODS = [da.SGDA(0.1, 4), da.SEG(0.1, 4), "auto"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=["sgda", "seg", "auto"])
@pytest.mark.parametrize("stepwise", [False, True])
def test_ctrl_c_in_an_inner_run_ends_the_outer_run_before_the_step(method, stepwise, tmp_path):
    options = {"budget": 150, "callback": (lambda x: None) if stepwise else None}
    whole = da.solve(problem(Nested()), method, **options)
    path, handler = da.Checkpoint(tmp_path / "run", check_code=False), signal.getsignal(signal.SIGINT)
    sample = Nested(at=20)
    cut = da.solve(problem(sample), method, checkpoint=path, **options)
    assert cut.status is da.Status.INTERRUPTED
    assert sample.calls == 20  # none after it
    assert 0 <= cut.nit < whole.nit
    assert da.Status.INTERRUPTED not in sample.inner  # the sampler never sees half a result
    assert signal.getsignal(signal.SIGINT) is handler
    resumed = da.solve(problem(Nested()), method, checkpoint=path, **options)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.nfev == whole.nfev


def test_a_second_ctrl_c_ends_both_at_once():
    with pytest.raises(KeyboardInterrupt):
        da.solve(problem(Nested(at=30, times=2)), da.SGDA(0.1, 4), budget=400)


def test_ctrl_c_in_a_run_of_a_callback_ends_the_outer_run():
    nested = Nested(at=5)
    result = da.solve(INNER, "sgda", budget=40, callback=lambda x: nested(x, 1, np.random.default_rng(0)) is None)
    assert (result.status, result.nit) == (da.Status.INTERRUPTED, 5)


def test_ctrl_c_in_a_front_door_within_a_sampler_ends_the_outer_run():
    calls = []

    def inner(x, n, rng):
        calls.append(1)
        if len(calls) == 500:
            os.kill(os.getpid(), signal.SIGINT)
        return x - 1 + rng.normal(size=3) / n**0.5

    def outer(x, n, rng):
        return x - da.root(inner, np.zeros(3), budget=300, L=1.0).x

    result = da.solve(problem(outer), da.SGDA(0.1, 1), budget=50)
    assert result.status is da.Status.INTERRUPTED
    assert result.nit < 49
