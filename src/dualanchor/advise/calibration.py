"""What a calibration found, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from dualanchor.core.problem import Constants
from dualanchor.core.result import jsonable

GRADIENT_LIKE = 0.1
"""Below this rotation index the operator behaves like a gradient."""

Interval = tuple[float, float]


@dataclass(frozen=True, repr=False)
class Calibration:
    r"""Noise, local constants and warnings around a point, from samples.

    Attributes
    ----------
    sigma, sigma_interval
        The noise of one sample **at x0**, the root of :math:`\mathbb E\|\hat F(x_0;\xi) - F(x_0)\|^2`.
    residual, residual_interval
        :math:`\|F(x_0)\|` without the upward bias of the norm of a mean; 0 where the noise hides it.
    local_L, local_L_interval
        The largest :math:`\mathbb E\|\hat F(x;\xi) - \hat F(y;\xi)\|^2 / \langle F(x) - F(y), x - y\rangle` seen near
        x0, the constant of the theorems for single samples. The true L is at least about as large and can be far
        larger. Infinite where the operator turns without any pull (it is then not cocoercive); None where the same
        samples cannot be had at two points.
    local_L_mean, local_L_mean_interval
        The same for the mean operator F, the limit of large batches.
    local_M
        The largest :math:`\|F(x) - F(y)\|/\|x - y\|` seen.
    mu_at_most
        An upper confidence bound: F cannot be more strongly monotone than along the pairs seen. It says nothing about
        how small :math:`\mu` is.
    pairs, violations, steepest_violation
        Pairs of points examined, along how many of them F is not monotone beyond doubt, and the most negative
        :math:`\langle F(x) - F(y), x - y\rangle/\|x - y\|^2` among these.
    not_cocoercive
        Along how many pairs F changes without any change along the pair.
    rotation, rotation_interval
        :math:`\|J - J^\top\|_F/(\|J - J^\top\|_F + \|J + J^\top\|_F)` for the Jacobian near x0: 0 for gradients, 1 for
        pure rotation. None where noise leaves it open.
    sigma_at, noise_grows
        (distance from x0, sigma there), and whether the noise is larger there beyond doubt.
    D_guess
        :math:`\|F(x_0)\|` over the slope of F there: a guess of the distance to a root, not a bound.
    radius
        The scale that distances were measured in.
    replayable
        Whether the same samples can be had at two points.
    own_randomness
        Whether one state of the generator gave two values, by an oracle that does not say whether it may.
    draws, evals
        Fresh samples and operator evaluations made; `evals` is at most `samples`.
    defects
        What seems to be wrong with the oracle itself.
    notes
        What was left out.
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
    pairs: int
    violations: int
    steepest_violation: float | None
    not_cocoercive: int
    rotation: float | None
    rotation_interval: Interval | None
    sigma_at: tuple[Interval, ...]
    noise_grows: bool
    D_guess: float | None
    radius: float
    replayable: bool
    dimension: int
    samples: int
    draws: int
    evals: int
    seed: int
    confidence: float
    own_randomness: bool = False
    defects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def largest_step(self) -> float | None:
        """1/(2 L) with the larger of the local estimates; it only ever shrinks a step, and no theorem stands behind it.

        Where the operator is not cocoercive 1/(2 M) takes its place; None where nothing could be estimated.
        """
        seen = [L for L in (self.local_L, self.local_L_mean) if L is not None]
        scale = self.local_M if inf in seen else max(seen, default=None)
        return 1 / (2 * scale) if scale else None

    def shrink(self, step_size: float) -> float:
        """The step size, or `largest_step` if that is smaller; never a larger one."""
        return step_size if self.largest_step is None else min(step_size, self.largest_step)

    @property
    def D_at_least(self) -> float:
        """(a/2) ‖F(x0)‖ with a = `largest_step` and the lower end for ‖F(x0)‖: a bound as long as a <= 2/L."""
        return 0.5 * (self.largest_step or 0.0) * self.residual_interval[0]

    def constants(self) -> Constants:
        """Sigma at x0 and the guess of D. Not L and not mu: what is seen locally bounds neither."""
        return Constants(sigma=self.sigma, D=self.D_guess)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against the theorems, or for another method; a sentence each."""
        said = list(self.defects)
        if self.violations:
            said.append(
                f"not monotone along {self.violations} of {self.pairs} pairs (slope down to "
                f"{self.steepest_violation:.3g}): no theorem applies"
            )
        if self.not_cocoercive:
            said.append(
                f"not cocoercive along {self.not_cocoercive} of {self.pairs} pairs, where F turns without pulling: "
                "anchored methods have no guarantee; extragradient methods (SEG and its averages) are the ones to try"
            )
        if self.noise_grows:
            distance, sigma = max(self.sigma_at, key=lambda one: one[1])
            said.append(
                f"variance grows: sigma is {sigma:.3g} at a distance of {distance:.3g} from x0, so Assumption 1 holds "
                "only locally with the sigma found at x0"
            )
        if self.residual_interval[0] == 0 and self.sigma > 0:
            said.append("|F(x0)| is not visible above the noise: x0 may be a root already, or more samples are needed")
        if not self.replayable:
            elsewhere = (
                "sample gives different values for the same rng: it takes randomness from elsewhere (np.random, "
                "torch.randn?), so results do not depend on the seed alone; and "
            )
            said.append(
                (elsewhere if self.own_randomness else "")
                + "the same samples cannot be had at two points: L of single samples is not known, the other estimates "
                "are rougher, and methods that evaluate one batch at two points cannot run"
            )
        return tuple(said)

    @property
    def verdict(self) -> tuple[str, ...]:
        """All there is to say, in sentences: the warnings first."""
        said = [f"Warning: {warning}." for warning in self.warnings]
        if not self.violations:
            said.append(f"No sign against monotonicity along {self.pairs} pair{'s' * (self.pairs > 1)}.")
        if self.sigma == 0:
            said.append("No noise seen at x0.")
        if self.rotation is None:
            said.append("Gradient-like or rotating: could not be told.")
        elif self.rotation <= GRADIENT_LIKE and not self.violations:
            said.append("Gradient-like: averaged SGDA may need fewer samples.")
        if self.local_L_mean and self.local_L and self.local_L < inf and self.local_L_mean < 0.5 * self.local_L:
            factor = self.local_L / self.local_L_mean
            said.append(
                f"The mean operator is smoother than its samples, by a factor of {factor:.2g} near x0: large batches "
                "may admit larger steps."
            )
        return (*said, *(f"Note: {note}." for note in self.notes))

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, texts and lists, ready for JSON; an infinite number is None."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        facts |= {name: getattr(self, name) for name in ("largest_step", "D_at_least", "warnings", "verdict")}
        return {name: jsonable(value) for name, value in facts.items()}

    def __repr__(self) -> str:
        step = self.largest_step
        lines = {
            "sigma at x0": _with_interval(self.sigma, self.sigma_interval),
            "|F(x0)|": _with_interval(self.residual, self.residual_interval),
            "L, local": _with_interval(self.local_L, self.local_L_interval),
            "L of the mean, local": _with_interval(self.local_L_mean, self.local_L_mean_interval),
            "mu": f"at most {self.mu_at_most:.3g}",
            "rotation": _with_interval(self.rotation, self.rotation_interval),
            "D": f"guess {_number(self.D_guess)}, at least {_number(self.D_at_least)}",
            "step": "not limited" if step is None else f"at most {step:.3g} (only ever shrinks)",
        }
        spent = f"{self.evals:,} evaluations, {self.draws:,} draws"
        head = f"Calibration around x0 in dimension {self.dimension:,} ({spent})"
        return "\n".join([head, *(f"  {name:<22}{text}" for name, text in lines.items()), *self.verdict])


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _with_interval(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return "unknown"
    low, high = (f"{end:.4g}" for end in interval)
    return f"{value:.4g}" if low == high else f"{value:<10.4g}({low} to {high})"
