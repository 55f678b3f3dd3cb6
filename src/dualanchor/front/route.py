"""From a request to a result: which method, why, and how many samples for what."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, hypot, log, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.plan import plan
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.certificate import Certificate
from dualanchor.core.claim import Claim, ClaimKind
from dualanchor.core.files import jsonable
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.result import Result, Status
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array
from dualanchor.front.certified import PILOT, certified_before_plan, may_be_certified_before, until_certified
from dualanchor.front.default import default_method
from dualanchor.front.evidence import CompositeInfo, Evidence, Refused
from dualanchor.front.judge import certified_claim, conclude
from dualanchor.front.passes import pays_for_passes, solve_by_passes, two_passes_at_most
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request, calibration_share, certificate_share
from dualanchor.methods import make
from dualanchor.methods.auto import Auto
from dualanchor.methods.svrg import SVRG
from dualanchor.run.checkpoint import digest_of
from dualanchor.run.solve import solve
from dualanchor.run.stop import Steps

PLANNED: dict[str, dict[str, Any]] = {
    "dual-ohm": {"mu": 0.0},
    "s-dual-ohm": {"mu": 0.0, "batches": "constant"},
    "restarted-dual-ohm": {"sharp_only": True},
}
"""Methods that an eps can be planned for, and what keeps the plan from choosing another."""
_SMALL_CERTIFICATE = 80  # samples, at x and at x0, where noise vanishes


class Route:
    """The way from a request to a result, for a root of the oracle's F from x0 of shape (d,) or (reps, d)."""

    def __init__(self, request: Request, oracle: Oracle, x0: Array, composite: CompositeInfo | None = None) -> None:
        self.request, self.oracle, self.x0, self.composite = request, oracle, x0, composite
        self.evidence = Evidence(request, oracle, x0, composite)

    def result(self) -> Result:
        """Choose the route and follow it; the start, without a run, where samples show that no method could help."""
        try:
            return self._followed()
        except Refused:
            return self._without_run(Status.REFUSED, self.evidence.start_certificate, Claim(ClaimKind.NONE))

    def _followed(self) -> Result:
        request = self.request
        if request.method != "auto":
            return self._named()
        if request.budget is not None:
            return self._planned_for_budget() if request.wants_theorem else self._untuned()
        if request.missing:
            if request.guarantee:
                rule = "with eps, a guarantee needs L or M, sigma and D"
                raise request.error(rule, f"no {', '.join(request.missing)}", "Pass them, or leave guarantee out")
            return until_certified(self, reason="constants-missing", names=request.missing)
        if not request.wants_theorem:
            return until_certified(self, reason="no-theorem-wanted")
        if request.sigma == 0 and request.confidence is None and not request.guarantee:
            return until_certified(self, reason="no-noise")
        return self._planned() if request.confidence is None else self._with_probability()

    def _planned(self, **options: Any) -> Result:
        """All constants are known: the cheapest theorem that applies."""
        request = self.request
        chosen = self._plan(eps=request.eps, **options)
        last = self._certificate_beside(chosen)
        if (total := chosen.samples + last + pilot_share(chosen.samples)) > request.limit:
            if options:
                spend = max(1, request.limit - calibration_share(request.limit) - self._reserved(request.limit))
                bound = self._plan(budget=spend, **options).bound
                rule = f"{request.method} takes {total:,} samples for eps = {request.eps:g}"
                remedy = f"Within that the bound is {bound:.4g}: ask for no less, or allow more"
                raise request.error(rule, f"max_samples = {request.limit:,}", remedy)
            return self._too_many_samples(total)
        if not (options or request.guarantee) and pays_for_passes(self, chosen.samples):
            return solve_by_passes(self)
        first = may_be_certified_before(self, chosen, last) and not options
        pilot = min(pilot_share(chosen.samples), PILOT) if first else pilot_share(chosen.samples)
        if (early := self._before_plan(chosen.samples, last, pilot)) is not None:
            return early
        known = f"L = M^2/mu = {request.L:.4g}" if request.L_from_M else "L"
        if request.merely_monotone or (self.composite is not None and self.composite.plan is not None):
            known = "M"
        self.evidence.add("route-theorem", known=known, theorem=chosen.theorem.title)
        claim = Claim(ClaimKind.THEOREM_RMS, chosen.bound, None, chosen.theorem, chosen.assumptions)
        if first:
            return certified_before_plan(self, last, chosen, claim)
        return conclude(self.evidence, self._run_plan(chosen), last, chosen, claim)

    def _before_plan(self, samples: int, last: int, pilot: int) -> Result | None:
        """Calibrate; the result if that shows that x0 is good enough already, or that no run can help."""
        request, evidence = self.request, self.evidence
        evidence.calibrate(pilot)
        assert request.eps is not None
        affordable = evidence.evals + samples + 2 * last <= request.limit
        if (
            evidence.start_certificate is None
            or evidence.start_certificate.residual > request.eps / 2
            or not last
            or not affordable
        ):
            return None
        certificate = evidence.certify_start(last, before_run=True)
        evidence.start_certificate = certificate
        if certificate.upper > request.eps:
            return None
        claim = certified_claim(certificate, request.eps, request.level)
        evidence.add("route-start")
        return self._without_run(Status.TARGET, certificate, claim)

    def _without_run(self, status: Status, certificate: Certificate | None, claim: Claim) -> Result:
        """The start as it is."""
        result = self.run(
            default_method(self.request, self.evidence)(self.request.limit),
            stop=Steps(0),
            checkpoint=None,
            callback=None,
        )
        success, shape = status is Status.TARGET, result.shape
        if self.composite is not None:
            x = arrays.tile(self.evidence.fallback, shape[0]) if shape else self.evidence.fallback
            result = replace(result, x=x, residual=None, residual_kind=None)
        if shape:
            certificate = certificate and certificate.spread(np.ones(shape, bool))
            result = replace(result, status=np.full(shape, status, dtype=object), success=np.full(shape, success))
        else:
            result = replace(result, status=status, success=success)
        return self.evidence.finish(result, certificate, None, claim)

    def _too_many_samples(self, samples: int) -> Result:
        """A theorem would take more than max_samples: certificates decide, unless a guarantee is asked for."""
        if self.request.guarantee:
            rule = f"a guarantee takes {samples:,} samples for eps = {self.request.eps:g}"
            raise self.request.error(rule, f"max_samples = {self.request.limit:,}", "Allow more, or a larger eps")
        return until_certified(self, reason="too-many-samples", samples=samples)

    def _with_probability(self) -> Result:
        """The accuracy with high probability: independent runs, the best of them chosen on fresh samples."""
        request, evidence = self.request, self.evidence
        if request.reps != 1:
            rule = "confidence with eps makes replications of its own"
            raise request.error(rule, f"reps = {request.reps}", "Use reps=1")
        assert request.eps is not None
        assert request.sigma is not None
        delta = round(1 - request.level, 12)
        runs = max(1, ceil(log(2 / delta) / log(4)))
        each, alone = self._plan(eps=request.eps / 3), self._plan(eps=request.eps * sqrt(delta))
        judged = max(1, ceil(36 * request.sigma**2 * (1 + sqrt(2 * log(2 * runs / delta))) ** 2 / request.eps**2))
        # The runs of an inclusion would share their random start z0, so they would not be independent.
        single = alone.samples <= runs * (each.samples + judged) or self.composite is not None
        chosen, cost = (alone, alone.samples) if single else (each, runs * (each.samples + judged))
        last = self._certificate_beside(chosen)
        if (total := cost + pilot_share(cost) + last) > request.limit:
            return self._too_many_samples(total)
        if (early := self._before_plan(cost, last, pilot_share(cost))) is not None:
            return early
        assumptions = (*chosen.assumptions, *(() if single else ("sub-Gaussian noise",)))
        claim = Claim(ClaimKind.THEOREM_PROBABILITY, request.eps, request.level, chosen.theorem, assumptions)
        if single:
            evidence.add("route-markov", delta=delta)
            return conclude(evidence, self._run_plan(alone), last, alone, claim)
        evidence.add("route-best-of-runs", runs=runs, samples=judged, delta=delta)
        result = self._run_plan(each, reps=list(range(runs)))
        best = selection = 0
        if Status.INTERRUPTED not in result.status:
            key = [judged, digest_of(result.x)]
            best = request.once("selection", lambda: self._best(result.x, judged), int, int, key)
            selection = runs * judged
        evals, draws = (int(spent.sum() - spent[best]) + selection for spent in (result.nfev, result.draws))
        evidence.charge(evals, draws)
        evidence.add("selection-samples", samples=draws)
        return conclude(evidence, result.row(best), last, each, claim)

    def _best(self, x: Array, samples: int) -> int:
        """The row of x with the smallest residual on fresh samples."""
        F = self.evidence.session(np.arange(len(x)), Purpose.SELECTION, x)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = arrays.row_norms(F(x, F.draw(samples)))
        return int(np.argmin(np.where(np.isfinite(norms), norms, np.inf)))

    def _planned_for_budget(self) -> Result:
        """A budget to be spent by a theorem."""
        request, evidence = self.request, self.evidence
        if request.L is None and request.M is None:
            raise request.error("a guarantee needs L or M", None, "Pass one of them, or leave guarantee out")
        unknown = [name for name in request.missing if name != "L"]
        last, pilot = self._reserved(request.limit), calibration_share(request.limit)
        if pilot == 0 and unknown:
            rule = "so small a budget needs sigma and D for a guarantee"
            raise request.error(rule, request.limit, "Pass sigma and D")
        evidence.calibrate(pilot, needed=bool(unknown))
        if self._constants().D is None:
            raise request.error("D could not be estimated: F does not visibly change around x0", None, "Pass D")
        chosen = self._plan(budget=request.limit - last - evidence.evals)
        evidence.add("route-guarantee", theorem=chosen.theorem.title)
        if unknown:
            evidence.add("estimated-constants", names=unknown)
        assumptions = (*chosen.assumptions, *(f"{name} is as estimated near x0" for name in unknown))
        claim = Claim(ClaimKind.THEOREM_RMS, chosen.bound, None, chosen.theorem, assumptions)
        return conclude(evidence, self._run_plan(chosen), last, chosen, claim)

    def _untuned(self) -> Result:
        """A budget to be spent by what works best."""
        if pays_for_passes(self):
            return solve_by_passes(self)
        request, evidence, least = self.request, self.evidence, 2 * MIN_PILOT_SAMPLES
        unknown = request.L is None and request.M is None
        if unknown and request.limit < least:
            rule = f"without L a budget of at least {least} is needed"
            raise request.error(rule, request.limit, "Pass L, or spend more")
        last = self._reserved(request.limit - MIN_PILOT_SAMPLES if unknown else request.limit)
        evidence.calibrate(calibration_share(request.limit), needed=unknown)
        spend = request.limit - last - evidence.evals
        method, spare = default_method(request, evidence)(spend), 0
        if isinstance(method, Auto):  # where noise vanishes, a certificate needs fewer samples
            spare = max(0, last - _SMALL_CERTIFICATE)
            spare -= spare % method.samples_per_round
            method = method.with_changes(spare=spare // method.samples_per_round)
        result = self.run(method, budget=spend + spare)
        left = min(last, request.limit - evidence.evals - int(np.max(result.nfev)))
        evidence.start_share = 1 / 3 if left == last else 4 / 5  # and x fewer of them than x0
        return conclude(evidence, result, left)

    def _named(self) -> Result:
        """A method of the user's choice."""
        request = self.request
        name = request.method if isinstance(request.method, str) else None
        if name == SVRG.id and pays_for_passes(self):
            return solve_by_passes(self)
        if request.eps is not None and name in PLANNED:
            if missing := [one for one in ("L", "sigma", "D") if getattr(request, one) is None]:
                raise request.error(f"{name} is planned from L, sigma and D", f"no {', '.join(missing)}", "Pass them")
            return self._planned(**PLANNED[name])

        def method(samples: int) -> Method:
            return request.method if name is None else make(name, self._problem(), samples, {})

        if request.eps is not None and (name is not None or request.method.horizon is None):
            return until_certified(self, method, reason="method-given")
        last = self._reserved(request.limit)
        self.evidence.calibrate(calibration_share(request.limit))
        self.try_replay(method, request.limit - last - self.evidence.evals)
        spend = request.limit - last - self.evidence.evals
        self.evidence.add("route-method")
        result = self.run(method(spend), budget=spend)
        if request.eps is not None:  # of which a tenth of max_samples may be far too much
            last = min(last, max(256, int(np.max(result.nfev))))
        return conclude(self.evidence, result, last)

    def _plan(self, **target: Any) -> Plan:
        known, composite = self._constants(), self.composite
        if composite is not None and composite.plan is not None:
            return composite.plan
        given: dict[str, Any] = {name: getattr(known, name) for name in ("L", "M", "D", "sigma", "mu")}
        given |= {"affine": self.request.affine and composite is None, "L": None if self.request.L_from_M else known.L}
        given["workers"] = self.request.batch
        if composite is not None:
            given |= {"mu": composite.sharpness, "sharp_only": True}
        elif self.request.L_mean is not None:
            given["L_mean"] = self.request.L_mean
        return plan(**{**given, **target})

    def _constants(self) -> Constants:
        """The constants given, with estimates in the place of others."""
        request, seen = self.request, self.evidence.calibration
        sigma = request.sigma
        if sigma is None and seen is not None:
            sigma = max([seen.sigma, *(far for _, far in seen.sigma_at)])
        D = request.D if request.D is not None or seen is None else seen.D_guess
        if self.composite is not None and request.D is not None and sigma is not None:
            D = hypot(request.D, self.composite.noise_shift * sigma)  # of z0, not x0
        return Constants(L=request.L, mu=request.mu, M=request.M, sigma=sigma, D=D)

    def try_replay(self, method: Callable[[int], Method], remaining: int) -> None:
        """Draw one sample twice, and pay for it, where a method needs to know whether that works."""
        if "replay" in method(remaining).needs and self.oracle.replayable is None:
            if remaining < 3:
                rule = "two samples go into trying whether they repeat, so 3 are needed"
                raise self.request.error(rule, remaining, "Use more")
            x = self.evidence.x0[None]
            pilot = self.evidence.session(np.zeros(1, int), Purpose.PILOT, x)
            pilot.oracle.is_replayable(x, pilot.streams)
            self.evidence.charge(2, 1)

    def _run_plan(self, chosen: Plan, **options: Any) -> Result:
        stop, method = Steps(chosen.stop) if chosen.stop else None, chosen.method()
        if self.composite is None or self.composite.regularised is None:
            return self.run(method, stop=stop, **options)
        oracle, plain = self.composite.regularised  # the pull to x0 is in the oracle
        return replace(self.run(plain, oracle, stop=stop, **options), method=jsonable(method.describe()))

    def run(self, method: Method, oracle: Oracle | None = None, **options: Any) -> Result:
        shared = {name: getattr(self.request, name) for name in ("seed", "reps", "callback", "progress", "checkpoint")}
        x0 = None if self.x0.ndim == 1 else self.x0
        return solve(
            self._problem(oracle), method, **{**shared, "x0": x0, "check": False, "record": "samples", **options}
        )

    def _problem(self, oracle: Oracle | None = None) -> Problem:
        return Problem(oracle or self.oracle, self.evidence.x0, constants=self._constants(), name=self.request.door)

    def _reserved(self, samples: int) -> int:
        return two_passes_at_most(self.oracle, certificate_share(samples)) if self.request.certificate else 0

    def _certificate_beside(self, chosen: Plan) -> int:
        share = max(256, chosen.samples // (20 if self.request.guarantee else 40))
        return two_passes_at_most(self.oracle, share) if self.request.certificate else 0


def pilot_share(samples: int) -> int:
    """Samples used for calibration before a plan of this many: at least enough to see what is far off."""
    return max(MIN_PILOT_SAMPLES, calibration_share(samples))
