"""What is known about a run: calibration before it, a certificate after it, findings, and the claim they leave."""

import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
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
from dualanchor.core.finding import Finding, Severity, violations
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.before import watched
from dualanchor.front.judge import certified_claim, contradictions, estimated_history, has_fallen, largest_sample
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request
from dualanchor.run.checkpoint import digest_of

_PACKAGE = str(Path(__file__).parents[1])
_FAR = 3.0  # times the bound at x0: a point with such a bound is not returned
_BEYOND = 1e3  # times the bound at x0: noise that x0 does not show is no excuse
_UNLIKELY = 3.0  # times a bound in root mean square
_WIDER = 2.0  # by how much the noise in a certificate must exceed sigma before it contradicts it


class CompositeInfo(NamedTuple):
    """What a composite problem adds: its sharpness, how far one sample's noise moves z0, the samples spent on z0.

    `fallback` (d,) is the z that stands for the user's x0: a run that makes it worse returns there. `F` is the operator
    without G, `project` maps points (rows, d) to where it may be sampled. Without L: `method`, the default for a number
    of samples per round, and `alone`, the calibration of F; or `plan`, what a theorem for monotone operators asks for,
    and `regularised`, the oracle with its pull to x0 and the method that is run on it.
    """

    modulus: float
    noise_shift: float
    start_samples: int
    fallback: Array
    F: Oracle
    project: Callable[[Array], Array]
    method: Callable[[int], Method] | None = None
    alone: Calibration | None = None
    plan: Plan | None = None
    regularised: tuple[Oracle, Method] | None = None
    fitted: int = 0  # samples from which the element of G at x0 was chosen, 0 if there was no choice


class Refused(Exception):  # noqa: N818
    """Samples show that no method could find a root: nothing more is to be spent."""


class Evidence:
    """The evidence about one request; counts the samples that are spent outside of the run itself."""

    def __init__(self, request: Request, oracle: Oracle, x0: Array, composite: CompositeInfo | None) -> None:
        self.request, self.oracle, self.composite = request, oracle, composite
        self.calibration: Calibration | None = None
        self.evals = self.draws = 0
        self.calibration_samples = np.zeros(2, int)  # draws, evals
        self.findings: list[Finding] = []
        self.one_x0 = x0 if x0.ndim == 1 else x0[0]  # (d,), the first of several
        self.fallback = self.one_x0 if composite is None else composite.fallback  # (d,), where runs that diverge return
        self.start: Certificate | None = None  # of the residual there
        self.start_share = 1 / 3  # of a certificate's samples, where more is to be known of it

    def add(self, code: str, **values: Any) -> None:
        """Add a finding."""
        self.findings.append(Finding.of(code, **values))

    def charge(self, evals: int, draws: int) -> None:
        """Count samples that were spent outside of the run."""
        self.evals += evals
        self.draws += draws

    def calibrate(self, samples: int, needed: bool = False, ignoring: tuple[str, ...] = ()) -> None:
        """Calibrate, if there is a reason to, and warn of contradictions, `ignoring` some codes; raises Refused."""
        samples = max(samples, MIN_PILOT_SAMPLES) if needed else samples
        if not samples or not (self.request.check or needed):
            return
        composite, half = self.composite, samples // 2
        if composite is None:
            seen = self.calibrated("calibration", self.oracle, self.one_x0, samples)
            ignoring += ("not-cocoercive",) if self.request.merely_monotone else ()
            warned = [one for one in seen.warnings if one.code not in ignoring]
            self.start, found = seen.start_certificate(), [*warned, *contradictions(self.request, seen, True)]
        elif (alone := composite.alone) is not None:
            seen = self._charged(alone)
            warned = [one for one in seen.warnings if one.code not in ("not-cocoercive", "start-not-visible")]
            found = [*warned, *contradictions(self.request, seen, False)]
        else:  # of what is solved, and of F alone, whose violations G may hide
            seen = self.calibrated("calibration", self.oracle, self.one_x0, samples - half)
            joint = [replace(one, values={**one.values, "composite": True}) for one in seen.warnings]
            x = composite.project(composite.fallback[None])[0]
            alone = self.calibrated("calibration-of-F", composite.F, x, half, project=composite.project)
            mixed = [*joint, *violations(alone.findings), *contradictions(self.request, alone, False)]
            if composite.plan is not None:  # F alone is monotone: what is solved need not be, and neither is cocoercive
                own = [one for one in joint if one not in violations(joint)]
                expected = ("not-cocoercive", "L-too-small")  # L belongs to what is solved
                mixed = [*own, *(one for one in mixed[len(joint) :] if one.code not in expected)]
            found = list({one.code: one for one in mixed}.values())
        self.calibration = seen
        self.findings += found
        for one in violations(found):
            _warn(one)
        if any(one.code == "decreasing" for one in found):
            raise Refused

    def calibrated(self, name: str, oracle: Oracle, x: Array, samples: int, **options: Any) -> Calibration:
        """A calibration, charged; once, however often a call is resumed."""

        def make() -> Calibration:
            with watched(oracle.take(np.arange(1)), self.request, self.evals) as shown:
                return calibrate(shown, x, samples, seed=self.request.seed, confidence=self.request.level, **options)

        return self._charged(self.request.once(name, make, Calibration.facts, Calibration.from_facts))

    def _charged(self, seen: Calibration) -> Calibration:
        self.charge(seen.evals, seen.draws)
        self.calibration_samples += np.array([seen.draws, seen.evals])
        return seen

    def conclude(
        self,
        result: Result,
        samples: int,
        plan: Plan | None = None,
        claim: Claim | None = None,
        exact: Certificate | None = None,
    ) -> Result:
        """A run's result, judged by a certificate; `claim` is what a theorem says unless something contradicts it.

        The certificate is `exact` or, without, made with this number of samples.
        Without success where the certificate shows a residual above eps, or above the bound of a theorem that was asked
        for; where nothing stands behind eps or a guarantee any more; and where the residual has visibly grown or, with
        a plain budget, not visibly fallen. Rows that have visibly grown or diverged return x0.
        """
        eps, below = self.request.eps, np.asarray(True)
        certificate, result = self._certified(result, samples) if exact is None else (exact, result)
        if plan is not None and claim is not None:
            holds, below = self._check_theorem(result, claim, certificate, plan)
            claim = claim if holds else Claim(ClaimKind.NONE)
        result, certificate = self._compare_with_start(result, certificate, below)
        if claim is not None and any(one.code == "back-at-start" for one in self.findings):
            claim = Claim(ClaimKind.NONE)  # a theorem speaks of the point that was left
        if claim is None or not claim.by_theorem:
            upper = np.full(result.shape, inf) if certificate is None else np.asarray(certificate.upper)
            if eps is not None:
                claim = certified_claim(certificate, eps, self.request.level)
                result = _only_where(upper <= eps, result)
            elif plan is not None:
                result = _only_where(np.zeros(result.shape, bool), result)
        return self.finish(result, certificate, plan, claim)

    def finish(self, result: Result, certificate: Certificate | None, plan: Plan | None, claim: Claim | None) -> Result:
        """The result with everything that is known about it."""
        if result.residual is None and certificate is not None:
            kind = "true" if certificate.is_exact else "estimated"
            result = replace(result, residual=certificate.residual, residual_kind=kind)
        if self.calibration is not None:
            draws, evals = self.calibration_samples.tolist()
            self.add("calibration-samples", samples=draws, evals=evals)
        statuses = np.array(result.status, dtype=object)
        stopped = (statuses == Status.BUDGET) & (self.request.budget is None)
        if np.any(stopped):  # by max_samples, which is named instead of a budget that was not given
            start = 0 if self.composite is None else self.composite.start_samples
            self.add("max-samples", limit=self.request.limit + start)
            statuses[stopped] = Status.MAX_SAMPLES
        result = replace(result, nfev=result.nfev + self.evals, draws=result.draws + self.draws)
        result = replace(result, claim=claim, plan=plan, certificate=certificate, calibration=self.calibration)
        dropped = () if certificate is None else ("not-checked",)
        found = tuple(one for one in result.findings if one.code not in dropped)
        status, findings = statuses if result.shape else statuses.item(), (*self.findings, *found)
        return replace(result, status=status, findings=findings)

    def _certified(self, result: Result, samples: int) -> tuple[Certificate | None, Result]:
        """A certificate on fresh samples, infinite for rows that diverged, and the result with its samples counted."""
        x, statuses = result.x.reshape(-1, result.x.shape[-1]), np.atleast_1d(result.status)
        sound = arrays.finite_rows(x) & [one is not Status.DIVERGED for one in statuses]
        if samples < 2 * MIN_SAMPLES:
            if self.request.certificate:
                self.add("no-certificate", least=MIN_PILOT_SAMPLES)
            return None, result
        if Status.INTERRUPTED in statuses:
            return None, result
        if not sound.any():
            self._bound_start_residual(samples)
            assert self.start is not None
            return (self.start.spread(np.ones(len(x), bool)) if result.shape else self.start), result
        F, x = self.session(np.arange(len(x)), Purpose.CERTIFICATE, x), arrays.take(x, sound)
        options: dict[str, Any] = {"confidence": self.request.level, "single": not result.shape}
        try:
            samples -= self._bound_start_residual(samples)
            options["scale"] = largest_sample(result, self.start)[sound]
            made = self._certificate("certificate", F if sound.all() else F.take(sound), x, samples, **options)
        except KeyboardInterrupt:
            self.add("certificate-interrupted")
            return None, result
        self.findings += [one for one in made.findings if one.code in ("samples-agree", "noise-not-seen")]
        made = made if sound.all() else made.spread(sound)
        rows = sound if result.shape else 1
        if not made.is_exact:
            self.add("certificate-samples", samples=made.samples)
        evals, draws = made.samples * rows, made.fresh_samples * rows
        return made, replace(result, nfev=result.nfev + evals, draws=result.draws + draws)

    def _bound_start_residual(self, samples: int) -> int:
        """Where calibration says little about the residual at x0, spend a share of a certificate's samples on it.

        Of a finite sum it is computed exactly where the samples pay for a pass there and another one at x.
        """
        n, start, share = self.oracle.components or inf, self.start, max(MIN_SAMPLES, int(self.start_share * samples))
        known = start is not None and (start.is_exact or (start.upper < 2 * start.lower and 2 * n > samples))
        if n <= samples:  # of which n are for x
            share = max(int(n), MIN_SAMPLES) if 2 * n <= samples else min(share, samples - int(n))
        if known or samples < 2 * MIN_SAMPLES or share < MIN_SAMPLES:
            return 0
        made = self.certify_start(share)  # where noise may be unseen, what is seen will do to compare with
        self.start = replace(made, upper=made.residual) if inf > made.residual > 0 == made.sigma else made
        return int(made.samples)

    def certify_start(self, samples: int, before_run: bool = False) -> Certificate:
        """A certificate at x0, charged."""
        x = self.fallback[None]
        streams = Streams(self.request.seed, np.zeros(1, int), Purpose.START_RESIDUAL, x.shape[1], x.dtype)
        oracle = self.oracle.take(np.arange(1))
        with watched(oracle, self.request, self.evals) if before_run else nullcontext(oracle) as oracle:
            F = Session(oracle, streams)
            made = self._certificate("start", F, x, samples, confidence=self.request.level, single=True)
        self.charge(made.samples, made.fresh_samples)
        if not made.is_exact:
            self.add("start-residual-samples", samples=made.samples)
        return made

    def _certificate(self, name: str, F: Session, x: Array, samples: int, **options: Any) -> Certificate:
        """A certificate at points (rows, d); once, however often a call is resumed."""
        return self.request.once(
            name,
            lambda: certificate_from_session(F, x, samples, sigma=self.request.sigma, **options),
            Certificate.to_dict,
            Certificate.from_dict,
            [samples, digest_of(x)],
        )

    def session(self, rows: Array, purpose: Purpose, x: Array) -> Session:
        """Fresh samples for a purpose, at points of the shape of x."""
        return Session(self.oracle, Streams(self.request.seed, rows, purpose, x.shape[1], x.dtype))

    def _compare_with_start(
        self, result: Result, certificate: Certificate | None, below: Array
    ) -> tuple[Result, Certificate | None]:
        """The result with x0 in place of points with a residual seen to be larger; success only where it fell.

        `below` are rows not seen to be above the bound of a theorem.
        """
        start, diverged = self.start, np.asarray(result.status == Status.DIVERGED)
        ended = np.array([one.ended_as_asked for one in np.ravel(result.status)]).reshape(result.shape)
        if certificate is None or start is None:
            seen = not self.request.certificate or result.residual_kind == "true"
            grown = ended & ~np.asarray(result.success) & (result.residual is None)  # by its samples
            return _only_where(below & seen, self._back_at_start(result, grown | diverged)), certificate
        lower, upper, residual = (np.asarray(getattr(certificate, name)) for name in ("lower", "upper", "residual"))
        fitted = 0 if self.composite is None else self.composite.fitted
        samples = self.evals + int(np.max(result.nfev))
        grown, fallen = (lower > start.upper) & ~diverged, has_fallen(certificate, start, result, samples, fitted)
        worse = ~fallen & (upper > _FAR * start.upper)
        if start.sigma == 0 and not start.is_exact:  # noise that only the end shows leaves the start open
            hidden = (np.asarray(certificate.sigma) > 0) & (upper <= _BEYOND * start.upper)
            grown, worse = grown & ~hidden, worse & ~hidden
        if result.residual_kind == "true" and np.count_nonzero(result.history.k == 0) == lower.size:
            first = result.history.residual[result.history.k == 0].reshape(lower.shape)
            grown, worse = (result.residual > first) & ~diverged, np.zeros_like(diverged)
            fallen = (result.residual < first) | (np.asarray(result.residual) == 0)
        self.findings = [one for one in self.findings if one.code != "start-not-visible"]  # more is known by now
        if result.residual is None:
            result = replace(result, history=estimated_history(result, start, certificate))
        if grown.any():
            self.add("residual-grew", start=start.residual, end=residual[grown].max())
        elif self.request.eps is None and not (fallen | diverged).all():
            stayed = lower[~diverged].max() > start.residual / 2
            code = "residual-did-not-fall" if stayed else "fall-not-visible"
            self.add(code, start=start.residual, end=residual.max(), upper=upper.max())
        elif self.request.eps is None and (end := residual[~diverged].max(initial=0.0)) > start.residual / 2:
            self.add("residual-fell-little", start=start.residual, end=end)
        good = fallen if self.request.eps is None else ~grown
        found = tuple(one for one in result.findings if one.code not in ("samples-grew", "residual-grew"))
        result = replace(result, success=ended if result.shape else bool(ended), findings=found)  # judged here instead
        back = grown | diverged | worse
        if back.any():
            certificate = certificate.replaced(back, start) if result.shape else start
        return _only_where(below & good & ~back, self._back_at_start(result, back)), certificate

    def _back_at_start(self, result: Result, rows: Array) -> Result:
        """The result with x0 in place of the x of some rows (a mask)."""
        if not rows.any():
            return result
        self.add("back-at-start", runs=np.count_nonzero(rows), of=rows.size)
        x = arrays.put(arrays.copy(result.x.reshape(rows.size, -1)), np.flatnonzero(rows), self.fallback)
        return replace(result, x=x.reshape(result.x.shape), residual=None, residual_kind=None)

    def _check_theorem(
        self, result: Result, claim: Claim, certificate: Certificate | None, plan: Plan
    ) -> tuple[bool, Array]:
        """Whether a theorem's claim may be made, and which rows are not seen to be above its bound."""
        bound = inf if claim.bound is None else claim.bound
        lower = np.zeros(result.shape) if certificate is None else np.asarray(certificate.lower)
        if violations(self.findings):
            return False, lower <= bound
        if not all(one in (Status.HORIZON, Status.STEPS, Status.TARGET) for one in np.atleast_1d(result.status)):
            self.add("run-cut-short")
        elif certificate is not None:
            sigma, given = float(np.median(certificate.sigma)), plan.inputs.get("sigma")
            if given is not None and np.isfinite(sigma) and sigma > _WIDER * given:
                self.add("sigma-too-small", given=given, seen=sigma, at="x", relation="about")
                _warn(self.findings[-1])
            elif (lower > bound).any():
                far = sqrt(np.mean(lower**2)) > _UNLIKELY * bound  # at most 1 time in 9 if the theorem applies
                severity = Severity.VIOLATION if far else Severity.WARNING
                self.findings.append(Finding("above-bound", severity, {"residual": lower.max(), "bound": bound}))
                if far:
                    _warn(self.findings[-1])
        return not violations(self.findings) and bool(np.mean(lower**2) <= bound**2), lower <= bound


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
