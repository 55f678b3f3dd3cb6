r"""
A private federated average: how many rounds?
=============================================

569 patients each hold ten measurements of a biopsy (breast cancer data, inside scikit-learn), and a server wants
their robust mean without learning about any of them. In each round it sends a point x, every patient answers with the
difference :math:`x - a_i`, clipped to length C, and only the mean of the answers plus Gaussian noise is seen. A
privacy budget :math:`\rho` (zero-concentrated differential privacy) is shared by all rounds, so with R rounds the
noise of each has a variance proportional to R: every additional round makes all rounds noisier.

**Assumptions.** The mean of clipped differences is the gradient of Huber's loss: monotone and 1-cocoercive, also in
expectation, because the noise is additive. It is not affine. The clipping is a part of the question, not a bias: the
root is the robust mean.

**Today.** Noisy gradient descent (DP-SGD without subsampling; Song, Chaudhuri and Sarwate 2013), last iterate or
averaged, with a number of rounds and a step that were tuned on the data. Tuning uses the data too, and is rarely
charged to the privacy budget.
"""

# %%
# The plan comes before the data
# ------------------------------
# Replacing one patient changes the mean by at most 2C/n, so noise of variance :math:`(2C/n)^2 R/(2\rho)` in each
# coordinate spends :math:`\rho`. `da.plan` takes the variance of a round as a function of the number of rounds (a
# number c stands for cR) and finds the number of rounds with the smallest proved bound. It uses no data.
import os
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import dualanchor as da

SMALL = os.environ.get("DUALANCHOR_GALLERY") == "small"
SEEDS = range(5 if SMALL else 40)
PRIVACY = (0.1, 1.0) if SMALL else (0.01, 0.03, 0.1, 0.3, 1.0)
CLIP, D = 1.0, 3.0  # D: the robust mean is this near to the centre of the published ranges, at most

raw = np.log(load_breast_cancer().data[:, :10] + 0.01)
low, high = raw.min(axis=0), raw.max(axis=0)  # stand for ranges that are published
patients = 4 * (raw - low) / (high - low) - 2
n, d = patients.shape


def answers(x):
    """The mean of the clipped differences: F."""
    away = x - patients
    return (away * np.minimum(1, CLIP / np.linalg.norm(away, axis=1, keepdims=True))).mean(axis=0)


def variance(rho):  # of the noise of a round, for each round that there is
    return d * (2 * CLIP / n) ** 2 / (2 * rho)


print(da.plan(L=1.0, D=D, round_variance=variance(0.1)))

# %%
# Noisy gradient descent
# ----------------------
# Rounds, step and averaging are tuned by the true residual on other seeds; this is not charged.


def noisy_gradient(seed, rho, rounds, step, averaged=False):
    rng, x, mean = np.random.default_rng(seed), np.zeros(d), 0.0
    for k in range(rounds):
        x = x - step * (answers(x) + np.sqrt(variance(rho) * rounds / d) * rng.normal(size=d))
        mean += (x - mean) / max(1, k + 1 - rounds // 2)
    return mean if averaged else x


def rms(points):
    return np.sqrt(np.mean([np.sum(answers(x) ** 2) for x in points]))


def tuned(rho):
    grid = [(R, step, mean) for R in (3, 10, 30, 100, 300) for step in (0.5, 1.0, 2.0) for mean in (False, True)]
    return min(grid, key=lambda one: rms([noisy_gradient(1000 + seed, rho, *one) for seed in range(5)]))


# %%
# All runs
# --------
# Dual-OHM as planned, with a theorem for its last iterate; the mean of gradient steps with the same number of rounds,
# without a theorem here; and gradient descent, with a usual number of rounds and tuned. A "sample" is one answer of one
# patient.
rows = []
for rho in PRIVACY:
    plan = da.plan(L=1.0, D=D, round_variance=variance(rho))
    noise = np.sqrt(variance(rho) * plan.rounds)
    problem = da.Problem(da.AdditiveNoise(answers, noise), np.zeros(d), constants=da.Constants(L=1.0))
    best, method = tuned(rho), plan.method()
    methods = {
        "Dual-OHM, planned": (plan.rounds, lambda seed, p=problem, m=method: da.solve(p, m, seed=seed).x),
        "averaged, rounds of the plan": (
            plan.rounds, lambda seed, p=problem, R=plan.rounds: da.solve(p, "averaged", budget=R, seed=seed).x),
        "gradient, 100 rounds": (100, lambda seed, rho=rho: noisy_gradient(seed, rho, 100, 1.0)),
        "gradient, tuned (not private)": (best[0], lambda seed, rho=rho, best=best: noisy_gradient(seed, rho, *best)),
    }  # fmt: skip
    for method, (rounds, run) in methods.items():
        start = time.perf_counter()
        found = [run(seed) for seed in SEEDS]
        rows.append({"rho": rho, "method": method, "rounds": rounds, "samples": rounds * n,
                     "seconds": (time.perf_counter() - start) / len(found),
                     "certificate": plan.bound if "Dual" in method else np.nan, "truth": rms(found)})  # fmt: skip

# %%
# Results
# -------
# ``truth`` is the root mean square of the residual over the seeds. The certificate is the bound of the plan, known
# before the first round: a bound from fresh samples, as elsewhere in this gallery, would need one more answer from the
# patients.
frame = pd.DataFrame(rows)
print(frame.set_index(["rho", "method"]).to_string(float_format="{:.3g}".format, na_rep="-"))

# %%
# Left: the residual against the privacy budget. Right: with :math:`\rho = 0.1`, the residual against the number of
# rounds; the vertical line is the number that the plan chose without data.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for i, (method, part) in enumerate(frame.groupby("method", sort=False)):
    left.loglog(part.rho, part.truth, "o-", color=f"C{i}", label=method)
    if part.certificate.notna().all():
        left.loglog(part.rho, part.certificate, "--", color=f"C{i}", label="its bound, before the run")
left.set(xlabel=r"privacy budget $\rho$", ylabel="root mean square residual")
left.legend(fontsize=8)

ROUNDS = (5, 20, 80) if SMALL else (3, 6, 12, 25, 50, 100, 200)
curves = {"Dual-OHM": [], "averaged": [], "gradient, last iterate": []}
for R in ROUNDS:
    noise = np.sqrt(variance(0.1) * R)
    problem = da.Problem(da.AdditiveNoise(answers, noise), np.zeros(d), constants=da.Constants(L=1.0))
    runs = [da.solve(problem, method, budget=R, reps=10).x for method in (da.DualOHM(2.0, R + 1), "averaged")]
    runs.append([noisy_gradient(seed, 0.1, R, 1.0) for seed in range(10)])
    for name, points in zip(curves, runs, strict=True):
        curves[name].append(rms(points))
for i, (name, values) in zip((0, 1, 2), curves.items(), strict=True):
    right.loglog(ROUNDS, values, "o-", color=f"C{i}", label=name)
right.axvline(
    da.plan(L=1.0, D=D, round_variance=variance(0.1)).rounds, ls=":", color="grey", label="rounds of the plan"
)
right.set(xlabel="rounds", title=r"$\rho = 0.1$")
right.legend(fontsize=8)
plt.show()

# %%
# **Where it loses.** The last iterate of Dual-OHM, to which the theorem applies, ends below a third of its bound, but
# 1.7 to 4 times above the mean of gradient steps: Huber's loss is curved near its minimum, and the plan covers the
# worst operator with these constants, including rotating ones. Averaging within the library, with the rounds of the
# plan and no tuning, is the best row of the table, though no theorem covers it here. With the right number of rounds,
# six, even the last iterate of gradient descent would be good enough; but that number cannot be found without
# spending privacy, and with 100 rounds the residual is five times as large.
