"""A digest of code: the same in every process, another one where the code has changed."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.code import code_digest

SOURCE = """
import functools
import dualanchor as da
from dualanchor.core.code import code_digest

def helper(x):
    return x in {"a", "b", "c"} or abs(x) < {limit}

def sample(x, n, rng, scale=1.0):
    return x if helper(x) else [y for y in (x, 2)]

class Simulator:
    def step(self, x):
        return {step} * x

    def run(self, x, n, rng):
        return self.step(x)

    __call__ = run

values = [sample, functools.partial(sample, 1), lambda x, n, rng: sample(x, n, rng), Simulator(), Simulator().run]
values += [da.each(lambda x, rng: helper(x)), da.Sampler(sample), da.Sampler(Simulator())]
print(*(code_digest(value) for value in values))
"""


def digests(limit=1, step=2, hash_seed="0"):
    source = SOURCE.replace("{limit}", str(limit)).replace("{step}", str(step))
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.split()


@pytest.mark.slow
def test_it_is_the_same_in_every_process_and_follows_helpers_and_methods():
    first = digests()
    assert digests(hash_seed="123") == first
    simulators = {3, 4, 7}
    for changed, affected in ((digests(limit=5), set(range(8)) - simulators), (digests(step=5), simulators)):
        assert {i for i, (one, other) in enumerate(zip(first, changed, strict=True)) if one != other} == affected


def test_data_does_not_count():
    calls = []

    def make(number):
        def sample(x, n, rng):
            calls.append(number)
            return x

        return sample

    assert code_digest(make(1)) == code_digest(make(2)) != code_digest(lambda x, n, rng: x)
    assert code_digest(partial(make(1), 3)) == code_digest(partial(make(1), 4))
    before = code_digest(make(1))
    make(1)(0, 1, None)
    assert code_digest(make(1)) == before


def test_things_that_are_no_functions_have_one_too():
    for value in (
        None,
        object(),
        np.sin,
        np.random.default_rng(0),
        int,
        print,
        [].append,
        da.problems.affine(),
        3,
        "x",
    ):
        assert code_digest(value) == code_digest(value)
