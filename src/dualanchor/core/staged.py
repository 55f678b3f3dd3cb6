"""Staged methods: plain methods one after the other, which the runner runs."""

from abc import abstractmethod
from typing import Any, NamedTuple

from dualanchor.core import arrays
from dualanchor.core.history import Status
from dualanchor.core.method import Method, State
from dualanchor.core.session import Session
from dualanchor.core.types import Array, IntArray

END = -1
"""What `Staged.choose` gives for a row that has no further stage."""


class Stage(NamedTuple):
    """A method, the state from which it continues, and how many of its steps are taken (None: until it ends itself).

    The method may be staged, too; its state is then what its own `begin` gives.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> method = da.SGDA(0.1)
    >>> da.Stage(method, method.init(np.zeros((1, 2))), 10).steps
    10
    """

    method: Method
    state: State
    steps: int | None


class Staged(Method):
    """A method made of stages: plain methods one after the other, each chosen by where the one before ended.

    A subclass gives `begin`, `stage` and `choose`; the runner does the rest. Its hyper-parameters are single numbers:
    configurations that differ are run one by one.

    Examples
    --------
    >>> import dualanchor as da
    >>> isinstance(da.RestartedDualOHM(0.5, horizons=(4, 8), batch_sizes=(1, 2)), da.Staged)
    True
    """

    def begin(self, x0: Array) -> State:
        """What passes from stage to stage, one row per run: at first the start, as `x`."""
        return State(x=arrays.copy(x0))

    @abstractmethod
    def stage(self, number: int, memory: State) -> Stage:
        """The stage with this number, which starts from the memory of its rows."""

    @abstractmethod
    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        """The number of each row's next stage, or END, after a stage ended with state s; updates the memory.

        Samples that the choice needs are drawn from F and counted there. A row's choice depends on that row alone.
        """

    def point(self, number: int, memory: State, s: State) -> Array:
        """What is returned for each row if the run ends within this stage."""
        return s.x

    def steps_within(self, budget: int) -> int | None:
        """How many steps a budget of evaluations pays for, about; None if that is not known."""
        return None

    def observed(self, memory: State) -> Array | None:
        """Residuals that the last choice has estimated, one per row, for the history."""
        return None

    def outcome(self, memory: State) -> list[Status]:
        """The status of each row that has no further stage."""
        return [Status.HORIZON] * len(memory.x)

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        raise NotImplementedError(f"{type(self).__name__} takes the steps of its stages")
