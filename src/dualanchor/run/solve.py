"""`solve`: one method on one problem, the bare loop with everything checked before it starts."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core import check as checks
from dualanchor.core.callbacks import Progress, as_callback, as_progress
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle
from dualanchor.core.problem import Problem, as_point
from dualanchor.core.result import Result, jsonable
from dualanchor.core.session import Session
from dualanchor.core.staged import Staged
from dualanchor.core.streams import Purpose, Streams, per_row
from dualanchor.core.types import Array, IntArray
from dualanchor.engines import Engine, attach, engine_of, opened
from dualanchor.engines.mpi import MPI
from dualanchor.methods import make
from dualanchor.run.checkpoint import Checkpoint, Saver, digest_of
from dualanchor.run.driver import Driver
from dualanchor.run.observe import Observer
from dualanchor.run.record import DEFAULT_POINTS, Recorder
from dualanchor.run.rows import ActiveRows
from dualanchor.run.stop import NEVER, Budget, Rule, Steps, Target

DEFAULT_METHOD = "s-dual-ohm"


def solve(
    problem: Problem,
    method: Method | str | Sequence[Method] | None = None,
    *,
    budget: int | None = None,
    stop: Rule | None = None,
    seed: int = 0,
    rng: np.random.Generator | None = None,
    reps: int | Sequence[int] = 1,
    x0: Any = None,
    record: Any = None,
    check: bool = True,
    callback: Callable[..., Any] | None = None,
    progress: Callable[[Progress], Any] | bool | None = None,
    fast: bool | None = None,
    checkpoint: Checkpoint | Saver | str | Path | None = None,
    engine: Engine | str | None = None,
) -> Result:
    """Run a method on a problem.

    Parameters
    ----------
    problem : Problem
        What to solve.
    method : Method, str or list of Method, optional
        A method; a name, with parameters from the problem and the budget; or methods of one class, which run as
        configurations of one array on common random numbers. Default "s-dual-ohm".
    budget : int, optional
        Operator evaluations that each row may spend. No row ever spends more.
    stop : Rule, optional
        When to stop: `Budget(q) | Steps(k) | Target(eps) | WallTime(s)`, combined with | and &. A method with a
        horizon stops there in any case.
    seed : int
        Everything random follows from it.
    rng : numpy.random.Generator, optional
        Instead of a seed: one number is drawn from it in each call.
    reps : int or list of int
        Independent replications, each with its own instance, start and noise; a list gives their numbers.
    x0 : array or Result, optional
        Another start, of shape (d,) or (reps, d). The run works with its library, dtype and device.
    record : int, "all", "samples" or list of int, optional
        At how many points, or at which steps, true residuals are recorded; default 64 points, 0 for none. "samples":
        where F is not known, 24 estimates from the run's own samples, which include their noise; none in compiled runs.
    check : bool
        Whether to insist on the step sizes that the method's theorem admits.
    callback : callable, optional
        Called after every step with x, or with a Result if its parameter is called `intermediate_result`; stops
        the run by returning True or raising StopIteration.
    progress : bool or callable, optional
        True for a progress bar on standard error, or a function called with a `Progress` at most ten times a second.
    fast : bool, optional
        Deprecated and without effect.
    checkpoint : path or Checkpoint, optional
        Where the run saves itself; if the file exists, the run is resumed from it. When to stop may have changed,
        unless the method depends on it.
    engine : {"local", "mpi", "ray"} or Engine, optional
        Computes batches with several workers; their number does not change the result.

    Returns
    -------
    Result
        Single values for one replication, arrays over replications, or over (configurations, replications). Ctrl-C ends
        the run after the present chunk of steps with status INTERRUPTED; a second one raises KeyboardInterrupt at once.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.worst_case_nonexpansive(dimension=101), budget=100, reps=3)
    >>> result.nfev, result.x.shape
    (array([99, 99, 99]), (3, 101))
    """
    if not isinstance(problem, Problem):
        remedy = "Use Problem(oracle, x0) or one of dualanchor.problems"
        raise ArgumentTypeError("solve: problem must be a Problem", repr(type(problem).__name__), remedy)
    seed = checks.seed(seed, rng, "solve")
    if fast is not None:
        warnings.warn("solve: fast has no effect any more and will be removed", DeprecationWarning, stacklevel=2)
    replications = _replications(reps)
    rule = _combine(budget, stop)
    configurations = _configurations(problem, method, budget)
    stacked = type(configurations[0]).stack(configurations)
    stacked.check_rounds(None)
    if checks.switch(check, "solve: check"):
        stacked.check(problem.constants)
    on_progress = as_progress(progress, "solve", "step")
    on_step = None if callback is None else as_callback(callback)

    instance = problem.instance(Streams(seed, replications, Purpose.INSTANCE))
    with opened(engine) as engine:
        oracle = attach(instance.oracle, engine) if isinstance(engine, Engine) else instance.oracle
        start = _start(x0, instance.x0, problem, replications.size)
        active = _active_rows(stacked, oracle, start, seed, replications, len(configurations))
        _check_ends(rule, stacked, active)

        several = not (method is None or isinstance(method, (str, Method)))
        single = replications.size == 1 and isinstance(reps, (int, np.integer))
        shape = (len(configurations), replications.size) if several else () if single else (replications.size,)
        described = jsonable(stacked.describe())
        if several:
            described["parameters"] = jsonable([configuration.parameters() for configuration in configurations])
        identity = {"problem": jsonable(problem.describe()), "method": described, "reps": replications.tolist()}
        collective = engine_of(oracle)
        if checkpoint is not None or isinstance(collective, MPI):  # else the start stays on its device
            identity["x0"] = digest_of(start)
        if isinstance(collective, MPI):
            collective.compare({name: repr(value) for name, value in {**identity, "stop": rule, "seed": seed}.items()})
        if checkpoint is not None and not isinstance(checkpoint, Saver):
            constants = {"constants": jsonable(asdict(problem.constants))}
            checkpoint = Saver(checkpoint, constants, {"budget": budget, "stop": repr(stop)}, oracle, start[0], seed)
        if checkpoint is not None:
            checkpoint.identify({**identity, "oracle": jsonable(oracle.describe())})

        recorder = _recorder(record, active, rule, oracle)
        stacked.check_rounds(max(recorder.lengths, default=None))
        about = {"problem": identity["problem"], "method": described, "seed": int(seed)}
        observer = Observer(oracle, on_step, on_progress, checkpoint)
        result = Driver(active, start, rule, recorder, observer, shape, about).run()

    findings = []
    if result.residual is None:
        if any(status.ended_as_asked for status in np.ravel(result.status)):  # else no row is called a success
            findings.append(Finding.of("not-checked"))
        if method is None and problem.constants.sigma != 0:
            findings.append(Finding.of("batches-of-one", sigma=problem.constants.sigma))
    batches_of_one = all(configuration.parameters().get("batch_size") == 1 for configuration in configurations)
    if isinstance(engine, Engine) and engine.workers > 1 and batches_of_one:
        findings.append(Finding.of("idle-workers", workers=engine.workers))
    return replace(result, findings=(*findings, *result.findings)) if findings else result


def _combine(budget: int | None, stop: Rule | None) -> Rule:
    if stop is not None and not isinstance(stop, Rule):
        raise ArgumentTypeError("solve: stop must be a stopping rule", repr(stop), "Use Steps(k) or Target(eps)")
    if budget is None:
        return NEVER if stop is None else stop
    limit = Budget(checks.count(budget, "solve: budget"))
    return limit if stop is None else limit | stop


def _configurations(problem: Problem, method: Any, budget: int | None) -> list[Method]:
    if method is None or isinstance(method, str):
        return [make(method or DEFAULT_METHOD, problem, budget, {})]
    if isinstance(method, Method):
        return [method]
    configurations = list(method) if isinstance(method, Sequence) else []
    if not configurations or not all(isinstance(configuration, Method) for configuration in configurations):
        raise ArgumentTypeError(
            "solve: method must be a Method, a name, or a list of Methods of one class",
            repr(method),
            "Use DualOHM(...), 's-dual-ohm' or [SGDA(0.1), SGDA(1.0)]",
        )
    return configurations


def _start(x0: Any, default: Array, problem: Problem, reps: int) -> Array:
    """The start of each replication, (reps, d)."""
    start = default
    if x0 is not None:
        point = x0.x if isinstance(x0, Result) else x0
        start = arrays.tile(as_point(point, "solve: x0", problem.dimension, reps), reps)
    if problem.numpy_only and arrays.is_foreign(start):
        raise CapabilityError(
            f"{problem.name} computes with NumPy",
            f"a start of type {type(start).__name__}",
            "Start from a NumPy array, or write an oracle that computes with that library",
        )
    return start


def _replications(reps: Any) -> IntArray:
    if isinstance(reps, (Sequence, np.ndarray)) and not isinstance(reps, str):
        for number in reps:
            checks.count(number, "solve: each of reps", 0)
        if len(reps) == 0 or len(set(reps)) < len(reps):
            raise ArgumentError("solve: reps must name replications, each once", list(reps), "Use reps=[0, 1, 2]")
        return np.array(reps, dtype=np.int64)
    return np.arange(checks.count(reps, "solve: reps", most=checks.MOST_ROWS))


def _active_rows(
    method: Method, oracle: Oracle, start: Array, seed: int, replications: IntArray, configurations: int
) -> list[ActiveRows]:
    """All rows, configuration by configuration, each with its replication's oracle, start and streams.

    They are one group or, of a staged method, one group for each configuration.
    """
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
    session, coins = Session(oracle, streams), streams.of(Purpose.COIN)
    rows = np.arange(replications.size)
    if not isinstance(method, Staged):
        return [ActiveRows(method, method.init(start), session, coins, rows)]
    groups = []
    for first in range(0, rows.size, count):
        chosen = rows[first : first + count]
        staged = method.take(chosen).collapsed()
        memory = staged.begin(start[chosen])
        group = ActiveRows(staged, memory, session.take(chosen), coins.take(chosen), chosen)
        groups.append(group.enter(staged, 0, memory))
    return groups[::-1]  # the driver takes the last one first


def _check_ends(rule: Rule, method: Method, active: list[ActiveRows]) -> None:
    """Raise if the run would never end, cannot pay for a first step, or has a target that needs an unknown F."""
    name = type(method).__name__
    if rule is NEVER and _steps_to_horizon(active[0]) is None:
        raise ArgumentError(
            f"solve: {name} has no horizon, so something must end the run",
            "neither budget nor stop",
            "Pass budget=... or stop=Steps(k)",
        )
    if rule.of(Target) and active[0].residual() is None:
        raise ArgumentError(
            "Target needs a problem whose operator is known",
            "an oracle that can only be sampled",
            "Use Budget, Steps or WallTime, and look at the residual of the result with fresh samples",
        )
    budgets = [limit.evals for limit in rule.of(Budget)]
    largest = max(_first_cost(rows) for rows in active)
    if budgets and largest > min(budgets):
        raise ArgumentError(
            f"{name}: the batch size must not be larger than the budget, {min(budgets)} evaluations",
            f"a first step of {largest} evaluations",
            "Use a smaller batch or a larger budget",
        )


def _first_cost(rows: ActiveRows) -> int:
    """Evaluations of the first step, at most; 0 if no row takes one."""
    cost = per_row(rows.costs(1, rows.tosses(1)).evals[..., 0], rows.count)
    return int(np.max(np.where(rows.at_end(), 0, cost)))


def _recorder(record: Any, active: list[ActiveRows], rule: Rule, oracle: Oracle) -> Recorder:
    """What records the run, for the numbers of steps that rows are expected to take."""
    budgets = [limit.evals for limit in rule.of(Budget)]
    lengths = set[int]()
    for rows in active:
        limits = [*(limit.count for limit in rule.of(Steps)), _steps_to_horizon(rows)]
        limits += [_expected_steps(rows, budget) for budget in budgets]
        known = [np.ravel(limit) for limit in limits if limit is not None]
        if known:
            lengths |= set(np.minimum.reduce(np.broadcast_arrays(*known)).tolist())
    if isinstance(record, str) and record == "samples" and oracle.knows_operator:
        record = None
    if budgets and record is None:  # by default, recording true residuals must not cost more than the run
        record = int(np.clip(min(budgets) / oracle.operator_price, 2, DEFAULT_POINTS))
    return Recorder(record, sorted(lengths), oracle.traceable)


def _steps_to_horizon(rows: ActiveRows) -> Any:
    """Steps to the end of the method, for all rows or per row; None without an end."""
    if not rows.levels:
        return rows.remaining()
    horizon = rows.levels[0].method.horizon
    return None if horizon is None else horizon - 1


def _expected_steps(rows: ActiveRows, budget: int) -> Any:
    """Steps that a budget is expected to pay for, per row or for all; None if that is not known.

    After the first 65,536 steps, or where costs do not change, all steps are taken to cost as much as the last one.
    """
    if rows.levels:
        return rows.levels[0].method.steps_within(budget)
    method = rows.method
    count = 1024
    while True:
        ks = np.arange(count)
        if (probability := method.probability(ks)) is None:
            costs = np.asarray(method.cost(ks, rows.state, None).evals, dtype=float)
        else:
            heads, tails = (method.cost(ks, rows.state, np.full(count, coin)).evals for coin in (True, False))
            costs = probability * heads + (1 - probability) * tails
        costs = np.broadcast_to(costs, (*costs.shape[:-1], count))
        total, last = np.cumsum(costs, axis=-1), costs[..., -1]
        if (total[..., -1] > budget).all() or (costs == last[..., None]).all() or count >= 1 << 16:
            more = np.maximum(0, budget - total[..., -1]) // last
            return (np.count_nonzero(total <= budget, axis=-1) + more).astype(int)
        count *= 4
