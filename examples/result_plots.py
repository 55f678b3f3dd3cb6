"""The way of a run within a budget, and the batches of a plan: the figure in docs/quickstart.md.

python examples/result_plots.py figure.png
"""

import sys

import numpy as np
from matplotlib.figure import Figure

import dualanchor as da

A, b = np.array([[1.0, 2.0], [-2.0, 1.0]]), np.array([5.0, 0.0])


def sample(x, n, rng):
    return A @ x - b + 0.2 * rng.normal(size=(n, 2)).mean(axis=0)


figure = Figure(figsize=(10.0, 3.8), layout="constrained")
left, right = figure.subplots(1, 2)
da.root(sample, x0=[0.0, 0.0], budget=20_000, L=5.0, method="s-dual-ohm", seed=1).plot(left)
da.plan(eps=0.05, L=5.0, sigma=0.3, D=3.0).plot(right)
left.set_title("result.plot()")
right.set_title("plan.plot()")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "result_plots.png", dpi=110)
