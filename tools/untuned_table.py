"""Writes docs/untuned.md: the untuned default against every baseline tuned over its grid, on problems of many kinds.

Parameters are selected on other seeds than those that are reported. Failures stay in the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import dualanchor as da

PAGE = Path(__file__).parent.parent / "docs" / "untuned.md"
TUNED = ("s-dual-ohm", "s-ohm", "sgda", "seg", "rain", "halpern-page", "averaged")


def additive(F, x0, L, sigma, mu=0.0):
    """A problem with Gaussian noise; F takes rows of points."""
    oracle = da.AdditiveNoise(F, sigma, vectorized=True)
    return da.Problem(oracle, x0=x0, constants=da.Constants(L=L, mu=mu, sigma=sigma))


def sampled(sample, x0, L):
    """A problem that can only be sampled; `sample(x, n, rng)` for one row."""

    def rows(x, n, rngs):
        return np.stack([sample(one, n, rng) for one, rng in zip(x, rngs, strict=True)])

    return da.Problem(da.Sampler(rows, vectorized=True, replayable=True), x0=x0, constants=da.Constants(L=L))


def problems() -> dict[str, tuple[str, da.Problem]]:
    rng = np.random.default_rng(20)
    A = rng.normal(size=(30, 10)) / np.sqrt(30)
    game = rng.normal(size=(8, 8))
    game *= 0.9 / np.linalg.norm(game, 2)
    turn = np.kron(np.eye(5), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    data = rng.normal(size=(200, 10)) / np.sqrt(10)
    labels = np.sign(data @ rng.normal(size=10) + 0.5 * rng.normal(size=200))
    target = data @ rng.normal(size=10) + 0.3 * rng.normal(size=200)
    widest = float((data**2).sum(axis=1).max())
    ones = np.ones(10)

    def saddle(z):  # 0.2-strongly monotone, coupled by a matrix
        u, v = z[:, :8], z[:, 8:]
        return np.concatenate([0.2 * u + v @ game.T, 0.2 * v - u @ game], axis=1)

    def turning_kink(x):
        return np.clip(x, -0.05, 0.05) + 0.3 * x @ turn.T + 0.3 * x

    def bent(x):
        y = np.tanh(x - 0.5)
        return y + 0.4 * y @ turn.T

    def tails(x, n, rng):
        return x - 1 + rng.standard_t(3, size=(n, 10)).mean(axis=0)

    def growing(x, n, rng):
        return x + x * rng.normal(size=(n, 10)).mean(axis=0)

    def logistic(x, n, rng):
        i = rng.integers(0, 200, n)
        slope = -labels[i] / (1 + np.exp(labels[i] * (data[i] @ x)))
        return slope @ data[i] / n + 0.01 * x

    def squares(x, n, rng):
        i = rng.integers(0, 200, n)
        return (data[i] @ x - target[i]) @ data[i] / n

    affine = da.problems.affine
    return {
        "rotation": ("rotational", affine(rotation=1.0, sigma=0.3, D=3.0)),
        "gradient": ("gradient-like", affine(rotation=0.0, sigma=0.3, D=3.0)),
        "strongly monotone": ("strongly monotone", affine(mu=0.2, rotation=0.5, sigma=0.3, D=3.0)),
        "ill-conditioned": ("gradient-like", affine(mu=1e-3, rotation=0.0, sigma=0.1, D=10.0)),
        "matrix game": ("rotational, strongly monotone", additive(saddle, np.ones(16), 0.85 / 0.2, 0.3, 0.2)),
        "sigmoid layer": (
            "nonlinear",
            additive(lambda x: np.tanh(x @ A.T) @ A, 3 * ones, float(np.linalg.norm(A, 2) ** 2), 0.3),
        ),
        "distance to a box": ("nonlinear", additive(lambda x: x - np.clip(x, -1, 1), 3 * ones, 1.0, 0.5)),
        "kink at the noise": ("nonlinear", additive(lambda x: np.clip(20 * x, -1, 1), ones, 20.0, 0.5)),
        "turning kink": ("nonlinear, rotational", additive(turning_kink, ones, 1.69 / 0.3, 0.5, 0.3)),
        "heavy noise": ("heavy noise", affine(rotation=1.0, sigma=10.0, D=3.0)),
        "nearly noiseless": ("nearly noiseless", affine(rotation=1.0, sigma=1e-4, D=3.0)),
        "noiseless and bent": ("nearly noiseless, nonlinear", additive(bent, 2 * ones, 1.4, 1e-4)),
        "heavy tails": ("heavy noise", sampled(tails, 3 * ones, 1.0)),
        "noise that grows": ("multiplicative noise", sampled(growing, 3 * ones, 2.0)),
        "logistic regression": ("finite data", sampled(logistic, 2 * ones, widest / 4 + 0.01)),
        "least squares": ("finite data, multiplicative noise", sampled(squares, 2 * ones, widest)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    rows, wins = [], 0
    chosen = {name: one for name, one in problems().items() if not arguments.only or name in arguments.only}
    for name, (kind, problem) in chosen.items():
        found = da.compare(problem, [*TUNED, "auto"], budget=arguments.budget, seeds=arguments.seeds)
        means = {method: found.methods[method]["final"]["mean"] for method in (*TUNED, "auto")}
        baselines = {method: means[method] for method in TUNED if method != "averaged"}
        best = min(baselines, key=lambda method: np.nan_to_num(baselines[method], nan=np.inf))
        ratio = means["auto"] / baselines[best] if baselines[best] else np.inf
        wins += ratio <= 1
        rows.append(
            f"| {name} | {kind} | {means['auto']:.3g} | {baselines[best]:.3g} ({best}) | "
            f"{means['averaged']:.3g} | {'∞' if np.isinf(ratio) else f'{ratio:.2f}'} |"
        )
        print(rows[-1], flush=True)
    if arguments.only:
        return
    text = (
        f"""# The untuned default against tuned baselines

`auto` with nothing but L, against the paper's methods, each tuned over its grid on {arguments.seeds} seeds and
reported on {arguments.seeds} others. Every run has {arguments.budget:,} operator evaluations; numbers are mean
residuals at the end (estimated without bias where the operator can only be sampled). Averaged SGDA with a tuned step is
shown beside them. The last column is `auto` over the best tuned baseline: at most 1 on {wins} of {len(rows)} problems.
Made by `tools/untuned_table.py`, which also defines the problems.

| problem | kind | auto, untuned | best tuned baseline | averaged, tuned | ratio |
|---|---|--:|--:|--:|--:|
"""
        + "\n".join(rows)
        + """

A ratio above 1 is where `auto` lost: noise that vanishes at the root lets the last iterate of SGDA converge
geometrically, which a mean cannot follow. Other known limits: the step is never longer than 1/L, so a pessimistic L
with a short budget leaves it behind a baseline whose grid has longer steps; and it looks at its mean only once.
"""
    )
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
