"""The verdict on a run: success, what may be claimed, and x0 in place of points that are worse."""

from dataclasses import replace
from math import inf, log, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.certificate import Certificate
from dualanchor.core.claim import Claim, ClaimKind
from dualanchor.core.errors import AssumptionWarning, OracleError, warn_caller
from dualanchor.core.finding import Finding, Severity, violations
from dualanchor.core.history import History
from dualanchor.core.result import Result, Status
from dualanchor.core.types import Array
from dualanchor.front.evidence import Evidence, largest_sample
from dualanchor.front.stages import STALLED
from dualanchor.theory.confidence import enough_for_rare

_STAYED = 0.9  # of the residual at x0: a residual above that has not fallen
_FAR = 3.0  # times the bound at x0: a point with a larger bound is not returned
_FAR_BEYOND_NOISE = 1e3  # the same, if noise that only the end shows may have been missed at x0
_IMPLAUSIBLE = 3.0  # times a bound in root mean square: exceeded at most 1 time in 9 if the theorem applies
_ROUNDING = 1e-6  # of the residual at x0: rounding may not let a smaller one fall further
_WRONG_SIGN = ("not-monotone", "decreasing")  # findings
_OF_SAMPLES = ("samples-agree", "noise-not-seen")  # findings of a certificate about its samples
_SIGMA_SLACK = 2.0  # the noise in a certificate contradicts sigma if it exceeds it by this factor


def conclude(
    evidence: Evidence,
    result: Result,
    samples: int,
    plan: Plan | None = None,
    claim: Claim | None = None,
    exact: Certificate | None = None,
) -> Result:
    """A run's result, judged by a certificate: `exact`, or one made with this number of samples.

    `claim` is what a theorem says, for a run by its `plan`, unless something contradicts it. No success

    - where the certificate shows a residual above eps, or above the bound of a theorem that was asked for;
    - where nothing stands behind eps or a guarantee any more;
    - where the residual has visibly grown or, with a plain budget, not visibly fallen.

    Rows that have visibly grown or diverged return x0. If the sampler fails, the error holds the run, without success.
    """
    certificate = exact
    if exact is None:
        try:
            certificate, result = evidence.certify_end(result, samples)
        except OracleError as error:
            unjudged = _success_only_where(np.zeros(result.shape, bool), result)
            error.result = evidence.finish(unjudged, None, plan, None)
            raise
    within_bound = np.asarray(True)
    if plan is not None and claim is not None:
        holds, within_bound = _check_theorem(evidence, result, claim, certificate, plan)
        claim = claim if holds else Claim(ClaimKind.NONE)
    result, certificate = _compare_with_start(evidence, result, certificate, within_bound)
    if claim is not None and evidence.has("back-at-start"):
        claim = Claim(ClaimKind.NONE)  # a theorem is about the end of the run, not about x0
    eps = evidence.request.eps
    if claim is None or not claim.by_theorem:
        if eps is not None:
            claim = certified_claim(certificate, eps, evidence.request.level)
            upper = inf if certificate is None else certificate.upper
            result = _success_only_where(np.broadcast_to(upper, result.shape) <= eps, result)
        if plan is not None and evidence.request.guarantee:
            if np.any(result.success):
                evidence.add("success-withheld", reason="guarantee")
            result = _success_only_where(np.zeros(result.shape, bool), result)
    return evidence.finish(result, certificate, plan, claim)


def unless_sign_is_wrong(result: Result) -> Result:
    """No success where samples show that F itself is not monotone: its root need not be what was asked for."""
    if not any(one.code in _WRONG_SIGN and not one.values.get("composite") for one in result.findings):
        return result
    if np.any(result.success):
        result = replace(result, findings=(*result.findings, Finding.of("success-withheld", reason="sign")))
    return _success_only_where(np.zeros(result.shape, bool), result)


def _check_theorem(
    evidence: Evidence, result: Result, claim: Claim, certificate: Certificate | None, plan: Plan
) -> tuple[bool, Array]:
    """Whether a theorem's claim may be made, and which rows are not seen to be above its bound."""
    bound = inf if claim.bound is None else claim.bound
    lower = np.zeros(result.shape) if certificate is None else np.asarray(certificate.lower)
    within_bound = lower <= bound
    if violations(evidence.findings):
        return False, within_bound
    if not all(one in (Status.HORIZON, Status.STEPS, Status.TARGET) for one in np.atleast_1d(result.status)):
        evidence.add("run-cut-short")
    elif certificate is not None:
        sigma = float(np.median(certificate.sigma))
        planned_sigma = plan.inputs.get("sigma")
        if planned_sigma is not None and np.isfinite(sigma) and sigma > _SIGMA_SLACK * planned_sigma:
            evidence.add("sigma-too-small", given=planned_sigma, seen=sigma, at="x", relation="about")
            warn_caller(str(evidence.findings[-1]), AssumptionWarning)
        elif not within_bound.all():
            implausible = sqrt(np.mean(lower**2)) > _IMPLAUSIBLE * bound
            severity = Severity.VIOLATION if implausible else Severity.WARNING
            evidence.findings.append(Finding("above-bound", severity, {"residual": lower.max(), "bound": bound}))
            if implausible:
                warn_caller(str(evidence.findings[-1]), AssumptionWarning)
    holds = not violations(evidence.findings) and bool(np.mean(lower**2) <= bound**2)
    return holds, within_bound


def _compare_with_start(
    evidence: Evidence, result: Result, certificate: Certificate | None, within_bound: Array
) -> tuple[Result, Certificate | None]:
    """The result with x0 in place of points with a residual seen to be larger; success only where it fell.

    `within_bound` is True for rows not seen to be above the bound of a theorem.
    """
    request, start = evidence.request, evidence.start_certificate
    diverged = np.asarray(result.status == Status.DIVERGED)
    ended = np.array([one.ended_as_asked for one in np.ravel(result.status)]).reshape(result.shape)
    if certificate is None or start is None:  # judged by the samples of the run
        visible = not request.certificate or result.residual_kind == "true"
        grown = ended & ~np.asarray(result.success) & (result.residual is None)
        result = _back_at_start(evidence, result, grown | diverged)
        return _success_only_where(within_bound & visible, result), certificate
    fall = _Fall(evidence, result, start, certificate)
    grown, worse, fallen = _changes(result, fall, diverged)
    evidence.findings = [one for one in evidence.findings if one.code != "start-not-visible"]  # more is known now
    if result.residual is None:
        result = replace(result, history=estimated_history(result, start, certificate))
    lower, upper, residual = (np.asarray(getattr(certificate, name)) for name in ("lower", "upper", "residual"))
    if grown.any():
        evidence.add("residual-grew", start=start.residual, end=residual[grown].max())
    elif request.eps is None and not (fallen | diverged).all():
        early = (result.status == Status.CALLBACK) | (result.status == Status.INTERRUPTED)
        stayed = lower[~(diverged | early)].max(initial=0.0) > start.residual / 2
        values = {"start": start.residual, "end": residual.max(), "upper": upper.max()}
        if stayed:
            evidence.add("residual-did-not-fall", **values)
        else:
            evidence.add("fall-not-visible", **values, **fall.what_hides(~(fallen | diverged)))
    elif request.eps is None and _has_stalled(result, start, certificate):
        evidence.add("stalled", residual=residual.max())
    elif request.eps is None and (end := residual[~diverged].max(initial=0.0)) > start.residual / 2:
        evidence.add("residual-fell-little", start=start.residual, end=end)
    good = fallen if request.eps is None else ~grown
    findings = tuple(one for one in result.findings if one.code not in ("samples-grew", "residual-grew"))
    result = replace(result, success=ended if result.shape else bool(ended), findings=findings)
    returned = grown | diverged | worse
    if returned.any():
        certificate = certificate.replaced(returned, start) if result.shape else start
    if returned.all():  # of the samples at x0 instead
        evidence.findings = [one for one in evidence.findings if one.code not in _OF_SAMPLES]
        evidence.findings += [one for one in start.findings if one.code in _OF_SAMPLES]
    result = _back_at_start(evidence, result, returned)
    return _success_only_where(within_bound & good & ~returned, result), certificate


def _has_stalled(result: Result, start: Certificate, certificate: Certificate) -> bool:
    """Whether the largest residual is visible, above rounding, and was no larger in the middle half of the run."""
    residual, upper = (np.ravel(getattr(certificate, name)) for name in ("residual", "upper"))
    row = int(residual.argmax())
    history = result.history.of(row)
    last = np.max(history.evals, initial=0)
    middle = history.residual[(history.evals >= last / 4) & (history.evals <= 3 * last / 4)]
    visible = residual[row] > max(2 * (upper[row] - residual[row]), _ROUNDING * start.residual)
    return bool(visible and middle.size and residual[row] > STALLED * np.median(middle))


def _changes(result: Result, fall: "_Fall", diverged: Array) -> tuple[Array, Array, Array]:
    """For each row: whether its residual is seen to have grown, may be far larger, is seen to have fallen."""
    start, end = fall.start, fall.end
    lower, upper, sigma = (np.asarray(getattr(end, name)) for name in ("lower", "upper", "sigma"))
    if result.residual_kind == "true" and np.count_nonzero(result.history.k == 0) == lower.size:
        first = result.history.residual[result.history.k == 0].reshape(lower.shape)
        grown = (result.residual > first) & ~diverged
        fallen = (result.residual < first) | (np.asarray(result.residual) == 0)
        return grown, np.zeros_like(diverged), fallen
    fallen = fall.is_seen()
    grown = (lower > start.upper) & ~diverged
    worse = ~fallen & (upper > _FAR * start.upper)
    if start.sigma == 0 and not start.is_exact:  # noise that only the end shows may have been missed at x0
        maybe_missed = (sigma > 0) & (upper <= _FAR_BEYOND_NOISE * start.upper)
        grown, worse = grown & ~maybe_missed, worse & ~maybe_missed
    return grown, worse, fallen


def _back_at_start(evidence: Evidence, result: Result, rows: Array) -> Result:
    """The result with x0 in place of the x of some rows (a mask)."""
    if not rows.any():
        return result
    evidence.add("back-at-start", runs=np.count_nonzero(rows), of=rows.size)
    x = arrays.put(arrays.copy(result.x.reshape(rows.size, -1)), np.flatnonzero(rows), evidence.fallback)
    return replace(result, x=x.reshape(result.x.shape), residual=None, residual_kind=None)


def _success_only_where(good: Array, result: Result) -> Result:
    success = np.asarray(result.success) & good
    return replace(result, success=success if result.shape else bool(success))


class _Fall:
    """Whether residuals are seen to be below `_STAYED` times that at x0, by certificates there and at the end of a run.

    A test of the estimated squares. If the residual has stayed, it is wrong about one time in twenty where noise hides
    both, and hardly ever where the residual at the start is visible. Exact residuals are compared as they are.

    If no noise has been seen, all samples so far must be enough to show an event of 1 in 200. Samples as large as
    others of the run may be missing from either certificate, which is allowed for. The noise of the samples that chose
    the element of G at the start is a part of its residual, and not counted.
    """

    def __init__(self, evidence: Evidence, result: Result, start: Certificate, end: Certificate) -> None:
        self.start, self.end = start, end
        noise_not_seen = any(finding.code == "noise-not-seen" for finding in end.findings)
        samples = evidence.evals + int(np.max(result.nfev))
        self.noise_may_be_rare = noise_not_seen and samples < enough_for_rare(1 - end.confidence)
        scale = largest_sample(result, None).reshape(np.shape(end.residual))
        if not noise_not_seen:
            scale = np.where(np.asarray(end.sigma) == 0, 0.0, scale)  # these are known to have no noise
        self.missed_at_start, self.missed_at_end = (_missed(one, scale) for one in (start, end))
        fitted = 0 if evidence.composite is None else evidence.composite.fitted
        self.start_squared = start.squared - (2 * start.sigma**2 / fitted if fitted else 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            # The distance from a square to its bound is about 1.8 standard errors.
            visible = start.lower > 0
            error = start.squared - start.lower**2 if visible else start.upper**2 - max(start.squared, 0.0)
            self.start_error = error + 2 * start.residual * self.missed_at_start
            self.end_error = np.asarray(end.upper + self.missed_at_end) ** 2 - np.maximum(end.squared, 0.0)

    def is_seen(self) -> Array:
        """Whether the residual of each row is seen to have fallen."""
        end = self.end
        if end.is_exact and self.start.is_exact:
            return (np.asarray(end.residual) < self.start.residual) | (np.asarray(end.residual) == 0)
        if self.noise_may_be_rare:
            return np.zeros(np.shape(end.residual), bool)
        with np.errstate(invalid="ignore", over="ignore"):
            fall = _STAYED**2 * self.start_squared - np.maximum(end.squared, 0.0)
            margin = np.hypot(_STAYED**2 * self.start_error, self.end_error)
            return np.asarray((fall > margin) | (np.asarray(end.upper) == 0))

    def what_hides(self, rows: Array) -> dict[str, Any]:
        """Why a fall is not seen in some rows (a mask): the bounds that are compared, and what they allow for."""
        start_squared = np.broadcast_to(self.start_squared - self.start_error, rows.shape)[rows].min()
        visible = self.start.lower > 0 and start_squared > 0
        return {
            "at_least": sqrt(start_squared) if visible else 0.0,
            "at_most": (np.asarray(self.end.upper) + self.missed_at_end)[rows].max(),
            "start_hidden": self.start.lower <= 0,
            "large_samples": bool((self.missed_at_start + self.missed_at_end)[rows].max() > 0),
            "rare_noise": self.noise_may_be_rare,
        }


def _missed(certificate: Certificate, scale: Array) -> Array:
    """What samples of size `scale`, seen elsewhere, may add to a mean if a certificate has had none of them."""
    missing = np.asarray(scale > certificate.scale) & (not certificate.is_exact)
    return np.where(missing, log(1 / (1 - min(certificate.confidence, 0.999))) / certificate.samples * scale, 0.0)


def estimated_history(result: Result, start: Certificate, end: Certificate) -> History:
    """The history with the noise taken out of its estimates, between the certificates at x0 and at the end."""
    inner, count = result.history, np.size(end.residual)
    sigma = start.sigma if end.is_exact else end.sigma
    nit, draws, nfev, residual, samples, noise = (
        np.broadcast_to(np.ravel(values), (count,))
        for values in (result.nit, result.draws, result.nfev, end.residual, end.samples, sigma)
    )
    if inner.residual.size and inner.samples.size:
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = inner.residual**2 - noise[inner.row] ** 2 / inner.samples
        inner = replace(inner, residual=np.sqrt(np.maximum(squares, 0.0)))
    shown = np.zeros(len(inner), bool)
    if inner.residual.size:
        shown = (inner.k > 0) & (inner.k < nit[inner.row]) & np.isfinite(inner.residual)
    zero, rows = np.zeros(count, int), np.arange(count)
    last_stage = np.array([inner.of(row).stage.max() for row in range(count)]) if inner.stage.size else zero
    start_residual, start_samples = (np.full(count, float(value)) for value in (start.residual, start.samples))
    first = (rows, zero, zero, zero, start_residual, start_samples, zero + 1, zero)
    last = (rows, nit, draws, nfev, residual, samples.astype(float), zero + 1, last_stage)
    middle = [column[shown] if column.size else np.zeros(shown.sum(), column.dtype) for column in vars(inner).values()]
    columns = [np.concatenate(parts) for parts in zip(first, middle, last, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return History(*(column[order] for column in columns))


def certified_claim(certificate: Certificate | None, eps: float, confidence: float) -> Claim:
    """What a certificate says about eps: that it holds, or what holds instead; with confidence 1 if it is exact."""
    worst = np.inf if certificate is None else float(np.max(certificate.upper))
    confidence = 1.0 if certificate is not None and certificate.is_exact else confidence
    if worst <= eps:
        return Claim(ClaimKind.CERTIFICATE, eps, confidence)
    return Claim(ClaimKind.NOT_REACHED, worst if np.isfinite(worst) else None, confidence)
