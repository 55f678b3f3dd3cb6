"""What a user requests at a front door, validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dualanchor.core import check as require
from dualanchor.core.callbacks import Intermediate, as_callback, as_progress
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.engines import Engine
from dualanchor.methods import registry
from dualanchor.run.checkpoint import Checkpoint, Saver

MIN_PILOT_SAMPLES = 64  # with a smaller limit there is no certificate; a calibration has at least this many
DEFAULT_MAX_SAMPLES = 10_000_000  # with `eps`, unless `max_samples` is given

_POSITIVE = ("eps", "L", "L_mean", "M")
_NONNEGATIVE = ("mu", "sigma", "D")
_COUNTS = ("budget", "max_samples", "batch", "max_rounds", "reps")
_SWITCHES = ("affine", "guarantee", "certificate", "check")


@dataclass(frozen=True)
class Request:
    """The keywords that all front doors share, validated; see `root` for their meaning."""

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
        """The request from the arguments of a door."""
        shared = {field.name: arguments[field.name] for field in fields(cls)[1:]}
        return cls(door, **shared | {"seed": require.seed(arguments["seed"], arguments["rng"], door)})

    def __post_init__(self) -> None:
        if (self.eps is None) == (self.budget is None):
            received = "neither" if self.eps is None else f"eps={self.eps} and budget={self.budget}"
            raise self.error("exactly one of eps and budget must be given", received, "Pass eps=0.05 or budget=10_000")
        if self.budget is not None and self.max_samples is not None:
            received = f"budget={self.budget} and max_samples={self.max_samples}"
            raise self.error("max_samples goes with eps; a budget is a limit itself", received, "Leave one of them out")
        checked: dict[str, Any] = {"mu": 0.0}
        for name in (*_POSITIVE, *_NONNEGATIVE):
            if (value := getattr(self, name)) is not None:  # a Python number does not raise the precision of arrays
                checked[name] = require.number(value, f"{self.door}: {name}", positive=name in _POSITIVE)
        for name in _COUNTS:
            if (value := getattr(self, name)) is not None:
                most = require.MOST_ROWS if name == "reps" else require.LARGEST_COUNT
                checked[name] = require.count(value, f"{self.door}: {name}", most=most)
        for name in _SWITCHES:
            if (value := getattr(self, name)) is not None:
                checked[name] = require.switch(value, f"{self.door}: {name}")
        if self.confidence is not None:
            checked["confidence"] = require.probability(self.confidence, f"{self.door}: confidence")
        if not isinstance(self.method, (str, Method)):
            rule = f"{self.door}: method must be a name or a Method"
            raise ArgumentTypeError(rule, repr(self.method), "Use method='auto'")
        if isinstance(self.method, str):
            registry.get(self.method)  # raises for an unknown name
        checked["progress"] = as_progress(self.progress, self.door, "round")
        if self.L is None and self.M is not None and checked["mu"] > 0:
            checked["L"] = checked["M"] ** 2 / checked["mu"]
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
    def claims_theorem(self) -> bool:
        """Whether the result may claim a theorem: constants are known, or a guarantee is asked for."""
        return self.wants_theorem and (bool(self.guarantee) or not self.missing)

    @property
    def missing(self) -> list[str]:
        """Constants that a theorem needs and that are not given; M may take the place of L."""
        needed = ("sigma", "D") if self.merely_monotone else ("L", "sigma", "D")
        return [name for name in needed if getattr(self, name) is None]

    @property
    def merely_monotone(self) -> bool:
        """Whether M is given without L and mu: F need not be cocoercive."""
        return self.L is None and self.M is not None

    @property
    def L_from_M(self) -> bool:
        """Whether L follows from M and mu, as M**2/mu."""
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
        """The request with a callback that gets `view(x)` in place of x."""
        if self.callback is None:
            return self
        call = as_callback(self.callback)

        def shown(intermediate_result: Result) -> bool:
            def field(name: str) -> Any:
                value = getattr(intermediate_result, name)
                return view(value) if name == "x" else value

            return call(Intermediate.of(field))

        return replace(self, callback=shown)

    def once(
        self,
        name: str,
        make: Callable[[], Any],
        facts: Callable[[Any], Any],
        read: Callable[[Any], Any],
        key: Any = None,
    ) -> Any:
        """What `make` returns or, if a call is resumed, what it returned then; see `Saver.once`."""
        return make() if not isinstance(self.checkpoint, Saver) else self.checkpoint.once(name, make, facts, read, key)

    @property
    def checkpoint_findings(self) -> list[Finding]:
        """Findings about the checkpoint, such as that it could not be written."""
        return self.checkpoint.findings if isinstance(self.checkpoint, Saver) else []

    def error(self, rule: str, received: Any, remedy: str) -> ArgumentError:
        """An error that names the door."""
        return ArgumentError(f"{self.door}: {rule}", received, remedy)


def certificate_share(samples: int) -> int:
    """Samples set aside for a certificate: a tenth, at least 32, and at least 256 if that is at most a quarter."""
    return 0 if samples < MIN_PILOT_SAMPLES else max(32, samples // 10, min(256, samples // 4))


def calibration_share(samples: int) -> int:
    """Samples used for calibration: a twentieth, at most 2,000; none if that is less than 64."""
    return 0 if samples < 20 * MIN_PILOT_SAMPLES else min(2000, samples // 20)


def pilot_share(samples: int) -> int:
    """Samples used for calibration before a plan of this many: at least enough to show constants that are far off."""
    return max(MIN_PILOT_SAMPLES, calibration_share(samples))
