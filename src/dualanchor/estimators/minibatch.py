"""The mean of a fresh batch."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core.method import Cost, Estimator, State
from dualanchor.core.schedule import Schedule, as_schedule
from dualanchor.core.session import Session
from dualanchor.core.types import Array


@dataclass(frozen=True)
class Minibatch(Estimator):
    r"""The mean of a fresh batch: :math:`G_k = F_{B_k}(x_k)`.

    Unbiased, with variance at most :math:`\sigma^2/B_k` under Assumption 3.1.

    Parameters
    ----------
    batch_size : int, Schedule or list of int; :math:`B_k` draws and evaluations in round k

    Examples
    --------
    >>> import dualanchor as da
    >>> da.Minibatch(8).cost(0, None, None)
    Cost(draws=8, evals=8)
    """

    batch_size: Any = 1

    def __post_init__(self) -> None:
        if isinstance(self.batch_size, np.ndarray) and self.batch_size.ndim == 1:
            object.__setattr__(self, "batch_size", self.batch_size.tolist())
        as_schedule(self.batch_size, "Minibatch", horizon=1)

    def check_rounds(self, horizon: Any, rounds: int | None, owner: str) -> None:
        as_schedule(self.batch_size, owner, horizon, rounds)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that `batch_size` stands for."""
        return as_schedule(self.batch_size, "Minibatch", horizon=1)

    def cost(self, k: Any, horizon: Any, coin: Any) -> Cost:
        size = self.schedule.size(k, horizon)
        return Cost(size, size)

    def estimate(self, k: int, s: State, F: Session, horizon: Any, coin: Any) -> Array:
        size = self.batch_size  # the plain int is the common case
        if not isinstance(size, int):
            size = self.schedule.size(k, horizon)
            size = size[:, 0] if isinstance(size, np.ndarray) else size
        return F.fresh(s.x, size)
