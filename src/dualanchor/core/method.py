"""What is iterated: methods, and the estimators through which they evaluate F.

A method is a frozen record of hyper-parameters. It defines its initial state, one step, and the cost of that step;
it has no loop, no counter and no generator. It sees F only through the Session.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, CapabilityError, HorizonError, unknown_name
from dualanchor.core.oracle import no_full_pass
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.rowwise import Rowwise
from dualanchor.core.schedule import as_schedule
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows

BATCH_SIZES = (1, 10, 20, 50, 100)  # tried by a comparison: those of the paper
STEP_SIZES = (0.005, 0.01, 0.05, 0.1, 1.0)  # tried by a comparison, as multiples of the problem's step if that is known
_LONG = 1 << 16  # coordinates of a row from which on it is updated in pieces: the arrays of a step exceed the cache


class State:
    """The state of a method: named arrays with one row per run, among them the iterate `x`."""

    x: Array

    def __init__(self, **values: Array) -> None:
        vars(self).update(values)

    if TYPE_CHECKING:  # arrays have any names; attributes of a SimpleNamespace would take twice as long

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def take(self, rows: Rows) -> State:
        """The state of a selection of the rows; a copy."""
        return State(**{name: arrays.take(value, rows) for name, value in vars(self).items()})

    def copy(self) -> State:
        """An independent copy."""
        return State(**{name: arrays.copy(value) for name, value in vars(self).items()})


class Cost(NamedTuple):
    """Fresh samples and operator evaluations of a step: ints, or arrays over (rows and) steps.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.SEG(0.5, batch_size=4).cost(0)
    Cost(draws=8, evals=8)
    """

    draws: Any
    evals: Any

    def totals(self, count: int) -> Cost:
        """Sums over the first 1, 2, .. of `count` steps, on the last axis."""

        def running(costs: Any) -> Array:
            if isinstance(costs, int):  # by far the most frequent case, and faster
                return costs * np.arange(1, count + 1)
            return np.cumsum(np.broadcast_to(costs, (*np.shape(costs)[:-1], count)), axis=-1)

        evals = running(self.evals)
        return Cost(evals if self.draws is self.evals else running(self.draws), evals)


class Estimator(Rowwise, ABC):
    """How a method that evaluates F once per step estimates F(x_k).

    A subclass is a frozen dataclass. `needs` names the capabilities that it requires of the oracle: "replay" (evaluate
    one batch at two points), "full-pass" (evaluate all components of a finite sum).

    Examples
    --------
    >>> import dualanchor as da
    >>> isinstance(da.Minibatch(4), da.Estimator), sorted(da.PAGE(8, 2).needs)
    (True, ['replay'])
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def init(self, s: State) -> None:
        """Add the arrays of the estimator to the initial state."""

    def check_rounds(self, horizon: Any, rounds: int | None, owner: str) -> None:
        """Raise if one of the first `rounds` rounds (None: up to the horizon) has no batch size."""

    def probability(self, k: Any) -> Any:
        """Probability of heads of the coin of round k; None if the estimator tosses none."""
        return None

    @abstractmethod
    def cost(self, k: Any, horizon: Any, coin: Any) -> Cost:
        """Draws and evaluations of round k; k and coin may be arrays of rounds."""

    @abstractmethod
    def estimate(self, k: int, s: State, F: Session, horizon: Any, coin: Any) -> Array:
        """The estimate of F(s.x). The state must change only after the last evaluation, which may raise."""


class _ClassName:
    """The name of the class, for an attribute that a class does not define."""

    def __get__(self, method: Any, owner: type) -> str:
        return owner.__name__


class Method(Rowwise, ABC):
    """An algorithm: `init`, `step`, the `cost` of a step, and what it needs and guarantees.

    A subclass is a frozen dataclass, in its own file in `methods/`. One that evaluates F once per step defines
    `estimator_in_use` and an elementwise `update(k, s, G)`; any other overrides `step` and `cost`.

    A step changes its state only after its last evaluation, so a step that raises has changed nothing.

    Examples
    --------
    >>> import dualanchor as da
    >>> issubclass(da.DualOHM, da.Method), da.DualOHM(0.5, horizon=10).steps
    (True, 9)
    """

    id: ClassVar[str] = _ClassName()  # type: ignore[assignment]
    title: ClassVar[str] = _ClassName()  # type: ignore[assignment]
    citation: ClassVar[str] = "dualanchor"
    anytime: ClassVar[bool] = True  # whether stopping early is as good as stopping at the horizon
    compared: ClassVar[bool] = True  # whether a comparison includes it by default
    listed: ClassVar[bool] = True  # whether it can be made from its name
    tuned: ClassVar[tuple[str, ...]] = ()  # which of step_size and batch_size a comparison tunes
    positive: ClassVar[tuple[str, ...]] = ("step_size",)  # parameters that must be positive numbers
    counts: ClassVar[tuple[str, ...]] = ()  # parameters that must be whole numbers >= 1
    mean_of: ClassVar[str] = "x"  # which of its arrays an average is taken of

    step_size: Any
    horizon: Any = None

    def __post_init__(self) -> None:
        sizes = getattr(self, "batch_size", None)
        if isinstance(sizes, np.ndarray) and sizes.ndim == 1:  # a column is (rows, 1): this is a list of sizes
            object.__setattr__(self, "batch_size", sizes.tolist())
        self.require_positive(*self.positive)
        self.require_counts(*self.counts, *(["horizon"] if self.horizon is not None else []))
        if hasattr(self, "batch_size"):
            as_schedule(self.batch_size, type(self).__name__, self.horizon)

    def check_rounds(self, rounds: int | None) -> None:
        """Raise if one of the first `rounds` rounds (None: up to the horizon) has no batch size."""
        if (estimator := self.estimator_in_use) is not None:
            estimator.check_rounds(self.horizon, rounds, type(self).__name__)

    # -- the interface to a run ------------------------------------------------------------------------------

    @cached_property
    def estimator_in_use(self) -> Estimator | None:
        """The estimator; None for a method that overrides `step` and `cost`."""
        return None

    @property
    def needs(self) -> frozenset[str]:
        """The capabilities that the method requires of its oracle, see `Estimator`."""
        estimator = self.estimator_in_use
        return frozenset() if estimator is None else estimator.needs

    @cached_property
    def steps(self) -> int | None:
        """Number of steps that all rows can take: the smallest horizon minus 1; None without a horizon."""
        return None if self.horizon is None else int(np.min(self.horizon)) - 1

    def init(self, x0: Array) -> State:
        """The state before step 0; x0 is (rows, d) and is copied."""
        s = State(x=arrays.copy(x0))
        if (estimator := self.estimator_in_use) is not None:
            estimator.init(s)
        return s

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        """Take step k in place, from x_k to x_{k+1}."""
        steps, estimator = self.steps, self.estimator_in_use
        if steps is not None and k >= steps:
            raise self._past_horizon(k)
        assert estimator is not None
        self.update_rows(k, s, estimator.estimate(k, s, F, self.horizon, coin))

    def update(self, k: int, s: State, G: Array) -> None:
        """The elementwise part of step k, in place, given the estimate G of F(x_k)."""
        raise NotImplementedError(f"{type(self).__name__} has no single-evaluation update")

    def update_rows(self, k: int, s: State, G: Array) -> None:
        """`update` for rows of any length: long rows in pieces that fit the cache."""
        if type(G) is not np.ndarray or G.size < _LONG or G.shape[1] < _LONG:
            self.update(k, s, G)
            return
        width = max(1, arrays.PIECE // (len(G) * G.itemsize))
        for start in range(0, G.shape[1], width):
            piece = (slice(None), slice(start, start + width))
            views = {name: value[piece] for name, value in vars(s).items()}
            part = State(**views)
            self.update(k, part, G[piece])
            for name, value in vars(part).items():
                if value is not views[name]:  # the update has replaced the array instead of writing to it
                    getattr(s, name)[piece] = value

    def probability(self, k: Any) -> Any:
        """Probability of heads of the coin that the run tosses before step k; None for no coin."""
        estimator = self.estimator_in_use
        return None if estimator is None else estimator.probability(k)

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        """The exact draws and evaluations of step k, known before it is taken; k and coin may be arrays of steps."""
        estimator = self.estimator_in_use
        assert estimator is not None
        return estimator.cost(k, self.horizon, coin)

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        """The largest step size that the method's theorem admits, its formula and its source; None for no limit."""
        return None

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters for a problem and a budget, to complete those in `given`."""
        return {"step_size": problem.step_size}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        """Values that a comparison tries, by parameter; a parameter not named keeps its default."""
        grid: dict[str, list[Any]] = {}
        if "step_size" in cls.tuned:
            grid["step_size"] = cls._steps_to_try(problem)
        if "batch_size" in cls.tuned:
            grid["batch_size"] = cls._batches_to_try(budget)
        return grid

    @classmethod
    def for_problem(cls, problem: Problem, budget: int | None = None, **parameters: Any) -> Self:
        """The method for a problem and a budget; parameters not given have the defaults of the method's source."""
        for name in parameters:
            if name not in cls.parameter_names():
                raise unknown_name(f"{cls.id}: parameter", name, cls.parameter_names())
        for name in cls.positive:  # before defaults are computed from them
            if parameters.get(name) is not None:
                check.number(parameters[name], f"{cls.__name__}: {name}", positive=True, remedy="Use a positive number")
        chosen = {**cls.defaults(problem, budget, parameters), **parameters}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if (name := field.name) not in parameters and required and chosen.get(name) is None:
                rule = f"{cls.id}: {name} must be given where the problem and the budget do not imply it"
                received, other = f"budget {budget}", "pass a budget"
                if name == "step_size":
                    received, other = f"L = {problem.constants.L}", "declare L: Constants(L=...), at a front door L=..."
                raise ArgumentError(rule, received, f"Give it, as in {cls.__name__}({name}=...), or {other}")
        return cls(**chosen)

    # -- checks and description ------------------------------------------------------------------------------

    def check(self, constants: Constants) -> None:
        """Raise if the step size is larger than the method's theorem admits for these constants."""
        if (limit := self.largest_step(constants)) is None:
            return
        largest, formula, source = limit
        if np.max(self.step_size) > largest * (1 + 1e-12):
            limit_text = f"0 < step_size <= {formula} = {largest:.6g} ({source})"
            rule = f"{type(self).__name__}: step_size must satisfy {limit_text}"
            remedy = f"Use {largest:.6g}, or pass check=False to run outside the theorem"
            raise ArgumentError(rule, f"{np.max(self.step_size):.6g}", remedy)

    def check_oracle(self, replayable: bool, components: int | None) -> None:
        """Raise if an oracle with these properties lacks a capability that the method needs."""
        if "replay" in self.needs and not replayable:
            rule = f"{type(self).__name__} needs an oracle whose samples can be evaluated at two points"
            remedy = "Draw all randomness from the generator passed to it, or use a method such as s-dual-ohm"
            raise CapabilityError(rule, "an oracle that is not replayable", remedy)
        if "full-pass" in self.needs and components is None:
            raise no_full_pass("an oracle that is not a finite sum")

    def parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Names of the hyper-parameters."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        """Name, source and hyper-parameters, for results."""
        facts = {name: getattr(self, name) for name in ("id", "title", "citation", "anytime")}
        return {**facts, "parameters": self.parameters()}

    def with_changes(self, **changes: Any) -> Self:
        """A copy with some hyper-parameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def _batches_to_try(cls, budget: int) -> list[int]:
        """Batch sizes that a comparison tries: those of which the budget pays for two batches."""
        return [size for size in BATCH_SIZES if size * 2 <= budget] or [1]

    @classmethod
    def _steps_to_try(cls, problem: Problem) -> list[float]:
        """Step sizes that a comparison tries, rounded to six digits."""
        default = cls.defaults(problem, None, {}).get("step_size")
        factors = (*STEP_SIZES, 2.0) if default else STEP_SIZES
        return [float(f"{factor * (default or 1.0):.6g}") for factor in factors]

    def _past_horizon(self, k: int) -> HorizonError:
        steps = "1 step exists" if self.steps == 1 else f"{self.steps or 'no'} steps exist"
        rule = f"{type(self).__name__}: {steps} for horizon N = {self.horizon}"
        return HorizonError(rule, f"k = {k}", "Stop here, or make the method with a larger horizon")
