"""Batch means of a finite sum over large data against a contiguous pass over as many rows, side by side.

The data are `--rows` x 200 in single precision. The pass does the same arithmetic on slices of the data, in tiles as
large as the library's, and begins at another place each time, so that it reads memory and not the cache. Times are
processor time per batch, drawing included; a repetition is as many batches as make 100,000 rows, so that numbers drawn
ahead are paid for. Prints a table, or with --json the rows. Least times over repetitions, both sides taking turns: the
machine may be noisy. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import dualanchor as da
from dualanchor.oracles.finite_sum import _sum
from dualanchor.oracles.gather import spans, tile_rows

D = 200
SIZES = (1_000, 10_000, 100_000)
TARGETS = {"rows": 3.2, "blocks": 1.3}
Component = Callable[..., np.ndarray]
Data = tuple[np.ndarray, np.ndarray]


def least_squares(x: np.ndarray, a: np.ndarray, t: np.ndarray) -> np.ndarray:
    return a * (a @ x - t)[:, None]


def logistic(x: np.ndarray, a: np.ndarray, t: np.ndarray) -> np.ndarray:
    return a * (-t / (1 + np.exp(t * (a @ x))))[:, None]


def made(n: int) -> Data:
    rng = np.random.default_rng(1)
    features = rng.random((n, D), dtype=np.float32)
    features -= 0.5
    return features, np.where(rng.random(n) < 0.5, -1, 1).astype(np.float32)


def contiguous(data: Data, total: Component, x: np.ndarray, start: int, B: int) -> np.ndarray:
    """The mean over B rows one after another; `total` adds up what it is given."""
    value = np.zeros(D)
    for span in spans(B, tile_rows(8 * D)):
        value += total(x, *(table[start + span.start : start + span.stop] for table in data))
    return value / B


def total_of(component: Component) -> Component:
    return lambda x, a, t: _sum(component(x, a, t))


def total_of_rank_one(x: np.ndarray, a: np.ndarray, t: np.ndarray) -> np.ndarray:
    a = a.astype(x.dtype, copy=False)
    return (a @ x - t) @ a


def least(functions: dict[str, Callable[[], object]], times_each: int, repeat: int) -> dict[str, float]:
    """Least processor time of a call of each, the functions taking turns."""
    times = {name: float("inf") for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            start = time.process_time()
            for _ in range(times_each):
                function()
            times[name] = min(times[name], (time.process_time() - start) / times_each)
    return times


def compared(
    data: Data, name: str, sums: dict[str, da.FiniteSum], total: Component, dtype: type, repeat: int
) -> list[dict]:
    """Rows of the table for one component and one precision of x."""
    n, found, starts = len(data[0]), [], np.random.default_rng(3)
    x = np.random.default_rng(2).normal(size=(1, D)).astype(dtype)
    for B in SIZES:
        streams = {kind: da.Streams(0, np.arange(1), dimension=D) for kind in sums}
        functions = {kind: partial(batch_mean, F, streams[kind], x, B) for kind, F in sums.items()}
        functions["pass"] = lambda B=B: contiguous(data, total, x[0], int(starts.integers(n - B + 1)), B)
        times = least(functions, max(SIZES) // B, repeat)
        for kind in sums:
            ratio = times[kind] / times["pass"]
            found.append(
                {
                    "name": f"{name}, x in {np.dtype(dtype).name}, B = {B:,}, {kind}",
                    "measured": times[kind],
                    "against": times["pass"],
                    "ratio": ratio,
                    "target": TARGETS[kind],
                    "met": ratio <= TARGETS[kind],
                }
            )
    return found


def batch_mean(F: da.FiniteSum, streams: da.Streams, x: np.ndarray, B: int) -> np.ndarray:
    return F.mean(x, F.draw(streams, B))


def rows(quick: bool = False, n: int | None = None, repeat: int | None = None) -> list[dict]:
    """One row per component, precision of x, batch size and way of sampling; times in seconds."""
    repeat = repeat or (4 if quick else 10)
    data = made(n or (200_000 if quick else 1_000_000))
    found = []
    for name, component in (("least squares", least_squares), ("logistic", logistic)):
        sums = {kind: da.FiniteSum.from_data(data, component, sampling=kind) for kind in TARGETS}
        for dtype in (np.float64, np.float32):
            found += compared(data, name, sums, total_of(component), dtype, repeat)
    sums = {"rows": da.FiniteSum.rank_one(data[0], targets=data[1])}
    for dtype in (np.float64, np.float32):
        found += compared(data, "rank_one", sums, total_of_rank_one, dtype, repeat)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help="of the data; 1,000,000 if left out, which takes 2.5 GB")
    parser.add_argument("--repeat", type=int, help="10 if left out, 4 with --quick")
    parser.add_argument("--quick", action="store_true", help="200,000 rows")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rows is not None and arguments.rows < max(SIZES):
        parser.error(f"--rows must be at least {max(SIZES):,}, the largest batch")
    found = rows(arguments.quick, arguments.rows, arguments.repeat)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{'batch mean':50s} {'measured':>10s} {'pass':>10s} {'ratio':>6s} {'target':>6s}")
    for row in found:
        print(
            f"{row['name']:50s} {1e3 * row['measured']:7.2f} ms {1e3 * row['against']:7.2f} ms {row['ratio']:6.2f} "
            f"{row['target']:6.1f} {'' if row['met'] else 'not met'}"
        )


if __name__ == "__main__":
    main()
