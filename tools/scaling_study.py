# ruff: noqa: E501 - the lines of the page
"""Writes docs/scaling.md: rounds measured on one and two workers, and what they predict for thousands.

Measured are the rows of benchmarks/engines.py, as `make bench` has stored them. From a round's cost without samples
follows a model of its latency, and from that, with the plans and the known complexities, the time to an accuracy for any
number of workers: a prediction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import ceil, inf, log, log2
from pathlib import Path

import numpy as np

import dualanchor as da

ROOT = Path(__file__).parent.parent
PAGE, FIGURE = ROOT / "docs" / "scaling.md", ROOT / "docs" / "figures" / "scaling.png"

ENGINES = {"threads": "threads", "processes": "processes", "mpi": "MPI", "ray": "Ray"}
WORKERS = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000]
L, D, SIGMA, EPS = 1.0, 1.0, 1.0, 0.01
SAMPLE, DIMENSION = 1e-3, 1_000  # seconds of a sample, numbers in x
GAIN = 1.1  # doubling the workers must make it so much faster, or it has stopped scaling

Rounds = Callable[[float, int], float]


def main() -> None:
    stored = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in stored["rows"] if row["benchmark"] == "engines"}
    latency = {engine: round_cost(rows, engine) for engine in ENGINES}
    times = {name: [seconds(P) for P in WORKERS] for name, seconds in predictions(latency).items()}
    draw(times)
    PAGE.write_text(page(rows, latency, times), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


def round_cost(rows: dict, engine: str) -> tuple[float, float]:
    """Seconds of a round without samples on two workers, and of each number of x in it."""
    small, large = (rows[f"overhead {engine}, d = {d:,}"]["measured"] for d in (1_000, 1_000_000))
    per_number = max(0.0, (large - small) / 999_000)
    return small - 1_000 * per_number, per_number


def tree(cost: tuple[float, float]) -> Callable[[int], float]:
    """A round of P workers whose sums go along a tree, as MPI's do: measured on two, it grows with log2 P."""
    both = cost[0] + cost[1] * DIMENSION
    return lambda P: 0.0 if P == 1 else both * log2(P)


def star(cost: tuple[float, float]) -> Callable[[int], float]:
    """A round of P workers whose sums go to one process, as with Ray: measured on two, it grows with P."""
    both = cost[0] + cost[1] * DIMENSION
    return lambda P: 0.0 if P == 1 else both * P / 2


def predictions(latency: dict[str, tuple[float, float]]) -> dict[str, Callable[[int], float]]:
    """Seconds to the accuracy by the number of workers, for each method."""
    mpi, ray = tree(latency["mpi"]), star(latency["ray"])
    return {
        "S-Dual-OHM, tapered (plan)": lambda P: dual_ohm(P, mpi(P)),
        "the same with Ray": lambda P: dual_ohm(P, ray(P)),
        "S-Dual-OHM, constant batch (plan)": lambda P: dual_ohm(P, mpi(P), batches="constant"),
        "SGDA (bound)": lambda P: sgda(P, mpi(P)),
        "Halpern-PAGE (order)": lambda P: page_estimator(P, mpi(P)),
        "RAIN (order)": lambda P: rain(P, mpi(P)),
    }


def dual_ohm(P: int, latency: float, **options: str) -> float:
    """The plan of least time, by theorem."""
    plan = da.plan(eps=EPS, L=L, D=D, sigma=SIGMA, workers=P, latency=latency, sample_cost=SAMPLE, **options)
    assert plan.seconds is not None
    return plan.seconds


def sgda(P: int, latency: float) -> float:
    """K rounds of B samples with L^2 D^2 / K + sigma^2 / B <= eps^2, the fastest B."""
    best = inf
    for B in P * np.unique(np.geomspace(1, max(2, 1e9 / P), 200).astype(int)):
        left = EPS**2 - SIGMA**2 / B
        if left > 0:
            best = min(best, ceil((L * D) ** 2 / left) * (latency + ceil(B / P) * SAMPLE))
    return best


def page_estimator(P: int, latency: float) -> float:
    """4LD/eps rounds, sigma^2 LD / eps^3 samples in all: orders with constants of one."""
    rounds = ceil(4 * L * D / EPS)
    return rounds * (latency + ceil(SIGMA**2 * L * D / EPS**3 / rounds / P) * SAMPLE)


def rain(P: int, latency: float) -> float:
    """(LD/eps + sigma^2/(b eps^2)) log(1/eps) steps of two rounds of b samples: orders with constants of one."""
    best = inf
    for b in np.unique(np.geomspace(1, 1e6, 200).astype(int)):
        steps = (L * D / EPS + SIGMA**2 / (b * EPS**2)) * log(1 / EPS)
        best = min(best, 2 * steps * (latency + ceil(b / P) * SAMPLE))
    return best


def stops(seconds: list[float]) -> str:
    """Where more workers hardly help: the last point from which doubling gains a tenth."""
    for i in range(len(WORKERS) - 1, 0, -1):
        doublings = log2(WORKERS[i] / WORKERS[i - 1])
        if seconds[i - 1] / seconds[i] > GAIN**doublings:
            return f"{WORKERS[i]:,}" if i < len(WORKERS) - 1 else f"beyond {WORKERS[-1]:,}"
    return "1"


def bare(rows: dict, name: str) -> str:
    """The efficiency of two bare processes that took turns with these rounds, where that was measured."""
    row = rows.get(name.replace("efficiency ", "two bare processes beside "))
    return "" if row is None else f"{row['ratio']:.2f}"


def page(rows: dict, latency: dict[str, tuple[float, float]], times: dict[str, list[float]]) -> str:
    """The page's text."""
    cost_lines = [
        f"| {ENGINES[name]} | {1e3 * base:.3g} | {1e9 * number:.2g} |" for name, (base, number) in latency.items()
    ]
    efficiency = [
        f"| {name.removeprefix('efficiency ')} | {2e3 * row['against']:.1f} | {1e3 * row['measured']:.1f} "
        f"| {2 * row['ratio']:.2f} | {row['ratio']:.2f} | {bare(rows, name)} |"
        for name, row in rows.items()
        if name.startswith("efficiency ")
    ]
    shown = [P for P in WORKERS if P in (1, 10, 100, 1_000, 10_000)]
    predicted = [
        f"| {name} | " + " | ".join(f"{values[WORKERS.index(P)]:,.3g}" for P in shown) + f" | {stops(values)} |"
        for name, values in times.items()
    ]
    plans = [da.plan(eps=EPS, L=L, D=D, sigma=SIGMA, workers=P, latency=1e-4, sample_cost=SAMPLE) for P in (1, 10_000)]
    return f"""# How it scales

S-Dual-OHM takes few sequential rounds of large batches, whose samples are independent. This page shows what a round costs on
one machine with two cores, and what this predicts for thousands of workers. `python tools/scaling_study.py` writes it; the
first two tables are measured, the third is a **prediction**.

## Measured: overhead of a round

On two workers, by `benchmarks/engines.py`: the latency of a round, and the time for each number of x.

| engine | latency, ms | per number, ns |
|---|--:|--:|
{chr(10).join(cost_lines)}

## Measured: one worker and two

A round of 32 shards that compute (random numbers) or wait (a simulation elsewhere). The efficiency is the speed-up divided by
two. Alternating with the rounds that compute, one and two bare processes drew the same random numbers without an engine: their
efficiency is what the machine itself allowed at the time.

| round | one worker, ms | two, ms | speed-up | efficiency | of bare processes |
|---|--:|--:|--:|--:|--:|
{chr(10).join(efficiency)}

## Predicted: seconds to an accuracy

Predicted seconds for each number of workers P, at L = D = σ = 1, ε = {EPS}, d = {DIMENSION:,} and {1e3 * SAMPLE:g} ms for a sample. The latency is
that measured on two ranks, times log₂ P for MPI's tree, or P/2 if all sums go to one process (Ray).

- S-Dual-OHM uses the plan of least time for that many workers, with its theorem: {plans[0].rounds:,} rounds on one worker, {plans[1].rounds:,} on 10,000.
- SGDA uses the bound on a random iterate of `theory.bounds.sgda_average` with its best batch: at least L²D²/ε² = {(L * D / EPS) ** 2:,.0f} rounds for any
  batch.
- For Halpern-PAGE and RAIN the sources give only orders: 4LD/ε rounds and σ²LD/ε³ samples, and (LD/ε + σ²/(bε²)) ln(1/ε) steps of two
  rounds of b samples. All constants are set to one, so these two rows may be off by a constant factor in either direction.

| method | {" | ".join(f"{P:,}" for P in shown)} | stops scaling at |
|---|{"--:|" * len(shown)}--:|
{chr(10).join(predicted)}

A method stops scaling where doubling its workers makes it less than {100 * (GAIN - 1):.0f} % faster. S-Dual-OHM keeps scaling because it needs few rounds:
once every worker has a sample or two of each batch, the time is the number of rounds times the latency plus one sample.

![Predicted seconds against workers](figures/scaling.png)
"""


def draw(times: dict[str, list[float]]) -> None:
    """The predictions as curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    for (name, seconds), line, marker in zip(times.items(), ["-", "--", "-.", "-", "--", ":"], "osD^vx", strict=True):
        axes.loglog(WORKERS, seconds, line, marker=marker, label=name)
    axes.set_xlabel("workers")
    axes.set_ylabel(f"seconds to ε = {EPS}, predicted")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    main()
