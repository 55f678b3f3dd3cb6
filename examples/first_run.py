"""Find the root of a rotating operator that is only seen through noise."""

import numpy as np

import dualanchor as da

A, b = np.array([[1.0, 2.0], [-2.0, 1.0]]), np.array([5.0, 0.0])  # the root of A x - b is (1, 2)


def sample(x, n, rng):  # the mean of n noisy observations of A x - b
    return A @ x - b + rng.normal(size=(n, 2)).mean(axis=0)


print(da.root(sample, x0=[0.0, 0.0], eps=0.1, seed=1))
