"""`solve` on a sampler written in JAX: many steps in one call of compiled code."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.method import Method
from dualanchor.core.problem import Constants, Problem, as_point, as_reals
from dualanchor.core.result import Result
from dualanchor.core.schedule import BatchSize
from dualanchor.core.types import Array
from dualanchor.front.layout import Layout, on_host
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.oracles.jax_sampler import JaxSampler
from dualanchor.run.record import DEFAULT_POINTS
from dualanchor.run.solve import solve


def solve_jit(
    sample: Callable[[Any, Any, Any], Any],
    x0: Any,
    method: Method | str | None = None,
    *,
    step_size: float | None = None,
    horizon: int | None = None,
    batch_size: BatchSize = 1,
    budget: int | None = None,
    constants: Constants | None = None,
    seed: int = 0,
    reps: int = 1,
    noise: Any = None,
    operator: Callable[[Any], Any] | None = None,
    record: int = DEFAULT_POINTS,
) -> Result:
    """Run a method on a sampler written in JAX, compiled: `solve` on a `JaxSampler`, for points of any shape.

    Parameters
    ----------
    sample : callable
        `sample(x, n, key)`: the mean of n independent samples of F at x, a pure function of JAX arrays. n is a traced
        number of x's dtype if the function accepts that, else an int.
    x0 : array or Result
        The start, of any shape, or a run that is continued from its end, with one replication or `reps` of them.
    method : Method or str, optional
        Any method; by default `DualOHM` with the next three.
    step_size, horizon, batch_size : as in `DualOHM`
    budget, constants : as in `solve` and `Problem`
    seed : int, everything random follows from it
    reps : int, independent replications, computed side by side by `jax.vmap`
    noise : pytree of arrays, optional
        What `sample` gets instead of keys: entry k of each array for batch k. The first axis is that of the batches, or
        with several replications the first two are (reps, batches). Dual-OHM has horizon - 1 batches.
    operator : callable, the true F(x) where it is known: residuals are then recorded
    record : int, the number of points at which they are recorded

    Returns
    -------
    Result
        As from `solve`, with x in the shape of x0, or (reps, *shape). A sampler that gives NaN at a moderate point is
        an OracleError, with the step and the `result` so far.

    Notes
    -----
    It is compiled once for each function and shape, so define `sample` once. Precision is that of x0; doubles need
    `jax_enable_x64`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from dualanchor.integrations.jax import solve_jit
    >>> def sample(x, n, key):
    ...     return x - 1 + 0.1 * jax.random.normal(key, x.shape) / n**0.5
    >>> result = solve_jit(sample, jnp.zeros(3), step_size=1.0, horizon=100, batch_size=4, reps=5)
    >>> result.x.shape, result.nfev.tolist(), result.message
    ((5, 3), [396, 396, 396, 396, 396], 'reached its horizon')
    """
    check.function(sample, "solve_jit: sample", "sample(x, n, key)", 3)
    if operator is not None:
        check.function(operator, "solve_jit: operator", "F(x)", 1)
    seed = check.count(seed, "solve_jit: seed", 0, most=inf)
    reps = check.count(reps, "solve_jit: reps")
    record = check.count(record, "solve_jit: record", 0)
    steps: tuple[int, ...] = ()  # an axis of the noise, where their number is known
    if method is None:
        method = DualOHM(step_size, horizon, batch_size)
        steps = (method.horizon - 1,)
    elif (step_size, horizon, batch_size) != (None, None, 1):
        rule = "solve_jit: step_size, horizon and batch_size belong to Dual-OHM, where no method is given"
        raise ArgumentError(rule, "one of them and a method", "Pass them to the method, as SGDA(step_size=0.1)")
    start = _starts(x0, reps)
    layout, first = Layout.of(start[0], "solve_jit")
    noise = _by_replication(noise, reps, steps)
    oracle = JaxSampler(sample, first, form=layout, noise=noise, operator=operator, name="solve_jit: sample")
    problem = Problem(oracle, first, constants=constants, name=getattr(sample, "__name__", "sample"))
    points = 0 if operator is None else record
    flat = on_host(oracle, start.reshape(reps, -1))
    try:
        result = solve(problem, method, budget=budget, seed=seed, reps=reps, x0=flat, record=points)
    except OracleError as error:
        if error.result is not None:
            error.result = replace(error.result, x=layout.split(error.result.x))
        raise
    return replace(result, x=layout.split(result.x))


def _by_replication(noise: Any, reps: int, steps: tuple[int, ...]) -> Any:
    """The noise with the leading axes (reps, *steps), of which that of a single run has no first one."""
    axes = steps if reps == 1 else (reps, *steps)
    for found in map(np.shape, jax.tree.leaves(noise)):
        if found[: len(axes)] != axes:
            rule = f"solve_jit: noise must have the leading axes {axes}, one entry for each step"
            raise ArgumentError(rule, f"shape {found}", "Pass reps and horizon to match")
    return noise if reps > 1 else jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], noise)


def _starts(x0: Any, reps: int) -> Array:
    """The starts of all replications, (reps, *shape)."""
    given = x0.x if isinstance(x0, Result) else x0
    if as_reals(given) is None:
        remedy = "Pass an array of floats; jax.flatten_util.ravel_pytree makes one of a pytree"
        raise ArgumentTypeError("solve_jit: x0 must be an array of real numbers", repr(type(given).__name__), remedy)
    point = given if arrays.is_jax(given) else np.asarray(given)
    start = as_point(point.reshape(-1), "solve_jit: x0").reshape(point.shape)
    if not isinstance(x0, Result) or x0.shape == ():
        return arrays.namespace(start).broadcast_to(start, (reps, *start.shape))
    if x0.shape != (reps,):
        rule = f"solve_jit: a Result to start from must have one replication, or reps = {reps} of them"
        raise ArgumentError(rule, f"one of shape {x0.shape}", "Pass as many reps, or one of its points")
    return start
