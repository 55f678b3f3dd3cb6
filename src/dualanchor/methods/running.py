"""What methods share whose iterate runs beside the point that they return."""

from __future__ import annotations

from typing import Any

from dualanchor.core import arrays
from dualanchor.core.method import Method, State
from dualanchor.core.oracle import Session
from dualanchor.core.types import Array


class Running(Method):
    """One estimate of F per step, at the running iterate `y`; `x` is the point returned if the run ends now."""

    def init(self, x0: Array) -> State:
        s = super().init(x0)
        s.y = arrays.copy(x0)
        return s

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        estimator = self.estimator_in_use
        assert estimator is not None
        self.update(k, s, estimator.estimate(k, State(x=s.y), F, self.horizon, coin))
