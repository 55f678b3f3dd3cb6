"""The paper's point in one picture: under noise the anchor accumulates errors, the dual anchor does not.

Writes the figure to the path given on the command line, or to anchor_and_dual_anchor.png.
"""

import sys

import matplotlib

matplotlib.use("Agg")

import dualanchor as da

problem = da.problems.worst_case_nonexpansive()
ax = None
for name in ("s-ohm", "s-dual-ohm"):
    ax = da.solve(problem, name, budget=2000, reps=10, record=200).plot(ax)
tapered = da.DualOHM.for_problem(problem, 2000, batch_size=da.Tapered(60))
ax = da.solve(problem, tapered, budget=2000, reps=10, record=200).plot(ax)
ax.get_lines()[-1].set_label("s-dual-ohm, tapered batches")
ax.set_title("worst-case operator, d = 2001, 10 seeds: mean and 5 % to 95 %")
ax.legend()
ax.figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "anchor_and_dual_anchor.png", dpi=150)
