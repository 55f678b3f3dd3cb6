"""Oracles that watch how they are used."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

import dualanchor as da


class Watched(da.Oracle):
    """Another oracle, with every call written down: who drew and evaluated how much.

    Counts are sums over rows. `log.fail_at` makes the j-th evaluation raise; `log.broken` makes all of them raise.
    """

    def __init__(self, inner: da.Oracle, rows: int | None = None) -> None:
        self._inner, self._rows = inner, rows
        self.log = Log()
        self.components, self.mixed_sizes = inner.components, inner.mixed_sizes
        self.operator_price = inner.operator_price
        self.replayable = inner.replayable

    def draw(self, streams: Any, size: Any) -> da.Batch:
        self.log.draws += int(np.sum(np.broadcast_to(size, (streams.rows,))))
        return self._inner.draw(streams, size)

    def mean(self, x: Any, batch: da.Batch) -> Any:
        self.log.calls += 1
        if self.log.broken or self.log.calls == self.log.fail_at:
            raise ZeroDivisionError("a defect of the oracle")
        self.log.evals += int(np.sum(np.broadcast_to(batch.size, (x.shape[0],))))
        return self._inner.mean(x, batch)

    def full_batch(self) -> da.Batch:
        return self._inner.full_batch()

    def operator(self, x: Any) -> Any:
        self.log.looks += 1
        return self._inner.operator(x)

    def take(self, rows: Any) -> Watched:
        part = copy(self)
        part._inner = self._inner.take(rows)
        return part


class Log:
    """What a Watched oracle and all its restrictions have seen."""

    def __init__(self) -> None:
        self.calls = self.draws = self.evals = self.looks = 0
        self.fail_at: int | None = None
        self.broken = False


class WatchedProblem(da.Problem):
    """A problem whose oracle is watched; the log is `problem.log`."""

    def __init__(self, inner: da.Problem) -> None:
        self.inner = inner
        self.log = Log()

    def instance(self, streams: Any) -> Any:
        instance = self.inner.instance(streams)
        oracle = Watched(instance.oracle)
        oracle.log = self.log
        return instance._replace(oracle=oracle)

    name = property(lambda self: self.inner.name)
    dimension = property(lambda self: self.inner.dimension)
    components = property(lambda self: self.inner.components)
    constants = property(lambda self: self.inner.constants)
    step_size = property(lambda self: self.inner.step_size)

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()
