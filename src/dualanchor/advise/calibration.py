"""`Calibration`: the numbers that `calibrate` estimated, and the findings that follow from them."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np

from dualanchor.core.certificate import Certificate
from dualanchor.core.files import jsonable
from dualanchor.core.finding import Finding, Severity
from dualanchor.core.problem import Constants
from dualanchor.core.render import html_table

_NO_SLOPE = 1e-9  # times M: a smaller mu is rounding
GRADIENT_LIKE = 0.1  # below this rotation index the operator behaves like a gradient
Interval = tuple[float, float]


@dataclass(frozen=True, repr=False)
class Calibration:
    r"""Noise, local constants and findings around a point, from samples.

    Attributes
    ----------
    sigma, sigma_interval : the noise of one sample at x0, the root of its variance E‖F̂(x0; ξ) - F(x0)‖²
    residual, residual_interval : ‖F(x0)‖ without the upward bias of the norm of a mean; 0 where the noise hides it
    local_L, local_L_interval
        The largest :math:`\mathbb E\|\hat F(x;\xi) - \hat F(y;\xi)\|^2 / \langle F(x) - F(y), x - y\rangle` seen near
        x0, about a lower bound on the theorems' L. Infinite where the operator rotates without any pull (it is then not
        cocoercive); None if the same samples cannot be evaluated at two points.
    local_L_mean, local_L_mean_interval, local_M : the same for the mean operator; its largest Lipschitz quotient seen
    mu_at_most : an upper confidence bound: F cannot be more strongly monotone than along the pairs seen; inf if unknown
    L_at_least, L_mean_at_least, M_at_least, sigma_at_least, residual_at_least
        Lower bounds on L of samples (of F if they cannot be repeated) and of F, on the Lipschitz constant (of samples
        in mean square if they can be repeated, otherwise of F), on sigma at x0 and on ‖F(x0)‖, each with a nominal
        error rate of 2 in 10,000 calibrations. Constants that the user passes are compared with them.
    pairs, violations, steepest_violation, decreasing, not_cocoercive
        The number of pairs of points examined; the number of them along which F is not monotone beyond doubt; the most
        negative :math:`\langle F(x) - F(y), x - y\rangle/\|x - y\|^2` among these; whether F decreases beyond doubt
        along at least half of the pairs and increases along hardly any; the number along which F only rotates.
    rotation, rotation_interval
        :math:`\|J - J^\top\|_F/(\|J - J^\top\|_F + \|J + J^\top\|_F)` for the Jacobian near x0: 0 for gradients, 1 for
        pure rotation. None if noise leaves it open.
    sigma_at, noise_grows : pairs (distance from x0, sigma there); whether the noise is larger there beyond doubt
    D_guess, radius : ‖F(x0)‖ over the slope of F there, a guess of the distance to a root; the scale of distances used
    replayable, own_randomness
        Whether the same samples can be evaluated at two points; whether the sampler uses randomness other than `rng`.
    draws, evals : fresh samples and operator evaluations made; `evals` is at most `samples`
    findings : tuple of Finding, what contradicts the theorems or suggests another method; violations first

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> seen = da.calibrate(da.AdditiveNoise(lambda x: 2 * x, sigma=1.0), np.ones(3), 512)
    >>> low, high = seen.sigma_interval
    >>> bool(low < 1 < high), round(seen.local_L, 1)
    (True, 2.0)
    """

    sigma: float
    sigma_interval: Interval
    residual: float
    residual_interval: Interval
    local_L: float | None
    local_L_interval: Interval | None
    local_L_mean: float | None
    local_L_mean_interval: Interval | None
    local_M: float | None
    mu_at_most: float
    L_at_least: float
    L_mean_at_least: float
    M_at_least: float
    sigma_at_least: float
    residual_at_least: float
    pairs: int
    violations: int
    steepest_violation: float | None
    decreasing: bool
    not_cocoercive: int
    rotation: float | None
    rotation_interval: Interval | None
    sigma_at: tuple[Interval, ...]
    noise_grows: bool
    D_guess: float | None
    radius: float
    replayable: bool
    own_randomness: bool
    dimension: int
    samples: int
    draws: int
    evals: int
    seed: int
    confidence: float
    findings: tuple[Finding, ...] = ()

    @property
    def largest_step(self) -> float | None:
        """1/(2 L) with the larger local estimate, 1/(2 M) if F is not cocoercive; no theorem supports it."""
        estimates = [L for L in (self.local_L, self.local_L_mean) if L is not None]
        scale = self.local_M if inf in estimates else max(estimates, default=None)
        return 1 / (2 * scale) if scale else None

    def shrink(self, step_size: float) -> float:
        """The step size, or `largest_step` if that is smaller; never a larger one."""
        return step_size if self.largest_step is None else min(step_size, self.largest_step)

    @property
    def D_at_least(self) -> float:
        """(a/2) ‖F(x0)‖ with a = `largest_step` and the lower end for ‖F(x0)‖: a bound as long as a <= 2/L."""
        return 0.5 * (self.largest_step or 0.0) * self.residual_interval[0]

    def start_certificate(self) -> Certificate:
        """The interval of ‖F(x0)‖ as a certificate; each end has more than the confidence of the interval."""
        lower, upper = self.residual_interval
        numbers = (self.residual, lower, upper, self.residual**2, self.sigma)
        return Certificate(*numbers, confidence=self.confidence, samples=self.draws, groups=1, rule="min")

    def constants(self) -> Constants:
        """Sigma at x0 and the guess of D. Not L and not mu: local estimates bound neither."""
        return Constants(sigma=self.sigma, D=self.D_guess)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are more than notes."""
        return tuple(finding for finding in self.findings if finding.severity is not Severity.NOTE)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; an infinite number is None."""
        names = (*self.__dataclass_fields__, "largest_step", "D_at_least")
        return {name: jsonable(getattr(self, name)) for name in names}

    def facts(self) -> dict[str, Any]:
        """The attributes as plain values, with infinite numbers, for `from_facts`."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "findings"}
        return {**{name: _plain(value) for name, value in values.items()}, "findings": jsonable(self.findings)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The calibration with these `facts`; a KeyError, TypeError or ValueError if they are not valid."""
        return cls(**{name: _typed(facts[name], kind) for name, kind in get_type_hints(cls).items()})

    def __repr__(self) -> str:
        body = [f"  {name:<22}{text}" for name, text in self._lines()]
        return "\n".join([self._title, *body, *(f"{finding.label}: {finding}" for finding in self.findings)])

    def _repr_html_(self) -> str:
        findings = ((finding.label, str(finding)) for finding in self.findings)
        return html_table([*self._lines(), *findings], caption=self._title)

    def plot(self, ax: Any = None) -> Any:
        """Plot noise, residual and local constants with their intervals; returns the matplotlib axes."""
        return importlib.import_module("dualanchor.report.figures").plot_calibration(self, ax)

    @property
    def _title(self) -> str:
        spent = f"{self.evals:,} evaluations, {self.draws:,} draws"
        return f"Calibration around x0 in dimension {self.dimension:,} ({spent})"

    def _lines(self) -> list[tuple[str, str]]:
        step = self.largest_step
        guess = "unknown" if self.D_guess is None else f"{self.D_guess:.4g}"
        return [
            ("sigma at x0", _with_interval(self.sigma, self.sigma_interval)),
            ("|F(x0)|", _with_interval(self.residual, self.residual_interval)),
            ("L, local", _with_interval(self.local_L, self.local_L_interval)),
            ("L of the mean, local", _with_interval(self.local_L_mean, self.local_L_mean_interval)),
            ("mu", self._mu_text()),
            ("rotation", _with_interval(self.rotation, self.rotation_interval)),
            ("D", f"guess {guess}, at least {self.D_at_least:.4g}"),
            (
                "step size",
                "no limit seen" if step is None else f"use {step:.3g} or less near x0 (an estimate, no theorem)",
            ),
        ]

    def _mu_text(self) -> str:
        if self.mu_at_most == inf:
            return "unknown"
        if self.mu_at_most <= _NO_SLOPE * (self.local_M or 0.0):
            return "0, or too small to see: leave mu out"
        return f"at most {self.mu_at_most:.3g} near x0: give no larger one"


def judged(calibration: Calibration) -> Iterator[Finding]:
    """The findings that follow from the numbers of a calibration."""
    c = calibration
    factor = c.local_L / c.local_L_mean if c.local_L and c.local_L_mean else 0.0
    violations = {"count": c.violations, "pairs": c.pairs, "slope": c.steepest_violation}
    hidden = c.residual_interval[0] == 0 and c.sigma > 0
    gradient_like = c.rotation is not None and c.rotation <= GRADIENT_LIKE and not c.violations
    for code, applies, values in (
        ("decreasing", c.decreasing, violations),
        ("not-monotone", c.violations and not c.decreasing, violations),
        ("not-cocoercive", c.not_cocoercive, {"count": c.not_cocoercive, "pairs": c.pairs}),
        ("noise-grows", c.noise_grows, _growth(c)),
        ("start-not-visible", hidden, {"at_most": c.residual_interval[1], "sigma": c.sigma}),
        ("own-randomness", c.own_randomness, {}),
        ("not-replayable", not c.replayable, {}),
        ("monotone-so-far", not c.violations, {"pairs": c.pairs}),
        ("no-noise", c.sigma == 0, {}),
        ("rotation-unknown", c.rotation is None, {}),
        ("gradient-like", gradient_like, {}),
        ("smooth-mean", 2 < factor < inf, {"factor": factor}),
    ):
        if applies:
            yield Finding(code, values=values)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _typed(value: Any, kind: Any) -> Any:
    """The value as the annotated type: a number, None, a finding or a tuple of these."""
    kinds = get_args(kind)
    if get_origin(kind) is UnionType:
        return None if value is None else _typed(value, kinds[0])
    if get_origin(kind) is tuple:
        kinds = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(_typed(item, item_kind) for item, item_kind in zip(value, kinds, strict=True))
    if kind is Finding:
        return Finding.from_dict(value)
    if kind is float and type(value) in (int, float) and value == value:
        return float(value)
    if kind is float or type(value) is not kind:
        raise TypeError(f"{value!r} in place of a {kind.__name__}")
    return value


def _growth(calibration: Calibration) -> dict[str, float]:
    """Sigma at x0 and where it is largest, and c in the fit sigma(r)^2 = sigma^2 + (c r)^2 at distances r."""
    sigma_at_x0, sigma_at = calibration.sigma, calibration.sigma_at
    distance, largest = max(sigma_at, key=lambda pair: pair[1], default=(0.0, 0.0))
    excess = sum(r**2 * (sigma**2 - sigma_at_x0**2) for r, sigma in sigma_at)
    growth = sqrt(max(0.0, excess) / (sum(r**4 for r, _ in sigma_at) or 1.0))
    return {"sigma": largest, "distance": distance, "sigma_at_x0": sigma_at_x0, "growth": growth}


def _with_interval(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return "unknown"
    low, high = (f"{end:.4g}" for end in interval)
    return f"{value:.4g}" if low == high else f"{value:<10.4g}({low} to {high})"
