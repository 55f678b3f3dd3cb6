"""What a run records, and at which steps."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.result import History
from dualanchor.core.types import Array, IntArray

DEFAULT_POINTS = 64
SAMPLE_POINTS = 24  # of estimates from the run's own samples
_COLUMNS = ("row", "k", "draws", "evals", "residual", "samples", "rounds", "stage")


class Recorder:
    """Collects lines of a History at the start, at chosen steps and at the end of each row.

    Parameters
    ----------
    record : None, bool, int, "all", "samples" or iterable of int
        How many points per row (None or True: 64; False or 0: the end only), every step, or these steps; "samples":
        where F is not known, estimates from the run's own samples.
    lengths : iterable of int
        The numbers of steps that rows are expected to take, where they are known.
    compiled : bool
        Whether steps are compiled: there are no estimates from their samples, so "samples" records start and end only.
    """

    def __init__(self, record: Any, lengths: Iterable[int], compiled: bool = False) -> None:
        self.lengths = list(lengths)
        self._all = isinstance(record, str) and record == "all"
        self.from_samples = isinstance(record, str) and record == "samples"
        if self.from_samples:
            record = [0] if compiled else SAMPLE_POINTS
        self._steps, self._growing = _chosen_steps(record, self.lengths)
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
        return k + self._stride - (k - self._steps[-1]) % self._stride  # a row that takes more steps than expected

    def wants(self, k: int) -> bool:
        """Whether something is recorded at step k."""
        return self.next_after(k - 1) == k

    def add(
        self,
        rows: IntArray,
        k: Any,
        draws: Any,
        evals: Any,
        residual: Array | None,
        seen: tuple[float, int] = (0.0, 0),
        stage: int = 0,
    ) -> None:
        """Add one line for each of the rows; `seen` are samples and rounds behind estimated residuals."""
        residual = np.full(rows.shape, np.nan) if residual is None else residual
        for name, value in zip(_COLUMNS, (rows, k, draws, evals, residual, *seen, stage), strict=True):
            self._lines[name].append(np.full(rows.shape, value))

    def history(self) -> History:
        """Everything so far, row by row."""
        kinds: dict[str, Any] = {"residual": float, "samples": float}
        columns = {
            name: np.concatenate(lines) if lines else np.empty(0, kinds.get(name, np.int64))
            for name, lines in self._lines.items()
        }
        order = np.lexsort((columns["k"], columns["row"]))
        if np.isnan(columns["residual"]).all():  # none is known
            columns["residual"] = np.empty(0)
        for name in ("samples", "rounds", "stage") if not self.from_samples else ():
            columns[name] = columns[name][:0]
        return History(**{name: value[order] if value.size else value for name, value in columns.items()})

    def restore(self, history: History) -> None:
        """Continue from the lines of a saved history; a column that it leaves empty is NaN or 0."""
        for name in _COLUMNS:
            column = getattr(history, name)
            missing = np.nan if name == "residual" else 0
            self._lines[name] = [column if column.size else np.full(len(history), missing, column.dtype)]


def _chosen_steps(record: Any, lengths: Iterable[int]) -> tuple[list[int], bool]:
    """The steps known in advance, and whether more follow at growing distances because no end is known."""
    rule = "record must be a number of points, steps, 'all' or 'samples'"
    if isinstance(record, str):
        if record != "all":
            raise ArgumentError(rule, repr(record), "Use record='all'")
        return [], False
    if record is not None and not isinstance(record, (int, np.integer)):  # steps by number
        try:
            steps = sorted({int(k) for k in record})
        except (TypeError, ValueError):
            raise ArgumentTypeError(rule, repr(record), "Use record=64") from None
        if steps and steps[0] < 0:
            raise ArgumentError("record: steps must be at least 0", steps[0], "Use steps k >= 0")
        return steps, False
    points = DEFAULT_POINTS if record is None or record is True else int(record)
    if points < 0:
        raise ArgumentError("record must be at least 0", points, "Use record=0 to record the end only")
    known = set(lengths)
    if points == 0 or not known:
        return ([0], True) if points else ([], False)
    # linspace over each length, so that short and long rows of one run get as many points
    grids = [np.linspace(0, length, points + 1).round().astype(int) for length in known]
    return np.unique(np.concatenate(grids)).tolist(), False
