"""Bases of the methods: state, estimator, admissible steps, and the horizon that a budget pays for."""

from bisect import bisect_right
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Cost, Estimator, Method, State
from dualanchor.core.oracle import no_full_pass
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.schedule import Constant, Paired, as_schedule
from dualanchor.core.session import Session
from dualanchor.core.types import Array
from dualanchor.estimators.minibatch import Minibatch


class RemembersStart(Method):
    """A method whose state keeps the start x_0 as `anchor`."""

    def init(self, x0: Array) -> State:
        return State(**vars(super().init(x0)), anchor=arrays.copy(x0))


class Batched(Method):
    """A method that estimates F by the mean of a fresh batch, or by another estimator."""

    batch_size: Any
    estimator: Estimator | None = None

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return self.estimator or Minibatch(self.batch_size)


class OfFiniteSum(Method):
    """A method for finite sums with a fixed number of components."""

    counts = ("components",)
    components: Any

    def check_oracle(self, replayable: bool, components: int | None) -> None:
        super().check_oracle(replayable, components)
        if components != self.components:
            rule = f"{type(self).__name__}: components must be the number of components of the oracle, {components}"
            raise ArgumentError(rule, self.components, f"Use components={components}")

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        if problem.components is None:
            raise no_full_pass(f"problem {problem.name!r}, which is not a finite sum")
        return {"components": problem.components}


class LimitedStep(Method):
    """A method whose theorem admits steps up to 2/L, or another multiple of 1/L or 1/M."""

    step_rule: ClassVar[str]  # the theorem that admits them
    longest: ClassVar[tuple[float, str, str]] = (2.0, "L", "2/L")  # multiple, constant, and the formula

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        factor, name, formula = self.longest
        value = lipschitz(constants) if name == "M" else constants.L
        return None if value is None else (factor / value, formula, f"{self.step_rule} with {name} = {value:.6g}")

    @classmethod
    def step_for(cls, problem: Problem, given: dict[str, Any]) -> Any:
        """The step given, or else the largest one; None if neither it nor L is known."""
        L = problem.constants.L
        return given.get("step_size", None if L is None else cls.longest[0] / L)


class Lipschitz(LimitedStep):
    """A method whose theorem admits steps up to a multiple of 1/M."""

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        M = lipschitz(problem.constants)
        return {"step_size": problem.step_size if M is None else cls.longest[0] / M}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        usual = cls.defaults(problem, None, {})["step_size"] or 1.0
        return {"step_size": [step for step in cls._steps_to_try(problem) if step <= usual * (1 + 1e-5)]}


def lipschitz(constants: Constants) -> float | None:
    """A Lipschitz constant, if one is known: M, or else L, since 1/L-cocoercive operators have M <= L."""
    return constants.L if constants.M is None else constants.M


class Scheduled(LimitedStep, Batched):
    """OHM and Dual-OHM: fresh batches with sizes by any schedule, or another estimator of F."""

    tuned: ClassVar[tuple[str, ...]] = ("batch_size",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.estimator, Estimator | None):
            rule = f"{type(self).__name__}: estimator must be an Estimator"
            raise ArgumentTypeError(rule, repr(self.estimator), "Use PAGE(big_batch, small_batch), or leave it out")

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        horizon = given.get("horizon")
        if horizon is None and budget is not None and given.get("estimator") is None:
            horizon = longest_horizon(given.get("batch_size", 1), budget, cls.__name__)
        return {"step_size": problem.step_size, "horizon": horizon}


def longest_horizon(batch_size: Any, budget: int, owner: str) -> int:
    """The paper's N = Q/B for a constant batch, else the largest N whose N - 1 batches fit into the budget."""
    schedule = as_schedule(batch_size, owner, horizon=1)
    if isinstance(schedule, Constant):
        if schedule.value > budget:
            rule = f"{owner}: batch_size must not be larger than the budget, {budget} evaluations"
            raise ArgumentError(rule, schedule.value, "Use a smaller batch or a larger budget")
        return budget // schedule.value
    if isinstance(batch_size, (list, tuple)):
        return 1 + int(np.count_nonzero(np.cumsum(batch_size) <= budget))
    return bisect_right(range(1, budget + 2), budget, key=lambda N: np.sum(schedule.size(np.arange(N - 1), N)))


class TwoCall(Batched):
    """Extragradient steps: two independent batches, of the same size unless `batch_size` is Paired."""

    @cached_property
    def _estimators(self) -> tuple[Estimator, Estimator]:
        size = self.batch_size
        return (Minibatch(size.ahead), Minibatch(size.update)) if isinstance(size, Paired) else (Minibatch(size),) * 2

    def first_call(self, k: int, x: Array, F: Session) -> Array:
        """F_B(x_k) with a fresh batch, for the half-step; raises if there is no step k."""
        if self.steps is not None and k >= self.steps:
            raise self._past_horizon(k)
        return self._estimators[0].estimate(k, State(x=x), F, self.horizon, None)

    def second_call(self, k: int, half: Array, F: Session) -> Array:
        """F_B'(x_{k+1/2}) with another fresh batch, for the update."""
        return self._estimators[1].estimate(k, State(x=half), F, self.horizon, None)

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        cost = super().cost(k, s, coin)
        calls = 1 if isinstance(self.batch_size, Paired) else 2  # the size of a Paired is that of both
        return Cost(calls * cost.draws, calls * cost.evals)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        steps = [] if problem.step_size is None else [problem.step_size]
        if problem.constants.M is not None:
            steps.append(1 / (2 * problem.constants.M))
        return {"step_size": min(steps, default=None)}


def set_tuples(method: Method, *names: str) -> None:
    """Make tuples of these parameters, which have one value per stage; raises if one is not a tuple or list."""
    for name in names:
        if not isinstance(value := getattr(method, name), (tuple, list)):
            rule = f"{type(method).__name__}: {name} must be a tuple with one value per stage"
            raise ArgumentTypeError(rule, repr(value), "Use for example (1, 2)")
        object.__setattr__(method, name, tuple(value))


def required(cls: type[Method], problem: Problem, rule: str, remedy: str, **values: Any) -> list[Any]:
    """The values, a budget and constants by name, that hyper-parameters follow from; raises if one of them is None."""
    if missing := ["a budget" if name == "budget" else name for name, value in values.items() if value is None]:
        raise ArgumentError(f"{cls.id}: {rule}", f"problem {problem.name!r} without {' and '.join(missing)}", remedy)
    return list(values.values())
