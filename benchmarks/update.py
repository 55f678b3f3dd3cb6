"""The update of x and z in S-Dual-OHM on one long vector, against a fused C loop and the naive NumPy expression.

The C loop is compiled here, with `cc -O3 -march=native`. The library updates long rows in pieces that fit the cache.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import dualanchor as da
from benchmarks.common import Row, at_least, at_most, least, main, not_measured
from dualanchor.core.method import State

K, N, ALPHA = 10, 1000, 0.1
SLOWER_THAN_C, FASTER_THAN_NAIVE = 3.0, 2.0

SOURCE = """
#define UPDATE(name, real) \\
void name(long n, real *restrict x, real *restrict z, const real *restrict G, real keep, real take, real alpha) { \\
    for (long i = 0; i < n; i++) { \\
        real next = keep * z[i] - take * G[i]; \\
        x[i] -= alpha * G[i] + next; \\
        z[i] = next; \\
    } \\
}
UPDATE(update_float64, double)
UPDATE(update_float32, float)
"""


def c_update(dtype: np.dtype) -> Callable[[State, np.ndarray], None] | None:
    """The fused loop, or None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "update.c", Path(folder) / "update.so"
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        function = getattr(ctypes.CDLL(str(library)), f"update_{dtype.name}")
    real = ctypes.c_double if dtype == np.float64 else ctypes.c_float
    function.argtypes = [ctypes.c_long, *3 * [ctypes.c_void_p], *3 * [real]]

    def update(s: State, G: np.ndarray) -> None:
        keep, take = (N - K - 1) / (N - K), ALPHA / (N - K)
        function(G.size, s.x.ctypes.data, s.z.ctypes.data, G.ctypes.data, keep, take, ALPHA)

    return update


def naive(s: State, G: np.ndarray) -> None:
    s.z = ((N - K - 1) * s.z - ALPHA * G) / (N - K)
    s.x = s.x - ALPHA * G - s.z


def ways(dtype: np.dtype) -> dict[str, Callable[[State, np.ndarray], None]]:
    """Every way there is here to do one update."""
    method, fused = da.DualOHM(step_size=ALPHA, horizon=N), c_update(dtype)
    found = {"ours": lambda s, G: method.update_rows(K, s, G), "naive": naive}
    return found if fused is None else {**found, "C": fused}


def state(d: int, dtype: np.dtype) -> tuple[State, np.ndarray]:
    rng = np.random.default_rng(0)
    x, z, G = (rng.standard_normal((1, d), dtype=dtype) for _ in range(3))
    return State(x=x, z=z), G


def require_same(updates: dict[str, Callable[[State, np.ndarray], None]], dtype: np.dtype) -> None:
    """Stop if the ways do not compute the same thing, to rounding."""
    results = {}
    for name, update in updates.items():
        s, G = state(1001, dtype)
        update(s, G)
        results[name] = np.stack([s.x, s.z])
    for name, value in results.items():
        if not np.allclose(value, results["naive"], rtol=0, atol=100 * np.finfo(dtype).eps):
            raise SystemExit(f"{name}: not the same update as the naive expression")


def rows(quick: bool = False) -> list[Row]:
    """Seconds of one update each way; ratios to the C loop and to the naive expression."""
    d, repeat = (2_000_000, 5) if quick else (10_000_000, 15)
    table = []
    for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        updates = ways(dtype)
        require_same(updates, dtype)
        s, G = state(d, dtype)
        times = least({name: partial(update, s, G) for name, update in updates.items()}, repeat)
        name = f"update, d = {d:,}, {dtype.name}, against {{}}, s".format
        if "C" in times:
            table.append(at_most(name("a fused C loop"), times["ours"], times["C"], SLOWER_THAN_C))
        else:
            table.append(not_measured(name("a fused C loop"), SLOWER_THAN_C, "there is no C compiler"))
        table.append(at_least(name("naive NumPy"), times["ours"], times["naive"], FASTER_THAN_NAIVE))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
