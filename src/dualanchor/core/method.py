"""What is iterated: methods and the estimators they read F through.

A method is a frozen record of hyper-parameters. It gives the start of its state, one step, and the cost of that
step; it has no loop, no counter and no generator. It sees F only through the Session.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, CapabilityError, HorizonError, unknown_name
from dualanchor.core.oracle import no_full_pass
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.rowwise import Rowwise
from dualanchor.core.schedule import as_schedule
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows

BATCH_SIZES = (1, 10, 20, 50, 100)  # that a comparison tries: the paper's
STEP_SIZES = (0.005, 0.01, 0.05, 0.1, 1.0)  # in units of the problem's own step where that is known
_LONG = 1 << 16  # coordinates; the arrays of a step on one such row leave the cache
_PIECE = 1 << 19  # bytes of each array that are updated at a time in long rows


class State(SimpleNamespace):
    """What a method remembers: named arrays with one row per run, the iterate `x` among them."""

    x: Array

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


class Estimator(Rowwise, ABC):
    """How a method that evaluates F once per step estimates F(x_k).

    A subclass is a frozen dataclass. `needs` names what it asks of the oracle: "replay" (one batch at two
    points), "full-pass" (all components of a finite sum).

    Examples
    --------
    >>> import dualanchor as da
    >>> isinstance(da.Minibatch(4), da.Estimator), sorted(da.PAGE(8, 2).needs)
    (True, ['replay'])
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def init(self, s: State) -> None:
        """Add what the estimator remembers to the state."""

    def check_rounds(self, horizon: Any, rounds: int | None, owner: str) -> None:
        """Raise if there is no batch size for one of the first `rounds` rounds (None: of as many as there will be)."""

    def probability(self, k: Any) -> Any:
        """Probability of heads in round k, or None where the estimator tosses no coin."""
        return None

    @abstractmethod
    def cost(self, k: Any, horizon: Any, coin: Any) -> Cost:
        """Draws and evaluations of round k; k and coin may be arrays of rounds."""

    @abstractmethod
    def estimate(self, k: int, s: State, F: Session, horizon: Any, coin: Any) -> Array:
        """The estimate of F(s.x). Evaluates first and then changes the state: a failed round changes nothing."""


class Method(Rowwise, ABC):
    """An algorithm: `init`, `step`, the `cost` of a step, and what it needs and guarantees.

    A subclass is a frozen dataclass in a file of its own in `methods/`. One that evaluates F once per step gives
    an `estimator` and an elementwise `update(k, s, G)`; any other overrides `step` and `cost`.

    A step evaluates first and changes its state afterwards, so a step that raises has changed nothing.

    Examples
    --------
    >>> import dualanchor as da
    >>> issubclass(da.DualOHM, da.Method), da.DualOHM(0.5, horizon=10).steps
    (True, 9)
    """

    id: ClassVar[str]
    title: ClassVar[str]
    citation: ClassVar[str]
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
        """Raise if the method has no batch size for one of the first `rounds` rounds (None: of all there will be)."""
        if (estimator := self.estimator_in_use) is not None:
            estimator.check_rounds(self.horizon, rounds, type(self).__name__)

    # -- what a run asks of a method -------------------------------------------------------------------------

    @cached_property
    def estimator_in_use(self) -> Estimator | None:
        """The estimator of a method that evaluates F once per step."""
        return None

    @property
    def needs(self) -> frozenset[str]:
        """What the method asks of its oracle: "replay", "full-pass", or nothing."""
        estimator = self.estimator_in_use
        return frozenset() if estimator is None else estimator.needs

    @cached_property
    def steps(self) -> int | None:
        """Steps that every row can still take from the start: horizon - 1, or None for an anytime method."""
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
        """The elementwise part of a step, given the estimate G of F(x_k)."""
        raise NotImplementedError(f"{type(self).__name__} has no single-evaluation update")

    def update_rows(self, k: int, s: State, G: Array) -> None:
        """`update`; long rows in pieces of the coordinates that fit the cache."""
        if type(G) is not np.ndarray or G.size < _LONG or G.shape[1] < _LONG:
            self.update(k, s, G)
            return
        width = max(1, _PIECE // (len(G) * G.itemsize))
        for start in range(0, G.shape[1], width):
            piece = (slice(None), slice(start, start + width))
            views = {name: value[piece] for name, value in vars(s).items()}
            part = State(**views)
            self.update(k, part, G[piece])
            for name, value in vars(part).items():
                if value is not views[name]:  # the method put a new array in its place
                    getattr(s, name)[piece] = value

    def probability(self, k: Any) -> Any:
        """Probability of heads of the coin that the run tosses before step k, or None."""
        estimator = self.estimator_in_use
        return None if estimator is None else estimator.probability(k)

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        """Exact draws and evaluations of step k, before it is taken; k and coin may be arrays of steps."""
        estimator = self.estimator_in_use
        assert estimator is not None
        return estimator.cost(k, self.horizon, coin)

    def largest_step(self, constants: Constants) -> tuple[float, str, str] | None:
        """The largest step size that the method's theorem admits, its formula and its source; None for no rule."""
        return None

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters for a problem and a budget, for those that were not given."""
        return {"step_size": problem.step_size}

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        """Values that a fair comparison tries, by parameter; what is not named keeps its default."""
        steps = {"step_size": cls._steps_to_try(problem)} if "step_size" in cls.tuned else {}
        return {**steps, **({"batch_size": cls._batches_to_try(budget)} if "batch_size" in cls.tuned else {})}

    @classmethod
    def for_problem(cls, problem: Problem, budget: int | None = None, **parameters: Any) -> Self:
        """The method for a problem and a budget; what is not given follows the source's choice for them."""
        for name in parameters:
            if name not in cls.parameter_names():
                raise unknown_name(f"{cls.id}: parameter", name, cls.parameter_names())
        chosen = {**cls.defaults(problem, budget, parameters), **parameters}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if (name := field.name) not in parameters and required and chosen.get(name) is None:
                rule = f"{cls.id}: {name} must be given where the problem and the budget do not imply it"
                remedy = f"Pass {name}, or a {'problem with Constants(L=...)' if name == 'step_size' else 'budget'}"
                raise ArgumentError(rule, f"problem {problem.name!r} and budget {budget}", remedy)
        return cls(**chosen)

    # -- for everyone ----------------------------------------------------------------------------------------

    def check(self, constants: Constants) -> None:
        """Raise if the step size is outside of what the method's theorem admits for these constants."""
        if (limit := self.largest_step(constants)) is None:
            return
        largest, formula, source = limit
        if np.max(self.step_size) > largest * (1 + 1e-12):
            rule = (
                f"{type(self).__name__}: step_size must satisfy 0 < step_size <= {formula} = {largest:.6g} ({source})"
            )
            remedy = f"Use {largest:.6g}, or pass check=False to run outside the theorem"
            raise ArgumentError(rule, f"{np.max(self.step_size):.6g}", remedy)

    def check_oracle(self, replayable: bool, components: int | None) -> None:
        """Raise if the oracle cannot do what the method needs."""
        if "replay" in self.needs and not replayable:
            rule = f"{type(self).__name__} needs an oracle whose samples can be evaluated at two points"
            remedy = "Draw all randomness from the generator handed over, or use a method such as s-dual-ohm"
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
        name = type(self).__name__
        facts = {"id": name, "title": name, "citation": "dualanchor", "anytime": self.anytime}
        return {key: getattr(self, key, value) for key, value in facts.items()} | {"parameters": self.parameters()}

    def with_changes(self, **changes: Any) -> Self:
        """A copy with some hyper-parameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def _batches_to_try(cls, budget: int) -> list[int]:
        """The batch sizes that a comparison tries, as far as the budget pays for two of them."""
        return [size for size in BATCH_SIZES if size * 2 <= budget] or [1]

    @classmethod
    def _steps_to_try(cls, problem: Problem) -> list[float]:
        usual = cls.defaults(problem, None, {}).get("step_size")
        factors = (*STEP_SIZES, 2.0) if usual else STEP_SIZES
        return [float(f"{factor * (usual or 1.0):.6g}") for factor in factors]

    def _past_horizon(self, k: int) -> HorizonError:
        rule = f"{type(self).__name__}: {steps_exist(self.steps)} for horizon N = {self.horizon}"
        return HorizonError(rule, f"k = {k}", "Stop here, or make the method with a larger horizon")


def steps_exist(count: int | None) -> str:
    """How many steps there are, as a phrase."""
    return "1 step exists" if count == 1 else f"{count or 'no'} steps exist"
