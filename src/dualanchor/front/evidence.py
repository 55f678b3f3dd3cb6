"""What is known about a run: calibration before it, a certificate after it, findings, and the claim they leave."""

import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.calibrate import calibrate
from dualanchor.advise.calibration import Calibration
from dualanchor.advise.certify import MIN_SAMPLES, certificate_from_session
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.certificate import Certificate
from dualanchor.core.claim import Claim, ClaimKind
from dualanchor.core.errors import AssumptionWarning
from dualanchor.core.finding import Finding, violations
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.before import watched
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request
from dualanchor.run.checkpoint import digest_of

_PACKAGE = str(Path(__file__).parents[1])
_SLACK = 1.25  # by how much samples must exceed a constant before they contradict it
_WIDER = 2.0  # by how much the noise in a certificate must exceed sigma before it contradicts it


class CompositeInfo(NamedTuple):
    """What a composite problem adds: its sharpness, how far one sample's noise moves z0, the samples spent on z0."""

    modulus: float
    noise_shift: float
    start_samples: int


class Evidence:
    """The evidence about one request; counts the samples that are spent outside of the run itself."""

    def __init__(self, request: Request, oracle: Oracle, x0: Array, composite: CompositeInfo | None) -> None:
        self.request, self.oracle, self.composite = request, oracle, composite
        self.calibration: Calibration | None = None
        self.evals = self.draws = 0
        self.findings: list[Finding] = []
        self.one_x0 = x0 if x0.ndim == 1 else x0[0]  # (d,), the first of several
        self._start_residual: tuple[float, float] = (0.0, inf)  # bounds of the residual at x0

    def add(self, code: str, **values: Any) -> None:
        """Add a finding."""
        self.findings.append(Finding.of(code, **values))

    def charge(self, evals: int, draws: int) -> None:
        """Count samples that were spent outside of the run."""
        self.evals += evals
        self.draws += draws

    def calibrate(self, samples: int, needed: bool = False) -> None:
        """Calibrate, if there is a reason to, and warn of what contradicts the assumptions."""
        samples = max(samples, MIN_PILOT_SAMPLES) if needed else samples
        if not samples or not (self.request.check or needed):
            return

        def make() -> Calibration:
            with watched(self.oracle.take(np.arange(1)), self.request) as oracle:
                return calibrate(oracle, self.one_x0, samples, seed=self.request.seed)

        seen = self.request.once("calibration", make, Calibration.facts, Calibration.from_facts)
        self.calibration, self._start_residual = seen, seen.residual_interval
        self.charge(seen.evals, seen.draws)
        found = [*seen.warnings, *contradictions(self.request, seen, self.composite is None)]
        self.findings += found
        for one in violations(found):
            _warn(one)

    def conclude(self, result: Result, samples: int, plan: Plan | None = None, claim: Claim | None = None) -> Result:
        """A run's result with its certificate; `claim` is what a theorem says unless something contradicts it."""
        certificate, result = self._certified(result, samples)
        result = self._unless_grown(result, certificate)
        if plan is not None:
            self._check_theorem(result, plan, certificate)
        contradicted = bool(violations(self.findings))
        if plan is not None and contradicted:
            claim = Claim(ClaimKind.NONE)
        if (eps := self.request.eps) is not None and (plan is None or contradicted):
            upper = np.full(result.shape, inf) if certificate is None else certificate.upper
            claim = certified_claim(upper, eps, self.request.level)
            result = _only_where(np.asarray(upper) <= eps, result)
        return self.finish(result, certificate, plan, claim)

    def finish(self, result: Result, certificate: Certificate | None, plan: Plan | None, claim: Claim | None) -> Result:
        """The result with everything that is known about it."""
        if result.residual is None and certificate is not None:
            result = replace(result, residual=certificate.residual, residual_kind="estimated")
        if (seen := self.calibration) is not None:
            self.add("calibration-samples", samples=seen.draws, evals=seen.evals)
        statuses = np.array(result.status, dtype=object)
        stopped = (statuses == Status.BUDGET) & (self.request.budget is None)
        if np.any(stopped):  # by max_samples, which is named instead of a budget that was not given
            start = 0 if self.composite is None else self.composite.start_samples
            self.add("max-samples", limit=self.request.limit + start)
            statuses[stopped] = Status.MAX_SAMPLES
        result = replace(result, nfev=result.nfev + self.evals, draws=result.draws + self.draws)
        result = replace(result, claim=claim, plan=plan, certificate=certificate, calibration=self.calibration)
        status, findings = statuses if result.shape else statuses.item(), (*self.findings, *result.findings)
        return replace(result, status=status, findings=findings)

    def _certified(self, result: Result, samples: int) -> tuple[Certificate | None, Result]:
        """A certificate on fresh samples, infinite for rows that diverged, and the result with its samples counted."""
        x, statuses = result.x.reshape(-1, result.x.shape[-1]), np.atleast_1d(result.status)
        sound = arrays.finite_rows(x) & [one is not Status.DIVERGED for one in statuses]
        if samples < MIN_SAMPLES:
            if self.request.certificate:
                self.add("no-certificate", least=MIN_PILOT_SAMPLES)
            return None, result
        if not sound.any() or Status.INTERRUPTED in statuses:
            return None, result
        F, x = self.session(np.arange(len(x)), Purpose.CERTIFICATE, x), arrays.take(x, sound)
        options: dict[str, Any] = {"confidence": self.request.level, "single": not result.shape}
        try:
            samples -= self._bound_start_residual(samples)
            made = self._certificate("certificate", F if sound.all() else F.take(sound), x, samples, **options)
        except KeyboardInterrupt:
            self.add("certificate-interrupted")
            return None, result
        made = made if sound.all() else made.spread(sound)
        used = made.samples * sound if result.shape else made.samples
        self.add("certificate-samples", samples=made.samples)
        return made, replace(result, nfev=result.nfev + used, draws=result.draws + used)

    def _bound_start_residual(self, samples: int) -> int:
        """Where nothing was calibrated, spend a few of a certificate's samples on the residual at x0."""
        if self.calibration is not None or not self.request.check or samples < 2 * MIN_SAMPLES:
            return 0
        x = self.one_x0[None]
        made = self._certificate("start", self.session(np.zeros(1, int), Purpose.PILOT, x), x, MIN_SAMPLES)
        self.charge(made.samples, made.samples)
        self.add("start-residual-samples", samples=made.samples)
        self._start_residual = (0.0, float(made.upper[0]))
        return int(made.samples)

    def _certificate(self, name: str, F: Session, x: Array, samples: int, **options: Any) -> Certificate:
        """A certificate at points (rows, d); once, however often a call is resumed."""
        return self.request.once(
            name,
            lambda: certificate_from_session(F, x, samples, **options),
            Certificate.to_dict,
            Certificate.from_dict,
            [samples, digest_of(x)],
        )

    def session(self, rows: Array, purpose: Purpose, x: Array) -> Session:
        """Fresh samples for a purpose, at points of the shape of x."""
        oracle = self.oracle.take(rows) if purpose is Purpose.PILOT else self.oracle
        return Session(oracle, Streams(self.request.seed, rows, purpose, x.shape[1], x.dtype))

    def _unless_grown(self, result: Result, certificate: Certificate | None) -> Result:
        """The result, without success where it ended far above its start."""
        if certificate is None:
            return result
        (lowest, highest), residual = self._start_residual, np.asarray(certificate.residual)
        fine = np.isfinite(residual) & (residual <= 10 * (highest or inf))
        if not fine.all():
            self.add("residual-grew", end=residual.max())
        elif self.request.eps is None and lowest > 0 and residual.min() > 0.9 * lowest:
            self.add("residual-did-not-fall", start=lowest, end=residual.min())
        return _only_where(fine, result)

    def _check_theorem(self, result: Result, plan: Plan, certificate: Certificate | None) -> None:
        """Add what keeps the plan's theorem from saying anything about this result."""
        if violations(self.findings):
            return
        if not all(one in (Status.HORIZON, Status.STEPS) for one in np.atleast_1d(result.status)):
            self.add("run-cut-short")
        elif certificate is not None:
            sigma, squared = float(np.median(certificate.sigma)), float(np.mean(certificate.squared))
            given = self.request.sigma
            if given is not None and np.isfinite(sigma) and sigma > _WIDER * given:
                self.add("sigma-too-small", given=given, seen=sigma, at="x", relation="about")
                _warn(self.findings[-1])
            elif squared > (10 * plan.bound) ** 2:  # at most one time in a hundred if the theorem applied
                self.add("above-bound", residual=sqrt(squared), bound=plan.bound)
                _warn(self.findings[-1])


def contradictions(request: Request, seen: Calibration, plain: bool) -> Iterator[Finding]:
    """Constants that samples contradict; D only for a `plain` problem, where it is the distance from a fixed x0."""
    # L only where the same samples can be had at two points, mu not at all: noise would raise false alarms
    lowest = max(low for low, _ in filter(None, (seen.local_L_interval, seen.local_L_mean_interval, (0.0, 0.0))))
    comparable = seen.replayable and not (seen.violations or seen.not_cocoercive) and np.isfinite(lowest)
    if request.L is not None and comparable and lowest > _SLACK * request.L:
        yield Finding.of("L-too-small", given=request.L, seen=lowest)
    if request.sigma is not None and (sigma := seen.sigma_interval[0]) > _SLACK * request.sigma:
        yield Finding.of("sigma-too-small", given=request.sigma, seen=sigma, at="x0", relation="at least")
    distance = seen.residual_interval[0] / request.L if request.L is not None and plain else 0.0
    if request.D is not None and distance > _SLACK * request.D:
        yield Finding.of("D-too-small", given=request.D, seen=distance)


def certified_claim(upper: Any, eps: float, confidence: float) -> Claim:
    """What certificates say about eps: that it holds, or what holds instead."""
    worst = float(np.max(upper))
    if worst <= eps:
        return Claim(ClaimKind.CERTIFICATE, eps, confidence)
    return Claim(ClaimKind.NOT_REACHED, worst if np.isfinite(worst) else None, confidence)


def _only_where(good: Array, result: Result) -> Result:
    """The result, with success only where it is good."""
    success = np.asarray(result.success) & good
    return replace(result, success=success if result.shape else bool(success))


def _warn(finding: Finding) -> None:
    """Warn at the stack level of the first caller outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(str(finding), AssumptionWarning, stacklevel=level + 1)
