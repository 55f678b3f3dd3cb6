"""What a user asks for at a front door, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Method
from dualanchor.core.problem import Constants
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.engines import Engine
from dualanchor.methods import registry
from dualanchor.run.checkpoint import Checkpoint
from dualanchor.run.told import as_callback, as_progress

FEWEST = 64
"""Samples below which nothing is set aside for a certificate, and nothing spent on a look at the oracle."""

MOST = 10_000_000
"""Samples that an eps may take, unless somebody says otherwise."""


@dataclass(frozen=True)
class Ask:
    """The keywords that all front doors share; see `root`."""

    door: str
    eps: float | None = None
    budget: int | None = None
    L: float | None = None
    L_mean: float | None = None
    M: float | None = None
    mu: float = 0.0
    sigma: float | None = None
    D: float | None = None
    method: Any = "auto"
    guarantee: bool | None = None
    confidence: float | None = None
    max_samples: int | None = None
    certificate: bool = True
    check: bool = True
    seed: int = 0
    reps: int = 1
    callback: Callable[..., Any] | None = None
    progress: Any = None
    checkpoint: Checkpoint | str | Path | None = None
    engine: Engine | str | None = None

    def __post_init__(self) -> None:
        if self.mu is None:
            object.__setattr__(self, "mu", 0.0)
        if (self.eps is None) == (self.budget is None):
            received = "neither" if self.eps is None else f"eps={self.eps} and budget={self.budget}"
            raise self.bad("exactly one of eps and budget must be given", received, "Pass eps=0.05 or budget=10_000")
        if self.budget is not None and self.max_samples is not None:
            raise self.bad(
                "max_samples goes with eps; a budget is a limit itself",
                f"budget={self.budget} and max_samples={self.max_samples}",
                "Leave one of them out",
            )
        for name, positive in {
            "eps": True,
            "L": True,
            "L_mean": True,
            "M": True,
            "mu": False,
            "sigma": False,
            "D": False,
        }.items():
            self._number(name, positive)
        for name, least in {"budget": 1, "max_samples": 1, "seed": 0, "reps": 1}.items():
            value = getattr(self, name)
            if isinstance(value, float) and value.is_integer():  # 1e6 is a whole number
                object.__setattr__(self, name, value := int(value))
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < least):
                raise self.bad(f"{name} must be a whole number >= {least}", repr(value), "Use an int")
        object.__setattr__(self, "progress", as_progress(self.progress, self.door, "round"))
        if self.confidence is not None and not (isinstance(self.confidence, Real) and 0 < self.confidence < 1):
            raise self.bad("confidence must lie between 0 and 1", self.confidence, "Use confidence=0.95")
        if not isinstance(self.method, (str, Method)):
            raise ArgumentTypeError(
                f"{self.door}: method must be a name or a Method", repr(self.method), "Use method='auto'"
            )
        if isinstance(self.method, str):
            registry.get(self.method)  # an unknown name is turned down before anything is spent
        if self.L is None and self.M is not None and self.mu > 0:
            object.__setattr__(self, "L", self.M**2 / self.mu)
        if self.L_mean is not None and (self.L is None or self.L_mean > self.L):
            raise self.bad(
                "L_mean must come with L and be at most that", self.L_mean, "Check which of the two is right"
            )
        if self.L is not None and self.mu > self.L:
            raise self.bad("mu must be at most L", f"mu = {self.mu}, L = {self.L}", "Check which of the two is right")

    @property
    def certified(self) -> bool:
        """Whether a theorem is wanted: always with eps, and with a budget if asked for."""
        return self.eps is not None if self.guarantee is None else self.guarantee

    @property
    def missing(self) -> list[str]:
        """Constants that the theorems ask for and nobody gave."""
        return [name for name in ("L", "sigma", "D") if getattr(self, name) is None]

    @property
    def most(self) -> int:
        """Samples that may be spent on eps."""
        return MOST if self.max_samples is None else self.max_samples

    @property
    def level(self) -> float:
        """Confidence of certificates."""
        return 0.95 if self.confidence is None else float(self.confidence)

    def constants(self, sigma: float | None = None, D: float | None = None) -> Constants:
        """What is known, with what was found out where nothing was given."""
        return Constants(
            L=self.L,
            mu=self.mu,
            M=self.M,
            sigma=self.sigma if self.sigma is not None else sigma,
            D=self.D if self.D is not None else D,
        )

    def showing(self, view: Callable[[Array], Any]) -> Ask:
        """The same, with a callback that is shown x through `view`."""
        if self.callback is None:
            return self
        call = as_callback(self.callback)

        def shown(intermediate_result: Result) -> bool:
            return call(replace(intermediate_result, x=view(intermediate_result.x)))

        return replace(self, callback=shown)

    def bad(self, rule: str, received: Any, remedy: str) -> ArgumentError:
        """An error that names the door."""
        return ArgumentError(f"{self.door}: {rule}", received, remedy)

    def _number(self, name: str, positive: bool) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ArgumentTypeError(f"{self.door}: {name} must be a number", repr(value), "Use a float")
        if not isfinite(value) or value < 0 or (positive and value == 0):
            sign = "positive" if positive else "non-negative"
            raise self.bad(f"{name} must be {sign} and finite", value, f"Use a {sign} number, or leave {name} out")


NAMES = frozenset(field.name for field in fields(Ask)) - {"door"}

_STEP = "L, from which the step follows, or method=DualOHM(step_size=..., horizon=...)"
ELSEWHERE = {
    **dict.fromkeys(("tol", "xtol", "ftol", "gtol", "atol", "rtol", "xatol", "epsilon", "accuracy"), "eps"),
    **dict.fromkeys(("maxiter", "max_iter", "n_iter", "num_steps", "steps", "iterations"), "budget, in samples"),
    **dict.fromkeys(("maxfev", "maxfun", "n_samples", "num_samples", "samples"), "budget"),
    **dict.fromkeys(("lr", "learning_rate", "step_size", "stepsize", "step"), _STEP),
    **dict.fromkeys(("random_state", "rng", "key"), "seed"),
    **dict.fromkeys(("verbose", "disp"), "progress"),
    **dict.fromkeys(("n_jobs", "workers"), "engine"),
}
"""What other libraries call our keywords."""


def certificate_share(samples: int) -> int:
    """What is set aside of so many samples for a certificate: a tenth, at least 256 where that is at most a quarter."""
    return 0 if samples < FEWEST else max(samples // 10, min(256, samples // 4))


def look_share(samples: int) -> int:
    """What is spent of so many samples on a look at the oracle: a twentieth, from 64 up to 2,000; 0 if that is more."""
    return 0 if samples < 20 * FEWEST else min(2000, samples // 20)
