"""Functions that sample, cheap and counted."""

from __future__ import annotations

import numpy as np


class Counted:
    """Samples of F(x) = f(x) with Gaussian noise, in the shape of x; counts what is asked for."""

    def __init__(self, f=lambda x: x - 1, sigma=0.1):
        self.f, self.sigma, self.samples, self.calls = f, sigma, 0, 0

    def __call__(self, x, n, rng):
        self.samples += n
        self.calls += 1
        return self.f(x) + self.sigma * rng.normal(size=np.shape(x)) / np.sqrt(n)


def saddle_pair(sigma=0.1):
    """Gradients of |u - 1|^2/2 + <sum u, sum v> / 4 - |v|^2/2 for arrays of any shape."""
    down = Counted(None, sigma)
    up = Counted(None, sigma)

    def sample_u(u, v, n, rng):
        down.f = lambda u: u - 1 + np.sum(v) / 4
        return down(u, n, rng)

    def sample_v(u, v, n, rng):
        up.f = lambda v: np.sum(u) / 4 - v
        return up(v, n, rng)

    return sample_u, sample_v, down


def codes(result, *labels):
    """The codes of a result's findings; those with one of the labels, if any are given."""
    return [one.code for one in result.findings if not labels or one.label in labels]
