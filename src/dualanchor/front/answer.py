"""From what is asked to an answer: which method, and how many samples for what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, hypot, log, sqrt
from typing import Any

import numpy as np

from dualanchor.advise.plan import plan
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.result import Result, Status
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.engines import SHARDS
from dualanchor.front.ask import FEWEST, Ask, certificate_share, look_share
from dualanchor.front.claims import Claims, Inside
from dualanchor.front.stages import FIRST, SHORTEST, until_certified
from dualanchor.methods import make
from dualanchor.methods.auto import LONG, Auto
from dualanchor.methods.averaging import averaged
from dualanchor.methods.seg import SEG
from dualanchor.run.solve import solve
from dualanchor.run.stop import Steps

PLANNED: dict[str, dict[str, Any]] = {
    "dual-ohm": {"mu": 0.0},
    "s-dual-ohm": {"mu": 0.0, "batches": "constant"},
    "restarted-dual-ohm": {"sharp_only": True},
}
"""Methods that an eps can be planned for, and what keeps the plan from choosing another."""

_NOT_COCOERCIVE = "M without mu: F may not be cocoercive, which is outside the theorems; extragradient steps"
_SEEN_TURNING = "samples show an F that is not cocoercive, which is outside the theorems; extragradient steps"
_MUCH_SHORTER = 0.4  # of 1/L: where L is right, a look finds about a half


def answer(ask: Ask, oracle: Oracle, x0: Array, inside: Inside | None = None) -> Result:
    """Solve for a root of the oracle's F from x0, of shape (d,) or (reps, d), as it was asked."""
    return _Answer(ask, oracle, x0, inside).result()


class _Answer(Claims):
    """The routes that an answer may come by."""

    def result(self) -> Result:
        ask = self.ask
        if ask.method != "auto":
            return self._named()
        if ask.budget is not None:
            return self._planned_for_budget() if ask.certified else self._untuned()
        if ask.missing:
            return self._until_certified(f"{', '.join(ask.missing)} not known")
        if not ask.certified:
            return self._until_certified("no theorem asked for")
        if ask.sigma == 0 and ask.confidence is None:
            return self._until_certified("no noise, so a certificate is exact")
        return self._planned() if ask.confidence is None else self._boosted()

    # -- routes ----------------------------------------------------------------------------------------------

    def _planned(self, **options: Any) -> Result:
        """All constants are known: the cheapest theorem that applies."""
        ask = self.ask
        chosen = self._plan(eps=ask.eps, **options)
        last = max(256, chosen.samples // 10) if ask.certificate else 0
        look = look_share(chosen.samples)
        if (total := chosen.samples + last + look) > ask.most:
            if options:
                raise ask.bad(f"{ask.method} takes {total:,} samples for eps = {ask.eps:g}", *self._within(options))
            return self._until_certified(f"{chosen.theorem} would take {total:,} samples, more than max_samples")
        self._look(look)
        from_M = ask.M is not None and ask.mu > 0 and ask.M**2 / ask.mu == ask.L
        L = f"L = M^2/mu = {ask.L:.4g}" if from_M else "L"
        why = f"eps, {L}, sigma and D are known; what is proved with the fewest samples: {chosen.theorem}"
        result = self._run(chosen.method(), stop=_after(chosen))
        return self._concluded(result, why, last, chosen, self._by_theorem(chosen))

    def _boosted(self) -> Result:
        """The accuracy with high probability: independent runs, the best of them chosen on fresh samples."""
        ask = self.ask
        if ask.reps != 1:
            raise ask.bad("confidence with eps makes replications of its own", f"reps = {ask.reps}", "Use reps=1")
        assert ask.eps is not None
        assert ask.sigma is not None
        delta = round(1 - ask.level, 12)
        runs = max(1, ceil(log(2 / delta) / log(4)))
        each = self._plan(eps=ask.eps / 3)
        judged = max(1, ceil(36 * ask.sigma**2 * (1 + sqrt(2 * log(2 * runs / delta))) ** 2 / ask.eps**2))
        alone = self._plan(eps=ask.eps * sqrt(delta))
        several = runs * (each.samples + judged)
        chosen, cost = (alone, alone.samples) if alone.samples <= several else (each, several)
        last = max(256, chosen.samples // 10) if ask.certificate else 0
        if (total := cost + look_share(cost) + last) > ask.most:
            return self._until_certified(f"a theorem would take {total:,} samples, more than max_samples")
        self._look(look_share(cost))
        claim = f"|F(x)| <= {ask.eps:g} with probability {ask.level:g}, by {chosen.theorem}"
        if chosen is alone:
            why = f"one run planned for eps times the root of {delta:.3g} (Markov) costs less than several"
            result = self._run(alone.method(), stop=_after(alone))
            return self._concluded(result, why, last, alone, f"{claim} and Markov's inequality")
        why = (
            f"{runs} independent runs planned for eps/3, the best chosen on {judged:,} fresh samples each: "
            f"fails with probability at most {delta:.3g}"
        )
        result = self._run(each.method(), stop=_after(each), reps=list(range(runs)))
        best = 0
        if Status.INTERRUPTED not in result.status:
            streams = Streams(ask.seed, np.arange(runs), Purpose.SELECTION, result.x.shape[1], result.x.dtype)
            F = Session(self.oracle, streams)
            with np.errstate(over="ignore", invalid="ignore"):
                norms = arrays.row_norms(F(result.x, F.draw(judged)))
            best = int(np.argmin(np.where(np.isfinite(norms), norms, np.inf)))
            self._charge(runs * judged, runs * judged)
        self._charge(*(int(spent.sum() - spent[best]) for spent in (result.nfev, result.draws)))
        return self._concluded(_row(result, best), why, last, each, f"{claim} and selection, for sub-Gaussian noise")

    def _planned_for_budget(self) -> Result:
        """A budget to be spent by a theorem."""
        ask = self.ask
        if ask.L is None:
            raise ask.bad("a guarantee needs L, or M and mu > 0", None, "Pass L, or leave guarantee out")
        assert ask.budget is not None
        unknown = [name for name in ask.missing if name != "L"]
        last, look = self._reserved(ask.budget), look_share(ask.budget)
        if look == 0 and unknown:
            raise ask.bad("so small a budget needs sigma and D for a guarantee", ask.budget, "Pass sigma and D")
        self._look(look, needed=bool(unknown))
        if self._constants().D is None:
            raise ask.bad("D could not be estimated: F does not visibly change around x0", None, "Pass D")
        chosen = self._plan(budget=ask.budget - last - self.evals)
        why = f"a guarantee within the budget; the smallest proved bound: {chosen.theorem}"
        sense = self._by_theorem(chosen)
        if unknown:
            sense += f", if {' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} as estimated near x0"
        result = self._run(chosen.method(), stop=_after(chosen))
        return self._concluded(result, why, last, chosen, sense)

    def _untuned(self) -> Result:
        """A budget to be spent by what works best."""
        ask = self.ask
        assert ask.budget is not None
        unknown = ask.L is None and ask.M is None
        if unknown and ask.budget < 2 * FEWEST:
            raise ask.bad(f"without L a budget of at least {2 * FEWEST} is needed", ask.budget, "Pass L, or spend more")
        last = self._reserved(ask.budget - FEWEST if unknown else ask.budget)
        self._look(look_share(ask.budget), needed=unknown)
        spend = ask.budget - last - self.evals
        why = self._why_extragradient()
        why = why or "a budget and no guarantee asked for: averaging, or Dual-OHM where that is seen to be biased"
        return self._concluded(self._run(self._default()(spend), budget=spend), why, last, None, None)

    def _named(self) -> Result:
        """A method of the user's choice."""
        ask = self.ask
        name = ask.method if isinstance(ask.method, str) else None
        if ask.eps is not None and name in PLANNED:
            if ask.missing:
                raise ask.bad(f"{name} is planned from L, sigma and D", f"no {', '.join(ask.missing)}", "Pass them")
            return self._planned(**PLANNED[name])

        def method(samples: int) -> Method:
            return ask.method if name is None else make(name, self._problem(), samples, {})

        if ask.eps is not None and (name is not None or ask.method.horizon is None):
            return self._until_certified("the method asked for", method)
        total = ask.most if ask.budget is None else ask.budget
        last = self._reserved(total)
        self._look(look_share(total))
        self._try_replay(method, total - last - self.evals)
        spend = total - last - self.evals
        result = self._run(method(spend), budget=spend)
        return self._concluded(result, "the method asked for", last, None, None)

    def _until_certified(self, reason: str, method: Callable[[int], Method] | None = None) -> Result:
        """An accuracy that no theorem is asked for: stages, and a certificate after each, until one is good enough."""
        ask = self.ask
        assert ask.eps is not None
        unknown = ask.L is None and ask.M is None
        least = SHORTEST + FEWEST + (FEWEST if unknown else 0)
        if ask.most < least:
            raise ask.bad(f"max_samples must pay for a first certificate, {least}", ask.most, "Allow more")
        most = 4 * FIRST if ask.L is None else FIRST
        self._look(min(most, ask.most // 8 // FEWEST * FEWEST), needed=unknown and method is None)
        if method is not None:
            self._try_replay(method, FIRST)
        why = f"{reason}: stages of {'it' if method else 'the untuned default'}, a certificate after each"
        if method is None and (other := self._why_extragradient()) is not None:
            why = f"{other}; stages of it, a certificate after each"
        result, certificate, sense = until_certified(
            self.oracle,
            arrays.tile(self.x0, ask.reps),
            eps=ask.eps,
            method=method or self._default(),
            most=ask.most - self.evals,
            ask=ask,
        )
        return self._finished(result, why, certificate, None, sense)

    # -- parts -----------------------------------------------------------------------------------------------

    def _default(self) -> Callable[[int], Method]:
        """The method for so many samples where no theorem is asked for."""
        if self._why_extragradient() is not None:
            M = self._lipschitz()
            assert M is not None
            self.notes.append("the mean of extragradient steps, which need no cocoercivity; no theorem applies")
            return lambda samples: averaged(SEG(1 / (4 * M), batch_size=self._several(samples // 2)))
        step = self._step()

        def auto(samples: int) -> Method:
            several = self._several(samples)
            return Auto(step, max(1, samples // several), several)

        return auto

    def _why_extragradient(self) -> str | None:
        """Why the default is the mean of extragradient steps, if it is."""
        if self.ask.L is None and self.ask.M is not None:
            return _NOT_COCOERCIVE
        seen = self.calibration
        turning = seen is not None and seen.not_cocoercive > 0 and self.ask.mu == 0
        return _SEEN_TURNING if turning and self._lipschitz() is not None else None

    def _several(self, samples: int) -> int:
        """Samples of a round: few, so that there are many rounds, but enough to give every shard of an engine one."""
        return max(1, samples // LONG, 0 if self.ask.engine is None else min(SHARDS, samples // FEWEST))

    def _lipschitz(self) -> float | None:
        """M, given or seen."""
        return self.ask.M if self.ask.M is not None or self.calibration is None else self.calibration.local_M

    def _plan(self, **target: Any) -> Plan:
        known = self._constants()
        mu = known.mu if self.inside is None else self.inside.modulus
        given: dict[str, Any] = {
            "L": known.L,
            "D": known.D,
            "sigma": known.sigma,
            "mu": mu,
            "sharp_only": self.inside is not None,
        }
        if self.inside is None and self.ask.L_mean is not None:
            given["L_mean"] = self.ask.L_mean
        return plan(**{**given, **target})

    def _within(self, options: dict[str, Any]) -> tuple[str, str]:
        """What a theorem has to say about max_samples: what was received, and a remedy, for an error."""
        most = self.ask.most
        reached = self._plan(budget=max(1, most - look_share(most) - self._reserved(most)), **options).bound
        return f"max_samples = {most:,}", f"Within that the bound is {reached:.4g}: ask for no less, or allow more"

    def _constants(self) -> Constants:
        """What was given, with what was seen where nothing was."""
        seen = self.calibration
        known = self.ask.constants() if seen is None else self.ask.constants(seen.sigma, seen.D_guess)
        if self.inside is None or self.ask.D is None or known.sigma is None:
            return known
        return replace(known, D=hypot(self.ask.D, self.inside.spread * known.sigma))  # x0 is that far, z0 is moved

    def _try_replay(self, method: Callable[[int], Method], left: int) -> None:
        """Ask for one sample twice, and pay for it, where a method needs to know whether that works."""
        if "replay" in method(left).needs and self.oracle.replayable is None:
            if left < 3:
                raise self.ask.bad("two samples go into trying whether they repeat, so 3 are needed", left, "Use more")
            x = self._one()[None]
            pilot = Streams(self.ask.seed, np.zeros(1, int), Purpose.PILOT, x.shape[1], x.dtype)
            self.oracle.take(np.arange(1)).is_replayable(x, pilot)
            self._charge(2, 1)

    def _step(self) -> float:
        """The longest step: 1/L, shrunk by what was seen; without L by that alone."""
        longest = None if self.ask.L is None else 1 / self.ask.L
        seen = None if self.calibration is None else self.calibration.largest_step
        if longest is not None:
            return longest if seen is None or seen >= _MUCH_SHORTER * longest else seen
        self.notes.append("no L given: the step was found on the way and no theorem applies; see the certificate")
        return 1.0 if seen is None else seen

    def _run(self, method: Method, **limits: Any) -> Result:
        ask = self.ask
        options = {
            "seed": ask.seed,
            "reps": ask.reps,
            "x0": None if self.x0.ndim == 1 else self.x0,
            "check": False,
            "callback": ask.callback,
            "progress": ask.progress,
            "checkpoint": ask.checkpoint,
        }
        return solve(self._problem(), method, **{**options, **limits})

    def _problem(self) -> Problem:
        return Problem(self.oracle, self._one(), constants=self._constants(), name=self.ask.door)

    def _reserved(self, samples: int) -> int:
        return certificate_share(samples) if self.ask.certificate else 0


def _after(chosen: Plan) -> Steps | None:
    return Steps(chosen.stop) if chosen.stop else None


def _row(result: Result, row: int) -> Result:
    """One replication of a result, as a result of its own."""
    return replace(
        result,
        x=result.x[row],
        nit=int(result.nit[row]),
        nfev=int(result.nfev[row]),
        draws=int(result.draws[row]),
        success=bool(result.success[row]),
        status=result.status[row],
        residual=None if result.residual is None else float(result.residual[row]),
        history=result.history.of(row),
        state={name: value[row : row + 1] for name, value in result.state.items()},
    )
