"""What a user requests at a front door, validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dualanchor.core import check as require
from dualanchor.core.callbacks import as_callback, as_progress
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.engines import Engine
from dualanchor.methods import registry
from dualanchor.run.checkpoint import Checkpoint, Saver

MIN_PILOT_SAMPLES = 64  # below, nothing is set aside for a certificate, and nothing spent on calibration
DEFAULT_MAX_SAMPLES = 10_000_000  # that an eps may take, unless `max_samples` is given

_POSITIVE = {"eps": True, "L": True, "L_mean": True, "M": True, "mu": False, "sigma": False, "D": False}
_COUNTS: dict[str, tuple[int, float]] = {
    "budget": (1, require.LARGEST_COUNT),
    "max_samples": (1, require.LARGEST_COUNT),
    "batch": (1, require.LARGEST_COUNT),
    "max_rounds": (1, require.LARGEST_COUNT),
    "reps": (1, require.MOST_ROWS),
}


@dataclass(frozen=True)
class Request:
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
    affine: bool = False
    batch: int | None = None
    max_rounds: int | None = None
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
    checkpoint: Checkpoint | Saver | str | Path | None = None
    engine: Engine | str | None = None

    @classmethod
    def of(cls, door: str, arguments: Mapping[str, Any]) -> Request:
        """The request made of those arguments of a door that all doors share."""
        shared = {field.name: arguments[field.name] for field in fields(cls)[1:]}
        return cls(door, **shared | {"seed": require.seed(arguments["seed"], arguments["rng"], door)})

    def __post_init__(self) -> None:
        if (self.eps is None) == (self.budget is None):
            received = "neither" if self.eps is None else f"eps={self.eps} and budget={self.budget}"
            raise self.error("exactly one of eps and budget must be given", received, "Pass eps=0.05 or budget=10_000")
        if self.budget is not None and self.max_samples is not None:
            received = f"budget={self.budget} and max_samples={self.max_samples}"
            raise self.error("max_samples goes with eps; a budget is a limit itself", received, "Leave one of them out")
        checked: dict[str, Any] = {"mu": 0.0 if self.mu is None else self.mu}
        for name, positive in _POSITIVE.items():
            if (value := getattr(self, name)) is not None:
                require.number(value, f"{self.door}: {name}", positive=positive)
        for name, (least, most) in _COUNTS.items():
            if (value := getattr(self, name)) is not None:
                checked[name] = require.count(value, f"{self.door}: {name}", least, most=most)
        for name in ("affine", "guarantee", "certificate", "check"):
            if (value := getattr(self, name)) is not None:
                checked[name] = require.switch(value, f"{self.door}: {name}")
        if self.confidence is not None:
            checked["confidence"] = require.probability(self.confidence, f"{self.door}: confidence")
        if not isinstance(self.method, (str, Method)):
            rule = f"{self.door}: method must be a name or a Method"
            raise ArgumentTypeError(rule, repr(self.method), "Use method='auto'")
        if isinstance(self.method, str):
            registry.get(self.method)  # an unknown name is turned down before anything is spent
        checked["progress"] = as_progress(self.progress, self.door, "round")
        if self.L is None and self.M is not None and checked["mu"] > 0:
            checked["L"] = self.M**2 / self.mu
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        remedy = "Check which of the two is right"
        if self.L_mean is not None and (self.L is None or self.L_mean > self.L):
            raise self.error("L_mean must come with L and be at most that", self.L_mean, remedy)
        if self.L is not None and self.mu > self.L:
            raise self.error("mu must be at most L", f"mu = {self.mu}, L = {self.L}", remedy)

    @property
    def wants_theorem(self) -> bool:
        """Whether a theorem is wanted: always with eps, and with a budget if a guarantee is."""
        return self.eps is not None if self.guarantee is None else self.guarantee

    @property
    def missing(self) -> list[str]:
        """Constants of the theorems that are not given; M will do for L."""
        needed = ("sigma", "D") if self.merely_monotone else ("L", "sigma", "D")
        return [name for name in needed if getattr(self, name) is None]

    @property
    def merely_monotone(self) -> bool:
        """Whether M is given without L, directly or by mu: F need not be cocoercive."""
        return self.L is None and self.M is not None

    @property
    def L_from_M(self) -> bool:
        """Whether L is M**2/mu."""
        return self.M is not None and self.mu > 0 and self.M**2 / self.mu == self.L

    @property
    def limit(self) -> int:
        """Samples that may be spent in all."""
        return self.budget or self.max_samples or DEFAULT_MAX_SAMPLES

    @property
    def level(self) -> float:
        """Confidence of certificates."""
        return 0.95 if self.confidence is None else self.confidence

    def showing(self, view: Callable[[Array], Any]) -> Request:
        """The same, with a callback that is shown x through `view`."""
        if self.callback is None:
            return self
        call = as_callback(self.callback)

        def shown(intermediate_result: Result) -> bool:
            return call(replace(intermediate_result, x=view(intermediate_result.x)))

        return replace(self, callback=shown)

    def once(
        self,
        name: str,
        make: Callable[[], Any],
        facts: Callable[[Any], Any],
        read: Callable[[Any], Any],
        key: Any = None,
    ) -> Any:
        """What `make` returns or, where a call is resumed, what it returned then; see `Saver.once`."""
        return make() if not isinstance(self.checkpoint, Saver) else self.checkpoint.once(name, make, facts, read, key)

    @property
    def checkpoint_findings(self) -> list[Finding]:
        """What is to be said about the checkpoint."""
        return self.checkpoint.findings if isinstance(self.checkpoint, Saver) else []

    def error(self, rule: str, received: Any, remedy: str) -> ArgumentError:
        """An error that names the door."""
        return ArgumentError(f"{self.door}: {rule}", received, remedy)


def certificate_share(samples: int) -> int:
    """Samples set aside for a certificate: a tenth, at least 256 where that is at most a quarter, at least 32."""
    return 0 if samples < MIN_PILOT_SAMPLES else max(32, samples // 10, min(256, samples // 4))


def calibration_share(samples: int) -> int:
    """Samples used for calibration: a twentieth, from 64 up to 2,000; 0 if that is more."""
    return 0 if samples < 20 * MIN_PILOT_SAMPLES else min(2000, samples // 20)


def pilot_share(samples: int) -> int:
    """Samples used for calibration before a plan of this many: at least enough to show constants that are far off."""
    return max(MIN_PILOT_SAMPLES, calibration_share(samples))
