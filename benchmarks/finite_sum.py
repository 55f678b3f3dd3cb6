"""Batch means of a finite sum over large data against a contiguous pass over as many rows, side by side.

The data are 1,000,000 x 200 in single precision. The pass does the same arithmetic on slices of the data, in tiles as
large as the library's, and begins at another place each time, so that it reads memory and not the cache. Times are
processor time per batch, drawing included; a repetition is as many batches as make 100,000 rows, so that numbers drawn
ahead are paid for. Least times over repetitions, both sides taking turns: the machine may be noisy. Set
OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_most, least, main
from dualanchor.oracles.kernels import _sum, spans

D = 200
SIZES = (1_000, 10_000, 100_000)
TILE = (1 << 20) // (8 * D)  # rows; as the library
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
    for span in spans(B, TILE):
        value += total(x, *(table[start + span.start : start + span.stop] for table in data))
    return value / B


def total_of(component: Component) -> Component:
    return lambda x, a, t: _sum(component(x, a, t))


def total_of_rank_one(x: np.ndarray, a: np.ndarray, t: np.ndarray) -> np.ndarray:
    a = a.astype(x.dtype, copy=False)
    return (a @ x - t) @ a


def compared(
    data: Data, name: str, sums: dict[str, da.FiniteSum], total: Component, dtype: type, repeat: int
) -> list[Row]:
    """Rows of the table for one component and one precision of x."""
    n, found, starts = len(data[0]), [], np.random.default_rng(3)
    x = np.random.default_rng(2).normal(size=(1, D)).astype(dtype)
    for B in SIZES:
        streams = {kind: da.Streams(0, np.arange(1), dimension=D) for kind in sums}
        functions = {kind: partial(batch_mean, F, streams[kind], x, B) for kind, F in sums.items()}
        functions["pass"] = lambda B=B: contiguous(data, total, x[0], int(starts.integers(n - B + 1)), B)
        times = least(functions, repeat, max(SIZES) // B, time.process_time)
        for kind in sums:
            title = f"{name}, x in {np.dtype(dtype).name}, B = {B:,}, {kind}"
            found.append(at_most(title, times[kind], times["pass"], TARGETS[kind]))
    return found


def batch_mean(F: da.FiniteSum, streams: da.Streams, x: np.ndarray, B: int) -> np.ndarray:
    return F.mean(x, F.draw(streams, B))


def rows(quick: bool = False) -> list[Row]:
    """One row per component, precision of x, batch size and way of sampling; times in seconds."""
    n, repeat = (200_000, 4) if quick else (1_000_000, 20)
    data, found = made(n), []
    for name, component in (("least squares", least_squares), ("logistic", logistic)):
        sums = {kind: da.FiniteSum.from_data(data, component, sampling=kind) for kind in TARGETS}
        for dtype in (np.float64, np.float32):
            found += compared(data, name, sums, total_of(component), dtype, repeat)
    sums = {"rows": da.FiniteSum.rank_one(data[0], targets=data[1])}
    for dtype in (np.float64, np.float32):
        found += compared(data, "rank_one", sums, total_of_rank_one, dtype, repeat)
    return found


if __name__ == "__main__":
    main(rows, __doc__)
