r"""
Group-robust classification with PyTorch
========================================

A classifier that is good on average may serve some groups badly. In group-robust training, an adversary puts more
weight on the groups with the largest losses, at a price, while the classifier descends: the solution is a saddle point,
not a minimum. Here the groups are the ten digits of scikit-learn's data, and the model is logistic regression.

**Assumptions.** :math:`\varphi(W, e) = \mathbb E[(1 + e_g)\,\ell(W)] + 0.01\,|W|^2 - 0.05\,|e|^2` is strongly convex in
the weights W (as long as :math:`e \ge -1`) and strongly concave in the adversary e, so the field of the two gradients
is strongly monotone. It is not affine, and because the adversary multiplies losses that grow with W, no constant holds
everywhere. So none is given, no theorem is claimed, and the certificate bounds the result.

**Today.** Gradient descent and ascent with one optimiser for both players: Adam with a cosine schedule, or SGD with the
mean of its iterates. Both have a learning rate to tune.
"""

# %%
# The game
# --------
# One function of both players and of some rows of the data. The truth is the norm of the field over all rows, which
# is 0 at the saddle point.
import os
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import dualanchor as da
from dualanchor.integrations.torch import DualAnchor, saddle_oracle

SMALL = os.environ.get("DUALANCHOR_GALLERY") == "small"
SEEDS, STEPS, BATCH = (range(2), 300, 32) if SMALL else (range(5), 2000, 32)
torch.set_num_threads(1)

digits = load_digits()
x = torch.cat([torch.tensor(digits.data / 16, dtype=torch.float32), torch.ones(len(digits.data), 1)], 1)
y = torch.tensor(digits.target)


def losses(W, rows):
    return cross_entropy(x[rows] @ W, y[rows], reduction="none")


def phi(W, e, rows):
    return ((1 + e[y[rows]]) * losses(W, rows)).mean() + 0.01 * W.square().sum() - 0.05 * e @ e


def residual(W, e):
    W, e = W.detach().requires_grad_(), e.detach().requires_grad_()
    return torch.cat([g.ravel() for g in torch.autograd.grad(phi(W, e, slice(None)), (W, e))]).norm().item()


def players():
    return torch.zeros(65, 10, requires_grad=True), torch.zeros(10, requires_grad=True)


# %%
# Three optimisers in one training loop
# -------------------------------------
# The learning rates of Adam and SGD are tuned by the true residual on another seed. `DualAnchor` examines four batches
# to find its own, and returns the mean of its last half.


def train(seed, optimizer, averaged=False, cosine=False, steps=STEPS):
    W, e = players()
    rng, mean = torch.Generator().manual_seed(seed), [torch.zeros_like(W), torch.zeros_like(e)]
    batches = [torch.randint(len(x), (BATCH,), generator=rng) for _ in range(steps)]
    both = optimizer([{"params": W}, {"params": e, "maximize": True}], lambda rows: phi(W, e, rows), batches)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(both, steps) if cosine else None
    for k, rows in enumerate(batches):
        both.zero_grad()
        phi(W, e, rows).backward()
        both.step()
        if schedule:
            schedule.step()
        for average, now in zip(mean, (W, e), strict=True):
            average += (now.detach() - average) / max(1, k + 1 - steps // 2)
    return mean if averaged else (W, e)


def dual_anchor(groups, loss, batches):
    return DualAnchor(groups, lr="auto", look=(loss, batches[:4]), total_steps=len(batches), averaged=True)


def tuned(optimizer, rates, **options):
    def trial(lr):
        return residual(*train(1000, lambda groups, *_: optimizer(groups, lr), **options))

    best = min(rates, key=trial)
    return lambda seed: train(seed, lambda groups, *_: optimizer(groups, best), **options)


# %%
# All runs
# --------
# A sample is a batch of 32 rows. `saddle_oracle` makes a sampler of the field from `phi`, for `da.root` and for
# certificates; `DualAnchor` leaves a tenth of its batches to the certificate.
def sampled(W, e, n, rng):
    return phi(W, e, torch.randint(len(x), (BATCH * n,), generator=rng))


def by_optimizer(seed):
    W, e = train(seed, dual_anchor, steps=STEPS - STEPS // 10)
    oracle = saddle_oracle(sampled, W, e)
    return W, e, da.certify(oracle, oracle.x0, samples=STEPS // 10, seed=seed).upper


def by_root(seed):
    oracle = saddle_oracle(sampled, *players())
    result = da.root(oracle, oracle.x0, budget=STEPS, seed=seed)
    return *oracle.unflatten(result.x), result.certificate.upper


methods = {
    "dualanchor, DualAnchor": by_optimizer,
    "dualanchor, da.root": by_root,
    "SGD, averaged, tuned": tuned(torch.optim.SGD, (0.02, 0.05, 0.1, 0.2), averaged=True),
    "Adam, cosine, tuned": tuned(torch.optim.Adam, (0.001, 0.003, 0.01, 0.03), cosine=True),
}
rows, ends = [], {}
for seed in SEEDS:
    for name, run in methods.items():
        start = time.perf_counter()
        W, e, *bound = run(seed)
        rows.append((name, STEPS, time.perf_counter() - start, *(bound or [np.nan]), residual(W, e)))
        ends[name] = W

# %%
# Results
# -------
# Medians over the seeds; ``certificate`` bounds ``truth`` with confidence 95 %.
frame = pd.DataFrame(rows, columns=["method", "samples", "seconds", "certificate", "truth"])
print(frame.groupby(["method", "samples"], sort=False).median().to_string(float_format="{:.2g}".format, na_rep="-"))
ours = frame[frame.method.str.startswith("dualanchor")]
print(f"\ncertificates that hold: {(ours.certificate >= ours.truth).sum()} of {len(ours)}")

# %%
# Left: the effect of the adversary. The loss of the hardest digit, 8, falls most. The others fall too, because the
# adversary increases all losses relative to the penalty on W. Right: each dot is a run, each dash a certificate.
plain, indifferent = players()
descent = torch.optim.LBFGS([plain], max_iter=200, line_search_fn="strong_wolfe")


def closure():
    descent.zero_grad()
    loss = phi(plain, indifferent.detach(), slice(None))
    loss.backward()
    return loss


descent.step(closure)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for i, (name, W) in enumerate(
    {"ordinary training": plain, "against the adversary": ends["dualanchor, da.root"]}.items()
):
    by_digit = np.bincount(digits.target, losses(W, slice(None)).detach()) / np.bincount(digits.target)
    left.bar(np.arange(10) + 0.4 * i - 0.2, by_digit, 0.4, color=f"C{1 - i}", label=name)
left.set(xticks=range(10), xlabel="digit", ylabel="mean loss")
left.legend(fontsize=8)
for i, (_, part) in enumerate(frame.groupby("method", sort=False)):
    place = i + np.linspace(-0.2, 0.2, len(part))
    right.scatter(place, part.truth, color=f"C{i}")
    right.scatter(place, part.certificate, marker="_", color=f"C{i}")
names = [name.replace(", ", "\n") for name in methods]
right.set(yscale="log", ylabel="norm of the field", xticks=range(len(names)), xticklabels=names)
plt.show()

# %%
# **Where it loses.** Averaged SGD with the best of four learning rates, judged by the true field on another seed, ends
# at seven to eight tenths of the library's residual. The library finds its own step and spends a tenth of the
# batches on the certificate. Adam with a cosine schedule, also tuned, ends above both. The certificate is three to four
# times the truth, because 200 batches carry that much noise in 660 coordinates. All spend nearly all time in PyTorch.
