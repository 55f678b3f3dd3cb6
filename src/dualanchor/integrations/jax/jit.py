"""`solve` on a sampler written in JAX: Dual-OHM compiled as a whole run, other methods by many steps at a time."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method, State
from dualanchor.core.problem import Constants, Problem, as_point, as_reals
from dualanchor.core.result import History, Result, Status, jsonable
from dualanchor.core.schedule import BatchSize, Constant, as_schedule
from dualanchor.core.session import moderate
from dualanchor.front.layout import Layout
from dualanchor.integrations.jax.transformations import updated
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.oracles.jax_function import wants_generator
from dualanchor.oracles.jax_sampler import JaxSampler
from dualanchor.run.outcome import assemble
from dualanchor.run.record import DEFAULT_POINTS
from dualanchor.run.rows import Ended
from dualanchor.run.solve import solve

_WORD = (1 << 32) - 1  # the largest seed that JAX takes at once


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
    """Run a method on a sampler written in JAX, compiled.

    Parameters
    ----------
    sample : callable
        `sample(x, n, key)`: the mean of n independent samples of F at x, a pure function of JAX arrays. With one batch
        size n is a Python int. With a schedule it is a traced number of x's dtype, which cannot be used as a shape:
        such a sampler draws means of n samples at once, like Gaussian noise divided by the root of n.
    x0 : array or Result
        The start, of any shape, or a run that is continued from its end, with one replication or `reps` of them.
    method : Method or str, optional
        Any method, with a `budget` and `constants` if it needs them: the run is that of `solve`, compiled by many steps
        at a time. By default `DualOHM` with the next three, compiled as a whole run.
    step_size, horizon, batch_size : as in `DualOHM`
    budget, constants : as in `solve` and `Problem`, with a `method`
    seed : int, step k of replication r gets the key of (seed, r, k)
    reps : int, independent replications, computed side by side by `jax.vmap`
    noise : pytree of arrays, optional
        What `sample` gets instead of keys: entry k of each array in step k. The leading axes are (horizon - 1,), or
        (reps, horizon - 1) with several replications.
    operator : callable, the true F(x) where it is known: residuals are then recorded
    record : int, the number of points at which they are recorded

    Returns
    -------
    Result
        As from `solve`, with x in the shape of x0, or (reps, *shape). A replication whose sampler gives NaN at a
        moderate point stops there: its status is FAILED, and a finding has the step.

    Notes
    -----
    It is compiled once for each function, step size, horizon and shape, so define `sample` once. Precision is that of
    x0; doubles need `jax_enable_x64`.

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
    start = jnp.asarray(_starts(x0, reps))
    if method is None:
        dual = DualOHM(step_size, horizon, batch_size)
        return _run_dual_ohm(sample, start, dual, seed, noise, operator, record)
    if step_size is not None or horizon is not None:
        rule = "solve_jit: step_size and horizon belong to Dual-OHM, where no method is given"
        raise ArgumentError(rule, "both and a method", "Pass them to the method, as SGDA(step_size=0.1)")
    layout, _ = Layout.of(start[0], "solve_jit")
    flat = start.reshape(reps, -1)
    noise = _by_replication(noise, reps)
    oracle = JaxSampler(sample, flat[0], form=layout, noise=noise, operator=operator, name="solve_jit: sample")
    problem = Problem(oracle, flat[0], constants=constants, name=_name(sample))
    result = solve(problem, method, budget=budget, seed=seed, reps=reps, x0=flat, record=record)
    return replace(result, x=layout.split(result.x))


def _run_dual_ohm(sample: Any, start: Any, dual: DualOHM, seed: int, noise: Any, operator: Any, record: int) -> Result:
    """The run from the points `start` (reps, *shape), one for each replication."""
    reps, steps = len(start), dual.horizon - 1
    shape = () if reps == 1 else (reps,)
    axes = (*shape, steps)
    for found in map(np.shape, jax.tree.leaves(noise)):
        if found[: len(axes)] != axes:
            rule = f"solve_jit: noise must have the leading axes {axes}, one entry for each step"
            raise ArgumentError(rule, f"shape {found}", "Pass reps and horizon to match")
    noise = _by_replication(noise, reps)
    schedule = as_schedule(dual.batch_size, "solve_jit", dual.horizon)
    n = schedule.value if isinstance(schedule, Constant) else None
    sizes = np.broadcast_to(np.asarray(schedule.size(np.arange(steps), dual.horizon)), (steps,))
    traced_sizes = jnp.asarray(sizes, start.dtype) if n is None else None
    points = np.linspace(0, steps, record + 1) if operator and record else np.array([steps])
    points = np.unique(points.round().astype(int))
    keys = _keys(seed, reps)

    def run(checked: bool) -> list[Any]:
        fixed = Fixed(sample, operator, DualOHM(dual.step_size, dual.horizon), n, checked)
        ends = _run(jnp.array(start), keys, noise, traced_sizes, jnp.asarray(points), fixed)
        return [np.array(values) for values in ends]

    ends = run(checked=False)
    unbounded = ~np.isfinite(ends[0].reshape(reps, -1)).all(axis=1)
    if unbounded.any():  # once more, to find out whether the sampler failed or the run diverged
        for end, end_checked in zip(ends, run(checked=True), strict=True):
            end[unbounded] = end_checked[unbounded]
    x, z, k, residuals = ends

    s = State(x=x.reshape(reps, -1), z=z.reshape(reps, -1))
    with np.errstate(over="ignore", invalid="ignore"):
        bounded = np.isfinite(np.einsum("ij,ij->i", s.x, s.x))
    failed = k < steps
    diverged = ~failed & ~bounded
    status = np.full(reps, Status.HORIZON, dtype=object)
    status[diverged], status[failed] = Status.DIVERGED, Status.FAILED
    s.x[diverged] = np.asarray(start).reshape(reps, -1)[diverged]

    draws = np.concatenate([[0], np.cumsum(sizes)])  # after each number of steps
    curve = np.where(np.isfinite(residuals), residuals, np.inf).astype(float)
    curve[~bounded, -1] = np.inf
    recorded = np.minimum(points, k[:, None])  # (reps, points): a failed replication stays at its last step
    is_line = np.diff(recorded, axis=1, prepend=-1) > 0
    rows, at = np.repeat(np.arange(reps), is_line.sum(axis=1)), recorded[is_line]
    history = History(rows, at, draws[at], draws[at], np.empty(0) if operator is None else curve[is_line])
    last = None if operator is None else curve[:, -1]
    ended = Ended(np.arange(reps), s, k, draws[k], draws[k], status.tolist(), last)
    problem = {"name": _name(sample), "dimension": s.x.shape[1]}
    about = {"problem": problem, "method": jsonable(dual.describe()), "seed": seed}
    result = assemble([ended], curve[:, 0] if operator and record else None, history, shape, about, None)
    findings = result.findings
    if failed.any():
        row = int(np.flatnonzero(failed)[0])
        where = {"step": k[row], "replication": row, "norm": np.linalg.norm(s.x[row])}
        findings += (Finding.of("nan-from-sample", **where, others=np.count_nonzero(failed) - 1),)
    return replace(result, x=result.x.reshape(shape + start.shape[1:]), findings=findings)


def _keys(seed: int, reps: int) -> Any:
    """The keys of all replications, (reps,); a seed of any length is folded in word by word."""
    key = jax.random.key(seed & _WORD)
    for shift in range(32, seed.bit_length(), 32):
        key = jax.random.fold_in(key, seed >> shift & _WORD)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(reps))


def _by_replication(noise: Any, reps: int) -> Any:
    """The noise with a first axis for replications, which that of a single run does not have."""
    return noise if reps > 1 else jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], noise)


def _name(sample: Any) -> str:
    return getattr(sample, "__name__", "sample")


class Fixed(NamedTuple):
    """The values for which a run is compiled."""

    sample: Any
    operator: Any
    method: DualOHM
    n: int | None  # None where batch sizes differ
    checked: bool  # whether a replication stops where `sample` returns NaN at a moderate point


def _all_steps(x: Any, keys: Any, noise: Any, sizes: Any, points: Any, fixed: Fixed) -> tuple[Any, Any, Any, Any]:
    """Every replication from its start to its last iterate: x, z, the steps taken, and the residuals at the points."""
    sample, operator, method, n, checked = fixed

    def run(x: Any, key: Any, noise: Any) -> tuple[Any, Any, Any, Any]:
        def step(k: Any, carry: Any) -> Any:
            x, z, taken = carry
            source = jax.random.fold_in(key, k) if noise is None else jax.tree.map(lambda leaf: leaf[k], noise)
            G = _estimate(sample, x, n if sizes is None else sizes[k], source)
            s = updated(method, k, G, x=x, z=z)
            if not checked:
                return s.x, s.z, taken + 1
            failed = jnp.isnan(G).any() & (jnp.abs(x).max() < moderate(x.dtype))
            active = (taken == k) & ~failed
            return jnp.where(active, s.x, x), jnp.where(active, s.z, z), taken + active

        def segment(carry: Any, ends: Any) -> tuple[Any, Any]:
            if method.horizon > 1:  # else there are no batch sizes and no noise to look up
                carry = jax.lax.fori_loop(*ends, step, carry)
            return carry, 0.0 if operator is None else jnp.linalg.norm(jnp.ravel(operator(carry[0])))

        ends = jnp.concatenate([jnp.zeros_like(points[:1]), points[:-1]]), points
        carry, residuals = jax.lax.scan(segment, (x, jnp.zeros_like(x), jnp.zeros([], points.dtype)), ends)
        return *carry, residuals

    return jax.vmap(run)(x, keys, noise)


_run: Any = jax.jit(_all_steps, static_argnames="fixed", donate_argnames="x")


def _estimate(sample: Any, x: Any, n: Any, source: Any) -> Any:
    """F_B(x) by the user's function, of the shape and dtype of x."""
    try:
        value = sample(x, n, source)
    except AttributeError as error:
        if not wants_generator(error):
            raise
        rule = "solve_jit: sample gets a JAX key as third argument, not a Generator"
        remedy = "Draw with jax.random, for instance jax.random.normal(key, x.shape)"
        raise OracleError(rule, f"a call of {error.name} on it", remedy) from error
    if value is None or jnp.shape(value) != x.shape:
        received = "None" if value is None else f"shape {jnp.shape(value)} for x of shape {x.shape}"
        rule = "solve_jit: sample must return F_B(x) with the shape of x"
        raise OracleError(rule, received, "Return the mean of the n samples, not each of them")
    return jnp.asarray(value, x.dtype)


def _starts(x0: Any, reps: int) -> Any:
    """The starts of all replications, (reps, *shape)."""
    x = x0.x if isinstance(x0, Result) else x0
    if as_reals(x) is None:
        remedy = "Pass an array of floats; jax.flatten_util.ravel_pytree makes one of a pytree"
        raise ArgumentTypeError("solve_jit: x0 must be an array of real numbers", repr(type(x).__name__), remedy)
    start = as_point(np.ravel(x), "solve_jit: x0").reshape(np.shape(x))
    if not isinstance(x0, Result) or x0.shape == ():
        return np.broadcast_to(start, (reps, *start.shape))
    if x0.shape != (reps,):
        rule = f"solve_jit: a Result to start from must have one replication, or reps = {reps} of them"
        raise ArgumentError(rule, f"one of shape {x0.shape}", "Pass as many reps, or one of its points")
    return start
