r"""
SciPy's root under noise
========================

A hotel looks for the prices of four kinds of rooms at which they are exactly filled on average. Bookings come from a
simulation: a day's customers choose among the rooms or go elsewhere (logit), and their number is random.
`scipy.optimize.root` was made for exact functions. What does it do with this one, and what does it report?

**Assumptions.** :math:`F(x) =` capacity minus expected demand at prices x is the gradient of a convex function (the
customers' expected utility), hence monotone and cocoercive. None of its constants is given below, so there is no
theorem, and the certificate bounds the result.

**Today.** Powell's hybrid method or Levenberg-Marquardt with finite differences. A user who knows about the noise
averages several simulated days in each call and uses large difference steps.
"""

# %%
# The simulated market
# --------------------
# One call is one day. The noise is that of real counts: it depends on x, and it is not small.
import os
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import optimize

import dualanchor as da

SMALL = os.environ.get("DUALANCHOR_GALLERY") == "small"
SEEDS = range(5 if SMALL else 20)
BUDGET = 1000 if SMALL else 4000  # simulated days
CUSTOMERS, VALUE, CAPACITY = 100.0, np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.3, 0.2, 0.1, 0.05])
X0 = np.ones(4)


def demand(x):  # the probability that a customer books each kind of room
    w = np.exp(VALUE - x)
    return w / (1 + w.sum())


def fun(x, rng):
    return CAPACITY - rng.poisson(CUSTOMERS * demand(x)) / CUSTOMERS


def truth(x):
    return np.linalg.norm(CAPACITY - demand(np.asarray(x)))


# %%
# SciPy, with defaults and tuned by an expert
# -------------------------------------------
# The expert chooses how many days to average in a call and how large the difference steps are, by the *true* residual
# on other seeds. The days that this takes are not charged. Another expert knows stochastic approximation, and tunes
# the step of an averaged Robbins-Monro iteration in the same way.


def by_scipy(seed, method, days=1, difference=None):
    rng, calls = np.random.default_rng(seed), 0

    def averaged(x):
        nonlocal calls
        calls += days
        return np.mean([fun(x, rng) for _ in range(days)], axis=0)

    options = {} if difference is None else {"eps": difference**2, "xtol": 1e-3}  # eps is the square of a relative step
    key = "maxfev" if method == "hybr" else "maxiter"
    with warnings.catch_warnings(action="ignore"):
        found = optimize.root(averaged, X0, method=method, options={**options, key: BUDGET // days})
    return found, calls


def robbins_monro(seed, step):
    rng, x, mean = np.random.default_rng(seed), X0, 0.0
    for k in range(BUDGET):
        x = x - step * (k + 1) ** -0.5 * fun(x, rng)
        mean += (x - mean) / max(1, k + 1 - BUDGET // 4)  # the first quarter is forgotten
    return optimize.OptimizeResult(x=mean, success=False), BUDGET


def tuned(run, grid):
    return min(grid, key=lambda one: np.mean([truth(run(1000 + seed, *one)[0].x) for seed in range(3)]))


# %%
# All runs
# --------
# `da.scipy.root` is called like SciPy's and returns an `OptimizeResult` with `upper`, the certified bound.
rows = []


def add(method, x, success, samples, seconds, certificate=np.nan):
    rows.append({"method": method, "success": success, "samples": samples, "seconds": seconds,
                 "certificate": certificate, "truth": truth(x)})  # fmt: skip


GRID = [("hybr", days, h) for days in (10, 30, 100, 300) for h in (0.1, 0.3, 1.0)]
others = {
    "SciPy hybr": (by_scipy, ("hybr",)),
    "SciPy lm": (by_scipy, ("lm",)),
    "SciPy hybr, tuned": (by_scipy, tuned(by_scipy, GRID)),
    "Robbins-Monro, tuned": (robbins_monro, tuned(robbins_monro, [(3.0**k,) for k in range(5)])),
}
for seed in SEEDS:
    start = time.perf_counter()
    found = da.scipy.root(fun, X0, options={"maxfev": BUDGET}, seed=seed)
    add("da.scipy.root", found.x, found.success, found.nfev, time.perf_counter() - start, found.upper)
    for name, (run, setting) in others.items():
        start = time.perf_counter()
        found, calls = run(seed, *setting)
        add(name, found.x, found.success, calls, time.perf_counter() - start)

# %%
# Results
# -------
# Medians over the seeds, and in how many runs the solver reported success (Robbins-Monro reports nothing).
frame = pd.DataFrame(rows)
runs = frame.groupby("method", sort=False)
table = runs[["samples", "seconds", "certificate", "truth"]].median()
table["samples"] = table["samples"].astype(int)
table.insert(0, f"success of {len(SEEDS)}", runs.success.sum())
print(table.to_string(float_format="{:.2g}".format, na_rep="-"))
print(
    f"\nresidual at the start: {truth(X0):.2g}; SciPy tuned with {others['SciPy hybr, tuned'][1][1:]} days, difference"
)

# %%
# Each dot is a run, filled if it reported success. The dashes are the certificates.
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for i, (_, part) in enumerate(runs):
    place = i + np.linspace(-0.25, 0.25, len(part))
    ax.scatter(place, part.truth, facecolors=np.where(part.success, f"C{i}", "none"), edgecolors=f"C{i}")
    ax.scatter(place, part.certificate, marker="_", color=f"C{i}")
ax.axhline(truth(X0), ls=":", color="grey", lw=1)
ax.annotate("start", (0, truth(X0)), color="grey", va="bottom")
ax.set(yscale="log", ylabel="true residual", xticks=range(len(runs)), xticklabels=list(runs.groups))
plt.show()

# %%
# With its defaults, SciPy reports success at the start: over differences of 1e-8 there is only noise, so the slopes
# seem huge, the steps are tiny, and it concludes that x has converged. It says nothing about the residual.
#
# **Where it loses.** Without noise, SciPy's methods need about forty calls, and they are the right choice. An averaged
# Robbins-Monro iteration with the best of five steps ends somewhat lower than `da.scipy.root`, which finds its own step
# and spends some of its days on the certificate. The certificate is about six times the truth.
