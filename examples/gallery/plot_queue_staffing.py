r"""
Staffing a call centre with a slow simulator
============================================

Three teams answer calls, and a call that would have to wait goes to the next team if somebody is free there. How fast
must each team be, by training or tools, so that exactly 20 % of each line's callers wait longer than the target? The
answer comes from an event-by-event simulation in plain Python, one shift at a time.

**Assumptions.** :math:`F_i(x) = 0.2 -` the probability that a call of line i waits too long, with x the logarithm of
the teams' speeds, increases in each coordinate and, because calls go over in a circle, is no gradient. Near the root
it is monotone; far away it is flat. No constant is known, so there is no theorem, and the certificate bounds the
result.

**Today.** Robbins-Monro with a tuned step, or sample average approximation: fix the seeds of some shifts and give the
average to a deterministic solver.
"""

# %%
# The simulator
# -------------
# One sample is one shift. `da.each` makes a sampler of a function that returns one sample at a time.
import heapq
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import optimize

import dualanchor as da

SMALL = os.environ.get("DUALANCHOR_GALLERY") == "small"
SEEDS = range(2 if SMALL else 5)
BUDGETS = (150, 250) if SMALL else (300, 600, 1200)  # simulated shifts
X0 = np.log([8.0, 8.0, 8.0])


def shift(x, rng, calls=500):
    """0.2 minus the fraction of each line's calls that wait longer than 0.02 hours; x are logarithms of speeds."""
    arrivals, teams, speed = np.array([30.0, 20.0, 12.0]), (4, 3, 2), np.exp(x).tolist()
    gaps = rng.exponential(1 / arrivals.sum(), calls).tolist()
    lines = rng.choice(3, calls, p=arrivals / arrivals.sum()).tolist()
    work = rng.exponential(1.0, calls).tolist()
    free_at = [[0.0] * size for size in teams]
    now, late, count = 0.0, [0, 0, 0], [0, 0, 0]
    for gap, line, hours in zip(gaps, lines, work, strict=True):
        now, team, other = now + gap, line, (line + 1) % 3
        if free_at[line][0] > now and free_at[other][0] <= now:
            team = other
        start = max(now, free_at[team][0])
        heapq.heapreplace(free_at[team], start + hours / speed[team])
        count[line] += 1
        late[line] += start - now > 0.02
    return 0.2 - np.array(late) / np.maximum(count, 1)


# %%
# The truth, as far as one can know it
# ------------------------------------
# A long run gives the root, and differences of shifts with the same seeds give the slopes there. Residuals below are
# slopes times the distance from that root, which is more accurate than any estimate from 1,200 shifts.
LONG = 500 if SMALL else 24_000
root = da.root(da.each(shift), X0, budget=LONG, certificate=False, seed=1000).x


def mean_shift(x, shifts=100 if SMALL else 1500):
    return np.mean([shift(x, np.random.default_rng([7, i])) for i in range(shifts)], axis=0)


slopes = np.column_stack([(mean_shift(root + 0.1 * one) - mean_shift(root - 0.1 * one)) / 0.2 for one in np.eye(3)])
print("slopes at the root:", slopes.round(2).tolist())
print("eigenvalues of their symmetric part:", np.linalg.eigvalsh((slopes + slopes.T) / 2).round(2))


def truth(x):
    return np.linalg.norm(slopes @ (x - root))


# %%
# What people use
# ---------------
# Both are tuned on other seeds by the true residual, with the same number of shifts; tuning is not charged.


def robbins_monro(seed, budget, step):
    rng, x, mean = np.random.default_rng(seed), X0, 0.0
    for k in range(budget):
        x = x - step * (k + 1) ** -0.6 * shift(x, rng)
        mean += (x - mean) / max(1, k + 1 - budget // 4)
    return mean


def sample_average(seed, budget, evaluations):
    def average(x):
        return np.mean([shift(x, np.random.default_rng([seed, i])) for i in range(budget // evaluations)], axis=0)

    options = {"maxfev": evaluations, "eps": 0.04, "xtol": 1e-3}  # eps: the square of a relative step of 0.2
    return optimize.root(average, X0, options=options).x


def tuned(run, grid):
    return min(grid, key=lambda one: np.mean([truth(run(seed, BUDGETS[-1], one)) for seed in (2001, 2002)]))


# %%
# All runs
# --------
# The library gets only the simulator and the budget.
others = {
    "Robbins-Monro, tuned": (robbins_monro, tuned(robbins_monro, (0.1, 0.3, 1.0, 3.0))),
    "sample average, tuned": (sample_average, tuned(sample_average, (8, 15, 30, 60))),
}
rows = []
for seed in SEEDS:
    for budget in BUDGETS:
        start = time.perf_counter()
        result = da.root(da.each(shift), X0, budget=budget, seed=seed)
        found = {"dualanchor": (result.x, time.perf_counter() - start, result.certificate.upper)}
        for name, (run, best) in others.items():
            start = time.perf_counter()
            found[name] = run(seed, budget, best), time.perf_counter() - start, np.nan
        for name, (x, seconds, upper) in found.items():
            rows.append((budget, name, seconds, upper, truth(x)))

# %%
# Results
# -------
# Medians over the seeds.
frame = pd.DataFrame(rows, columns=["samples", "method", "seconds", "certificate", "truth"])
print(frame.groupby(["samples", "method"], sort=False).median().to_string(float_format="{:.3g}".format, na_rep="-"))
ours = frame[frame.method == "dualanchor"]
print(f"\nthe bound held in {(ours.truth <= ours.certificate).sum()} of {len(ours)} runs")
print("speeds, in calls an hour:", np.exp(result.x).round(2), "tuned:", [best for _, best in others.values()])

# %%
# On workers, interrupted and resumed
# -----------------------------------
# ``engine="local"`` computes the shifts of a round in parallel, in processes if Python's lock prevents threads, as it
# does here. Shifts are ten times as long in this part. The result depends on the seed and not on the number of
# workers. With ``checkpoint=``, the same call resumes a run that was ended (here by a callback, but equally by
# Ctrl-C, a kill or a power cut).
long_shift = partial(shift, calls=500 if SMALL else 5000)
problem = {"sample": da.each(long_shift), "x0": X0, "budget": BUDGETS[1], "seed": 1}
whole = da.root(**problem, engine="local")
for workers in (1, 2):
    with da.engines.Local(workers=workers) as engine:
        start = time.perf_counter()
        same = da.root(**problem, engine=engine)
        seconds = time.perf_counter() - start  # those in which workers start included
        print(f"{workers} of them: {seconds:.2g} s, the same to the last bit: {np.array_equal(whole.x, same.x)}")

with tempfile.TemporaryDirectory() as folder:
    problem |= {"checkpoint": Path(folder) / "staffing.npz", "engine": "local"}
    rounds = iter(range(1, 6))
    first = da.root(**problem, callback=lambda x: next(rounds) == 5)  # returns True to stop
    print(f"stopped after round {first.nit}: {first.message}")
    second = da.root(**problem)
    print(f"resumed to round {second.nit}: the same to the last bit: {np.array_equal(whole.x, second.x)}")

# %%
# The residual against the number of shifts; bands are the range over the seeds.
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for i, (method, runs) in enumerate(frame.groupby("method", sort=False)):
    seen = runs.groupby("samples")
    ax.loglog(seen.truth.median(), "o-", color=f"C{i}", label=method)
    ax.fill_between(list(BUDGETS), seen.truth.min(), seen.truth.max(), color=f"C{i}", alpha=0.15)
    if method == "dualanchor":
        ax.loglog(seen.certificate.median(), "--", color=f"C{i}", label="its certificate")
ax.set(xlabel="simulated shifts", ylabel="residual (fraction of callers)")
ax.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS])
ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
figure.legend(loc="outside right upper", fontsize=8)
plt.show()

# %%
# **Where it loses.** An averaged Robbins-Monro iteration is as good, once its step has been found in four full-length
# trials. The library needs one run, finds its own step, and spends a sixth of its shifts on calibration and on the
# certificate. Sample average approximation is worse than both: eight evaluations of a hundred and fifty shifts are not
# enough for the solver, and more evaluations leave too few shifts for each. Workers pay off if a shift takes
# milliseconds or more; for short ones the library is faster without them.
