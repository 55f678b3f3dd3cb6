"""What samples outside of the run say: calibration before it, certificates at x0 and at its end, findings."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.calibrate import calibrate
from dualanchor.advise.calibration import Calibration
from dualanchor.advise.certify import MIN_SAMPLES, certificate_from_session
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.certificate import Certificate
from dualanchor.core.claim import Claim
from dualanchor.core.errors import AssumptionWarning, warn_caller
from dualanchor.core.finding import Finding, violations
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.before import watched
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request
from dualanchor.methods.auto import Auto
from dualanchor.run.checkpoint import digest_of

_SLACK = 1.25  # samples contradict a constant if they exceed it by this factor
_KURTOSIS = 3  # of samples none of which stands out


class CompositeInfo(NamedTuple):
    """What is known of a problem 0 in F(x) + G(x) beside the root-finding problem in z that is solved for it."""

    sharpness: float  # modulus of the problem in z: its distance to a root is at most the residual over this
    noise_shift: float  # how far the noise of one sample moves the start z0, over sigma
    start_samples: int  # samples spent before the route begins
    fallback: Array  # (d,), the z that stands for the user's x0; a run that makes it worse returns there
    F: Oracle  # the operator without G
    project: Callable[[Array], Array]  # maps points (rows, d) to where F may be sampled
    method: Callable[[int], Method] | None = None  # without L: makes the default for a number of samples per round
    calibration_of_F: Calibration | None = None  # without L
    plan: Plan | None = None  # by a theorem for monotone operators
    regularised: tuple[Oracle, Method] | None = None  # for that plan: the oracle with its pull to x0, and its method
    fitted: int = 0  # samples from which the element of G at x0 was chosen, 0 if there was no choice


class Refused(Exception):  # noqa: N818
    """Samples show that no method could find a root: nothing more is to be spent."""


class Evidence:
    """The evidence about one request; counts the samples that are spent outside of the run itself.

    Attributes
    ----------
    evals, draws : int, evaluations and fresh samples outside of the run, so far
    findings : list of Finding
    x0 : array (d,), the start, or the first of several
    fallback : array (d,), where runs that diverge return
    calibration : Calibration or None
    start_certificate : Certificate or None, of the residual at `fallback`
    start_share : float, the part of a certificate's samples that may be spent on `start_certificate`
    """

    def __init__(self, request: Request, oracle: Oracle, x0: Array, composite: CompositeInfo | None) -> None:
        self.request, self.oracle, self.composite = request, oracle, composite
        self.evals = self.draws = 0
        self.findings: list[Finding] = []
        self.x0 = x0 if x0.ndim == 1 else x0[0]
        self.fallback = self.x0 if composite is None else composite.fallback
        self.calibration: Calibration | None = None
        self.start_certificate: Certificate | None = None
        self.start_share = 1 / 3
        self._calibrations: list[Calibration] = []

    def add(self, code: str, **values: Any) -> None:
        """Add a finding."""
        self.findings.append(Finding.of(code, **values))

    def has(self, code: str) -> bool:
        """Whether there is a finding with this code."""
        return any(finding.code == code for finding in self.findings)

    def charge(self, evals: int, draws: int) -> None:
        """Count samples that were spent outside of the run."""
        self.evals += evals
        self.draws += draws

    def session(self, rows: Array, purpose: Purpose, x: Array) -> Session:
        """Fresh samples for a purpose, at points of the shape of x."""
        return Session(self.oracle, Streams(self.request.seed, rows, purpose, x.shape[1], x.dtype))

    # -- before the run --------------------------------------------------------------------------------------

    def calibrate(self, samples: int, needed: bool = False, ignoring: tuple[str, ...] = ()) -> None:
        """Calibrate if `check` is on or the method needs it, and warn of violated assumptions; raises Refused.

        `ignoring` are codes of findings that do not matter for the method.
        """
        samples = max(samples, MIN_PILOT_SAMPLES) if needed else samples
        if not samples or not (self.request.check or needed):
            return
        if self.composite is None:
            findings = self._calibrate_plain(samples, ignoring)
        else:
            findings = self._calibrate_composite(samples, self.composite)
        findings = [replace(one, values={**one.values, "door": self.request.door}) for one in findings]
        self.findings += findings
        for finding in violations(findings):
            warn_caller(str(finding), AssumptionWarning)
        if self.has("decreasing"):
            raise Refused

    def _calibrate_plain(self, samples: int, ignoring: tuple[str, ...]) -> list[Finding]:
        self.calibration = self.calibrated("calibration", self.oracle, self.x0, samples)
        self.start_certificate = self.calibration.start_certificate()
        ignoring += ("not-cocoercive",) if self.request.merely_monotone else ()
        warned = [finding for finding in self.calibration.warnings if finding.code not in ignoring]
        return [*warned, *_contradictions(self.request, self.calibration, plain=True)]

    def _calibrate_composite(self, samples: int, composite: CompositeInfo) -> list[Finding]:
        """Calibrate the problem in z and F alone, whose violations G may hide; half of the samples each."""
        if (known := composite.calibration_of_F) is not None:
            self.calibration = self._charged(known)
            ignoring = ("not-cocoercive", "start-not-visible")
            warned = [finding for finding in known.warnings if finding.code not in ignoring]
            return [*warned, *_contradictions(self.request, known, plain=False)]
        half = samples // 2
        self.calibration = self.calibrated("calibration", self.oracle, self.x0, samples - half)
        joint = [replace(one, values={**one.values, "composite": True}) for one in self.calibration.warnings]
        x = composite.project(composite.fallback[None])[0]
        of_F = self.calibrated("calibration-of-F", composite.F, x, half, project=composite.project)
        alone = [*violations(of_F.findings), *_contradictions(self.request, of_F, plain=False)]
        if composite.plan is not None:  # F is monotone and need not be cocoercive, and L is that of the problem in z
            joint = [finding for finding in joint if finding not in violations(joint)]
            alone = [finding for finding in alone if finding.code not in ("not-cocoercive", "L-too-small")]
        return list({finding.code: finding for finding in (*joint, *alone)}.values())

    def calibrated(self, name: str, oracle: Oracle, x: Array, samples: int, **options: Any) -> Calibration:
        """A calibration, charged; made only once even if a call is resumed."""

        def make() -> Calibration:
            with watched(oracle.take(np.arange(1)), self.request, self.evals) as shown:
                return calibrate(shown, x, samples, seed=self.request.seed, confidence=self.request.level, **options)

        return self._charged(self.request.once(name, make, Calibration.facts, Calibration.from_facts))

    def _charged(self, calibration: Calibration) -> Calibration:
        self.charge(calibration.evals, calibration.draws)
        self._calibrations.append(calibration)
        return calibration

    # -- certificates ----------------------------------------------------------------------------------------

    def certify_start(self, samples: int, before_run: bool = False) -> Certificate:
        """A certificate at `fallback`, charged."""
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

    def certify_end(self, result: Result, samples: int) -> tuple[Certificate | None, Result]:
        """A certificate at x on fresh samples, infinite for rows that diverged; the result with its samples counted.

        Some of the samples are spent on the residual at x0, if little is known of it.
        """
        if samples < 2 * MIN_SAMPLES:
            if self.request.certificate:
                self.add("no-certificate", least=MIN_PILOT_SAMPLES)
            return None, result
        statuses = np.atleast_1d(result.status)
        if Status.INTERRUPTED in statuses:
            return None, result
        x = result.x.reshape(-1, result.x.shape[-1])
        sound = arrays.finite_rows(x) & [status is not Status.DIVERGED for status in statuses]
        if not sound.any():
            self._certify_start_if_unknown(samples)
            assert self.start_certificate is not None
            every = np.ones(len(x), bool)
            return (self.start_certificate.spread(every) if result.shape else self.start_certificate), result
        F = self.session(np.arange(len(x)), Purpose.CERTIFICATE, x)
        F = F if sound.all() else F.take(sound)
        options: dict[str, Any] = {"confidence": self.request.level, "single": not result.shape}
        try:
            samples -= self._certify_start_if_unknown(samples)
            options["scale"] = largest_sample(result, self.start_certificate)[sound]
            made = self._certificate("certificate", F, arrays.take(x, sound), samples, **options)
        except KeyboardInterrupt:
            self.add("certificate-interrupted")
            return None, result
        self.findings += [one for one in made.findings if one.code in ("samples-agree", "noise-not-seen")]
        if not made.is_exact:
            self.add("certificate-samples", samples=made.samples)
        rows = sound if result.shape else 1
        nfev, draws = result.nfev + made.samples * rows, result.draws + made.fresh_samples * rows
        return made if sound.all() else made.spread(sound), replace(result, nfev=nfev, draws=draws)

    def _certify_start_if_unknown(self, samples: int) -> int:
        """Certify x0 with a share of a certificate's samples if calibration says little about it; the samples spent.

        For a finite sum its residual is computed exactly if the samples pay for a pass there and another one at x.
        """
        n = self.oracle.components or inf
        share = max(MIN_SAMPLES, int(self.start_share * samples))
        if n <= samples:  # n of them are for x
            share = max(int(n), MIN_SAMPLES) if 2 * n <= samples else min(share, samples - int(n))
        start = self.start_certificate
        known = start is not None and (start.is_exact or (start.upper < 2 * start.lower and 2 * n > samples))
        if known or samples < 2 * MIN_SAMPLES or share < MIN_SAMPLES:
            return 0
        made = self.certify_start(share)
        if inf > made.residual > 0 == made.sigma:  # noise may be unseen: what was seen is compared with
            made = replace(made, upper=made.residual)
        self.start_certificate = made
        return int(made.samples)

    def _certificate(self, name: str, F: Session, x: Array, samples: int, **options: Any) -> Certificate:
        """A certificate at points (rows, d); made only once even if a call is resumed."""
        return self.request.once(
            name,
            lambda: certificate_from_session(F, x, samples, sigma=self.request.sigma, **options),
            Certificate.to_dict,
            Certificate.from_dict,
            [samples, digest_of(x)],
        )

    # -- the result ------------------------------------------------------------------------------------------

    def finish(self, result: Result, certificate: Certificate | None, plan: Plan | None, claim: Claim | None) -> Result:
        """The result with everything that is known about it, and all samples counted."""
        if result.residual is None and certificate is not None:
            kind = "true" if certificate.is_exact else "estimated"
            result = replace(result, residual=certificate.residual, residual_kind=kind)
        if self._calibrations:
            draws, evals = (sum(getattr(one, name) for one in self._calibrations) for name in ("draws", "evals"))
            self.add("calibration-samples", samples=draws, evals=evals)
        statuses = np.array(result.status, dtype=object)
        stopped = (statuses == Status.BUDGET) & (self.request.budget is None)
        if np.any(stopped):  # name max_samples, not a budget that was not given
            start_samples = 0 if self.composite is None else self.composite.start_samples
            self.add("max-samples", limit=self.request.limit + start_samples)
            statuses[stopped] = Status.MAX_SAMPLES
        others = [one for one in result.findings if certificate is None or one.code != "not-checked"]
        return replace(
            result,
            status=statuses if result.shape else statuses.item(),
            nfev=result.nfev + self.evals,
            draws=result.draws + self.draws,
            claim=claim,
            plan=plan,
            certificate=certificate,
            calibration=self.calibration,
            findings=(*self.findings, *others),
        )


def _contradictions(request: Request, calibration: Calibration, plain: bool) -> Iterator[Finding]:
    """Constants that samples contradict; D only for a `plain` problem, where it is the distance from a fixed x0."""
    L, M, sigma, D = request.L, request.M, request.sigma, request.D
    comparable = not (calibration.violations or calibration.not_cocoercive)
    # L is that of samples. Without a theorem, or for affine F, that of their mean will do.
    of_samples = request.claims_theorem and not request.affine
    L_at_least = calibration.L_at_least if of_samples else calibration.L_mean_at_least
    most = inf if L is None or not comparable else _SLACK * L
    if L_too_small := L_at_least > most:
        mean_is_fine = calibration.L_mean_at_least <= most
        yield Finding.of("L-too-small", given=L, seen=L_at_least, mean_is_fine=mean_is_fine)
    M_too_small = M is not None and calibration.M_at_least > _SLACK * M
    if M_too_small:
        yield Finding.of("M-too-small", given=M, seen=calibration.M_at_least)
    if sigma is not None and (seen := calibration.sigma_at_least) > _SLACK * sigma:
        yield Finding.of("sigma-too-small", given=sigma, seen=seen, at="x0", relation="at least")
    constant, largest = ("L", L) if M is None else ("M", M)
    if D is None or largest is None or not plain or M_too_small or L_too_small:
        return
    if (distance := calibration.residual_at_least / largest) > _SLACK * D:
        yield Finding.of("D-too-small", given=D, seen=distance, constant=constant)


def largest_sample(result: Result, start: Certificate | None) -> Array:
    """A lower bound on the largest sample at x0 and, if some stand out, of the run; one number per row."""
    scale = np.full(np.size(result.nfev), 0.0 if start is None else start.scale)
    if result.method["id"] != Auto.id or "fourth" not in result.state:  # another method, or stages of this one
        return scale
    fourth, level, count = (arrays.to_host(result.state[name]) for name in ("fourth", "level", "count"))
    with np.errstate(over="ignore", invalid="ignore"):  # of rows that diverged
        excess = np.maximum(fourth - _KURTOSIS * count * level**2, 0.0)  # fourth powers beyond those of normal samples
    return np.maximum(scale, result.method["parameters"]["samples_per_round"] * excess**0.25)
