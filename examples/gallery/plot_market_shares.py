r"""
Market shares: the BLP inversion with fresh consumers
=====================================================

Demand models with random tastes (Berry, Levinsohn and Pakes, 1995) need, for given taste parameters, the mean
utilities :math:`\delta` at which predicted market shares equal observed ones. Predicted shares are an integral over
consumers, replaced by an average over simulated ones. Nevo's cereals, inside pyblp, have 94 markets with 24 products:
2,256 unknowns.

**Assumptions.** :math:`F(\delta) = \mathbb{E}[\text{choice probabilities}] - \text{shares}` is the gradient of the
convex function :math:`\mathbb{E} \log(1 + \sum_j e^{\delta_j + \mu_j}) - \text{shares}^\top \delta`. Each consumer's
is smooth with constant 1/2, whatever the tastes :math:`\mu`: cocoercive in expectation with L = 1/2.

**Today.** Draw R consumers per market once, keep them, and iterate :math:`\delta \leftarrow \delta +
\log(\text{shares}) - \log(\text{predicted})`, plainly or by SQUAREM as in pyblp. The iteration converges fast, but to
the answer of those R consumers.
"""

# %%
# Data, tastes and shares
# -----------------------
# Parameters are those of pyblp's tutorial. To know the truth, :math:`\delta` is fixed near the one that fits the
# data, and the shares are recomputed from it by a fine quadrature.
import os
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyblp
from scipy.stats import norm, qmc

import dualanchor as da

SMALL = os.environ.get("DUALANCHOR_GALLERY") == "small"
SEEDS = range(2 if SMALL else 5)
BUDGET = 500 if SMALL else 4000
pyblp.options.verbose = False

products, agents = pd.read_csv(pyblp.data.NEVO_PRODUCTS_LOCATION), pd.read_csv(pyblp.data.NEVO_AGENTS_LOCATION)
MARKETS, GOODS = 94, 24
X = np.column_stack([np.ones(len(products)), products[["prices", "sugar", "mushy"]]]).reshape(MARKETS, GOODS, 4)
traits = ["income", "income_squared", "age", "child"]
people = agents[traits].to_numpy().reshape(MARKETS, 20, 4)
sigma = np.array([0.3302, 2.4526, 0.0163, 0.2441])
pi = np.array([[5.4819, 0, 0.2037, 0], [15.8935, -1.2, 0, 2.6342], [-0.2506, 0, 0.0511, 0], [1.2650, 0, -0.8091, 0]])


def predicted(delta, nodes, people):
    """Shares in all markets, the mean over consumers: tastes (..., R, 4), traits (..., R, 4)."""
    utility = delta[:, :, None] + X @ np.swapaxes(sigma * nodes + people @ pi.T, 1, 2)
    top = np.maximum(utility.max(axis=1, keepdims=True), 0)
    e = np.exp(utility - top)
    return (e / (np.exp(-top) + e.sum(axis=1, keepdims=True))).mean(axis=2)


def consumers(n, rng):
    chosen = rng.integers(20, size=(MARKETS, n))
    return rng.normal(size=(MARKETS, n, 4)), people[np.arange(MARKETS)[:, None], chosen]


fine = norm.ppf(qmc.Sobol(4, seed=0).random(64 if SMALL else 512))


def exact(delta):
    return np.mean([predicted(delta, fine, people[:, [i]]) for i in range(20)], axis=0)


def contraction(delta, shares, frozen, rounds):
    for _ in range(rounds):
        delta = delta + np.log(shares / predicted(delta, *frozen))
    return delta


def logit(shares):
    return np.log(shares / (1 - shares.sum(axis=1, keepdims=True)))


observed = products.shares.to_numpy().reshape(MARKETS, GOODS)
truth = contraction(logit(observed), observed, consumers(100, np.random.default_rng(1)), 50)
shares = exact(truth)
products["shares"] = shares.ravel()
start_point = logit(shares)


# %%
# The library: a sampler with fresh consumers
# -------------------------------------------
def sample(delta, n, rng):
    return predicted(delta, *consumers(n, rng)) - shares


# %%
# pyblp, and an adapter to it
# ---------------------------
# `pyblp.Iteration` takes any routine ``method(initial, contraction, callback, **options)``. This one lets the library
# iterate pyblp's own contraction, without noise since its consumers are frozen.
def dual_anchor(initial, contraction, callback, evaluations=60):
    exact = {"sigma": 0.0, "certificate": False, "check": False}
    result = da.fixed_point(lambda x, n, rng: contraction(x)[0], initial, budget=evaluations, **exact)
    callback()
    return result.x, result.success


formulas = [pyblp.Formulation("0 + prices", absorb="C(product_ids)"), pyblp.Formulation("1 + prices + sugar + mushy")]


def by_pyblp(R, iteration, seed):
    nodes, traits_drawn = (z.reshape(-1, 4) for z in consumers(R, np.random.default_rng(seed)))
    frozen = pd.DataFrame(np.hstack([nodes, traits_drawn]), columns=[*(f"nodes{i}" for i in range(4)), *traits])
    frozen["market_ids"], frozen["weights"] = np.repeat(products.market_ids.unique(), R), 1 / R
    problem = pyblp.Problem(formulas, products, pyblp.Formulation("0 + " + " + ".join(traits)), frozen)
    at_given_tastes = {"optimization": pyblp.Optimization("return"), "check_optimality": "gradient", "method": "1s"}
    solved = problem.solve(np.diag(sigma), pi, iteration=iteration, **at_given_tastes)
    return solved.delta.reshape(MARKETS, GOODS), R * solved.contraction_evaluations.sum() / MARKETS


# %%
# All runs
# --------
# A sample is the choice of one consumer in each market, evaluated once. Frozen draws are evaluated again in each
# iteration, so the budget must be split; all splits are tried.
rows = []


def note(method, start, delta, samples, certificate=np.nan):
    seconds, error = time.perf_counter() - start, np.sqrt(np.mean((delta - truth) ** 2))
    rows.append((method, samples, seconds, certificate, np.linalg.norm(exact(delta) - shares), error))


for seed in SEEDS:
    start = time.perf_counter()
    result = da.root(sample, start_point, budget=BUDGET, L=0.5, seed=seed)
    note("dualanchor, fresh consumers", start, result.x, BUDGET, result.certificate.upper)
    for R, rounds in (*((R, BUDGET // R) for R in (20, 100, 200, 400)), (BUDGET // 4, 30)):
        start = time.perf_counter()
        delta = contraction(start_point, shares, consumers(R, np.random.default_rng(seed)), rounds)
        note(f"contraction, {R} frozen", start, delta, R * rounds)
    start = time.perf_counter()
    squarem = by_pyblp(BUDGET // 12, pyblp.Iteration("squarem", {"atol": 1e-4}), seed)
    note(f"pyblp, SQUAREM, {BUDGET // 12} frozen", start, *squarem)
    start = time.perf_counter()
    adapted = by_pyblp(BUDGET // 60, pyblp.Iteration(dual_anchor), seed)
    note(f"pyblp, our adapter, {BUDGET // 60} frozen", start, *adapted)

# %%
# Results
# -------
# Medians over the seeds. ``truth`` is the norm of F, ``certificate`` the bound on it with confidence 95 %; ``error``
# is the root mean square error of the 2,256 utilities.
frame = pd.DataFrame(rows, columns=["method", "samples", "seconds", "certificate", "truth", "error"])
table = frame.groupby("method", sort=False).median().astype({"samples": int})
print(table.to_string(float_format="{:.2g}".format, na_rep="-"))
ours = frame[frame.method.str.startswith("dualanchor")]
print(f"\ncertificates that hold: {(ours.certificate >= ours.truth).sum()} of {len(ours)}")

figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
frozen = frame[frame.method.str.endswith("frozen")]
R = frozen.method.str.extract(r"(\d+) frozen")[0].astype(int)
for i, tool in enumerate(("contraction", "pyblp, SQUAREM", "pyblp, our adapter"), start=1):
    chosen = frozen.method.str.startswith(tool)
    axis.loglog(R[chosen], frozen.error[chosen], "-sD^"[i], color=f"C{i}", label=tool, alpha=0.8, ls="")
axis.axhspan(ours.error.min(), ours.error.max(), color="C0", alpha=0.5, label="dualanchor, fresh consumers")
axis.text(BUDGET // 4, 0.13, "7.5 times the\nevaluations", ha="right", fontsize=8)
axis.set(xlabel="frozen consumers per market", ylabel="error of mean utilities (rms)", title=f"{BUDGET:,} evaluations")
axis.legend(fontsize=8)
plt.show()

# %%
# **Where it loses.** If memory and time allow thousands of frozen draws, a converged contraction reaches the same error
# by evaluating each of them a dozen times or more. In estimation, frozen draws are needed anyway, because they make the
# objective a smooth function of the taste parameters. As a routine inside pyblp the library is the wrong tool: without
# noise, SQUAREM converges in a dozen evaluations and the library does not in sixty, so fewer consumers can be frozen.
# The library pays off if consumers are expensive, or if the simulation error itself matters: the certificate includes
# it, a converged contraction does not.
