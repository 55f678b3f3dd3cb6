"""A run of Dual-OHM that JAX compiles as a whole."""

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
from dualanchor.oracles.jax_sampler import JaxSampler
from dualanchor.run.outcome import assemble
from dualanchor.run.record import DEFAULT_POINTS
from dualanchor.run.rows import Ended
from dualanchor.run.solve import solve

_WORD = (1 << 32) - 1  # bits of a seed that JAX takes


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
    """Run a method on a sampler written in JAX, compiled: Dual-OHM as a whole, others by many steps at a time.

    Parameters
    ----------
    sample : callable
        `sample(x, n, key)`: the mean of n independent samples of F at x, a pure function of JAX arrays. With one batch
        size n is a Python int. With a schedule it is a traced number of x's dtype, which cannot be used as a shape:
        such a sampler draws means of n samples at once, like Gaussian noise divided by the root of n.
    x0 : array or Result, the start, of any shape, or a run whose end it is, with one replication or as many
    method : Method or str, optional
        Any method, with a `budget` and `constants` if it needs them: its steps are compiled, stage by stage where it
        has stages, and the run is that of `solve`. By default `DualOHM` with the next three.
    step_size, horizon, batch_size : as in `DualOHM`
    budget, constants : as in `solve` and `Problem`, with a `method`
    seed : int, step k of replication r gets the key of (seed, r, k)
    reps : int, independent replications, computed side by side by `jax.vmap`
    noise : pytree of arrays, optional
        What `sample` gets instead of keys: entry k of each array in step k. The leading axes are (horizon - 1,), or
        (reps, horizon - 1) with several replications.
    operator : callable, the true F(x) where it is known: residuals are then recorded
    record : int, at how many points

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
    reps, record = check.count(reps, "solve_jit: reps"), check.count(record, "solve_jit: record", 0)
    start = jnp.asarray(_starts(x0, reps))
    if method is not None:
        if step_size is not None or horizon is not None:
            rule = "solve_jit: step_size and horizon belong to Dual-OHM, where no method is given"
            raise ArgumentError(rule, "both and a method", "Pass them to the method, as SGDA(step_size=0.1)")
        return _solved(sample, start, method, budget, constants, seed, reps, noise, operator, record)
    dual = DualOHM(step_size, horizon, batch_size)
    steps = dual.horizon - 1
    point, shape = start.shape[1:], () if reps == 1 else (reps,)
    axes = (*shape, steps)
    for found in map(np.shape, jax.tree.leaves(noise)):
        if found[: len(axes)] != axes:
            rule = f"solve_jit: noise must have the leading axes {axes}, one entry for each step"
            raise ArgumentError(rule, f"shape {found}", "Pass reps and horizon to match")
    schedule = as_schedule(batch_size, "solve_jit", dual.horizon)
    n = schedule.value if isinstance(schedule, Constant) else None
    sizes = np.broadcast_to(np.asarray(schedule.size(np.arange(steps), dual.horizon)), (steps,))
    draws = np.concatenate([[0], np.cumsum(sizes)])
    points = np.linspace(0, steps, record + 1) if operator and record else np.array([steps])
    points = np.unique(points.round().astype(int))

    key = jax.random.key(seed & _WORD)
    for shift in range(32, seed.bit_length(), 32):  # a seed of any length, a word at a time
        key = jax.random.fold_in(key, seed >> shift & _WORD)
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(reps))
    if noise is not None and reps == 1:
        noise = jax.tree.map(lambda one: jnp.asarray(one)[None], noise)
    varying = jnp.asarray(sizes, start.dtype) if n is None else None

    def run(checked: bool) -> list[Any]:
        fixed = Fixed(sample, operator, DualOHM(dual.step_size, dual.horizon), n, checked)
        return [np.array(one) for one in _run(jnp.array(start), keys, noise, varying, jnp.asarray(points), fixed)]

    ends = run(checked=False)
    lost = ~np.isfinite(ends[0].reshape(reps, -1)).all(axis=1)
    if lost.any():  # once more, to find out whether the sampler failed or the run diverged
        for end, found in zip(ends, run(checked=True), strict=True):
            end[lost] = found[lost]
    x, z, k, residuals = ends

    s = State(x=x.reshape(reps, -1), z=z.reshape(reps, -1))
    with np.errstate(over="ignore", invalid="ignore"):
        bounded = np.isfinite(np.einsum("ij,ij->i", s.x, s.x))
    failed = k < steps
    status = [Status.HORIZON if good else Status.DIVERGED for good in bounded]
    status = [Status.FAILED if bad else one for bad, one in zip(failed, status, strict=True)]
    curve = np.where(np.isfinite(residuals), residuals, np.inf).astype(float)
    curve[~bounded, -1] = np.inf
    recorded = np.minimum(points, k[:, None])
    lines = np.diff(recorded, axis=1, prepend=-1) > 0
    rows, at = np.repeat(np.arange(reps), lines.sum(axis=1)), recorded[lines]
    history = History(rows, at, draws[at], draws[at], np.empty(0) if operator is None else curve[lines])
    last = None if operator is None else curve[:, -1]
    ended = Ended(np.arange(reps), s, k, draws[k], draws[k], status, last)
    problem = {"name": getattr(sample, "__name__", "sample"), "dimension": int(np.prod(point))}
    about = {"problem": problem, "method": jsonable(dual.describe()), "seed": seed}
    diverged = np.array([one is Status.DIVERGED for one in status])
    s.x[diverged] = np.asarray(start).reshape(reps, -1)[diverged]
    result = assemble([ended], curve[:, 0] if operator and record else None, history, shape, about, None)
    findings = result.findings
    if failed.any():
        row = int(np.flatnonzero(failed)[0])
        where = {"step": k[row], "replication": row, "norm": np.linalg.norm(s.x[row])}
        findings += (Finding.of("nan-from-sample", **where, others=np.count_nonzero(failed) - 1),)
    return replace(result, x=result.x.reshape(shape + point), findings=findings)


def _solved(
    sample: Any, start: Any, method: Any, budget: Any, constants: Any, seed: int, reps: int, noise: Any, operator: Any,
    record: int,
) -> Result:  # fmt: skip
    """The run of `solve`, each point in the shape of the start."""
    layout, _ = Layout.of(start[0], "solve_jit")
    if noise is not None and reps == 1:
        noise = jax.tree.map(lambda one: jnp.asarray(one)[None], noise)
    flat = start.reshape(reps, -1)
    oracle = JaxSampler(sample, flat[0], form=layout, noise=noise, operator=operator, name="solve_jit: sample")
    name = getattr(sample, "__name__", "sample")
    problem = Problem(oracle, flat[0], constants=constants, name=name)
    result = solve(problem, method, budget=budget, seed=seed, reps=reps, x0=flat, record=record)
    return replace(result, x=layout.split(result.x))


class Fixed(NamedTuple):
    """What a run is compiled for."""

    sample: Any
    operator: Any
    method: DualOHM
    n: int | None  # None where batch sizes differ
    checked: bool  # whether a replication stops where `sample` gives NaN at a moderate point


def _all_steps(x: Any, keys: Any, noise: Any, sizes: Any, points: Any, fixed: Fixed) -> tuple[Any, Any, Any, Any]:
    """Every replication from its start to its last iterate: x, z, the steps taken, and the residuals at the points."""
    sample, operator, method, n, checked = fixed

    def run(x: Any, key: Any, noise: Any) -> tuple[Any, Any, Any, Any]:
        def step(k: Any, now: Any) -> Any:
            x, z, taken = now
            source = jax.random.fold_in(key, k) if noise is None else jax.tree.map(lambda one: one[k], noise)
            G = _estimate(sample, x, n if sizes is None else sizes[k], source)
            s = updated(method, k, G, x=x, z=z)
            if not checked:
                return s.x, s.z, taken + 1
            failed = jnp.isnan(G).any() & (jnp.abs(x).max() < moderate(x.dtype))
            going = (taken == k) & ~failed
            return jnp.where(going, s.x, x), jnp.where(going, s.z, z), taken + going

        def segment(now: Any, ends: Any) -> tuple[Any, Any]:
            if method.horizon > 1:  # else there are no batch sizes and no noise to look up
                now = jax.lax.fori_loop(*ends, step, now)
            return now, 0.0 if operator is None else jnp.linalg.norm(jnp.ravel(operator(now[0])))

        ends = jnp.concatenate([jnp.zeros_like(points[:1]), points[:-1]]), points
        now, residuals = jax.lax.scan(segment, (x, jnp.zeros_like(x), jnp.zeros([], points.dtype)), ends)
        return *now, residuals

    return jax.vmap(run)(x, keys, noise)


_run: Any = jax.jit(_all_steps, static_argnames="fixed", donate_argnames="x")


def _estimate(sample: Any, x: Any, n: Any, source: Any) -> Any:
    try:
        value = sample(x, n, source)
    except AttributeError as error:
        if error.name is None or not hasattr(np.random.Generator, error.name):
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
