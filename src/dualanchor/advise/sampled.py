"""Open a session for the oracle and the points that `certify`, `certify_gap`, `infer` and `calibrate` receive."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.oracle import Oracle, require_dimension
from dualanchor.core.problem import Problem, as_point
from dualanchor.core.result import Result
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.oracles.layout import Layout, of_function, require_tuple
from dualanchor.oracles.sampler import Sampler

Source: TypeAlias = Oracle | Problem | Callable[..., Any]  # whatever samples can be drawn from


def open_samples(
    oracle: Source,
    x: Any,
    *,
    seed: int,
    purpose: Purpose,
    owner: str,
    args: Sequence[Any] = (),
    one_point: bool = False,
) -> tuple[Session, Array, bool]:
    """A session, points (rows, d), and whether x is a single point.

    x is a number, a point (d,), points (rows, d), a Result, a tree of arrays or a module, or None for a problem's
    start. A function gets the form of x, an oracle the vector of its numbers. The random parts of a problem are those
    of `solve` for the Result's seed, or for `seed`, row r as replication r. `owner` is the public function that error
    messages name. `args` are passed to a function. With `one_point` an array for a function is one point of any shape.
    """
    point, instance_seed = (x.x, x.seed) if isinstance(x, Result) else (x, seed)
    require_tuple(args, owner)
    if len(args) and isinstance(oracle, (Oracle, Problem)):
        rule, remedy = f"{owner}: args are passed to a function sample(x, n, rng, *args)", "Leave them out"
        raise ArgumentTypeError(rule, f"args and a {type(oracle).__name__}", remedy)
    if point is None and not isinstance(oracle, Problem):
        rule = f"{owner}: x can be left out only where the oracle is a Problem"
        raise ArgumentTypeError(rule, "no point", "Pass x=...")
    layout = None  # of a point that is not given as a vector
    if (tree := Layout.of_points(x, owner)) is not None:
        layout, point = tree
    elif point is not None:
        is_one = x.shape == () if isinstance(x, Result) else one_point and not isinstance(oracle, (Oracle, Problem))
        shape = _shape(point)
        if len(shape) == 0 or (is_one and len(shape) > 1):
            layout = Layout(0, (shape,))
            point = point.reshape(-1) if arrays.is_foreign(point) else np.reshape(point, -1)
    takes_vectors = isinstance(oracle, Sampler) and layout is not None
    dimension = None
    if isinstance(oracle, Problem):
        rows = _rows(_shape(point))
        oracle, start, _ = oracle.instance(Streams(instance_seed, np.arange(rows), Purpose.INSTANCE))
        dimension = start.shape[1]
        point = start[0] if point is None else point
    shape = _shape(point)
    if len(shape) not in (1, 2) or 0 in shape:
        remedy = "Pass that of one configuration, as result.x[0]" if len(shape) == 3 else "Reshape it"
        raise ArgumentError(f"{owner}: x must be a point (d,) or points (rows, d)", f"shape {shape}", remedy)
    if not isinstance(oracle, Oracle):
        if not callable(oracle):
            rule = f"{owner}: oracle must be an Oracle, a Problem or a function sample(x, n, rng)"
            raise ArgumentTypeError(rule, type(oracle).__name__, "Wrap it in Sampler, AdditiveNoise or FiniteSum")
        one = point[0] if len(shape) > 1 else point
        layout = Layout(0, (_shape(one),)) if layout is None else layout
        oracle = of_function(owner, oracle, layout, one, args)
    rows, single = _rows(shape), len(shape) == 1
    dimension = shape[-1] if dimension is None else dimension
    point = as_point(point, f"{owner}: x", dimension, None if single else rows)
    require_dimension(oracle, dimension, f"{owner}: x")
    points = arrays.tile(point, rows)
    sessions = (Session(oracle, Streams(seed, np.arange(rows), purpose, dimension, points.dtype)) for _ in range(2))
    if takes_vectors:
        _require_function_of_vectors(next(sessions), points, owner)
    return next(sessions), points, single


def _require_function_of_vectors(F: Session, points: Array, owner: str) -> None:
    """Raise unless one sample at the points succeeds, for which the function of a Sampler gets vectors."""
    try:
        F.fresh(points, 1)
    except OracleError as error:
        rule = f"{owner}: the function of a Sampler gets points as vectors, unless the Sampler has their shape"
        remedy = "Pass the function itself, which gets points in the form of x"
        raise OracleError(rule, error.parts[1], remedy, error.row) from error


def _rows(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) == 2 else 1


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of what may be an array; (1,) for ragged lists, which `as_point` rejects."""
    try:
        return tuple(np.shape(value))
    except ValueError:
        return (1,)
