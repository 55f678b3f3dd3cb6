"""The status of a row of a run, and what is recorded along the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from dualanchor.core import check
from dualanchor.core.types import Array, IntArray


class Status(Enum):
    """How a row of a run ended. The value is the sentence shown to users.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(), da.SGDA(0.1), budget=50)
    >>> result.status.name, result.status.ended_as_asked
    ('BUDGET', True)
    """

    RUNNING = "still running"
    HORIZON = "reached its horizon"
    BUDGET = "stopped because the next step would exceed the budget"
    MAX_SAMPLES = "stopped at max_samples: the next stage would exceed it"
    STEPS = "took the number of steps asked for"
    TARGET = "reached the target residual"
    WALL_TIME = "stopped because the time was up"
    CALLBACK = "stopped because the callback asked for it"
    DIVERGED = "diverged: an iterate became infinite or too large to square; try a smaller step"
    REFUSED = "not started: samples at the start contradict what every method assumes"
    FAILED = "stopped because the oracle failed; this is the iterate before the failure"
    INTERRUPTED = "interrupted by the user; this is the last complete iterate"

    @property
    def ended_as_asked(self) -> bool:
        """Whether the run ended by a stopping rule or its horizon, not by a failure."""
        return self not in _UNWANTED


_UNWANTED = frozenset({Status.RUNNING, Status.DIVERGED, Status.REFUSED, Status.FAILED, Status.INTERRUPTED})


@dataclass(frozen=True, repr=False)
class History:
    """One line per row of the run (configuration-major) and recorded step, in columns.

    Attributes
    ----------
    row, k, draws, evals : arrays of int, the row, its step, its fresh samples and evaluations so far
    residual : array, the true residual; if F is not known, empty or estimated from samples
        An estimate along a run is the root of the mean of `rounds` squares, each of a mean of `samples` samples drawn
        since the line before. It is for the iterate or, for a method that averages, for the mean of the points sampled.
        Its noise is subtracted at the front doors only.
    samples, rounds, stage : arrays, see `residual`, and the number of the stage; empty if residuals are not estimated

    Examples
    --------
    >>> import dualanchor as da
    >>> da.solve(da.problems.affine(dimension=4), da.SGDA(0.1), budget=50, record=10).history
    History(11 points of 1 row, k = 0 to 50, ...)
    """

    row: IntArray
    k: IntArray
    draws: IntArray
    evals: IntArray
    residual: Array
    samples: Array = field(default_factory=lambda: np.empty(0))
    rounds: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    stage: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def from_arrays(cls, columns: Mapping[str, Array], rows: int) -> "History":
        """The history with these columns by name, checked to be one of so many rows; any error if it is not."""
        history = cls(**columns)
        for name, column in vars(history).items():
            if column.size or name not in ("residual", "samples", "rounds", "stage"):
                is_real = name in ("residual", "samples")
                check.array(column, f"history/{name}", "f" if is_real else "iu", (len(history),))
                if (column < 0).any():
                    raise ValueError(f"a history with a negative {name}")
        if len({history.samples.size, history.rounds.size, history.stage.size}) > 1:
            raise ValueError("a history with samples, rounds and stages of different length")
        if (history.row >= rows).any():
            raise ValueError(f"a history of row {history.row.max()} for {rows} rows")
        return history

    def __len__(self) -> int:
        return self.row.size

    def __repr__(self) -> str:
        if not len(self):
            return "History(0 points)"
        rows, first = np.unique(self.row, return_index=True)
        count = f"{len(self):,} point{'s' * (len(self) > 1)} of {rows.size:,} row{'s' * (rows.size > 1)}"
        ranges = [f"{name} = {of.min():,} to {of.max():,}" for name, of in (("k", self.k), ("evals", self.evals))]
        if self.residual.size:
            last = len(self) - 1 - np.unique(self.row[::-1], return_index=True)[1]
            begin, end = self.residual[first].mean(), self.residual[last].mean()
            ranges.append(f"{'mean ' * (rows.size > 1)}residual = {begin:.4g} to {end:.4g}")
        return f"History({', '.join([count, *ranges])})"

    def of(self, row: int) -> "History":
        """The history of one row, as row 0."""
        lines = self.row == row
        columns = {name: column[lines] if column.size else column for name, column in vars(self).items()}
        return History(**{**columns, "row": np.zeros_like(columns["row"])})

    def columns(self) -> dict[str, Array]:
        """The columns by name, without empty ones."""
        return {name: column for name, column in vars(self).items() if column.size or not len(self)}
