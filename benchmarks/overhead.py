"""Time per iteration of `solve` against a hand-inlined NumPy loop, and against other libraries' fixed-point loops.

S-Dual-OHM with one sample per step at d = 100, on the operators of experiments 3 (d = 100 there, too) and 1, recording
as by default. The inlined loops do the same arithmetic on the same noise and must end at the same point, bit for bit.
The other libraries iterate x - alpha F(x) without noise, one step per call, as an operator needs that is sampled anew
at each step; JAX's under jit. What scipy takes when it may do all steps in one call is shown, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import sqrt

import numpy as np
from scipy.optimize import fixed_point

import dualanchor as da
from benchmarks.common import Row, at_least, at_most, least, main, not_measured
from dualanchor.core.streams import Handle, Kind, Purpose
from dualanchor.fast import available

D, BLOCK = 100, 128
INLINED, SCIPY = 1.4, 5.0
MU, DELTA, NU = 0.1, 1e-2, 5e-5


def noise_vectors(steps: int) -> Iterator[np.ndarray]:
    """The library's noise of replication 0 for seed 0, drawn in the same blocks: 2, 2, 4, .. 128, 128, .. vectors."""
    source, number, length = Handle(0, Purpose.NOISE, 0, Kind.NORMALS), 0, 2
    while steps > 0:
        yield from source.generator(number).standard_normal((length, D))
        steps -= length
        length = min(BLOCK, 2 * length) if number else length
        number += 1


def inlined_huber(x0: np.ndarray, steps: int, alpha: float, sigma: float) -> np.ndarray:
    """Experiment 3 with everything written out."""
    N, half = steps + 1, D // 2
    x, z, scale = x0.copy(), np.zeros(D), sigma / sqrt(D)
    for k, xi in zip(range(steps), noise_vectors(steps), strict=False):
        G = np.clip(x, -NU, NU)
        G *= 1 - DELTA
        G += MU * x
        G[:half] += DELTA * x[half:]
        G[half:] -= DELTA * x[:half]
        G = G + scale * xi
        z *= (N - k - 1) / (N - k)
        z -= alpha / (N - k) * G
        x -= alpha * G + z
    return x


def inlined_worst_case(offset: np.ndarray, steps: int, alpha: float, sigma: float) -> np.ndarray:
    """Experiment 1 with everything written out; F(x) = x + H'x - offset with H' the linear part of H."""
    N = steps + 1
    x, z, scale = np.zeros(D), np.zeros(D), sigma / sqrt(D)
    for k, xi in zip(range(steps), noise_vectors(steps), strict=False):
        G = scale * xi - offset
        G += x
        G[1:] -= x[:-1]
        G[0] += x[-1]
        z *= (N - k - 1) / (N - k)
        z -= alpha / (N - k) * G
        x -= alpha * G + z
    return x


def start_of_huber() -> np.ndarray:
    """The random unit vector of replication 0 for seed 0."""
    start = da.Streams(0, np.arange(1), Purpose.START).generators()[0].standard_normal(D)
    return start / np.linalg.norm(start)


def offset_of_worst_case() -> np.ndarray:
    """(I + H')s plus the constant of H, for the shift s of replication 0 and seed 0."""
    shift = da.Streams(0, np.arange(1), Purpose.INSTANCE).generators()[0].standard_normal(D)
    offset = shift.copy()
    offset[0] += shift[-1]
    offset[1:] -= shift[:-1]
    offset[0] += 2 / sqrt(D)
    return offset


def scipy_map(problem: da.Problem) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """The map x - alpha F(x) without noise, and the start."""
    instance = problem.instance(da.Streams(0, np.arange(1), Purpose.INSTANCE))
    alpha, F = problem.step_size, instance.oracle.operator
    return lambda x: x - alpha * F(x), instance.x0


def scipy_steps(problem: da.Problem, steps: int) -> Callable[[], None]:
    """One step per call of scipy, as an operator needs that is sampled anew at each of them."""
    turned, start = scipy_map(problem)

    def iterate() -> None:
        x = start
        for _ in range(steps):
            x = fixed_point(turned, x, method="iteration", maxiter=1, xtol=np.inf)

    return iterate


def scipy_loop(problem: da.Problem, steps: int) -> Callable[[], None]:
    """All steps in one call; scipy's last words, that it did not converge, are expected."""
    turned, start = scipy_map(problem)

    def iterate() -> None:
        try:
            fixed_point(turned, start, method="iteration", maxiter=steps, xtol=0.0)
        except RuntimeError:
            return

    return iterate


def jax_map(alpha: float) -> Callable:
    """The map x - alpha F(x) of experiment 3 in JAX, in double precision."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def turned(x: jax.Array) -> jax.Array:
        u, v = jnp.split(x, 2)
        coupling = DELTA * jnp.concatenate([v, -u])
        return x - alpha * ((1 - DELTA) * jnp.clip(x, -NU, NU) + MU * x + coupling)

    return turned


def optimistix_loop(alpha: float, x0: np.ndarray, steps: int) -> Callable[[], None]:
    import equinox as eqx
    import jax
    import optimistix

    turned = jax_map(alpha)
    solver = optimistix.FixedPointIteration(rtol=1e-12, atol=1e-12)

    def fn(y: jax.Array, args: None) -> tuple[jax.Array, None]:
        return turned(y), None

    @eqx.filter_jit
    def step(y: jax.Array, state: object) -> tuple:
        return solver.step(fn, y, None, {}, state, frozenset())[:2]

    start = jax.numpy.asarray(x0)
    begin = solver.init(fn, start, None, {}, jax.eval_shape(lambda: start), None, frozenset())

    def iterate() -> None:
        y, state = start, begin
        for _ in range(steps):
            y, state = step(y, state)
        y.block_until_ready()

    return iterate


def jaxopt_loop(alpha: float, x0: np.ndarray, steps: int) -> Callable[[], None]:
    import jax
    from jaxopt import FixedPointIteration

    solver = FixedPointIteration(jax_map(alpha), tol=0.0)
    start = jax.numpy.asarray(x0)
    begin, step = solver.init_state(start), jax.jit(solver.update)

    def iterate() -> None:
        x, state = start, begin
        for _ in range(steps):
            x, state = step(x, state)
        x.block_until_ready()

    return iterate


def measure(
    problem: da.Problem, inlined: Callable[..., np.ndarray], start: np.ndarray, steps: int, repeat: int
) -> list[Row]:
    """Microseconds per iteration on one problem."""
    alpha = problem.step_size
    method = da.DualOHM(step_size=alpha, horizon=steps + 1)
    arguments = (start, steps, alpha, problem.constants.sigma)
    kinds = {"compiled": True, "not compiled": False} if available() else {"not compiled": False}
    for fast in kinds.values():
        if not np.array_equal(da.solve(problem, method, fast=fast).x, inlined(*arguments)):
            raise SystemExit(f"{problem.name}: the two loops must do the same arithmetic")
    few = steps // 10
    loops = {"scipy": scipy_steps(problem, few), "scipy in one call": scipy_loop(problem, few)}
    if problem.name == "huber-minimax":
        made = {"optimistix": optimistix_loop, "jaxopt": jaxopt_loop}
        loops |= {name: make(alpha, start, few) for name, make in made.items() if find_spec(name)}
        for loop in loops.values():
            loop()  # compiles
    functions = {kind: lambda fast=fast: da.solve(problem, method, fast=fast) for kind, fast in kinds.items()}
    times = least({**functions, "inlined": lambda: inlined(*arguments), **loops}, repeat)
    micro = {name: 1e6 * t / (few if name in loops else steps) for name, t in times.items()}
    title, table = f"solve, {problem.name}, d = {D}, {{}}, µs per iteration".format, []
    tools = ("optimistix", "jaxopt") if problem.name == "huber-minimax" else ()
    sides = {
        "inlined": ("a hand-inlined loop", INLINED, at_most),
        "scipy": ("scipy, step by step", SCIPY, at_least),
        "scipy in one call": ("scipy, all steps in one call", None, at_least),
        **{tool: (f"{tool}, step by step", None, at_least) for tool in tools},
    }
    for kind in ("compiled", "not compiled"):
        for side, (words, target, compare) in sides.items():
            name = title(f"{kind}, against {words}")
            if missing := [package for package in (kind, side) if package not in micro]:
                package = "llvmlite" if missing[0] == "compiled" else missing[0]
                table.append(not_measured(name, target, f"{package} is not installed"))
            else:
                table.append(compare(name, micro[kind], micro[side], target))
    limit = f"a hand-inlined loop, {problem.name}, d = {D}, against scipy, step by step, µs per iteration"
    return [*table, at_least(limit, micro["inlined"], micro["scipy"], None)]  # as far as NumPy goes


def rows(quick: bool = False) -> list[Row]:
    """Both problems."""
    size = (2_000, 3) if quick else (20_000, 15)
    worst = da.problems.worst_case_nonexpansive(dimension=D)
    return [
        *measure(da.problems.huber_minimax(), inlined_huber, start_of_huber(), *size),
        *measure(worst, inlined_worst_case, offset_of_worst_case(), *size),
    ]


if __name__ == "__main__":
    main(rows, __doc__)
