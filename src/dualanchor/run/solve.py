"""`solve`: one method on one problem, the bare loop with everything checked before it starts."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError, missing_extra
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.problem import Problem, as_point
from dualanchor.core.result import Result, jsonable
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.engines import Engine, attach, engine_of, opens_engine
from dualanchor.fast import installed
from dualanchor.methods import make
from dualanchor.run.checkpoint import Checkpoint, Saver
from dualanchor.run.lane import LONG, Lane, per_row
from dualanchor.run.loop import Loop
from dualanchor.run.record import DEFAULT_POINTS, Recorder
from dualanchor.run.stop import Budget, Rule, Steps, Target, require_count, what_decides
from dualanchor.run.together import Together
from dualanchor.run.told import Progress, as_callback, as_progress

DEFAULT_METHOD = "s-dual-ohm"

_LOADING_SECONDS, _LOADED_SECONDS = 0.25, 0.05  # about what compiling takes, the first time and later
_STEP_SECONDS, _NUMBER_SECONDS = 6e-6, 3e-9  # and what readable steps take


@opens_engine
def solve(
    problem: Problem,
    method: Method | str | Sequence[Method] | None = None,
    *,
    budget: int | None = None,
    stop: Rule | None = None,
    seed: int = 0,
    reps: int | Sequence[int] = 1,
    x0: Any = None,
    record: Any = None,
    check: bool = True,
    callback: Callable[..., Any] | None = None,
    progress: Callable[[Progress], Any] | bool | None = None,
    fast: bool | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    engine: Engine | str | None = None,
) -> Result:
    """Run a method on a problem.

    Parameters
    ----------
    problem : Problem
        What to solve.
    method : Method, str or list of Method, optional
        The method; a registered name takes its parameters from the problem and the budget; a list of methods
        of one class runs as configurations of one array, on common random numbers. Default "s-dual-ohm".
    budget : int, optional
        Operator evaluations that each row may spend. No row ever spends more.
    stop : Rule, optional
        When to stop: `Budget(q) | Steps(k) | Target(eps) | WallTime(s)`, combined with | and &. A method with a
        horizon stops there in any case.
    seed : int
        Everything random follows from it.
    reps : int or list of int
        Independent replications; instance, start and noise are drawn anew for each. A list names them: replication
        r of a seed is the same whichever others run beside it.
    x0 : array or Result, optional
        Another start than the problem's, of shape (d,) or (reps, d). The run works with its library (NumPy, PyTorch,
        JAX, CuPy), dtype and device.
    record : int, "all" or list of steps, optional
        At how many points, or at which steps, true residuals are recorded; default 64 points, 0 for none.
    check : bool
        Whether to insist on the step sizes that the method's theorem admits.
    callback : callable, optional
        Called after every step with x, or with a Result if its parameter is called `intermediate_result`; stops
        the run by returning True or raising StopIteration.
    progress : bool or callable, optional
        True for a line on standard error every two seconds, or a function called now and then with a `Progress`.
    fast : bool, optional
        Whether to take compiled steps where there are any (extra `fast`); by default a run of a quarter of a second or
        more does. They give the same numbers: bit for bit, or to rounding where a batch is a sum over components and in
        rows of 65,536 coordinates or more.
    checkpoint : path or Checkpoint, optional
        Where the run saves itself; if the file exists and is of this run, the run goes on from it. Method, options,
        data, start and stop are compared, but for the seconds of WallTime; whether a function has changed cannot be
        seen.
    engine : {"local", "mpi", "ray"} or Engine, optional
        Where batches are computed: cut into shards, by several workers. Results depend on the number of shards, never
        on that of workers.

    Notes
    -----
    Ctrl-C ends the run after the present step: the result so far is returned with status INTERRUPTED, and the
    checkpoint goes on from there. A second Ctrl-C raises KeyboardInterrupt at once.

    Returns
    -------
    Result
        Single values for one replication, arrays over replications, or over (configurations, replications).

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.worst_case_nonexpansive(dimension=101), budget=100, reps=3)
    >>> result.nfev, result.x.shape
    (array([99, 99, 99]), (3, 101))
    """
    if not isinstance(problem, Problem):
        raise ArgumentTypeError(
            "solve: problem must be a Problem",
            repr(type(problem).__name__),
            "Use Problem(oracle, x0) or one of dualanchor.problems",
        )
    require_count(seed, "solve", "seed", 0)
    replications = _replications(reps)
    rule = _combine(budget, stop)
    configurations = _configurations(problem, method, budget)
    stacked = type(configurations[0]).stack(configurations)
    stacked.check_rounds(None)
    if check:
        stacked.check(problem.constants)

    progress = as_progress(progress, "solve", "step")
    if fast is not None and not isinstance(fast, (bool, np.bool_)):
        raise ArgumentTypeError("solve: fast must be True, False or None", repr(fast), "Use fast=True")
    if fast and not installed():
        raise missing_extra("llvmlite", "fast", "solve(fast=True)")

    instance = problem.instance(Streams(seed, replications, Purpose.INSTANCE))
    if isinstance(engine, Engine):
        instance = instance._replace(oracle=attach(instance.oracle, engine))
    count = replications.size
    start = _start(x0, instance.x0, problem.dimension, count)
    if problem.numpy_only and arrays.is_foreign(start):
        raise CapabilityError(
            f"{problem.name} computes with NumPy",
            f"a start of type {type(start).__name__}",
            "Start from a NumPy array, or write an oracle that computes with that library",
        )
    lane = _lane(stacked, instance.oracle, start, seed, replications, len(configurations))
    _check_ends(rule, lane)

    several = not (method is None or isinstance(method, (str, Method)))
    single = count == 1 and isinstance(reps, (int, np.integer))
    shape = (len(configurations), count) if several else () if single else (count,)
    described = {
        "id": type(stacked).id,
        "title": type(stacked).title,
        "citation": type(stacked).citation,
        "anytime": type(stacked).anytime,
        "parameters": jsonable([one.parameters() for one in configurations] if several else stacked.parameters()),
    }
    fingerprint = {
        "problem": jsonable({**problem.describe(), **asdict(problem.constants)}),
        "oracle": jsonable(instance.oracle.describe()),
        "method": described,
        "seed": int(seed),
        "reps": replications.tolist(),
        "stop": what_decides(rule),
        "start": None if checkpoint is None else hashlib.sha256(arrays.to_host(start).tobytes()).hexdigest(),
        "dtype": str(arrays.numpy_dtype(start.dtype)),
    }
    points, lengths = _recording(record, lane, rule, instance.oracle)
    stacked.check_rounds(max(lengths, default=None))
    lane.compiled = _worth_compiling(lane, max(lengths, default=0)) if fast is None else fast
    engine_used = engine_of(instance.oracle)
    kind = Together if engine_used is not None and engine_used.collective else Loop
    loop = kind(
        lane,
        rule,
        Recorder(points, lengths),
        describe={"problem": jsonable(problem.describe()), "method": described, "seed": int(seed)},
        shape=shape,
        callback=None if callback is None else as_callback(callback),  # checked there
        progress=progress,
        saver=None if checkpoint is None else Saver(checkpoint, fingerprint),
    )
    result = loop.run()
    if method is None and result.residual is None:
        result = _with_note(result, *_left_by_batches_of_one(problem.constants.sigma))
    return _with_note(result, *_idle_workers(engine, configurations), *_not_compiled(fast, lane))


def _with_note(result: Result, *notes: str) -> Result:
    return replace(result, notes=(*notes, *result.notes)) if notes else result


def _left_by_batches_of_one(sigma: float | None) -> list[str]:
    """What the default method cannot do where nobody sees the residual."""
    if sigma == 0:
        return []
    noise = "the noise of one sample" if sigma is None else f"sigma = {sigma:.4g}"
    left = f"batches of 1 leave a residual of the order of {noise} whatever the budget"
    return [f"{left}; da.root, or method='auto', do not"]


def _idle_workers(engine: Any, configurations: list[Method]) -> list[str]:
    """What an engine cannot do for rounds that cannot be cut."""
    single = all(one.parameters().get("batch_size") == 1 for one in configurations)
    if engine is None or engine.workers == 1 or not single:
        return []
    return [f"rounds of 1 sample keep one of {engine.workers} workers busy; use larger batches"]


def _not_compiled(fast: bool | None, lane: Lane) -> list[str]:
    """That compiled steps were asked for in vain."""
    if not fast or lane.has_compiled_form:
        return []
    return [f"fast=True found nothing to compile for {type(lane.method).id} on this oracle, start and dtype"]


def _worth_compiling(lane: Lane, steps: int) -> bool:
    """Whether readable steps would take longer than it takes to compile them.

    Where compiled steps agree to rounding only, not by whether they are loaded, and in long rows always, so that
    results depend on the seed alone.
    """
    recipe, d = lane.session.recipe, lane.state.x.shape[1]
    if recipe is None or d >= LONG:
        return d >= LONG
    exact = recipe.components is None
    loading = _LOADED_SECONDS if exact and "dualanchor.fast.stretch" in sys.modules else _LOADING_SECONDS
    return steps * max(_STEP_SECONDS, _NUMBER_SECONDS * lane.rows.size * d) > loading


def _combine(budget: int | None, stop: Rule | None) -> Rule | None:
    if stop is not None and not isinstance(stop, Rule):
        raise ArgumentTypeError(
            "solve: stop must be a stopping rule", repr(stop), "Use Steps(k), Target(eps) or WallTime(s)"
        )
    if budget is None:
        return stop
    require_count(budget, "solve", "budget", 1)
    limit = Budget(int(budget))
    return limit if stop is None else limit | stop


def _configurations(problem: Problem, method: Any, budget: int | None) -> list[Method]:
    if method is None or isinstance(method, str):
        return [make(method or DEFAULT_METHOD, problem, budget, {})]
    if isinstance(method, Method):
        return [method]
    configurations = list(method) if isinstance(method, Sequence) else []
    if not configurations or not all(isinstance(one, Method) for one in configurations):
        raise ArgumentTypeError(
            "solve: method must be a Method, a name, or a list of Methods of one class",
            repr(method),
            "Use DualOHM(...), 's-dual-ohm' or [SGDA(0.1), SGDA(1.0)]",
        )
    return configurations


def _start(x0: Any, default: Array, dimension: int, reps: int) -> Array:
    if x0 is None:
        return default
    given = x0.x if isinstance(x0, Result) else x0
    return arrays.tile(as_point(given, "solve: x0", dimension, reps), reps)


def _replications(reps: Any) -> IntArray:
    if isinstance(reps, (Sequence, np.ndarray)) and not isinstance(reps, str):
        for number in reps:
            require_count(number, "solve", "each of reps", 0)
        if len(reps) == 0 or len(set(reps)) < len(reps):
            raise ArgumentError(
                "solve: reps must name at least one replication, each once", list(reps), "Use reps=[0, 1, 2]"
            )
        return np.array(reps, dtype=np.int64)
    require_count(reps, "solve", "reps", 1)
    return np.arange(reps)


def _lane(method: Method, oracle: Oracle, start: Array, seed: int, replications: IntArray, configurations: int) -> Lane:
    """All rows, configuration by configuration, each with its replication's oracle, start and streams."""
    pilot = Streams(seed, replications[:1], Purpose.PILOT, start.shape[1], start.dtype)
    replayable = "replay" not in method.needs or oracle.take(np.arange(1)).is_replayable(start[:1], pilot)
    method.check_oracle(replayable, oracle.components)
    count = replications.size
    if configurations > 1:
        if arrays.is_foreign(start):
            raise ArgumentTypeError(
                "solve: several configurations run as one array with NumPy only",
                f"{configurations} methods and a start of type {type(start).__name__}",
                "Run them one by one, or start from a NumPy array",
            )
        rows = np.tile(np.arange(count), configurations)
        method = method.take(np.repeat(np.arange(configurations), count))
        if start.dtype == np.float64:
            method = method.in_full_precision()
        oracle, start, replications = oracle.take(rows), start[rows], replications[rows]
    streams = Streams(seed, replications, Purpose.NOISE, start.shape[1], start.dtype)
    rows, coins = np.arange(replications.size), streams.of(Purpose.COIN)
    return Lane(method, method.init(start), Session(oracle, streams), coins, rows, count)


def _check_ends(rule: Rule | None, lane: Lane) -> None:
    """Raise if the run would never end, could not take a first step, or has a target it cannot see."""
    leaves = [] if rule is None else rule.leaves()
    name = type(lane.method).__name__
    if rule is None and lane.method.horizon is None:
        raise ArgumentError(
            f"solve: {name} has no horizon, so something must end the run",
            "neither budget nor stop",
            "Pass budget=... or stop=Steps(k)",
        )
    if any(isinstance(leaf, Target) for leaf in leaves) and lane.residual() is None:
        raise ArgumentError(
            "Target needs a problem whose operator is known",
            "an oracle that can only be sampled",
            "Use Budget, Steps or WallTime, and look at the residual of the result with fresh samples",
        )
    budgets = [leaf.evals for leaf in leaves if isinstance(leaf, Budget)]
    left = lane.steps_left()
    first = per_row(lane.costs(1, lane.coins(1)).evals[..., 0], lane.rows.size)
    largest = int(np.max(first if left is None else np.where(per_row(left, lane.rows.size) > 0, first, 0)))
    if budgets and largest > min(budgets):
        raise ArgumentError(
            f"{name}: the batch size must not be larger than the budget, {min(budgets)} evaluations",
            f"a first step of {largest} evaluations",
            "Use a smaller batch or a larger budget",
        )


def _recording(record: Any, lane: Lane, rule: Rule | None, oracle: Oracle) -> tuple[Any, list[int]]:
    """What to record, and how many steps rows are expected to take."""
    leaves = [] if rule is None else rule.leaves()
    limits = [np.asarray(leaf.count) for leaf in leaves if isinstance(leaf, Steps)]
    if (left := lane.steps_left()) is not None:
        limits.append(np.asarray(left))
    budgets = [leaf.evals for leaf in leaves if isinstance(leaf, Budget)]
    if budgets:
        limits.append(_expected_steps(lane, min(budgets)))
        if record is None:  # true residuals that cost more than the run are not recorded unasked
            record = int(np.clip(min(budgets) / oracle.operator_price, 2, DEFAULT_POINTS))
    if not limits:
        return record, []
    shortest = np.minimum.reduce(np.broadcast_arrays(*limits))
    return record, np.unique(shortest).tolist()


def _expected_steps(lane: Lane, budget: int) -> IntArray:
    """Steps that a budget is expected to pay for, per row or for all."""
    block, k, spent, steps = 1024, 0, np.asarray(0.0), np.asarray(0)
    method = lane.method
    while True:
        ks = np.arange(k, k + block)
        if (heads := method.probability(ks)) is None:
            costs = np.asarray(method.cost(ks, lane.state, None).evals, dtype=float)
        else:
            big, small = (method.cost(ks, lane.state, np.full(block, coin)).evals for coin in (True, False))
            costs = heads * big + (1 - heads) * small
        costs = np.broadcast_to(costs, (*costs.shape[:-1], block))
        total = spent[..., None] + np.cumsum(costs, axis=-1)
        steps = steps + np.count_nonzero(total <= budget, axis=-1)
        spent, k = total[..., -1], k + block
        if (spent > budget).all():
            return steps
        last = costs[..., -1]
        if np.all(costs == last[..., None]) or k >= 1 << 16:  # from here on all steps cost about the same
            return steps + np.maximum(0, (budget - spent) // last).astype(int)
