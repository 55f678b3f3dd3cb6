"""A run of Dual-OHM that JAX compiles as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.method import State
from dualanchor.core.problem import as_point, as_reals
from dualanchor.core.result import History, Result, Status, jsonable
from dualanchor.core.schedule import BatchSize, Constant, as_schedule
from dualanchor.front.shapes import require_arguments
from dualanchor.integrations.jax.transformations import dual_anchor, no_steps
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.run.outcome import Ended, assemble
from dualanchor.run.record import DEFAULT_POINTS
from dualanchor.run.stop import require_count

_WORD = (1 << 32) - 1  # bits of a seed that JAX takes


def solve_jit(
    sample: Callable[[Any, Any, Any], Any],
    x0: Any,
    *,
    step_size: float,
    horizon: int,
    batch_size: BatchSize = 1,
    seed: int = 0,
    reps: int = 1,
    noise: Any = None,
    operator: Callable[[Any], Any] | None = None,
    record: int = DEFAULT_POINTS,
) -> Result:
    """Run Dual-OHM on a sampler written in JAX, the whole loop compiled.

    Parameters
    ----------
    sample : callable
        `sample(x, n, key)`: the mean of n independent samples of F at x, a pure function of JAX arrays. With one batch
        size n is a Python int. With a schedule it is a traced number of x's dtype, which cannot be the shape of
        anything: such a sampler draws means of n samples in one go, like Gaussian noise divided by the root of n.
    x0 : array or Result
        The start, of any shape, or a run whose end it is; one with as many replications continues each of them.
    step_size, horizon, batch_size
        As in `DualOHM`.
    seed : int
        Step k of replication r gets the key of (seed, r, k).
    reps : int
        Independent replications, computed side by side by `jax.vmap`.
    noise : pytree of arrays, optional
        What `sample` gets instead of keys: entry k of each array in step k. The leading axes are (horizon - 1,), or
        (reps, horizon - 1) with several replications.
    operator : callable, optional
        The true F(x), where it is known: residuals are then recorded.
    record : int
        At how many points.

    Returns
    -------
    Result
        As from `solve`, with x in the shape of x0, or (reps, *shape). A diverged replication is computed to the end
        all the same, and its status is DIVERGED. One whose sampler gives NaN at a moderate point has the status FAILED,
        the iterate before that, and a note.

    Notes
    -----
    Two vectors of x0's size are kept, beside what `sample` needs. It is compiled once for each function, step size,
    horizon and shape: define `sample` once instead of anew for each call. Precision is that of x0 as far as JAX has
    it, so doubles need `jax_enable_x64`.

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
    require_arguments(sample, 3, "sample(x, n, key)", "solve_jit: sample")
    if operator is not None:
        require_arguments(operator, 1, "F(x)", "solve_jit: operator")
    require_count(seed, "solve_jit", "seed", 0)
    require_count(reps, "solve_jit", "reps", 1)
    require_count(record, "solve_jit", "record", 0)
    method = DualOHM(step_size, horizon, batch_size)
    steps = method.horizon - 1
    start = _starts(x0, reps)
    point = start.shape[1:]
    _check_noise(noise, (steps,) if reps == 1 else (reps, steps))

    schedule = as_schedule(batch_size, "solve_jit", method.horizon)
    sizes = np.broadcast_to(np.asarray(schedule.size(np.arange(steps), method.horizon)), (steps,))
    spent = np.concatenate([[0], np.cumsum(sizes)])
    points = np.linspace(0, steps, record + 1) if operator and record else np.array([steps])
    points = np.unique(points.round().astype(int))
    key = _key(int(seed))
    x = jnp.array(np.broadcast_to(start, (reps, *point)))
    keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(reps))
    noise = noise if noise is None or reps > 1 else jax.tree.map(lambda one: jnp.asarray(one)[None], noise)
    batches = None if isinstance(schedule, Constant) else jnp.asarray(sizes, x.dtype)
    compiled = replace(method, batch_size=schedule.value if isinstance(schedule, Constant) else 1)
    x, z, residuals = _run(
        x, keys, noise, batches, jnp.asarray(points), sample=sample, operator=operator, method=compiled
    )

    s = State(x=np.array(x).reshape(reps, -1), z=np.array(z).reshape(reps, -1))  # copies that can be written to
    with np.errstate(over="ignore", invalid="ignore"):
        bounded = np.isfinite(np.einsum("ij,ij->i", s.x, s.x))
    status = [Status.HORIZON if good else Status.DIVERGED for good in bounded]
    curve = None
    if residuals is not None:
        curve = np.where(np.isfinite(residuals), residuals, np.inf).astype(float)
        curve[~bounded, -1] = np.inf

    k = np.full(reps, steps)
    broken = _broken(s.x, np.broadcast_to(start, (reps, *point)), keys, noise, batches, sample, compiled)
    for row, (last, at, memory) in broken.items():
        status[row], k[row], s.x[row], s.z[row] = Status.FAILED, last, at.ravel(), memory.ravel()
        if operator is not None and curve is not None:
            norm = float(jnp.linalg.norm(jnp.ravel(operator(jnp.asarray(at)))))
            curve[row, points >= last] = norm if np.isfinite(norm) else np.inf
    recorded = np.minimum(points, k[:, None])
    kept = np.diff(recorded, axis=1, prepend=-1) > 0
    ended = Ended(
        rows=np.arange(reps),
        state=s,
        k=k,
        draws=spent[k],
        evals=spent[k],
        status=status,
        residual=None if curve is None else curve[:, -1],
    )
    history = History(
        row=np.repeat(np.arange(reps), kept.sum(axis=1)),
        k=recorded[kept],
        draws=spent[recorded[kept]],
        evals=spent[recorded[kept]],
        residual=np.empty(0) if curve is None else curve[kept],
    )
    described = {
        "id": DualOHM.id,
        "title": DualOHM.title,
        "citation": DualOHM.citation,
        "anytime": DualOHM.anytime,
        "parameters": jsonable(method.parameters()),
    }
    problem = {"name": getattr(sample, "__name__", "sample"), "dimension": int(np.prod(point))}
    shape = () if reps == 1 else (reps,)
    result = assemble([ended], history, shape, {"problem": problem, "method": described, "seed": int(seed)}, None)
    return replace(result, x=result.x.reshape(shape + point), notes=(*result.notes, *_about(broken)))


def _key(seed: int) -> Any:
    """The key of a seed of any length: JAX takes 32 bits of one."""
    key = jax.random.key(seed & _WORD)
    while seed := seed >> 32:
        key = jax.random.fold_in(key, seed & _WORD)
    return key


def _starts(x0: Any, reps: int) -> Any:
    """One start for all replications, or one for each, along the first axis."""
    x = x0.x if isinstance(x0, Result) else x0
    if as_reals(x) is None:
        raise ArgumentTypeError(
            "solve_jit: x0 must be an array of real numbers",
            repr(type(x).__name__),
            "Pass an array of floats; jax.flatten_util.ravel_pytree makes one of a pytree",
        )
    start = as_point(np.ravel(x), "solve_jit: x0").reshape(np.shape(x))
    if not isinstance(x0, Result) or x0.shape == ():
        return start[None]
    if x0.shape != (reps,):
        raise ArgumentError(
            f"solve_jit: a Result to start from must have one replication, or reps = {reps} of them",
            f"one of shape {x0.shape}",
            "Pass as many reps, or one of its points",
        )
    return start


def _all_steps(
    x: Any, keys: Any, noise: Any, sizes: Any, points: Any, *, sample: Any, operator: Any, method: DualOHM
) -> tuple[Any, Any, Any]:
    """Every replication from x to the last iterate: x, z and the residuals at the points."""
    optimizer = dual_anchor(method.step_size, method.horizon)

    def run(x: Any, key: Any, noise: Any) -> tuple[Any, Any, Any]:
        def step(k: Any, now: Any) -> Any:
            x, state = now
            updates, state = optimizer.update(_estimate(x, key, noise, sizes, k, sample, method), state)
            return optax.apply_updates(x, updates), state

        def stretch(now: Any, ends: Any) -> tuple[Any, Any]:
            if method.horizon > 1:  # else there are no batch sizes and no noise to look up
                now = jax.lax.fori_loop(*ends, step, now)
            return now, None if operator is None else jnp.linalg.norm(jnp.ravel(operator(now[0])))

        ends = (jnp.concatenate([jnp.zeros_like(points[:1]), points[:-1]]), points)
        (x, state), residuals = jax.lax.scan(stretch, (x, optimizer.init(x)), ends)
        return x, state.z, residuals

    return jax.vmap(run)(x, keys, noise)


def _steps_to_nan(
    x: Any, keys: Any, noise: Any, sizes: Any, *, sample: Any, method: DualOHM
) -> tuple[Any, Any, Any, Any]:
    """Every replication up to the first NaN from a moderate point: whether there is one, and k, x and z there."""
    optimizer = dual_anchor(method.step_size, method.horizon)
    moderate = np.finfo(x.dtype).max ** 0.125  # as in a Session: beyond, powers of x may overflow

    def run(x: Any, key: Any, noise: Any) -> tuple[Any, Any, Any, Any]:
        def going(now: Any) -> Any:
            return ~now[0] & (now[1] < method.horizon - 1)

        def step(now: Any) -> Any:
            _, k, *old = now
            G = _estimate(old[0], key, noise, sizes, k, sample, method)
            failed = jnp.isnan(G).any() & (jnp.abs(old[0]).max() < moderate)
            updates, state = optimizer.update(G, old[1])
            new = [optax.apply_updates(old[0], updates), state]
            return failed, k + ~failed, *jax.tree.map(lambda a, b: jnp.where(failed, a, b), old, new)

        failed, k, x, state = jax.lax.while_loop(going, step, (jnp.array(False), no_steps(), x, optimizer.init(x)))
        return failed, k, x, state.z

    return jax.vmap(run)(x, keys, noise)


def _estimate(x: Any, key: Any, noise: Any, sizes: Any, k: Any, sample: Any, method: DualOHM) -> Any:
    """What `sample` returns in step k of a replication."""
    source = jax.random.fold_in(key, k) if noise is None else jax.tree.map(lambda one: one[k], noise)
    G = jnp.asarray(_called(sample, x, method.batch_size if sizes is None else sizes[k], source))
    _check_shape(x, G)
    return G


_run: Any = jax.jit(_all_steps, static_argnames=("sample", "operator", "method"), donate_argnames="x")
_run_to_nan: Any = jax.jit(_steps_to_nan, static_argnames=("sample", "method"))


def _broken(
    x: Any, start: Any, keys: Any, noise: Any, sizes: Any, sample: Any, method: DualOHM
) -> dict[int, tuple[int, Any, Any]]:
    """The rows that NaN from a moderate point has spoilt, with k, x and z before it: these rows are run once more."""
    lost = np.flatnonzero(~np.isfinite(x).all(axis=1))
    if not lost.size:
        return {}
    own = jax.tree.map(lambda one: jnp.asarray(one)[lost], noise)
    ends = _run_to_nan(jnp.array(start[lost]), keys[lost], own, sizes, sample=sample, method=method)
    failed, k, x, z = (np.array(one) for one in ends)
    return {int(lost[i]): (int(k[i]), x[i], z[i]) for i in np.flatnonzero(failed)}


def _about(broken: dict[int, tuple[int, Any, Any]]) -> tuple[str, ...]:
    if not broken:
        return ()
    row, (k, x, _) = next(iter(broken.items()))
    others = f" (and in {len(broken) - 1} others)" if len(broken) > 1 else ""
    norm = np.linalg.norm(x.ravel())
    return (
        f"sample returned NaN at step {k} of replication {row}{others}, at a point of norm {norm:.3g}: "
        "that is no divergence; mend sample for this point, or start elsewhere",
    )


def _called(sample: Any, x: Any, n: Any, source: Any) -> Any:
    try:
        value = sample(x, n, source)
    except AttributeError as error:
        if error.name is None or not hasattr(np.random.Generator, error.name):
            raise
        raise OracleError(
            "solve_jit: sample gets a JAX key as third argument, not a Generator",
            f"a call of {error.name} on it",
            "Draw with jax.random, for instance jax.random.normal(key, x.shape)",
        ) from error
    if value is None:
        raise OracleError("solve_jit: sample must return F_B(x) with the shape of x", "None", "End it with return")
    return value


def _check_shape(x: Any, G: Any) -> None:
    if G.shape != x.shape:
        raise OracleError(
            "solve_jit: sample must return F_B(x) with the shape of x",
            f"shape {G.shape} for x of shape {x.shape}",
            "Return the mean of the n samples, not each of them",
        )


def _check_noise(noise: Any, axes: tuple[int, ...]) -> None:
    for leaf in jax.tree.leaves(noise):
        if np.shape(leaf)[: len(axes)] != axes:
            raise ArgumentError(
                f"solve_jit: noise must have the leading axes {axes}, one entry for each step",
                f"shape {np.shape(leaf)}",
                "Pass reps and horizon to match",
            )
