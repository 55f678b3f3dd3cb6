"""Staged methods: sequences of plain methods, which the runner runs one after the other."""

from abc import abstractmethod
from typing import Any, NamedTuple

from dualanchor.core import arrays
from dualanchor.core.history import Status
from dualanchor.core.method import Method, State
from dualanchor.core.session import Session
from dualanchor.core.types import Array, IntArray

END = -1
"""What `Staged.choose` returns for a row that has no further stage."""


class Stage(NamedTuple):
    """A method, the state from which it continues, and its number of steps (None: until the method ends).

    The method may itself be staged; its state is then the memory that its own `begin` returns.

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
    """A method made of stages: each is a plain method, chosen when the stage before has ended.

    A subclass defines `begin`, `stage` and `choose`; the runner does the rest. Between stages it keeps a `memory`, a
    State with one row per run. Hyper-parameters are single numbers: configurations that differ are run one by one.

    Examples
    --------
    >>> import dualanchor as da
    >>> isinstance(da.RestartedDualOHM(0.5, horizons=(4, 8), batch_sizes=(1, 2)), da.Staged)
    True
    """

    def begin(self, x0: Array) -> State:
        """The memory before the first stage; by default, the start as `x`."""
        return State(x=arrays.copy(x0))

    @abstractmethod
    def stage(self, number: int, memory: State) -> Stage:
        """The stage with this number, for rows with this memory."""

    @abstractmethod
    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        """The number of each row's next stage, or END, after a stage ended with state s; updates the memory in place.

        Samples for the choice are drawn from F, which counts them. A row's choice must depend on that row alone.
        """

    def recover(self, number: int, memory: State) -> IntArray | None:
        """The number of each row's next stage, which may have no steps, after it diverged within this one.

        Updates the memory. None, the default, ends the run there.
        """
        return None

    def point(self, number: int, memory: State, s: State) -> Array:
        """The points that are returned if the run ends within this stage, (rows, d)."""
        return s.x

    def steps_within(self, budget: int) -> int | None:
        """About how many steps a budget of evaluations pays for; None if unknown."""
        return None

    def observed(self, memory: State) -> Array | None:
        """Residuals estimated by the last choice, one per row, for the history; None if there are none."""
        return None

    def outcome(self, memory: State) -> list[Status]:
        """The status of each row that has no further stage."""
        return [Status.HORIZON] * len(memory.x)

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        raise NotImplementedError(f"{type(self).__name__} takes the steps of its stages")
