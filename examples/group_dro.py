"""Group-DRO: logistic regression on digits while an adversary gives more weight to the groups that are served worst.

Ten groups, the digits. Rows of a group have the weight 1 + e, e from the adversary, and both players pay a penalty:
min over W, max over e of E[(1 + e_group) loss(W)] + 0.01 |W|^2 - 0.25 |e|^2. Every run reads 160,000 rows, with
replacement. Rated by the norm of the true field, over all rows, which is 0 at the saddle point, as mean over six seeds.
Learning rates are chosen on another seed.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import dualanchor as da
from dualanchor.integrations.torch import DualAnchor, saddle_oracle, tapered_batches

TOTAL, BATCH, SEEDS, TUNING_SEED = 160_000, 32, range(200, 206), 100
digits = load_digits()
x = torch.cat([torch.tensor(digits.data / 16, dtype=torch.float32), torch.ones(len(digits.data), 1)], 1)
y = torch.tensor(digits.target)


def phi(W, e, inputs, groups):
    losses = cross_entropy(inputs @ W, groups, reduction="none")
    return ((1 + e[groups]) * losses).mean() + 0.01 * W.square().sum() - 0.25 * e @ e


def residual(W, e):  # norm of the true field
    W, e = W.detach().requires_grad_(), e.detach().requires_grad_()
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(phi(W, e, x, y), (W, e))]).norm().item()


def players():
    W, e = torch.zeros(65, 10, requires_grad=True), torch.zeros(10, requires_grad=True)
    return W, e, [{"params": W}, {"params": e, "maximize": True}]


def random_batches(seed, sizes=(BATCH,) * (TOTAL // BATCH)):  # rows with replacement: the same noise for all methods
    rng = torch.Generator().manual_seed(seed)
    for size in sizes:
        rows = torch.randint(len(x), (size,), generator=rng)
        yield x[rows], y[rows]


def train(W, e, optimizer, batches, after=lambda: None):
    for inputs, groups in batches:
        optimizer.zero_grad()
        phi(W, e, inputs, groups).backward()
        optimizer.step()
        after()
    return residual(W, e)


def sgd(seed, lr):
    W, e, groups = players()
    return train(W, e, torch.optim.SGD(groups, lr), random_batches(seed))


def sgd_averaged(seed, lr):  # the mean of the last half
    W, e, groups = players()
    module = torch.nn.ParameterList([W, e])
    mean, steps = torch.optim.swa_utils.AveragedModel(module), iter(range(TOTAL // BATCH))

    def average():
        if next(steps) >= TOTAL // BATCH // 2:
            mean.update_parameters(module)

    train(W, e, torch.optim.SGD(groups, lr), random_batches(seed), average)
    return residual(*mean.module)


def adam_cosine(seed, lr):
    W, e, groups = players()
    optimizer = torch.optim.Adam(groups, lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TOTAL // BATCH)
    return train(W, e, optimizer, random_batches(seed), scheduler.step)


def dual_anchor_averaged(seed):  # the recommended one: nothing to tune
    W, e, groups = players()
    few = [batch for batch, _ in zip(random_batches(seed + 1000), range(4), strict=False)]
    look = (lambda batch: phi(W, e, *batch), few)
    optimizer = DualAnchor(groups, lr="auto", look=look, total_steps=TOTAL // BATCH, averaged=True)
    return train(W, e, optimizer, random_batches(seed))


def dual_anchor(seed, lr):  # batches of one size and the last iterate, as in the paper
    W, e, groups = players()
    return train(W, e, DualAnchor(groups, lr, total_steps=TOTAL // BATCH), random_batches(seed))


def dual_anchor_tapered(seed, lr):  # fewest steps
    W, e, groups = players()
    sizes = tapered_batches(TOTAL, 1500, least=BATCH).sizes
    return train(W, e, DualAnchor(groups, lr, total_steps=len(sizes)), random_batches(seed, sizes))


def root(seed):  # a sample is 32 rows; nothing to tune, and a certificate besides
    def sampled(W, e, n, rng):
        rows = torch.randint(len(x), (BATCH * n,), generator=rng)
        return phi(W, e, x[rows], y[rows])

    oracle = saddle_oracle(sampled, *players()[:2])
    result = da.root(oracle, oracle.x0, budget=TOTAL // BATCH, seed=seed)
    return residual(*oracle.unflatten(result.x))


def timed(run, seed):
    torch.set_num_threads(1)
    start = time.process_time()
    return run(seed), time.process_time() - start


METHODS = [  # name, function, learning rates to choose from
    ('`DualAnchor(lr="auto", averaged=True)`', dual_anchor_averaged, None),
    ("`da.root(saddle_oracle(...))`", root, None),
    ("SGD, mean of the last half", sgd_averaged, (0.02, 0.05, 0.1)),
    ("`DualAnchor`, `tapered_batches`", dual_anchor_tapered, (0.5, 1.0, 2.0)),
    ("Adam, cosine", adam_cosine, (0.001, 0.003, 0.01)),
    ("SGD", sgd, (0.005, 0.01, 0.02, 0.05)),
    ("`DualAnchor`, batches of one size", dual_anchor, (0.02, 0.05, 0.1)),
]


def mean(values):
    return sum(values) / len(values)


def main():
    print("| | lr | field at the end | of averaged SGD | CPU seconds |\n|---|--:|--:|--:|--:|")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        tuned = {}
        for name, run, rates in METHODS:
            jobs = {lr: pool.submit(timed, partial(run, lr=lr), TUNING_SEED) for lr in rates or ()}
            tuned[name] = {lr: job.result()[0] for lr, job in jobs.items()}
        best = {name: min(found, key=found.get) for name, found in tuned.items() if found}
        runs = {name: partial(run, lr=best[name]) if name in best else run for name, run, _ in METHODS}
        jobs = {name: [pool.submit(timed, run, seed) for seed in SEEDS] for name, run in runs.items()}
        ends = {name: [job.result() for job in jobs[name]] for name in jobs}
    yardstick = mean([end for end, _ in ends["SGD, mean of the last half"]])
    for name, found in ends.items():
        end, seconds = mean([one for one, _ in found]), mean([one for _, one in found])
        print(f"| {name} | {best.get(name, 'untuned')} | {end:.4f} | {end / yardstick:.2f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
