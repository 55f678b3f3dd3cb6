"""Methods run on given evaluations; the step table of a linear method, measured in this way, and its H-dual."""

from collections.abc import Callable, Sequence
from itertools import count
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

Evaluation = Callable[[int, Array], Array]
_ROUNDING = 1e-9  # relative to the terms of a point: larger differences are not rounding


class Path(NamedTuple):
    """What a method did: its iterates, and its evaluations in the order of the calls."""

    x: Array  # x_0 .. x_K, (K + 1, rows, d)
    G: Array  # the values, (evaluations, rows, d)
    points: Array  # where they were evaluated, (evaluations, rows, d)
    batches: list[Batch]  # on which; their data are the numbers of the draws


class _Recorded(Oracle):
    """An oracle that evaluates draw number k by `evaluate(k, x)`, and records every evaluation."""

    def __init__(self, evaluate: Evaluation) -> None:
        self._evaluate = evaluate
        self._draws = count()
        self.values, self.points = list[Array](), list[Array]()
        self.batches: list[Batch] = []

    def draw(self, streams: Streams, size: Any) -> Batch:
        return Batch(size, next(self._draws))

    def mean(self, x: Array, batch: Batch) -> Array:
        self.points.append(x.copy())
        self.batches.append(batch)
        value = self._evaluate(batch.data, x)
        self.values.append(value.copy())
        return value


def follow(
    method: Method, evaluate: Evaluation, x0: Array, steps: int | None = None, coins: Sequence[bool] | None = None
) -> Path:
    """Record the steps of a method from x0, (rows, d): by default all up to its horizon.

    `evaluate(k, x)` is the evaluation of draw number k at x; `coins` has the coin of each step.
    """
    oracle = _Recorded(evaluate)
    F = Session(oracle, Streams(0, np.arange(x0.shape[0]), dimension=x0.shape[1]))
    s = method.init(x0)
    xs = [s.x.copy()]
    steps = method.steps if steps is None else steps
    assert steps is not None
    for k in range(steps):
        method.step(k, s, F, None if coins is None else np.full(x0.shape[0], coins[k]))
        xs.append(s.x.copy())
    values, points = (np.array(record).reshape(-1, *x0.shape) for record in (oracle.values, oracle.points))
    return Path(np.array(xs), values, points, oracle.batches)


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


class StepTableReading(NamedTuple):
    """A step table (n, n), and the batch sizes of its n evaluations."""

    table: Array
    sizes: list[int]


def read(method: Method, horizon: int | None = None) -> StepTableReading:
    """The step table of a linear method and its batch sizes; raises for any other method."""
    steps = _steps(method, horizon)
    rng = np.random.default_rng(0)
    x0 = rng.normal(size=(1, 2))
    trial = follow(method, lambda k, x: rng.normal(size=(1, 2)), x0, steps)
    n = len(trial.batches)
    if len({batch.data for batch in trial.batches}) < n:
        raise _not_linear(method, "which evaluates one batch twice")
    units = iter(np.eye(n)[:, None])
    on_units = follow(method, lambda k, x: next(units), np.zeros((1, n)), steps)
    points, multiples = (np.concatenate([path.points[:, 0], path.x[-1]]) for path in (trial, on_units))
    multiples = -multiples  # of each value in each point, (n + 1, n)
    values = trial.G[:, 0]
    scale = np.abs(x0) + np.abs(multiples) @ np.abs(values)
    if not (np.abs(points - (x0 - multiples @ values)) <= _ROUNDING * scale).all():
        raise _not_linear(method, "whose points are not x0 minus fixed multiples of the values before")
    sizes = [int(batch.size) for batch in trial.batches]
    return StepTableReading(np.diff(multiples, axis=0) / method.step_size, sizes)


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
