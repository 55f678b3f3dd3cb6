"""Runs with a checkpoint that wait to be killed: at a sample, before a file is flushed, or before it is put into place.

`python victim.py CALL PATH EVENT` says "ready" at that event and waits; without EVENT it runs to its end.
"""

import os
import sys

import numpy as np

import dualanchor as da

OWN = np.random.default_rng()  # of a simulator: nobody can repeat its samples


class Events:
    """Counts events, and waits for the end at one of them."""

    def __init__(self, at=None):
        self.at, self.count = at, 0

    def __call__(self):
        self.count += 1
        if self.count == self.at:
            print("ready", flush=True)
            sys.stdin.read()

    def before(self, function):
        def called(*args, **options):
            self()
            return function(*args, **options)

        return called


def stacked(event, **options):
    def operator(x):
        event()
        return np.linspace(0.1, 1.0, 4) * x

    problem = da.Problem(da.AdditiveNoise(operator, 0.2, vectorized=True), np.ones(4), constants=da.Constants(L=1.0))
    return da.solve(problem, [da.HalpernPAGE(0.5, 7, 2), da.HalpernPAGE(0.5, 3, 1)], budget=300, reps=3, **options)


def rooted(event, own=False, prox=None, **options):
    def sample(x, n, rng):
        event()
        return x - 1 + (OWN if own else rng).normal(size=(2, 2)) / n**0.5

    return da.root(sample, np.zeros((2, 2)), prox=prox, L=None if prox is None else 1.0, **options)


CALLS = {
    "stack": stacked,
    "budget": lambda event, **options: rooted(event, budget=2000, **options),
    "eps": lambda event, **options: rooted(event, eps=0.4, reps=2, **options),
    "prox": lambda event, **options: rooted(event, prox=da.prox.box(0, 3), budget=2000, **options),
    "own": lambda event, **options: rooted(event, own=True, budget=2000, **options),
    "own, prox": lambda event, **options: rooted(event, own=True, prox=da.prox.box(0, 3), budget=2000, **options),
}


def run(name, path, at=None):
    """The result of a call, and how many events it had."""
    event, flush, put = Events(at), os.fsync, os.replace
    os.fsync, os.replace = lambda descriptor: event(), event.before(put)  # no power failure: nothing need be flushed
    try:
        return CALLS[name](event, checkpoint=da.Checkpoint(path, 0)), event.count
    finally:
        os.fsync, os.replace = flush, put


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
