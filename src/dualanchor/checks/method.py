"""`check_method`: test a method against the contract of a run, with additive noise and with a finite sum."""

import contextlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_raises

from dualanchor.checks.report import Report, run_checks
from dualanchor.core.errors import ArgumentTypeError, CapabilityError, HorizonError, OracleError
from dualanchor.core.history import Status
from dualanchor.core.method import Method
from dualanchor.core.oracle import Batch, Oracle, WrappedOracle
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.result import Result
from dualanchor.core.session import Session
from dualanchor.core.staged import Staged
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.oracles import AdditiveNoise, FiniteSum
from dualanchor.run import Checkpoint, Steps, solve

X0 = np.linspace(-1.0, 2.0, 6)
START = np.tile(X0, (2, 1))
BUDGET, SEED = 100, 11
CONSTANTS = Constants(L=4.0, mu=0.1, M=2.0, sigma=0.3, D=3.0)


def check_method(method: type[Method] | Method, *, expected_failures: Mapping[str, str] | None = None) -> Report:
    """Check a method against the contract that a run relies on, with additive noise and with a finite sum.

    Parameters
    ----------
    method : class, whose instances `cls.for_problem(problem, budget)` makes, or instance, checked as it is
    expected_failures : dict, optional
        Names of checks that are known to fail, each with the reason. Any other failure raises a CheckError, an
        AssertionError that shows the report; so does a check that passes although a failure was expected.

    Examples
    --------
    >>> import dualanchor as da
    >>> print(da.check_method(da.SGDA))
    SGDA
      shapes and dtypes stay: passed
      ...
    """
    cls = method if isinstance(method, type) else type(method)
    if not issubclass(cls, Method):
        raise ArgumentTypeError("check_method: method must be a Method", repr(method), "Derive it from da.Method")
    scale = np.linspace(0.1, 1.0, X0.size)
    vectors = np.random.default_rng(0).normal(size=(9, X0.size)) / np.sqrt(X0.size)
    cases = []
    for oracle in (AdditiveNoise(lambda x: scale * x, 0.3, vectorized=True), FiniteSum.rank_one(vectors)):
        with contextlib.suppress(CapabilityError):  # an oracle that lacks what the method needs is left out
            problem = Problem(oracle, X0, constants=CONSTANTS)
            instance = cls.for_problem(problem, BUDGET) if isinstance(method, type) else method
            instance.check_oracle(True, oracle.components)
            cases.append(_MethodContract(oracle, instance))
    return run_checks(cls.__name__, cases, expected_failures)


class _Counting(WrappedOracle):
    """Counts draws and evaluations, and raises at evaluation number `fail_at`, if that is not 0."""

    def __init__(self, inner: Oracle, fail_at: int = 0) -> None:
        super().__init__(inner)
        self.draws = self.evals = self.calls = 0
        self.fail_at = fail_at
        self.knows_operator = False

    def draw(self, streams: Streams, size: Any) -> Batch:
        self.draws += int(np.sum(np.broadcast_to(size, (streams.rows,))))
        return self.inner.draw(streams, size)

    def mean(self, x: Array, batch: Batch) -> Array:
        self.calls += 1
        if self.calls == self.fail_at:
            raise ArithmeticError("an evaluation that fails")
        self.evals += int(np.sum(np.broadcast_to(batch.size, (len(x),))))
        return self.inner.mean(x, batch)


class _MethodContract:
    """The checks of a method on an oracle, in two rows; each public function is one.

    A staged method has no steps of its own: only its runs are checked.
    """

    def __init__(self, oracle: Oracle, method: Method) -> None:
        self.oracle, self.method = oracle, method
        self.staged = isinstance(method, Staged)
        self.steps = min(20, method.steps or 20)
        self.coins = Streams(SEED, np.arange(2), Purpose.COIN)

    def _solve(self, method: Any = None, oracle: Oracle | None = None, **options: Any) -> Result:
        options = {"reps": 2, "seed": SEED, "record": 0, "check": False, **options}
        options |= {} if "stop" in options or "budget" in options else {"budget": BUDGET}
        return solve(Problem(oracle or self.oracle, X0, constants=CONSTANTS), method or self.method, **options)

    def _session(self, fail_at: int = 0) -> Session:
        return Session(_Counting(self.oracle, fail_at), Streams(SEED, np.arange(2), Purpose.NOISE, X0.size))

    def _coin(self, k: int) -> Any:
        probability = self.method.probability(np.array([k]))
        return None if probability is None else self.coins.uniforms(k, 1)[:, 0] < probability

    def _cost(self, k: int, row: int) -> tuple[int, int]:
        coin = self._coin(k)
        draws, evals = self.method.cost(k, None, None if coin is None else coin[row])
        return int(np.ravel(draws)[0]), int(np.ravel(evals)[0])

    def _assert_same(self, result: Result, other: Result, rows: Any = ..., within: float = 0.0) -> None:
        for name in ("nit", "nfev", "draws", "status"):
            assert_array_equal(np.asarray(getattr(result, name))[rows], getattr(other, name), err_msg=name)
        assert_allclose(result.x[rows], other.x, within, within / 10)

    def shapes_and_dtypes_stay(self) -> None:
        for dtype in (np.float32, np.float64):
            assert self._solve(x0=X0.astype(dtype), reps=1).x.shape == X0.shape, "x has another shape than the start"
            for name, value in self._solve(x0=X0.astype(dtype), reps=3).state.items():
                assert value.dtype == dtype, f"{name} is {value.dtype} for a start of {np.dtype(dtype)}"
                assert value.shape[0] == 3, f"{name} has {value.shape[0]} rows for 3 replications"

    def rows_do_not_depend_on_their_grouping(self) -> None:
        within = 0.0 if self.oracle.components is None else 1e-11  # matrix products round sums over components
        together = self._solve(reps=4)
        for rows in ([2], [3, 0]):
            self._assert_same(together, self._solve(reps=rows), rows, within)
        methods = [self.method, self.method.with_changes(step_size=self.method.step_size / 2)]
        stacked = self._solve(methods)
        for i, method in enumerate(methods):
            self._assert_same(stacked, self._solve(method), i, within)

    def a_resumed_run_equals_an_uninterrupted_one(self) -> None:
        uninterrupted = self._solve(record=7)
        calls = []

        def interrupt(x: Array) -> None:
            calls.append(1)
            if len(calls) == max(1, self.steps // 2):
                raise InterruptedError

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/run"
            with contextlib.suppress(InterruptedError):
                self._solve(record=7, callback=interrupt, checkpoint=Checkpoint(path, seconds=0))
            resumed = self._solve(record=7, checkpoint=path)
        self._assert_same(uninterrupted, resumed)
        for name, value in uninterrupted.state.items():
            assert_array_equal(resumed.state[name], value, err_msg=name)
        assert_array_equal(resumed.history.k, uninterrupted.history.k)

    def counts_are_those_of_a_counting_oracle(self) -> None:
        oracle = _Counting(self.oracle)
        result = self._solve(oracle=oracle)
        made, counted = (oracle.draws, oracle.evals), (result.draws.sum(), result.nfev.sum())
        assert made == counted, f"{made} draws and evaluations were made, {counted} counted"

    def a_step_costs_what_it_declares(self) -> None:
        history = self._solve(stop=Steps(self.steps), record="all").history
        for row in range(0 if self.staged else 2):
            records = history.of(row)
            for k, cost in enumerate(zip(np.diff(records.draws), np.diff(records.evals), strict=True)):
                assert cost == self._cost(k, row), f"step {k} declared {self._cost(k, row)} and took {cost}"

    def the_budget_is_used_and_not_exceeded(self) -> None:
        for budget in (BUDGET, BUDGET - 1, BUDGET // 2):
            result = self._solve(budget=budget)
            assert (result.nfev <= budget).all(), f"{result.nfev.max()} evaluations in a budget of {budget}"
            for row in np.flatnonzero((result.status == Status.BUDGET) & (not self.staged)).tolist():
                spent = result.nfev[row] + self._cost(int(result.nit[row]), row)[1]
                assert spent > budget, f"the next step would have fitted: {spent} of {budget} evaluations"

    def inputs_are_not_changed(self) -> None:
        x0, parameters = START.copy(), repr(self.method.parameters())
        if not self.staged:
            self.method.step(0, self.method.init(x0), self._session(), self._coin(0))
        result = self._solve(x0=x0)
        assert_array_equal(x0, START, err_msg="the start was changed")
        assert repr(self.method.parameters()) == parameters, "hyper-parameters were changed by a run"
        assert not np.shares_memory(result.x, x0), "the result shares memory with the start"

    def the_horizon_is_respected(self) -> None:
        points: list[Array] = []
        self._solve(stop=Steps(self.steps), callback=lambda x: points.append(x.copy()))
        for k in (1, self.steps):
            assert_array_equal(self._solve(stop=Steps(k)).x, points[k - 1], err_msg="stopping earlier changed the path")
        if (steps := self.method.steps) is None:
            return
        result = self._solve(stop=Steps(steps + 5))
        assert (result.nit == steps).all(), f"{result.nit.max()} steps were taken, {steps} exist"
        assert (result.status == Status.HORIZON).all(), f"ended with {result.status[0].name} at the horizon"
        if not self.staged:
            state, session = self.method.init(START.copy()), self._session()
            assert_raises(HorizonError, self.method.step, steps, state, session, self._coin(steps))

    def results_depend_on_the_seed_alone(self) -> None:
        stop = Steps(self.steps)
        result = self._solve(stop=stop)
        self._assert_same(result, self._solve(stop=stop, record="all"))
        self._assert_same(result, self._solve(stop=stop, callback=lambda x: None))
        assert not np.array_equal(result.x, self._solve(stop=stop, seed=SEED + 1).x), "another seed gives the same x"

    def a_step_that_fails_changes_nothing(self) -> None:
        session, state = self._session(), self.method.init(START.copy())
        for k in range(0 if self.staged else min(8, self.steps)):
            for evaluation in (1, 2):
                tried = state.copy()
                with contextlib.suppress(OracleError):
                    self.method.step(k, tried, self._session(evaluation), self._coin(k))
                    continue  # the step has fewer evaluations
                for name, value in vars(state).items():
                    assert_array_equal(getattr(tried, name), value, err_msg=f"{name} was changed by a failed step {k}")
            self.method.step(k, state, session, self._coin(k))
