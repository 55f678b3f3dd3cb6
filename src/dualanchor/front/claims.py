"""What may be claimed of a run: a look at the oracle before it, a certificate after it, and doubts about both."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.calibrate import calibrate
from dualanchor.advise.calibration import Calibration
from dualanchor.advise.certify import FEWEST_SAMPLES, Certificate, certificate_from_session
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.errors import AssumptionWarning
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.result import Result, Status
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.ask import FEWEST, Ask
from dualanchor.front.doubts import contradicted
from dualanchor.front.stages import delivered

_PACKAGE = str(Path(__file__).parents[1])
_WIDER = 2.0  # by how much the noise in a certificate must exceed sigma before it is held against it


class Inside(NamedTuple):
    """What a composite problem adds: how sharp it is, how far one sample's noise moves its start, what that took."""

    modulus: float
    spread: float
    start: int


class Claims:
    """One question on its way to an answer; counts what is spent outside of the run itself."""

    def __init__(self, ask: Ask, oracle: Oracle, x0: Array, inside: Inside | None) -> None:
        self.ask, self.oracle, self.x0, self.inside = ask, oracle, x0, inside
        self.calibration: Calibration | None = None
        self.start: tuple[float, float] = (0.0, np.inf)  # bounds of the residual at x0
        self.evals = self.draws = 0  # spent on looking
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.doubts: list[str] = []  # warnings that leave no theorem

    def _look(self, samples: int, needed: bool = False) -> None:
        """Spend samples on a look at the oracle, if there is a reason to."""
        samples = max(samples, FEWEST) if needed else samples
        if not samples or not (self.ask.check or needed):
            return
        seen = calibrate(self.oracle.take(np.arange(1)), self._one(), samples, seed=self.ask.seed)
        self.calibration, self.start = seen, seen.residual_interval
        self._charge(seen.evals, seen.draws)
        against = contradicted(self.ask, seen, self.inside is None)
        self.doubts = [*seen.defects, *(text for text in seen.warnings if text.startswith("not ")), *against]
        self.warnings += [*seen.warnings, *against]
        for text in self.doubts:
            warnings.warn(text, AssumptionWarning, stacklevel=_users_level())

    def _charge(self, evals: int, draws: int) -> None:
        self.evals += evals
        self.draws += draws

    def _concluded(self, result: Result, why: str, samples: int, chosen: Plan | None, sense: str | None) -> Result:
        """A run's result with its certificate; `sense` is what a theorem claims where nothing speaks against it."""
        eps = self.ask.eps
        certificate, result = self._certificate(result, samples)
        result = self._unless_grown(result, certificate)
        doubt = None if chosen is None else self._doubt(result, chosen, certificate)
        if doubt is not None:
            sense = f"no theorem applies: {doubt}"
        if eps is not None and (chosen is None or doubt is not None):
            upper = np.full(result.shape, np.inf) if certificate is None else certificate.upper
            sense = delivered(upper, eps, self.ask.level) + ("" if doubt is None else f"; {sense}")
            result = _only_where(np.asarray(upper) <= eps, result)
        return self._finished(result, why, certificate, chosen, sense)

    def _after_the_start(self, samples: int) -> int:
        """A certificate's samples, less a few that bound the residual at x0 where no look was taken."""
        if self.calibration is not None or not self.ask.check or samples < 2 * FEWEST_SAMPLES:
            return samples
        x = self._one()[None]
        streams = Streams(self.ask.seed, np.zeros(1, int), Purpose.PILOT, x.shape[1], x.dtype)
        made = certificate_from_session(Session(self.oracle.take(np.arange(1)), streams), x, FEWEST_SAMPLES)
        self._charge(made.samples, made.samples)
        self.notes.append(f"{made.samples} samples went into the residual at x0")
        self.start = (0.0, float(made.upper[0]))
        return samples - made.samples

    def _unless_grown(self, result: Result, certificate: Certificate | None) -> Result:
        """The result, without success where it ended far above its start."""
        if certificate is None:
            return result
        lowest, highest = self.start
        highest = highest or np.inf
        kept = np.isfinite(certificate.residual) & (np.asarray(certificate.residual) <= 10 * highest)
        if kept.all() and self.ask.eps is None and lowest > 0 and np.min(certificate.residual) > 0.9 * lowest:
            ends = float(np.min(certificate.residual))
            self.warnings.append(
                f"the residual did not fall: at least {lowest:.3g} at x0 and about {ends:.3g} now; is there a root, "
                "and is F monotone?"
            )
        if not kept.all():
            largest = float(np.max(certificate.residual))
            self.warnings.append(
                f"the residual grew to {largest:.3g}: the step is too large for this operator (is L right?), or F is "
                "not monotone"
            )
        return _only_where(kept, result)

    def _doubt(self, result: Result, chosen: Plan, certificate: Certificate | None) -> str | None:
        """Why the plan's theorem says nothing about this result, if so."""
        if self.doubts:
            return self.doubts[0]
        if not all(one in (Status.HORIZON, Status.STEPS) for one in np.atleast_1d(result.status)):
            return f"a run {result.message}"
        spread = 0.0 if certificate is None else float(np.median(certificate.sigma))
        if self.ask.sigma is not None and np.isfinite(spread) and spread > _WIDER * self.ask.sigma:
            found = f"sigma = {self.ask.sigma:.4g} is too small: at x it is about {spread:.4g}"
            self.warnings.append(found)
            warnings.warn(found, AssumptionWarning, stacklevel=_users_level())
            return found
        squared = -1.0 if certificate is None else float(np.mean(certificate.squared))
        if squared > (10 * chosen.bound) ** 2:  # at most one time in a hundred if the theorem applied
            found = f"the residual is about {sqrt(squared):.4g}, far above the bound of {chosen.bound:.4g}"
            self.warnings.append(f"{found}: check L, sigma and D")
            return found
        return None

    def _certificate(self, result: Result, samples: int) -> tuple[Certificate | None, Result]:
        """A certificate on fresh samples, infinite for rows that diverged, and the result with its samples counted."""
        x, statuses = result.x.reshape(-1, result.x.shape[-1]), np.atleast_1d(result.status)
        sound = arrays.finite_rows(x) & [one is not Status.DIVERGED for one in statuses]
        if samples < FEWEST_SAMPLES:
            if self.ask.certificate:
                self.notes.append(f"no certificate: that takes a budget of {FEWEST} samples or more")
            return None, result
        if not sound.any() or Status.INTERRUPTED in statuses:
            return None, result
        streams = Streams(self.ask.seed, np.arange(len(x)), Purpose.CERTIFICATE, x.shape[1], x.dtype)
        F = Session(self.oracle, streams)
        try:
            samples = self._after_the_start(samples)
            made = certificate_from_session(
                F if sound.all() else F.take(sound),
                arrays.take(x, sound),
                samples,
                confidence=self.ask.level,
                single=not result.shape,
            )
        except KeyboardInterrupt:
            self.notes.append("interrupted while the certificate was being made, so there is none")
            return None, result
        if not sound.all():
            everywhere: dict[str, Any] = {
                name: np.full(len(x), np.inf) for name in ("residual", "upper", "squared", "sigma")
            }
            for name, values in everywhere.items():
                values[sound] = getattr(made, name)
            made = replace(made, **everywhere)
        used = made.samples * sound if result.shape else made.samples
        self.notes.append(f"{made.samples:,} samples went into the certificate")
        return made, replace(result, nfev=result.nfev + used, draws=result.draws + used)

    def _finished(
        self, result: Result, why: str, certificate: Certificate | None, chosen: Plan | None, sense: str | None
    ) -> Result:
        if result.residual is None and certificate is not None:
            result = replace(result, residual=certificate.residual, residual_kind="estimated")
        if (seen := self.calibration) is not None:
            self.notes.append(f"{seen.draws:,} samples ({seen.evals:,} evaluations) went into a look at the oracle")
        if self.ask.budget is None:
            result = self._stopped_at_most(result)
        return replace(
            result,
            why=why,
            sense=sense,
            plan=chosen,
            certificate=certificate,
            calibration=self.calibration,
            warnings=tuple(self.warnings),
            notes=(*result.notes, *self.notes),
            nfev=result.nfev + self.evals,
            draws=result.draws + self.draws,
        )

    def _stopped_at_most(self, result: Result) -> Result:
        """The result, naming max_samples instead of a budget that nobody gave."""
        statuses = np.array(result.status, dtype=object)
        stopped = statuses == Status.BUDGET
        if not stopped.any():
            return result
        most = self.ask.most + (0 if self.inside is None else self.inside.start)
        self.notes.append(f"max_samples is {most:,}: allow more, or ask for a larger eps")
        statuses[stopped] = Status.MAX_SAMPLES
        return replace(result, status=statuses if result.shape else statuses.item())

    def _by_theorem(self, chosen: Plan) -> str:
        return f"root mean square residual <= {chosen.bound:.4g}, by {chosen.theorem}"

    def _one(self) -> Array:
        return self.x0 if self.x0.ndim == 1 else self.x0[0]


def _only_where(good: Array, result: Result) -> Result:
    """The result, with success only where it is good."""
    success = np.asarray(result.success) & good
    return replace(result, success=success if result.shape else bool(success))


def _users_level() -> int:
    """The stack level of the first caller outside of the package, for a warning."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
