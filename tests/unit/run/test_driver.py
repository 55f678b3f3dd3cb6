"""The way from the driver to a user's function is short, and what it is made of imports in any order."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da
from dualanchor.run.rows import ActiveRows

OURS = str(Path(da.__file__).parent)
FRAMES = 6
"""The most calls of ours between the loop over steps and a user's function."""


def frames():
    """Our functions between the loop over the steps and the function that calls this; None outside of that loop."""
    names, frame = [], inspect.currentframe().f_back.f_back
    while frame is not None:
        if frame.f_code is ActiveRows.advance.__code__:
            return names
        if frame.f_code.co_filename.startswith(OURS):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return None


def seen_from(run):
    """What lies above each call of a sampler that is called from the loop over steps."""
    seen = []

    def sample(x, n, rng, *args):
        if (names := frames()) is not None:
            seen.append(names)
        return x - 1 + 0.1 * rng.normal(size=np.shape(x)) / n**0.5

    run(sample)
    assert len(seen) > 50
    return seen


METHODS = {
    "plain": da.DualOHM(0.5, 200),
    "two evaluations": da.SEG(0.3, 2),
    "a coin": da.HalpernPAGE(0.5, 7, 2),
    "in stages": da.AnytimeDualOHM(0.5, 0.01),
}


@pytest.mark.parametrize("name", METHODS)
def test_few_calls_lie_between_the_driver_and_a_sampler_of_solve(name):
    def run(sample):
        da.solve(da.Problem(da.Sampler(sample, replayable=True), np.zeros(2)), METHODS[name], budget=400)

    assert max(map(len, seen_from(run))) <= FRAMES


@pytest.mark.parametrize(
    "request_",
    [
        {"budget": 500},
        {"budget": 500, "method": "s-dual-ohm"},
        {"eps": 0.2},
        {"eps": 0.1, "sigma": 0.3, "D": 2.0},
        {"budget": 500, "args": (3,), "reps": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("x0", [np.zeros(2), np.zeros((2, 2))], ids=np.shape)
def test_few_calls_lie_between_the_driver_and_a_sampler_of_root(request_, x0):
    seen = seen_from(lambda sample: da.root(sample, x0, L=1.0, **request_))
    assert max(map(len, seen)) <= FRAMES


@pytest.mark.slow
def test_plots_work_whatever_was_imported_first(tmp_path):
    script = """
from dualanchor.run.solve import solve
from dualanchor.problems import affine
from dualanchor.methods.sgda import SGDA
import matplotlib
matplotlib.use("Agg")
axes = solve(affine(dimension=4), SGDA(0.1), budget=50).plot()
assert axes.get_lines()
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
