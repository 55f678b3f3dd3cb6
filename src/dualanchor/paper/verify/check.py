"""How a statement is judged: what was measured, what it may be at most, and whether that is chance or rounding.

An inequality in expectation is judged from independent replications: it fails when its mean minus 4.75 standard errors
is above the bound, which a statement that holds with equality does once in a million times. Identities and
inequalities along one path are judged to rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.types import Array
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.ohm import OHM
from dualanchor.theory.bounds import PAPER

Z = 4.75
"""Standard errors above a bound that are taken for chance."""

IDENTITY, INEQUALITY, RATE = "identity", "inequality", "rate"
HOLDS, FAILS = "holds", "fails"

_ROUNDING = 1e-11  # of the bound, for inequalities along one path
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Check:
    """One statement, checked on one operator.

    Attributes
    ----------
    id, statement, source : str
        The statement: its name in lower case with dashes, its name, and "paper" or "not in the paper".
    kind : str
        "identity", "inequality" or "rate".
    operator : str
        What it was checked on.
    measured, bound, ratio : float
        What came out, what may come out, and the one over the other, where that is largest (not a number if the bound
        is 0). For an identity along a path these are its largest error, relative to the terms in it, and what rounding
        may make of them.
    standard_error : float
        Of `measured`; 0 where nothing is random.
    verdict : str
        "holds" or "fails".
    """

    id: str
    statement: str
    source: str
    kind: str
    operator: str
    measured: float
    bound: float
    ratio: float
    standard_error: float
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """All of it by name, ready for JSON."""
        return asdict(self)


class Finding(NamedTuple):
    """What a statement's check says about one operator."""

    operator: str
    measured: float
    bound: float
    holds: bool
    error: float = 0.0


def zero(operator: str, relative: Any, allowed: float = 1e-12) -> Finding:
    """Nothing but rounding: all of the relative errors are that small."""
    largest = float(np.max(np.abs(relative)))
    return Finding(operator, largest, allowed, largest <= allowed)


def equal(operator: str, value: Any, expected: Any, allowed: float = _ROUNDING) -> Finding:
    """`value` is what is expected, up to a share `allowed`; shown where it is farthest from it."""
    value, expected = np.broadcast_arrays(np.asarray(value, float), np.asarray(expected, float))
    away = np.abs(value - expected) / np.maximum(np.abs(expected), _TINY)
    at = int(np.argmax(away))
    return Finding(operator, float(value.flat[at]), float(expected.flat[at]), bool((away <= allowed).all()))


def at_most(operator: str, value: Any, bound: Any) -> Finding:
    """No `value` is above its bound; shown where it comes nearest."""
    value, bound = np.broadcast_arrays(np.asarray(value, float), np.asarray(bound, float))
    at = int(np.argmax(_ratio(value, bound)))
    holds = bool((value <= bound * (1 + _ROUNDING)).all())
    return Finding(operator, float(value.flat[at]), float(bound.flat[at]), holds)


def mean_at_most(operator: str, values: Any, bound: Any) -> Finding:
    """The means over the first axis are not above their bounds by more than chance; shown where they come nearest."""
    mean, error = _mean(values)
    bound = np.broadcast_to(np.asarray(bound, float), mean.shape)
    at = int(np.argmax(_ratio(mean, bound)))
    holds = bool((mean - Z * error <= bound * (1 + _ROUNDING)).all())
    return Finding(operator, float(mean.flat[at]), float(bound.flat[at]), holds, float(error.flat[at]))


def mean_equal(operator: str, values: Any, expected: Any) -> Finding:
    """The means over the first axis are what is expected, but for chance; shown where they are farthest from it."""
    mean, error = _mean(values)
    expected = np.broadcast_to(np.asarray(expected, float), mean.shape)
    away = np.abs(mean - expected) / np.maximum(error, _TINY)
    at = int(np.argmax(away))
    return Finding(
        operator, float(mean.flat[at]), float(expected.flat[at]), bool((away <= Z).all()), float(error.flat[at])
    )


def _mean(values: Any) -> tuple[Array, Array]:
    values = np.asarray(values, float)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def _ratio(value: Any, bound: Any) -> Array:
    """value/bound, with 0/0 as 0; a value that is not a number counts as the largest."""
    value, bound = np.asarray(value, float), np.asarray(bound, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(value == 0, 0.0, value / bound)
    return np.where(np.isnan(ratio), np.inf, ratio)


@dataclass(frozen=True)
class Lab:
    """What a check works with.

    Attributes
    ----------
    rng : numpy Generator
        Its own: what one check draws does not depend on which others are made.
    seed : int
        For runs of the library, which draw from streams.
    quick : bool
        Whether fewer replications are enough.
    dual, anchor : Method classes
        What is checked as Dual-OHM and as OHM.
    """

    rng: np.random.Generator
    seed: int
    quick: bool
    dual: Callable[..., Method]
    anchor: Callable[..., Method]

    @property
    def reps(self) -> int:
        """Replications of a run that is written down step by step."""
        return 400 if self.quick else 4000

    @property
    def runs(self) -> int:
        """Replications of a run through `solve`, each with a random stream of its own."""
        return 100 if self.quick else 400


@dataclass(frozen=True)
class Statement:
    """A statement with the function that checks it.

    Attributes
    ----------
    name, source, kind : str
        As in `Check`.
    formula : str
        What it says, in one line.
    check : callable
        Makes findings, one for each operator that it is checked on.
    covers : tuple of str
        The functions of `theory.bounds` that are compared with what is measured.
    """

    name: str
    source: str
    kind: str
    formula: str
    check: Callable[[Lab], Iterable[Finding]]
    covers: tuple[str, ...]

    @property
    def id(self) -> str:
        """The name in lower case with dashes."""
        return identifier(self.name)

    def run(
        self,
        seed: int = 0,
        quick: bool = False,
        dual: Callable[..., Method] = DualOHM,
        anchor: Callable[..., Method] = OHM,
    ) -> list[Check]:
        """Check it on all of its operators."""
        lab = Lab(np.random.default_rng([seed, crc32(self.id.encode())]), seed, quick, dual, anchor)
        return [self._judged(finding) for finding in self.check(lab)]

    def _judged(self, found: Finding) -> Check:
        ratio = float(_ratio(found.measured, found.bound)) if found.bound else np.nan
        verdict = HOLDS if found.holds else FAILS
        return Check(
            self.id,
            self.name,
            self.source,
            self.kind,
            found.operator,
            found.measured,
            found.bound,
            ratio,
            found.error,
            verdict,
        )


STATEMENTS: dict[str, Statement] = {}
"""Every statement that is checked, by id, in the order in which they are shown."""

Maker = Callable[[Lab], Iterable[Finding]]


def checks(kind: str, *bounds: Any, name: str = "", source: str = "") -> Callable[[Maker], Maker]:
    """Register the check of a statement; name and source are those of its first bound, unless given."""
    if bounds:
        name, source = name or bounds[0].statement.name, source or bounds[0].statement.source

    def attach(function: Maker) -> Maker:
        formula = (function.__doc__ or "").strip().split("\n")[0]
        covers = tuple(bound.__name__ for bound in bounds)
        statement = Statement(name, source or PAPER, kind, formula, function, covers)
        STATEMENTS[statement.id] = statement
        return function

    return attach


def identifier(name: str) -> str:
    """A statement's name in lower case with dashes: "Theorem 4.5, first form" is theorem-4.5-first-form."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
