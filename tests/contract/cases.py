"""What the contract is held against: every registered method with each kind of oracle, on small problems.

Nothing here asks for a name. Sizes and alternatives go by the names of options and hyper-parameters, so a method or
problem that is added later comes under the contract by itself. Which methods a problem cannot serve is found out
from the CapabilityError.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import State
from dualanchor.core.registry import Registered
from dualanchor.core.staged import Staged
from dualanchor.core.streams import Purpose
from dualanchor.methods import make

SEED = 11

SIZES = {"dimension": 8, "components": 9, "rank": 5}
"""Options that say how large a problem is. With n = 9 components batches below come out smaller and larger than n."""

HORIZON = 201
LISTED = [1 + (7 * k) % 12 for k in range(500)]  # a list must reach to the end of the longest loops

ALTERNATIVES: dict[str, list[Any]] = {
    "batch_size": [3, 12, da.Growing(0.06), LISTED],
    "estimator": [da.PAGE(7, 2)],
    "big_batch": [20],
    "small_batch": [2, 11],
    "growth": [0.02],
    "anchor_weight": [0.05],
    "weights": ["uniform"],
    "contraction": [0.9],
    "mu": [0.3],
    "offset": [2.5],
    "batch_scale": [0.1],
    "first_stage": [13],
    "prox": [da.prox.box(-1, 1), da.prox.simplex(3.0), da.prox.l1(0.1)],
    "reuse": [True],
}
"""Values by the name of the hyper-parameter; each makes a variant of every method that has it."""

WITH_HORIZON: dict[str, list[Any]] = {"batch_size": [da.Tapered(30.0), da.Tapered(2000.0)]}
"""The same for methods that know their horizon."""

STACKS: dict[str, list[Any]] = {
    "step_size": [0.03, 0.11, 0.2],
    "horizon": [9, 31, 30, 80],
    "batch_size": [1, 12, 3],
    "big_batch": [4, 20, 7],
    "small_batch": [1, 11, 3],
    "growth": [0.001, 0.02, 0.1],
    "anchor_weight": [0.05, 0.01],
    "contraction": [1.0, 0.9, 0.5],
    "mu": [0.3, 0.05],
    "offset": [1.0, 7.5],
    "batch_scale": [0.001, 0.2, 0.01],
    "first_stage": [8, 21, 11],
    "estimator": [da.PAGE(4, 1), da.PAGE(20, 11), da.PAGE(4, 2)],
}
"""Values that configurations of one run differ in."""

NEEDED: dict[str, Any] = {
    "mu": 1e-9,  # so small that steps of any size are taken as they are
    "batch_scale": 0.003,
    "delta": 0.2,
    "lengths": (10, 12),
    "epochs": (2, 3),
    "halvings": (1, 2),
}
"""Values that follow from constants or budgets which not every problem has; more than 400 steps of loops."""

LOOPS: dict[str, Any] = {"anchor_weight": 1e-4}
"""The same for methods with loops: an anchor so light that steps that are too large are felt."""

STACKS_OF_SCHEDULES: dict[str, list[Any]] = {"batch_size": [da.Growing(0.1), da.Growing(1.0), da.Growing(0.5)]}
STACKS_WITH_HORIZON: dict[str, list[Any]] = {"batch_size": [da.Tapered(3.0), da.Tapered(40.0), da.Tapered(300.0)]}


class Case(NamedTuple):
    """A method on a problem that can serve it."""

    method: Registered
    problem: da.Problem

    def make(self, horizon: int = HORIZON, **parameters: Any) -> da.Method:
        """The method with its own choice of what is not given."""
        if "horizon" in self.parameters:
            parameters.setdefault("horizon", horizon)
        if "rounds" in self.parameters:
            parameters.setdefault("rounds", max(1, horizon - 1))
        if "horizons" in self.parameters:  # two stages of together as many rounds
            first = max(1, horizon // 3)
            parameters.setdefault("horizons", (first + 1, max(2, horizon - first)))
            parameters.setdefault("batch_sizes", (2, da.Tapered(30.0)))
        if "stage_steps" in self.parameters:  # two stages and regularised Dual-OHM
            first = max(1, horizon // 3)
            for name, value in {"deltas": (0.01, 0.02), "batch_sizes": (2, 1), "step_factors": (1.0, 0.5)}.items():
                parameters.setdefault(name, value)
            parameters.setdefault("stage_steps", (first, max(1, horizon // 6)))
            parameters.setdefault(
                "last", da.RegularisedDualOHM(0.05, max(2, horizon // 2), da.Tapered(9.0), delta=0.04)
            )
        for name, value in {**NEEDED, **(LOOPS if "lengths" in self.parameters else {})}.items():
            if name in self.parameters:
                parameters.setdefault(name, value)
        return make(self.method.id, self.problem, None, parameters)

    @property
    def parameters(self) -> list[str]:
        return self.method.cls.parameter_names()

    @property
    def elementwise(self) -> bool:
        """Whether no matrix product is involved, so that results agree bit for bit; finite sums have them."""
        return self.problem.components is None

    @property
    def staged(self) -> bool:
        """Whether the method is made of stages, which are methods of their own."""
        return issubclass(self.method.cls, Staged)

    def __str__(self) -> str:
        return f"{self.method.id}-{self.problem.name}"


def small(entry: Registered, **options: Any) -> da.Problem:
    """The named problem with few unknowns and components."""
    names = entry.cls.option_names()
    return entry.cls(**{**{name: SIZES[name] for name in names if name in SIZES}, **options})


def noiseless(entry: Registered) -> da.Problem:
    """The same without noise, where the problem has noise that can be left out."""
    return small(entry, **({"sigma": 0.0} if "sigma" in entry.cls.option_names() else {}))


def serves(problem: da.Problem, method: Registered) -> bool:
    """Whether the problem has what the method needs."""
    try:
        da.solve(problem, Case(method, problem).make(), stop=da.Steps(1), record=0)
    except da.errors.CapabilityError:
        return False
    return True


_PROBLEMS = [small(entry) for entry in da.list_problems()]
_KINDS = [
    [problem for problem in _PROBLEMS if problem.components is None],
    [problem for problem in _PROBLEMS if problem.components is not None],
]
"""Problems by kind: those without matrix products, and finite sums."""


def _in_turn(number: int, method: Registered) -> list[Case]:
    """The method on one problem of each kind that can serve it, problems taking turns from method to method."""
    found = [Case(method, problems[number % len(problems)]) for problems in _KINDS]
    return [case for case in found if serves(case.problem, method)]


CASES = [case for number, method in enumerate(da.list_methods()) for case in _in_turn(number, method)]
"""Every method with each kind of oracle, once."""


def _of(method: Registered) -> list[Case]:
    return [case for case in CASES if case.method == method]


ON_ONE = [_of(method)[number % len(_of(method))] for number, method in enumerate(da.list_methods())]
"""Every method once, kinds of oracles taking turns."""


def _slow_unless(fast: bool) -> Any:
    return () if fast else pytest.mark.slow


def each_of(cases: list[Case]) -> Any:
    """A test for each of them; outside of the slow suite, one for each method."""
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=str(case), marks=_slow_unless(case in ON_ONE)) for case in cases]
    )


CAUTIOUS = {"auto", "svrg"}
"""Methods that shorten their own steps: a step that is far too large does not make them diverge."""

every_case = each_of(CASES)
every_diverging_case = each_of([case for case in CASES if case.method.id not in CAUTIOUS])
every_method = pytest.mark.parametrize("case", ON_ONE, ids=str)
every_plain_method = pytest.mark.parametrize("case", [c for c in ON_ONE if not c.staged], ids=str)
"""Every method that takes its own steps; the others take those of their stages."""
every_diverging_method = pytest.mark.parametrize("case", [c for c in ON_ONE if c.method.id not in CAUTIOUS], ids=str)


def variants(case: Case) -> list[dict[str, Any]]:
    """Hyper-parameters to try, as changes of the method's own choice."""
    tables = [ALTERNATIVES, WITH_HORIZON] if "horizon" in case.parameters else [ALTERNATIVES]
    changes = [{name: value} for table in tables for name in table if name in case.parameters for value in table[name]]
    return [{}, *changes]


def _change_id(case: Case, change: dict[str, Any]) -> str:
    shown = [f"{name}={'list' if isinstance(value, list) else value}" for name, value in change.items()]
    return f"{case}-{shown[0] if shown else 'default'}"


def _variants_in_turn(method: Registered) -> list[tuple[Case, dict[str, Any]]]:
    """The method's own choice with each kind of oracle, each change with one, kinds taking turns."""
    cases = _of(method)
    changes = variants(cases[0])[1:]
    return [(case, {}) for case in cases] + [(cases[i % len(cases)], change) for i, change in enumerate(changes)]


def _each_variant(plain: bool) -> Any:
    return pytest.mark.parametrize(
        ("case", "change"),
        [
            pytest.param(case, change, id=_change_id(case, change), marks=_slow_unless(case in ON_ONE and not change))
            for method in da.list_methods()
            for case, change in _variants_in_turn(method)
            if not (plain and case.staged)
        ],
    )


every_variant = _each_variant(plain=False)
every_plain_variant = _each_variant(plain=True)


def stacks(case: Case) -> list[tuple[str, list[da.Method]]]:
    """Lists of methods that run as configurations of one array, with the name of what differs."""
    found = []
    for table in [STACKS, STACKS_OF_SCHEDULES, *([STACKS_WITH_HORIZON] if "horizon" in case.parameters else [])]:
        for name, values in table.items():
            if name in case.parameters:
                horizon = {} if name == "horizon" else {"horizon": 60}
                methods = [case.make(**horizon, **{name: value}) for value in values]
                found.append((f"{name}-{type(values[0]).__name__}", methods))
    return found


_STACKS = [
    (cases[i % len(cases)], name, methods)
    for method in da.list_methods()
    for cases in [_of(method)]
    for i, (name, methods) in enumerate(stacks(cases[0]))
]
"""Every stack of every method with one kind of oracle, kinds taking turns."""


def _each_stack(chosen: list[tuple[Case, str, list[da.Method]]], fast: Any) -> Any:
    return pytest.mark.parametrize(
        ("case", "methods"),
        [
            pytest.param(case, methods, id=f"{case}-{name}", marks=_slow_unless(name in fast))
            for case, name, methods in chosen
        ],
    )


_LAST = [[stack for stack in _STACKS if stack[0].method == method][-1] for method in da.list_methods()]
_FAST = {"batch_size-int", "small_batch-int"}
every_stack = _each_stack(_STACKS, _FAST)
every_plain_stack = _each_stack([stack for stack in _STACKS if not stack[0].staged], _FAST)
one_stack_each = _each_stack(_LAST, {name for _, name, _ in _LAST})
"""The last stack of each method only: batch sizes or schedules, where it has them."""


def session_for(case: Case, replications: list[int], seed: int = SEED) -> tuple[Any, da.Session, da.Streams]:
    """Start, session and coins of any set of replications, made of public parts only."""
    chosen = np.asarray(replications)
    instance = case.problem.instance(da.Streams(seed, chosen, Purpose.INSTANCE))
    streams = da.Streams(seed, chosen, Purpose.NOISE, instance.x0.shape[1])
    return instance.x0, da.Session(instance.oracle, streams), streams.of(Purpose.COIN)


def coin(method: da.Method, coins: da.Streams, k: int) -> Any:
    """The coins that a run tosses for step k, or None."""
    probability = method.probability(np.arange(k, k + 1))
    return None if probability is None else (coins.uniforms(k, 1) < probability)[:, 0]


def bare(case: Case, method: da.Method, replications: list[int], steps: int) -> tuple[Any, da.Session]:
    """State and session after some steps, by nothing but `init` and `step`; in stages while rows go the same way."""
    start, session, coins = session_for(case, replications)
    if isinstance(method, Staged):
        return _bare_stages(method, start, session, steps)
    s = method.init(start)
    for k in range(steps):
        method.step(k, s, session, coin(method, coins, k))
    return s, session


def _bare_stages(method: Staged, start: Any, session: da.Session, steps: int) -> tuple[Any, da.Session]:
    memory, number = method.begin(start), 0
    stage, k = method.stage(number, memory), 0
    for _ in range(steps):
        if k == stage.steps:
            (number,) = np.unique(method.choose(number, memory, stage.state, session)).tolist()
            stage, k = method.stage(number, memory), 0
        stage.method.step(k, stage.state, session)
        k += 1
    return State(x=method.point(number, memory, stage.state), iterate=stage.state.x), session


def assert_close(case: Case, actual: Any, expected: Any) -> None:
    """Bit for bit where no matrix product is involved, else to rounding."""
    if case.elementwise:
        np.testing.assert_array_equal(actual, expected)
    else:
        finite = np.abs(np.asarray(expected)[np.isfinite(expected)])
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12 * np.max(finite, initial=0.0))


def assert_same_result(one: da.Result, other: da.Result) -> None:
    """Two results agree in every bit of state and counts; true residuals of finite sums to rounding.

    Those are looked at from outside, and rows that are looked at together are multiplied together.
    """
    assert one.shape == other.shape
    for name in ("x", "success", "status", "nit", "nfev", "draws"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.residual is None) == (other.residual is None)
    if one.residual is not None:
        np.testing.assert_allclose(one.residual, other.residual, rtol=1e-13)
    assert one.residual_kind == other.residual_kind
    assert one.state.keys() == other.state.keys()
    for name, value in one.state.items():
        np.testing.assert_array_equal(value, other.state[name], err_msg=f"state {name}")
    assert one.history.columns().keys() == other.history.columns().keys()
    for name, column in one.history.columns().items():
        rtol = 1e-13 if name == "residual" else 0.0
        np.testing.assert_allclose(column, other.history.columns()[name], rtol=rtol, err_msg=f"history {name}")
    assert (one.problem, one.method, one.seed) == (other.problem, other.method, other.seed)
    # a run that was taken up says so; nothing else may differ
    findings = [[found for found in result.findings if found.code != "resumed"] for result in (one, other)]
    assert findings[0] == findings[1]
