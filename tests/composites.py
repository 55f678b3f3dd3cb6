"""Inclusions 0 in F(x) + G(x) as problems in z, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dualanchor as da
from dualanchor.core.problem import Instance
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.oracles.composite import Composite


class InclusionProblem(da.Problem):
    """Solved for z; each replication starts from its own z0 = x0 - step F_B0(x0), B0 = `first_batch`."""

    def __init__(
        self, oracle: da.Oracle, prox: Callable[[Array, Any], Any], step: float, x0: Array, first_batch: int = 1
    ) -> None:
        super().__init__(Composite(oracle, prox, step), x0, constants=da.Constants(L=2 / step), step_size=step)
        self.first_batch = first_batch

    def instance(self, streams: da.Streams) -> Instance:
        found = super().instance(streams)
        x0 = found.x0
        first = da.Streams(streams.seed, streams.replications, Purpose.FIRST_BATCH, x0.shape[1], x0.dtype)
        assert isinstance(found.oracle, Composite)
        return found._replace(x0=found.oracle.start(x0, first, self.first_batch))
