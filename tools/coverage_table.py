"""How often the upper bound of a certificate is right, and how far above the truth it lies.

Writes two tables into docs/certificates.md, between the markers. Group means are drawn from their own law where there
is a simple one (Gaussian, exponential, rare events); the others are summed. Takes a few minutes.

    python tools/coverage_table.py            # print the tables and write them
    python tools/coverage_table.py --print    # print only
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.certify import group_sizes
from dualanchor.theory.confidence import GroupMoments, group_moments, upper_by_both

PAGE = Path(__file__).resolve().parents[1] / "docs" / "certificates.md"
CONFIDENCE = 0.95
HELD = 1 << 24  # numbers at a time

Bound = Callable[[GroupMoments, float], Any]
Noise = Callable[[np.random.Generator, int, tuple[int, ...]], Any]


class Cell(NamedTuple):
    """Coverage over replications, and the median distance above the truth in units of the mean's noise."""

    coverage: float
    excess: float


def gaussian(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
    return rng.standard_normal(shape) / np.sqrt(size)


def student(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
    total = np.zeros(shape)
    for _ in range(size):
        total += rng.standard_t(5, size=shape)
    return total * (np.sqrt(3 / 5) / size)


def exponential(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
    return rng.standard_gamma(size, size=shape) / size - 1


def rare(probability: float) -> Noise:
    def noise(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
        seen = rng.binomial(size, probability, size=shape) / size
        return (seen - probability) / np.sqrt(probability * (1 - probability))

    return noise


def jumps(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
    return np.sqrt(0.5) * (gaussian(rng, size, shape) + rare(0.0005)(rng, size, shape))


def lognormal(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
    total, mean = np.zeros(shape), np.exp(2.0)
    for _ in range(size):
        total += np.exp(2 * rng.standard_normal(shape))
    return (total / size - mean) / (mean * np.sqrt(np.exp(4.0) - 1))


def dominating(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Any:
    values = exponential(rng, size, shape)
    d = shape[-1]
    values[..., 0] *= np.sqrt(0.9 * d)
    values[..., 1:] *= np.sqrt(0.1 * d / (d - 1))
    return values


NOISES: dict[str, Noise] = {
    "Gaussian": gaussian,
    "Student's t, 5 degrees of freedom": student,
    "exponential": exponential,
    "rare (2 %)": rare(0.02),
    "rare (0.2 %)": rare(0.002),
    "Gaussian and jumps (0.05 %)": jumps,
    "lognormal (s = 2)": lognormal,
    "exponential, 90 % in one direction": dominating,
}
"""Means of `size` independent numbers with mean 0 and variance 1; the long tail of a skewed one points away from 0."""

LEVELS: dict[str, Callable[[int], float]] = {
    "0": lambda n: 0.0,
    "σ/√n": lambda n: 1 / np.sqrt(n),
    "2σ/√n": lambda n: 2 / np.sqrt(n),
    "σ": lambda n: 1.0,
    "100 σ": lambda n: 100.0,
}
"""The residual in units of sigma, from the number of samples used."""


def coverage(
    noise: str,
    samples: int,
    dimension: int,
    reps: int,
    rng: np.random.Generator,
    bound: Bound = upper_by_both,
    levels: Any = tuple(LEVELS),
) -> Iterator[tuple[str, Cell]]:
    """The cells of one line: the same noise (sigma = 1, equal in all coordinates) around each level of the residual.

    F(x) points along a coordinate, which is the worst direction for skewed noise.
    """
    groups, size = group_sizes(samples, dimension)
    unit = 1 / np.sqrt(groups * size)
    uppers: dict[str, list[Any]] = {name: [] for name in levels}
    while reps > 0:
        some = min(reps, max(1, HELD // (groups * dimension)))
        reps -= some
        means, at = NOISES[noise](rng, size, (some, groups, dimension)) / np.sqrt(dimension), 0.0
        for name in levels:
            level = LEVELS[name](groups * size)
            means[:, :, 0] += level - at
            at = level
            m = group_moments(means)
            seen = m.trace > groups * (1e-14 * m.norm) ** 2  # of a sampler that is random, nothing is certified else
            uppers[name].append(np.where(seen, bound(m, 1 - CONFIDENCE), np.inf))
    for name, parts in uppers.items():
        upper, level = np.concatenate(parts), LEVELS[name](groups * size)
        yield name, Cell(float(np.mean(upper >= level)), float(np.median(upper - level)) / unit)


def lines(cases: list[tuple[str, int, int]], levels: Any, rng: np.random.Generator) -> Iterator[str]:
    yield "| noise | d | samples | " + " | ".join(f"‖F(x)‖ = {name}" for name in levels) + " |"
    yield "|---|--:|--:|" + "--:|" * len(levels)
    for noise, d, samples in cases:
        reps = 10_000 if d < 10 else 400
        cells = [
            f"{100 * c.coverage:.1f} %, {c.excess:.1f}".replace("inf", "∞")
            for _, c in coverage(noise, samples, d, reps, rng, levels=levels)
        ]
        yield f"| {noise} | {d} | {samples:,} | " + " | ".join(cells) + " |"


def tables(rng: np.random.Generator) -> dict[str, str]:
    usual = [(noise, d, n) for noise in list(NOISES)[:3] for d in (1, 2, 500) for n in (100, 2000)]
    hard = [(noise, 1, n) for noise in list(NOISES)[2:7] for n in (16, 64, 256, 2048, 16384)]
    hard += [(noise, 1000, n) for noise in list(NOISES)[7:] for n in (256, 2048, 16384)]
    return {
        "coverage": "\n".join(lines(usual, tuple(LEVELS), rng)),
        "limits": "\n".join(lines(hard, ("σ",), rng)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--print", action="store_true", dest="only_print", help="leave docs/certificates.md alone")
    only_print = parser.parse_args().only_print
    page = "" if only_print else PAGE.read_text(encoding="utf-8")
    for name, table in tables(np.random.default_rng(20)).items():
        print(table, end="\n\n")
        before, marker, rest = page.partition(f"<!-- {name} -->")
        page = f"{before}{marker}\n\n{table}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}" if marker else page
    if not only_print:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
