"""Step tables: the coefficients of a linear method, measured by running it, and the H-dual of a table."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import check
from dualanchor.core.check import LARGEST_COUNT
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Method
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.session import Session
from dualanchor.core.staged import Staged
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array

_ROUNDING = 1e-9  # relative to the terms of a point: larger differences are not rounding


def step_table(method: Method, horizon: int | None = None) -> Array:
    r"""The step table H of a linear method: its coefficients in units of the step size.

    .. math:: p_{i+1} = p_i - \alpha \sum_{j \le i} H_{ij} F_{B_j}(p_j), \qquad p_0 = x_0

    The points p are those that the method evaluates, in this order, and last the one that it returns. With one
    evaluation per step they are the iterates; a two-evaluation method such as `FEG` has two rows per step.
    The table is measured by running the method's own `step` on prescribed values.

    Parameters
    ----------
    method : Method with fixed coefficients and fresh batches: no coins, no stages, nothing adaptive
    horizon : int, optional; the table is that of the first horizon - 1 steps. By default the method's own

    Returns
    -------
    array (n, n), lower triangular, n the evaluations in horizon - 1 steps

    Examples
    --------
    >>> import dualanchor as da
    >>> da.theory.step_table(da.OHM(step_size=0.7), 4).round(3)
    array([[ 0.5  ,  0.   ,  0.   ],
           [-0.167,  0.667,  0.   ],
           [-0.083, -0.167,  0.75 ]])
    """
    return read(method, horizon).table


def anti_transpose(table: Array) -> Array:
    """The H-dual of a table (n, n): its reflection in the anti-diagonal, entry (i, j) at (n - 1 - j, n - 1 - i)."""
    return table[::-1, ::-1].T


class Reading(NamedTuple):
    """A step table (n, n), and the batch sizes of its n evaluations."""

    table: Array
    sizes: list[int]


def read(method: Method, horizon: int | None = None) -> Reading:
    """The step table of a linear method and its batch sizes; raises for any other method."""
    steps = _steps(method, horizon)
    rng = np.random.default_rng(0)
    x0 = rng.normal(size=(1, 2))
    trial = _run(method, steps, x0, lambda j: rng.normal(size=(1, 2)))
    n = len(trial.batches)
    if len({batch.data for batch in trial.batches}) < n:
        raise _not_linear(method, "which evaluates one batch twice")
    unit_values = _run(method, steps, np.zeros((1, n)), lambda j: np.eye(1, n, j))
    multiples = -np.concatenate(unit_values.points)  # of each value in each point, (n + 1, n)
    values = np.concatenate(trial.values)
    scale = np.abs(x0) + np.abs(multiples) @ np.abs(values)
    if not (np.abs(np.concatenate(trial.points) - (x0 - multiples @ values)) <= _ROUNDING * scale).all():
        raise _not_linear(method, "whose points are not x0 minus fixed multiples of the values before")
    sizes = [int(batch.size) for batch in trial.batches]
    return Reading(np.diff(multiples, axis=0) / method.step_size, sizes)


class _Prescribed(Oracle):
    """Returns a prescribed value (1, d) for evaluation j, whatever the point, and records point, value and batch."""

    def __init__(self, respond: Callable[[int], Array]) -> None:
        self.respond = respond
        self.drawn = 0
        self.points: list[Array] = []
        self.values: list[Array] = []
        self.batches: list[Batch] = []

    def draw(self, streams: Streams, size: Any) -> Batch:
        self.drawn += 1
        return Batch(size, self.drawn)

    def mean(self, x: Array, batch: Batch) -> Array:
        self.points.append(x.copy())
        self.batches.append(batch)
        self.values.append(self.respond(len(self.values)))
        return self.values[-1].copy()


def _run(method: Method, steps: int, x0: Array, respond: Callable[[int], Array]) -> _Prescribed:
    """The record of `steps` steps from x0 (1, d); the last point is the one that the method returns."""
    oracle, s = _Prescribed(respond), method.init(x0)
    F = Session(oracle, Streams(0, np.arange(1), dimension=x0.shape[1]))
    for k in range(steps):
        method.step(k, s, F)
    oracle.points.append(s.x)
    return oracle


def _steps(method: Method, horizon: int | None) -> int:
    """The number of steps to run; raises for methods that declare a non-linear part."""
    if not isinstance(method, Method):
        raise ArgumentTypeError("step_table: method must be a Method", repr(method), "Use OHM(step_size=0.1)")
    if isinstance(method, Staged):
        raise _not_linear(method, "which is made of stages")
    if getattr(method, "prox", None) is not None:
        raise _not_linear(method, "which has a prox")
    if method.needs or method.probability(0) is not None:
        raise _not_linear(method, "whose estimates of F are not means of fresh batches")
    check.number(method.step_size, "step_table: the method's step_size", positive=True, remedy="Use a single number")
    if horizon is None and method.steps is None:
        remedy = "Pass horizon=N for the table of N - 1 steps"
        raise ArgumentError("step_table: an anytime method needs a horizon", "horizon=None", remedy)
    own = LARGEST_COUNT if method.steps is None else method.steps + 1
    return check.count(own if horizon is None else horizon, "step_table: horizon", 2, most=own) - 1


def _not_linear(method: Method, why: str) -> ArgumentError:
    rule = "step_table: method must be linear, with fixed coefficients and a fresh batch per evaluation"
    return ArgumentError(rule, f"{type(method).__name__}, {why}", "Use one such as OHM, DualOHM, SGDA, SEG or FEG")
