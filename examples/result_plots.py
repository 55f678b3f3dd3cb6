"""The progress of a run within a budget, and the batches of a plan: figures of docs/index.md and docs/quickstart.md.

python examples/result_plots.py result.png plan.png
"""

import sys

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import dualanchor as da

GREY = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
light_and_dark = {"savefig.transparent": True, "legend.framealpha": 0.0, "font.size": 12, "grid.color": "#808080"}
light_and_dark |= dict.fromkeys(GREY, "#808080")
A, b = np.array([[1.0, 2.0], [-2.0, 1.0]]), np.array([5.0, 0.0])


def sample(x, n, rng):
    return A @ x - b + rng.normal(size=(n, 2)).mean(axis=0)


result = da.root(sample, x0=[0.0, 0.0], budget=4000)
plan = da.plan(eps=0.05, L=5.0, sigma=0.3, D=3.0)
paths = sys.argv[1:] or ["result.png", "plan.png"]
with matplotlib.rc_context(light_and_dark):
    for path, shown, title in zip(paths, (result, plan), ("result.plot()", "plan.plot()"), strict=False):
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        shown.plot(figure.subplots()).set_title(title)
        figure.savefig(path, dpi=120)
