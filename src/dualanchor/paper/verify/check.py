"""How a statement is judged: a measured value against its bound, up to chance or rounding.

An inequality in expectation is judged from independent replications: it fails if their mean minus 4.75 standard errors
is above the bound. For a statement that holds with equality that happens once in a million times. Identities, and
inequalities along one path, must hold up to rounding.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.core.types import Array
from dualanchor.paper.verify.operators import SIGMA, Case, noisy
from dualanchor.run import solve
from dualanchor.theory.step_tables import Evaluation, follow

Z = 4.75  # a mean may be above its bound by this number of standard errors
Verdict = Literal["holds", "fails"]
_ROUNDING = 1e-11  # relative to the bound, for inequalities along one path
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Check:
    """One statement, checked on one operator.

    `measured` and `bound` are a value and its bound, where their ratio is largest. For an identity they are its largest
    error, relative to its terms, and the rounding error that is allowed.
    """

    id: str  # the statement's name in lower case with dashes
    statement: str
    source: str  # "paper" or "not in the paper"
    kind: str  # "identity", "inequality" or "rate"
    operator: str
    measured: float
    bound: float
    ratio: float  # not a number if the bound is 0
    standard_error: float  # of `measured`; 0 where nothing is random
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Measurement(NamedTuple):
    """The outcome of a check on one operator; `error` is a standard error."""

    operator: str
    measured: float
    bound: float
    error: float
    holds: bool


def at_most(operator: str, value: Any, bound: Any, error: Any = 0.0) -> Measurement:
    """No value is above its bound by more than chance; reports the value that comes nearest."""
    value, bound, error = _arrays(value, bound, error)
    return _shown(operator, value, bound, error, _ratio(value, bound), value - Z * error <= bound * (1 + _ROUNDING))


def zero(operator: str, relative: Any) -> Measurement:
    """All relative errors are rounding errors."""
    return at_most(operator, np.max(np.abs(relative)), 1e-12)


def equal(operator: str, value: Any, expected: Any, allowed: float = _ROUNDING) -> Measurement:
    """Values are as expected, up to a relative error `allowed`; reports the value with the largest error."""
    value, expected, error = _arrays(value, expected, 0.0)
    away = np.abs(value - expected) / np.maximum(np.abs(expected), _TINY)
    return _shown(operator, value, expected, error, away, away <= allowed)


def mean_at_most(operator: str, values: Any, bound: Any) -> Measurement:
    """Means over the first axis are not above their bounds by more than chance; reports the one that comes nearest."""
    mean, error = _mean(values)
    return at_most(operator, mean, bound, error)


def mean_equal(operator: str, values: Any, expected: Any) -> Measurement:
    """Means over the first axis are as expected, up to chance; reports the one that is farthest off."""
    mean, error = _mean(values)
    expected = np.broadcast_to(np.asarray(expected, float), mean.shape)
    away = np.abs(mean - expected) / np.maximum(error, _TINY)
    return _shown(operator, mean, expected, error, away, away <= Z)


def _shown(operator: str, value: Array, bound: Array, error: Array, order: Array, holds: Any) -> Measurement:
    """The measurement with the numbers where `order` is largest."""
    at = int(np.argmax(order))
    measured, allowed, chance = (float(values.flat[at]) for values in (value, bound, error))
    return Measurement(operator, measured, allowed, chance, bool(np.all(holds)))


def _arrays(*values: Any) -> tuple[Array, ...]:
    return np.broadcast_arrays(*(np.asarray(value, float) for value in values))


def _mean(values: Any) -> tuple[Array, Array]:
    values = np.asarray(values, float)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def _ratio(value: Array, bound: Array) -> Array:
    """value/bound, with 0/0 = 0, and infinity in place of NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(value == 0, 0.0, value / bound)
    return np.where(np.isnan(ratio), np.inf, ratio)


@dataclass(frozen=True)
class Lab:
    """What the check of a statement works with; `dual` and `anchor` are checked as Dual-OHM and as OHM."""

    rng: np.random.Generator  # for this statement alone: which others are checked does not matter
    seed: int  # of runs by `solve`
    reps: int  # replications of a run whose steps are recorded
    runs: int  # replications of a run by `solve`
    dual: Callable[..., Method]
    anchor: Callable[..., Method]

    def path(self, case: Case, method: Method, B: int, steps: int) -> tuple[Array, Array]:
        """Iterates (steps + 1, replications, d) with batches of B samples, and their noise (steps, replications, d)."""
        e = case.noise(self.rng, steps, self.reps, SIGMA / np.sqrt(B))
        return follow(method, noisy(case.F, e), case.start(self.reps), steps).x, e

    def dual_path(self, case: Case, N: int, B: int, steps: int | None = None) -> tuple[Array, Array]:
        return self.path(case, self.dual(step_size=case.step_size, horizon=N), B, steps or N - 1)

    def dual_end(self, case: Case, N: int, evaluate: Evaluation) -> Array:
        """Where Dual-OHM ends, (replications, d)."""
        return follow(self.dual(step_size=case.step_size, horizon=N), evaluate, case.start(self.reps)).x[-1]

    def squares(self, problem: Problem, method: Method, x0: Any = None) -> Array:
        """|F(x)|^2 at the end of runs by `solve`, one for each replication."""
        return np.asarray(solve(problem, method, reps=self.runs, seed=self.seed, x0=x0, record=0).residual ** 2)

    def dual_squares(self, case: Case, batch_sizes: Array, x0: Any = None) -> Array:
        method = self.dual(step_size=case.step_size, horizon=len(batch_sizes) + 1, batch_size=batch_sizes.tolist())
        return self.squares(case.problem(), method, x0)


Measurements = Iterator[Measurement]
Maker = Callable[[Lab], Measurements]


@dataclass(frozen=True)
class Statement:
    """A statement, its formula in one line, and the function that checks it on one operator after another."""

    name: str
    source: str
    kind: str
    formula: str
    check: Maker
    covers: tuple[str, ...]  # functions of `theory.bounds` that are compared with what is measured

    @property
    def id(self) -> str:
        return identifier(self.name)

    def run(self, seed: int, quick: bool, dual: Callable[..., Method], anchor: Callable[..., Method]) -> list[Check]:
        rng = np.random.default_rng([seed, crc32(self.id.encode())])
        lab = Lab(rng, seed, *((400, 100) if quick else (4000, 400)), dual, anchor)
        about = (self.id, self.name, self.source, self.kind)
        checks = []
        for operator, measured, bound, error, holds in self.check(lab):
            ratio = float(_ratio(*_arrays(measured, bound))) if bound else np.nan
            checks.append(Check(*about, operator, measured, bound, ratio, error, "holds" if holds else "fails"))
        return checks


STATEMENTS: dict[str, Statement] = {}  # every statement that is checked, by id, in the order in which they are shown


def _checks(kind: str, *bounds: Any, name: str = "", source: str = "", formula: str = "") -> Callable[[Maker], Maker]:
    """Register the check of a statement.

    Name and source are by default those of its first bound, the formula is the docstring of the function.
    """
    if bounds:
        name, source = name or bounds[0].statement.name, source or bounds[0].statement.source

    def attach(function: Maker) -> Maker:
        covers, text = tuple(bound.__name__ for bound in bounds), formula or (function.__doc__ or "").strip()
        STATEMENTS[identifier(name)] = Statement(name, source, kind, text, function, covers)
        return function

    return attach


identity, inequality, rate = (partial(_checks, kind) for kind in ("identity", "inequality", "rate"))


def identifier(name: str) -> str:
    """A statement's name in lower case with dashes: "Theorem 4.5, first form" is theorem-4.5-first-form."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
