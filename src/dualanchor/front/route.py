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
from dualanchor.front.passes import pays_for_passes, solve_by_passes
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request, calibration_share, certificate_share, pilot_share
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
"""Methods that an eps can be planned for, and the options with which `plan` chooses no other."""
_SMALL_CERTIFICATE = 80  # samples, at x and at x0, of the certificate where noise vanishes


class Route:
    """The way from a request to a result, for a root of the oracle's F from x0 of shape (d,) or (reps, d).

    `result` chooses one of the routes: a method by name, a theorem's plan (for eps, for eps with a probability, or for
    a budget), the default method for a budget, stages until eps is certified (`certified`), or passes over a finite
    sum (`passes`). Each calibrates, runs, and hands its run over to `conclude`.
    """

    def __init__(self, request: Request, oracle: Oracle, x0: Array, composite: CompositeInfo | None = None) -> None:
        self.request, self.oracle, self.x0, self.composite = request, oracle, x0, composite
        self.evidence = Evidence(request, oracle, x0, composite)

    def result(self) -> Result:
        """Choose the route and follow it; the start, without a run, if samples show that no method could help."""
        try:
            return self._solve()
        except Refused:
            return self._without_run(Status.REFUSED, self.evidence.start_certificate, Claim(ClaimKind.NONE))

    def _solve(self) -> Result:
        request = self.request
        if request.method != "auto":
            return self._by_given_method()
        if request.budget is not None:
            return self._by_theorem_within_budget() if request.wants_theorem else self._by_default_method()
        if request.missing:
            if request.guarantee:
                rule = "with eps, a guarantee needs L or M, sigma and D"
                raise request.error(rule, f"no {', '.join(request.missing)}", "Pass them, or leave guarantee out")
            return until_certified(self, reason="constants-missing", names=request.missing)
        if not request.wants_theorem:
            return until_certified(self, reason="no-theorem-wanted")
        if request.sigma == 0 and request.confidence is None and not request.guarantee:
            return until_certified(self, reason="no-noise")
        return self._by_theorem() if request.confidence is None else self._by_theorem_with_probability()

    # -- routes ----------------------------------------------------------------------------------------------

    def _by_theorem(self, **options: Any) -> Result:
        """All constants are known: the cheapest theorem that applies; with `options` that of a named method."""
        request = self.request
        chosen = self._plan(eps=request.eps, **options)
        reserved = self._certificate_samples_beside(chosen)
        total = chosen.samples + reserved + pilot_share(chosen.samples)
        if total > request.limit:
            if not options:
                return self._beyond_max_samples(total)
            spend = max(1, request.limit - calibration_share(request.limit) - self._certificate_samples(request.limit))
            bound = self._plan(budget=spend, **options).bound
            rule = f"{request.method} takes {total:,} samples for eps = {request.eps:g}"
            remedy = f"Within that the bound is {bound:.4g}: ask for no less, or allow more"
            raise request.error(rule, f"max_samples = {request.limit:,}", remedy)
        if not (options or request.guarantee) and pays_for_passes(self, chosen.samples):
            return solve_by_passes(self)
        certify_first = may_be_certified_before(self, chosen, reserved) and not options
        pilot = pilot_share(chosen.samples)
        pilot = min(pilot, PILOT) if certify_first else pilot
        if (early := self._calibrate_before_plan(chosen.samples, reserved, pilot)) is not None:
            return early
        known = f"L = M^2/mu = {request.L:.4g}" if request.L_from_M else "L"
        if request.merely_monotone or (self.composite is not None and self.composite.plan is not None):
            known = "M"
        self.evidence.add("route-theorem", known=known, theorem=chosen.theorem.title)
        claim = Claim(ClaimKind.THEOREM_RMS, chosen.bound, None, chosen.theorem, chosen.assumptions)
        if certify_first:
            return certified_before_plan(self, reserved, chosen, claim)
        return conclude(self.evidence, self._run_plan(chosen), reserved, chosen, claim)

    def _by_theorem_with_probability(self) -> Result:
        """Eps with high probability: one long run by Markov's inequality, or the best of several independent runs."""
        request, evidence = self.request, self.evidence
        if request.reps != 1:
            rule = "confidence with eps makes replications of its own"
            raise request.error(rule, f"reps = {request.reps}", "Use reps=1")
        assert request.eps is not None
        assert request.sigma is not None
        delta = round(1 - request.level, 12)
        runs = max(1, ceil(log(2 / delta) / log(4)))
        each, alone = self._plan(eps=request.eps / 3), self._plan(eps=request.eps * sqrt(delta))
        selection = max(1, ceil(36 * request.sigma**2 * (1 + sqrt(2 * log(2 * runs / delta))) ** 2 / request.eps**2))
        # The runs of an inclusion would share their random start z0, so they would not be independent.
        single = alone.samples <= runs * (each.samples + selection) or self.composite is not None
        chosen, cost = (alone, alone.samples) if single else (each, runs * (each.samples + selection))
        reserved = self._certificate_samples_beside(chosen)
        if (total := cost + pilot_share(cost) + reserved) > request.limit:
            return self._beyond_max_samples(total)
        if (early := self._calibrate_before_plan(cost, reserved, pilot_share(cost))) is not None:
            return early
        assumptions = chosen.assumptions if single else (*chosen.assumptions, "sub-Gaussian noise")
        claim = Claim(ClaimKind.THEOREM_PROBABILITY, request.eps, request.level, chosen.theorem, assumptions)
        if single:
            evidence.add("route-markov", delta=delta)
            return conclude(evidence, self._run_plan(chosen), reserved, chosen, claim)
        evidence.add("route-best-of-runs", runs=runs, samples=selection, delta=delta)
        result = self._best_of(self._run_plan(chosen, reps=list(range(runs))), selection)
        return conclude(evidence, result, reserved, chosen, claim)

    def _best_of(self, result: Result, samples: int) -> Result:
        """The row with the smallest residual on fresh samples, as many for each; the first if interrupted."""
        best = evals = draws = 0
        if Status.INTERRUPTED not in result.status:
            key = [samples, digest_of(result.x)]
            best = self.request.once("selection", lambda: self._smallest_residual(result.x, samples), int, int, key)
            evals = draws = len(result.x) * samples
        evals += int(result.nfev.sum() - result.nfev[best])
        draws += int(result.draws.sum() - result.draws[best])
        self.evidence.charge(evals, draws)
        self.evidence.add("selection-samples", samples=draws)
        return result.row(best)

    def _smallest_residual(self, x: Array, samples: int) -> int:
        """The row of x with the smallest residual on fresh samples."""
        F = self.evidence.session(np.arange(len(x)), Purpose.SELECTION, x)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = arrays.row_norms(F(x, F.draw(samples)))
        return int(np.argmin(np.where(np.isfinite(norms), norms, np.inf)))

    def _by_theorem_within_budget(self) -> Result:
        """The smallest bound of a theorem that the budget can buy; sigma and D are estimated if not given."""
        request, evidence = self.request, self.evidence
        if request.L is None and request.M is None:
            raise request.error("a guarantee needs L or M", None, "Pass one of them, or leave guarantee out")
        unknown = [name for name in request.missing if name != "L"]
        reserved, pilot = self._certificate_samples(request.limit), calibration_share(request.limit)
        if pilot == 0 and unknown:
            rule = "a budget too small for calibration needs sigma and D for a guarantee"
            raise request.error(rule, request.limit, "Pass sigma and D, or a larger budget")
        evidence.calibrate(pilot, needed=bool(unknown))
        if self._constants().D is None:
            raise request.error("D could not be estimated: F does not visibly change around x0", None, "Pass D")
        chosen = self._plan(budget=request.limit - reserved - evidence.evals)
        evidence.add("route-guarantee", theorem=chosen.theorem.title)
        if unknown:
            evidence.add("estimated-constants", names=unknown)
        assumptions = (*chosen.assumptions, *(f"{name} is as estimated near x0" for name in unknown))
        claim = Claim(ClaimKind.THEOREM_RMS, chosen.bound, None, chosen.theorem, assumptions)
        return conclude(evidence, self._run_plan(chosen), reserved, chosen, claim)

    def _by_default_method(self) -> Result:
        """A budget without a theorem: the method that works best, or passes over a finite sum."""
        if pays_for_passes(self):
            return solve_by_passes(self)
        request, evidence = self.request, self.evidence
        unknown = request.L is None and request.M is None
        if unknown and request.limit < 2 * MIN_PILOT_SAMPLES:
            rule = f"without L a budget of at least {2 * MIN_PILOT_SAMPLES} is needed"
            raise request.error(rule, request.limit, "Pass L, or spend more")
        reserved = self._certificate_samples(request.limit - MIN_PILOT_SAMPLES if unknown else request.limit)
        evidence.calibrate(calibration_share(request.limit), needed=unknown)
        spend = request.limit - reserved - evidence.evals
        method = default_method(request, evidence)(spend)
        if isinstance(method, Auto):  # where noise vanishes it may use most of what is reserved for a certificate
            spare_rounds = max(0, reserved - _SMALL_CERTIFICATE) // method.samples_per_round
            method = method.with_changes(spare=spare_rounds)
            spend += spare_rounds * method.samples_per_round
        result = self.run(method, budget=spend)
        if isinstance(method, Auto) and (dual := arrays.to_host(result.state["dual"]) > 0).any():
            evidence.add("dual-ohm-took-over", runs=np.count_nonzero(dual), of=dual.size)
        remaining = min(reserved, request.limit - evidence.evals - int(np.max(result.nfev)))
        evidence.start_share = 1 / 3 if remaining == reserved else 4 / 5  # a small residual needs fewer samples than x0
        return conclude(evidence, result, remaining)

    def _by_given_method(self) -> Result:
        """A method of the user's choice, by its name or as an object."""
        request, evidence = self.request, self.evidence
        name = request.method if isinstance(request.method, str) else None
        if name == SVRG.id and pays_for_passes(self):
            return solve_by_passes(self)
        if request.eps is not None and name in PLANNED:
            if missing := [constant for constant in ("L", "sigma", "D") if getattr(request, constant) is None]:
                raise request.error(f"{name} is planned from L, sigma and D", f"no {', '.join(missing)}", "Pass them")
            return self._by_theorem(**PLANNED[name])

        def method(samples: int) -> Method:
            return request.method if name is None else make(name, self._problem(), samples, {})

        if request.eps is not None and (name is not None or request.method.horizon is None):
            return until_certified(self, method, reason="method-given")
        reserved = self._certificate_samples(request.limit)
        evidence.calibrate(calibration_share(request.limit))
        self.try_replay(method, request.limit - reserved - evidence.evals)
        spend = request.limit - reserved - evidence.evals
        evidence.add("route-method")
        result = self.run(method(spend), budget=spend)
        if request.eps is not None:  # a tenth of max_samples may be far more than the run took
            reserved = min(reserved, max(256, int(np.max(result.nfev))))
        return conclude(evidence, result, reserved)

    # -- results without a run, or another route -------------------------------------------------------------

    def _calibrate_before_plan(self, samples: int, reserved: int, pilot: int) -> Result | None:
        """Calibrate before a plan of this many samples; the result if x0 is then certified to reach eps already."""
        request, evidence = self.request, self.evidence
        evidence.calibrate(pilot)
        assert request.eps is not None
        start = evidence.start_certificate
        affordable = evidence.evals + samples + 2 * reserved <= request.limit
        if start is None or start.residual > request.eps / 2 or not reserved or not affordable:
            return None
        start = evidence.start_certificate = evidence.certify_start(reserved, before_run=True)
        if start.upper > request.eps:
            return None
        evidence.add("route-start")
        return self._without_run(Status.TARGET, start, certified_claim(start, request.eps, request.level))

    def _without_run(self, status: Status, certificate: Certificate | None, claim: Claim) -> Result:
        """The start as the result, with this status."""
        findings = list(self.evidence.findings)
        method = default_method(self.request, self.evidence)(self.request.limit)
        self.evidence.findings = findings  # without the reasons for a method that does not run
        result = self.run(method, stop=Steps(0), checkpoint=None, callback=None)
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

    def _beyond_max_samples(self, samples: int) -> Result:
        """A theorem takes more than max_samples: certificates decide, unless a guarantee is asked for."""
        if self.request.guarantee:
            rule = f"a guarantee takes {samples:,} samples for eps = {self.request.eps:g}"
            raise self.request.error(rule, f"max_samples = {self.request.limit:,}", "Allow more, or a larger eps")
        return until_certified(self, reason="too-many-samples", samples=samples)

    # -- parts of all routes ---------------------------------------------------------------------------------

    def _plan(self, **target: Any) -> Plan:
        """The plan for a target, eps or budget, from the constants that are known."""
        request, composite, known = self.request, self.composite, self._constants()
        if composite is not None and composite.plan is not None:
            return composite.plan
        inputs: dict[str, Any] = {name: getattr(known, name) for name in ("M", "D", "sigma", "mu")}
        inputs["L"] = None if request.L_from_M else known.L
        inputs["workers"] = request.batch
        if composite is not None:
            inputs |= {"mu": composite.sharpness, "sharp_only": True}
        else:
            inputs |= {"affine": request.affine, "L_mean": request.L_mean}
        return plan(**{**inputs, **target})

    def _constants(self) -> Constants:
        """The constants given, with estimates in place of those that are missing."""
        request, calibration = self.request, self.evidence.calibration
        sigma, D = request.sigma, request.D
        if sigma is None and calibration is not None:
            sigma = max([calibration.sigma, *(far for _, far in calibration.sigma_at)])
        if D is None and calibration is not None:
            D = calibration.D_guess
        if self.composite is not None and request.D is not None and sigma is not None:
            D = hypot(request.D, self.composite.noise_shift * sigma)  # from z0, which is random
        return Constants(L=request.L, mu=request.mu, M=request.M, sigma=sigma, D=D)

    def try_replay(self, method: Callable[[int], Method], remaining: int) -> None:
        """Draw one sample twice, charged, if a method needs to know whether samples repeat."""
        if "replay" not in method(remaining).needs or self.oracle.replayable is not None:
            return
        if remaining < 3:
            rule = "two samples are spent on whether samples repeat, so at least 3 are needed"
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
        """Run a method from x0, on another oracle than the route's if one is given; options as in `solve`."""
        request = self.request
        shared = {name: getattr(request, name) for name in ("seed", "reps", "callback", "progress", "checkpoint")}
        shared |= {"x0": None if self.x0.ndim == 1 else self.x0, "check": False, "record": "samples"}
        return solve(self._problem(oracle), method, **{**shared, **options})

    def _problem(self, oracle: Oracle | None = None) -> Problem:
        return Problem(oracle or self.oracle, self.evidence.x0, constants=self._constants(), name=self.request.door)

    def _certificate_samples(self, samples: int) -> int:
        """Samples set aside for certificates within a limit of this many."""
        return self._at_most_two_passes(certificate_share(samples))

    def _certificate_samples_beside(self, chosen: Plan) -> int:
        """Samples set aside for certificates in addition to those of a plan."""
        return self._at_most_two_passes(max(256, chosen.samples // (20 if self.request.guarantee else 40)))

    def _at_most_two_passes(self, samples: int) -> int:
        """Samples for certificates, if they are wanted; for a finite sum, one pass at x0 and one at x are enough."""
        n = self.oracle.components
        samples = samples if n is None else min(samples, max(2 * n, MIN_PILOT_SAMPLES))
        return samples if self.request.certificate else 0
