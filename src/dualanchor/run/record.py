"""What a run writes down on its way, and at which steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.result import History
from dualanchor.core.types import Array, IntArray

DEFAULT_POINTS = 64
_COLUMNS = ("row", "k", "draws", "evals", "residual")


class Recorder:
    """Collects lines of a History at the start, at chosen steps and at the end of each row.

    A diverged row ends with infinity.

    Parameters
    ----------
    record : None, bool, int, "all" or iterable of int
        How many points per row (None or True: 64; False or 0: none but the end), every step, or these steps.
    lengths : iterable of int
        The numbers of steps that rows are going to take, where they are known.
    """

    def __init__(self, record: Any, lengths: Iterable[int]) -> None:
        self._all = isinstance(record, str) and record == "all"
        self._steps, self._growing = _chosen_steps(record, lengths)
        planned = isinstance(record, (int, np.integer, type(None))) and len(self._steps) > 1 and not self._growing
        self._stride = max(1, self._steps[-1] - self._steps[-2]) if planned else None
        self._lines: dict[str, list[Array]] = {name: [] for name in _COLUMNS}

    def next_after(self, k: int) -> int:
        """The first step after k at which something is recorded."""
        if self._all:
            return k + 1
        while self._growing and self._steps[-1] <= k:
            self._steps.append(self._steps[-1] + max(1, self._steps[-1] // 8))
        i = bisect_right(self._steps, k)
        if i < len(self._steps):
            return self._steps[i]
        if self._stride is None:
            return 1 << 62
        return k + self._stride - (k - self._steps[-1]) % self._stride  # a row that lives longer than expected

    def between(self, k: int, last: int) -> list[int]:
        """The steps after k at which something is recorded, up to the last."""
        steps = []
        while (k := self.next_after(k)) <= last:
            steps.append(k)
        return steps

    def wants(self, k: int) -> bool:
        """Whether step k is one of those."""
        return self.next_after(k - 1) == k

    def add(self, rows: IntArray, k: Any, draws: Any, evals: Any, residual: Array | None) -> None:
        """Write one line for each of the rows."""
        for name, value in zip(_COLUMNS, (rows, k, draws, evals, residual), strict=True):
            if value is not None:
                self._lines[name].append(np.full(rows.shape, value))

    def history(self) -> History:
        """Everything so far, row by row."""
        columns = {
            name: np.concatenate(lines) if lines else np.empty(0, float if name == "residual" else np.int64)
            for name, lines in self._lines.items()
        }
        order = np.lexsort((columns["k"], columns["row"]))
        return History(**{name: value[order] if value.size else value for name, value in columns.items()})

    def restore(self, history: History) -> None:
        """Go on from lines written before."""
        self._lines = {name: [getattr(history, name)] if getattr(history, name).size else [] for name in _COLUMNS}


def _chosen_steps(record: Any, lengths: Iterable[int]) -> tuple[list[int], bool]:
    """Steps known in advance, and whether more follow at growing distances because no end is known."""
    if isinstance(record, str):
        if record != "all":
            raise ArgumentError("record must be a number of points, steps or 'all'", repr(record), "Use record='all'")
        return [], False
    if record is None or record is True:
        points = DEFAULT_POINTS
    elif record is False:
        points = 0
    elif isinstance(record, (int, np.integer)):
        points = int(record)
    else:
        try:
            steps = sorted({int(k) for k in record})
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                "record must be a number of points, steps or 'all'", repr(record), "Use record=64"
            ) from None
        if steps and steps[0] < 0:
            raise ArgumentError("record: steps must be at least 0", steps[0], "Use steps k >= 0")
        return steps, False
    if points < 0:
        raise ArgumentError("record must be at least 0", points, "Use record=0 to record the end only")
    if points == 0:
        return [], False
    known = list(lengths)
    if not known:
        return [0], True
    # linspace over each length, so that short and long rows of one run get as many points
    grids = [np.linspace(0, length, points + 1).round().astype(int) for length in set(known)]
    return np.unique(np.concatenate(grids)).tolist(), False
