"""From what is asked to an answer: which method, how many samples for what, and what may be claimed afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from math import ceil, log, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.calibrate import calibrate
from dualanchor.advise.calibration import Calibration
from dualanchor.advise.certify import FEWEST_SAMPLES, Certificate, certificate_from_session
from dualanchor.advise.plan import Plan, plan
from dualanchor.core.errors import AssumptionWarning
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.problem import Problem
from dualanchor.core.result import Result, Status
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.ask import Ask, certificate_share, look_share
from dualanchor.front.stages import FIRST, until_certified
from dualanchor.methods import make
from dualanchor.methods.auto import Auto
from dualanchor.oracles.composite import Composite, composite_constants
from dualanchor.prox import check_prox
from dualanchor.run.solve import solve
from dualanchor.run.stop import Steps
from dualanchor.theory.bounds import composite_modulus

PLANNED = {
    "dual-ohm": {},
    "s-dual-ohm": {"batches": "constant"},
    "restarted-dual-ohm": {},
}
"""Methods that an eps can be planned for, and how."""


def answer(ask: Ask, oracle: Oracle, x0: Array, sharp_only: bool = False) -> Result:
    """Solve for a root of the oracle's F from x0, of shape (d,) or (reps, d), as it was asked."""
    return _Answer(ask, oracle, x0, sharp_only).result()


def constrained(ask: Ask, oracle: Oracle, prox: Callable[[Array, Any], Any], x0: Array) -> Result:
    """Solve 0 in F(x) + G(x) by backward-forward steps: a root-finding problem in z, with x = prox(z)."""
    assert ask.L is not None
    step = 2 / ask.L
    check_prox(prox, x0, step)
    composite = Composite(oracle, prox, step)
    first = int(np.clip((ask.budget or 3200) // 50, 1, 4096))
    streams = Streams(ask.seed, np.arange(ask.reps), Purpose.START, x0.size, x0.dtype)
    z0 = composite.start(np.tile(x0, (ask.reps, 1)), streams, first)
    known = composite_constants(ask.constants(), step, first)
    inner = replace(
        ask,
        L=known.L,
        M=None,
        mu=float(composite_modulus(step, ask.mu)),
        D=known.D,
        budget=None if ask.budget is None else ask.budget - first,
    )
    found = answer(inner, composite, z0[0] if ask.reps == 1 else z0, sharp_only=True)
    x = composite.primal(np.atleast_2d(found.x))
    return replace(
        found,
        x=x[0] if ask.reps == 1 else x,
        nfev=found.nfev + first,
        draws=found.draws + first,
        state={**found.state, "z": np.atleast_2d(found.x)},
        notes=(
            *found.notes,
            "residual and certificate are those of F(x) + g with g in G(x), at x = prox(z)",
            f"{first:,} samples went into the start z0 = x0 - step F(x0)",
        ),
    )


class _Answer:
    """One question on its way to an answer; counts what is spent outside of the run itself."""

    def __init__(self, ask: Ask, oracle: Oracle, x0: Array, sharp_only: bool) -> None:
        self.ask, self.oracle, self.x0, self.sharp_only = ask, oracle, x0, sharp_only
        self.calibration: Calibration | None = None
        self.extra = 0  # samples spent on looking and certifying
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def result(self) -> Result:
        ask = self.ask
        if ask.method != "auto":
            return self._named()
        if ask.eps is not None and ask.certified:
            known = None not in (ask.L, ask.sigma, ask.D)
            if not known:
                return self._until_certified()
            return self._planned() if ask.confidence is None else self._boosted()
        if ask.eps is not None:
            return self._until_certified()
        if ask.certified:
            return self._planned_for_budget()
        return self._untuned()

    # -- routes ----------------------------------------------------------------------------------------------

    def _planned(self, **options: Any) -> Result:
        """All constants are known: the cheapest theorem that applies."""
        chosen = self._plan(eps=self.ask.eps, **options)
        self._look(look_share(chosen.samples))
        why = f"eps, L, sigma and D are known: {chosen.theorem} needs the fewest samples of what is proved"
        result = self._run(chosen.method(), stop=Steps(max(1, chosen.stop)) if chosen.stop else None)
        return self._certified(result, why, max(256, chosen.samples // 10), chosen, self._by_theorem(chosen))

    def _boosted(self) -> Result:
        """The accuracy with high probability: independent runs, the best of them chosen on fresh samples."""
        ask = self.ask
        if ask.reps != 1:
            raise ask.bad("confidence with eps makes replications of its own", f"reps = {ask.reps}", "Use reps=1")
        assert ask.eps is not None
        assert ask.sigma is not None
        delta = 1 - ask.level
        runs = max(1, ceil(log(2 / delta) / log(4)))
        each = self._plan(eps=ask.eps / 3)
        judged = ceil(36 * ask.sigma**2 * (1 + sqrt(2 * log(2 * runs / delta))) ** 2 / ask.eps**2)
        alone = self._plan(eps=ask.eps * sqrt(delta))
        if alone.samples <= runs * (each.samples + judged):
            why = f"one run planned for eps times the root of {delta:.3g} (Markov) costs less than several"
            sense = f"|F(x)| <= {ask.eps:g} with probability {ask.level:g}, by {alone.theorem} and Markov's inequality"
            result = self._run(alone.method(), stop=Steps(max(1, alone.stop)) if alone.stop else None)
            return self._certified(result, why, max(256, alone.samples // 10), alone, sense)
        result = solve(
            Problem(self.oracle, self.x0, constants=ask.constants(), name=ask.door),
            each.method(),
            stop=Steps(max(1, each.stop)) if each.stop else None,
            seed=ask.seed,
            reps=list(range(runs)),
            record=0,
            progress=ask.progress,
            checkpoint=ask.checkpoint,
            check=False,
        )
        streams = Streams(ask.seed, np.arange(runs), Purpose.SELECTION, result.x.shape[1], result.x.dtype)
        F = Session(self.oracle, streams)
        size = max(1, judged)
        best = int(np.argmin(np.linalg.norm(F(result.x, F.draw(size)), axis=1)))
        self.extra += runs * size + int(result.nfev.sum() - result.nfev[best])
        why = (
            f"{runs} independent runs planned for eps/3, the best chosen on {size:,} fresh samples each: "
            f"fails with probability at most {delta:.3g}"
        )
        sense = f"|F(x)| <= {ask.eps:g} with probability {ask.level:g}, by {each.theorem} and selection"
        return self._certified(_row(result, best), why, max(256, each.samples // 10), each, sense)

    def _planned_for_budget(self) -> Result:
        """A budget to be spent by a theorem."""
        ask = self.ask
        if ask.L is None:
            raise ask.bad("a guarantee needs L, or M and mu > 0", None, "Pass L, or leave guarantee out")
        assert ask.budget is not None
        spend = ask.budget - self._reserved(ask.budget)
        look = look_share(ask.budget)
        if look == 0 and (ask.sigma is None or ask.D is None):
            raise ask.bad("so small a budget needs sigma and D for a guarantee", ask.budget, "Pass sigma and D")
        self._look(look, needed=ask.sigma is None or ask.D is None)
        chosen = self._plan(budget=spend - self.extra)
        self.notes += self._guessed()
        why = f"a guarantee within the budget: {chosen.theorem} has the smallest proved bound, {chosen.bound:.4g}"
        result = self._run(chosen.method(), stop=Steps(max(1, chosen.stop)) if chosen.stop else None)
        return self._certified(result, why, self._reserved(ask.budget), chosen, self._by_theorem(chosen))

    def _untuned(self) -> Result:
        """A budget to be spent by what works best."""
        ask = self.ask
        assert ask.budget is not None
        reserved = self._reserved(ask.budget)
        self._look(look_share(ask.budget), needed=ask.L is None and ask.M is None)
        spend = ask.budget - reserved - self.extra
        if ask.L is None and ask.M is not None:  # mu = 0: F may not be cocoercive
            method = make("seg", Problem(self.oracle, self._one(), constants=ask.constants()), spend, {})
            why = "M without mu: F may not be cocoercive, which is outside the theorems; extragradient steps"
        else:
            problem = Problem(self.oracle, self._one(), constants=ask.constants())
            method = Auto.for_problem(problem, spend, step_size=self._step())
            why = "a budget and no guarantee asked for: averaging, or Dual-OHM where that is seen to be biased"
        return self._certified(self._run(method, budget=spend), why, reserved, None, None)

    def _named(self) -> Result:
        """A method of the user's choice."""
        ask = self.ask
        name = ask.method if isinstance(ask.method, str) else None
        if ask.eps is not None and name in PLANNED:
            missing = [word for word in ("L", "sigma", "D") if getattr(ask, word) is None]
            if missing:
                raise ask.bad(f"{name} is planned from L, sigma and D", f"no {', '.join(missing)}", "Pass them")
            return self._planned(**PLANNED[name])
        total = ask.max_samples if ask.budget is None else ask.budget
        reserved = self._reserved(total)
        self._look(look_share(total))
        spend = total - reserved - self.extra
        problem = Problem(self.oracle, self._one(), constants=ask.constants())
        method = make(name, problem, spend, {}) if name is not None else ask.method
        result = self._certified(self._run(method, budget=spend), "the method asked for", reserved, None, None)
        return result if ask.eps is None else self._judged(result)

    def _until_certified(self) -> Result:
        """An accuracy without all constants: stages, and a certificate after each, until one is good enough."""
        ask = self.ask
        assert ask.eps is not None
        self._look(FIRST if ask.L is not None else 4 * FIRST, needed=ask.L is None)
        result, certificate, sense = until_certified(
            self.oracle,
            np.atleast_2d(self.x0) if np.ndim(self.x0) == 2 else np.tile(self.x0, (ask.reps, 1)),
            eps=ask.eps,
            step=self._step(),
            confidence=ask.level,
            most=ask.max_samples - self.extra,
            ask=ask,
        )
        missing = [word for word in ("L", "sigma", "D") if getattr(ask, word) is None]
        why = (
            f"{', '.join(missing) or 'no guarantee'} not known: stages of the untuned default, a certificate after each"
        )
        return self._finished(result, why, certificate, None, sense)

    # -- parts -----------------------------------------------------------------------------------------------

    def _plan(self, **target: Any) -> Plan:
        known = self.ask.constants(*self._found())
        return plan(
            **{
                "L": known.L,
                "D": known.D,
                "sigma": known.sigma,
                "mu": known.mu,
                "sharp_only": self.sharp_only,
                **target,
            }
        )

    def _found(self) -> tuple[float | None, float | None]:
        return (None, None) if self.calibration is None else (self.calibration.sigma, self.calibration.D_guess)

    def _guessed(self) -> list[str]:
        missing = [word for word in ("sigma", "D") if getattr(self.ask, word) is None]
        return [f"{' and '.join(missing)} estimated from samples near x0: the bound rests on that"] if missing else []

    def _look(self, samples: int, needed: bool = False) -> None:
        """Spend samples on a look at the oracle, if there is a reason to."""
        if samples < 64 and needed:
            samples = 64
        if not samples or not (self.ask.check or needed):
            return
        self.calibration = calibrate(self.oracle, self._one(), samples, seed=self.ask.seed)
        self.extra += self.calibration.evals
        self.warnings += self.calibration.warnings
        for text in self.calibration.warnings:
            if text in self.calibration.defects or text.startswith("not monotone"):
                warnings.warn(text, AssumptionWarning, stacklevel=6)

    def _step(self) -> float:
        """The longest step: 1/L, shrunk by what was seen; without L by that alone."""
        longest = None if self.ask.L is None else 1 / self.ask.L
        seen = None if self.calibration is None else self.calibration.largest_step
        if longest is not None:
            return longest if seen is None or seen >= longest / 2 else seen
        self.notes.append("no L given: the step was found on the way and no theorem applies; see the certificate")
        return 1.0 if seen is None else seen

    def _run(self, method: Method, **limits: Any) -> Result:
        ask = self.ask
        problem = Problem(self.oracle, self._one(), constants=ask.constants(), name=ask.door)
        start = None if self.x0.ndim == 1 else self.x0
        return solve(
            problem,
            method,
            seed=ask.seed,
            reps=ask.reps,
            x0=start,
            check=False,
            callback=ask.callback,
            progress=ask.progress,
            checkpoint=ask.checkpoint,
            **{name: value for name, value in limits.items() if value is not None},
        )

    def _reserved(self, samples: int) -> int:
        return certificate_share(samples) if self.ask.certificate else 0

    def _certified(self, result: Result, why: str, samples: int, chosen: Plan | None, sense: str | None) -> Result:
        whole = all(one is not Status.INTERRUPTED for one in np.atleast_1d(result.status))
        finite = np.isfinite(np.asarray(result.x)).all()
        certificate = None
        if self.ask.certificate and whole and finite and samples >= FEWEST_SAMPLES:
            x = np.atleast_2d(result.x)
            streams = Streams(self.ask.seed, np.arange(len(x)), Purpose.CERTIFICATE, x.shape[1], x.dtype)
            certificate = certificate_from_session(
                Session(self.oracle, streams), x, samples, confidence=self.ask.level, single=result.shape == ()
            )
            self.extra += certificate.samples
        elif not whole:
            sense = None
        return self._finished(result, why, certificate, chosen, sense)

    def _finished(
        self, result: Result, why: str, certificate: Certificate | None, chosen: Plan | None, sense: str | None
    ) -> Result:
        changes: dict[str, Any] = {}
        if result.residual is None and certificate is not None:
            changes = {"residual": certificate.residual, "residual_kind": "estimated"}
        return replace(
            result,
            why=why,
            sense=sense,
            plan=chosen,
            certificate=certificate,
            calibration=self.calibration,
            warnings=tuple(self.warnings),
            notes=(*result.notes, *self.notes),
            nfev=result.nfev + self.extra,
            draws=result.draws + self.extra,
            **changes,
        )

    def _judged(self, result: Result) -> Result:
        """Success for an eps that no theorem stands behind: what the certificate says."""
        assert self.ask.eps is not None
        if result.certificate is None:
            return replace(result, success=np.zeros(result.shape, bool) if result.shape else False)
        good = result.certificate.holds_for(self.ask.eps)
        return replace(result, success=good, sense=f"|F(x)| <= {self.ask.eps:g} with confidence {self.ask.level:g}")

    def _by_theorem(self, chosen: Plan) -> str:
        return f"root mean square residual <= {chosen.bound:.4g}, by {chosen.theorem}"

    def _one(self) -> Array:
        return self.x0 if self.x0.ndim == 1 else self.x0[0]


def _row(result: Result, row: int) -> Result:
    """One replication of a result, as a result of its own."""
    single = {
        name: value[row] for name in ("x", "nit", "nfev", "draws", "success") for value in [getattr(result, name)]
    }
    return replace(
        result,
        x=single["x"],
        nit=int(single["nit"]),
        nfev=int(single["nfev"]),
        draws=int(single["draws"]),
        success=bool(single["success"]),
        status=result.status[row],
        residual=None if result.residual is None else float(result.residual[row]),
        history=result.history.of(row),
        state={name: value[row : row + 1] for name, value in result.state.items()},
    )
