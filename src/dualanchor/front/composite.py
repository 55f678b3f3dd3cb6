"""An inclusion as a root-finding problem in z, with x = prox(z)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.advise.certify import MIN_SAMPLES
from dualanchor.advise.gap import gap_from_session
from dualanchor.advise.plan import plan
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays, check
from dualanchor.core.errors import OracleError
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Session, resolved
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.before import InterruptedBeforeRun, watched
from dualanchor.front.evidence import CompositeInfo, Evidence
from dualanchor.front.request import MIN_PILOT_SAMPLES, Request, calibration_share, certificate_share, pilot_share
from dualanchor.front.route import Route
from dualanchor.front.stages import FIRST_STAGE, SHORTEST_STAGE
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.mirror_prox import MirrorProx
from dualanchor.oracles.composite import Composite, Regularised
from dualanchor.prox import Resolvent, check_prox
from dualanchor.run.checkpoint import digest_of
from dualanchor.theory.bounds import composite_modulus, composite_strength

Prox = Callable[[Array, Any], Any]
_SHORT = 1e-8  # of the step: for a constraint the projection; others hardly move x with so small a step
_WRONG_SIGN = ("not-monotone", "decreasing")


def solve_composite(request: Request, oracle: Oracle, prox: Prox, x0: Array) -> Result:
    """Solve 0 in F(x) + G(x), x0 of shape (d,), by a method that suits what is known of F."""
    foreign = arrays.is_foreign(x0)
    on_host = (lambda z, step: arrays.to_host(prox(arrays.like(z, x0), step))) if foreign else prox
    by_mirror_prox = request.L is None or request.method == MirrorProx.id or isinstance(request.method, MirrorProx)
    chosen = None if request.M is None else _plan(request, prox, x0.shape[0])
    if chosen is not None and request.L is not None and not _is_cheaper(chosen, request):
        chosen = None
    step = chosen.step_size if chosen is not None else 1.0 if request.L is None else 2 / request.L
    check_prox(on_host, arrays.to_host(x0), step)
    if by_mirror_prox and chosen is None:
        return _by_mirror_prox(request, oracle, prox, x0)
    return _backward_forward(request, oracle, prox, x0, step, chosen)


def _backward_forward(
    request: Request, oracle: Oracle, prox: Prox, x0: Array, step: float, chosen: Plan | None
) -> Result:
    """Backward-forward steps: a root-finding problem in z that is cocoercive if F, or F + delta (x - x0), is."""
    if request.limit < 2:
        raise request.error("two samples are needed, one of them for the start", request.limit, "Use a larger budget")
    first = _first_batch(request)
    z0 = _moved(request, oracle, prox, x0, step, first, request.reps)
    M, D = (None, request.D) if chosen is None else (request.M, chosen.inputs["D"])
    mu = float(composite_strength(step, request.mu))
    inner = replace(request, L=2 / step, M=M, mu=mu, D=D, **_limit(request, first))
    modulus, project = float(composite_modulus(step, request.mu)), _projection(prox, _SHORT * step)
    x = project(x0[None])
    fallback = _standing_for(x, z0[:1], prox, step)
    info = CompositeInfo(modulus, step / sqrt(first), first, fallback, oracle, project)
    info = info._replace(fitted=_fitted(x, fallback, first))
    if chosen is not None:
        made: Any = chosen.method()
        regularised = Composite(Regularised(oracle, made.delta, x[0]), prox, step)
        method = DualOHM(made.step_size, made.horizon, made.batch_size)
        info = info._replace(plan=chosen, regularised=(regularised, method))
    found = _solved(inner, Composite(oracle, prox, step), z0[0] if request.reps == 1 else z0, info)
    return _with_samples(found, first, Finding.of("start-point-samples", samples=first))


def _moved(request: Request, oracle: Oracle, prox: Prox, x0: Array, step: float, samples: int, rows: int) -> Array:
    """x0 - step F_B(x0) for each row, from samples of its own; once, however often a call is resumed."""
    streams = Streams(request.seed, np.arange(rows), Purpose.FIRST_BATCH, x0.shape[0], x0.dtype)

    def make() -> Array:
        with watched(oracle, request) as shown:
            return Composite(shown, prox, step).start(arrays.tile(x0, rows), streams, samples)

    key = [samples, step]
    moved: Array = request.once("z0", make, arrays.to_host, lambda z: _like(z, arrays.tile(x0, rows)), key)
    return moved


def _first_batch(request: Request) -> int:
    """Samples of the start z0."""
    return int(np.clip(request.limit // 50, 1, 64 if request.budget is None else 4096))


def _plan(request: Request, prox: Prox, dimension: int) -> Plan | None:
    """The plan of Theorem M for an inclusion, where one is wanted and its constants are known; else None."""
    D = request.D
    if D is None and request.guarantee and isinstance(prox, Resolvent):
        D = prox.diameter(dimension)
    if not request.wants_theorem or request.method != "auto" or (request.sigma == 0 and not request.guarantee):
        return None
    if request.sigma is None or D is None:
        if request.guarantee:
            missing = [name for name, value in (("sigma", request.sigma), ("D", D)) if value is None]
            rule = "with M and a prox, a guarantee needs sigma and D"
            raise request.error(rule, f"no {', '.join(missing)}", "Pass them; D may be the diameter of the set")
        return None
    known: dict[str, Any] = {"M": request.M, "D": D, "sigma": request.sigma, "mu": request.mu, "prox": True}
    if request.eps is None:
        limit = request.limit - _first_batch(request)
        return plan(budget=max(1, limit - certificate_share(limit) - calibration_share(limit)), **known)
    probability = 1.0 if request.confidence is None else round(1 - request.level, 12)  # by Markov's inequality
    chosen = plan(eps=request.eps * sqrt(probability), **known)
    judged = max(256, chosen.samples // 10) if request.certificate else 0
    total = chosen.samples + judged + pilot_share(chosen.samples) + _first_batch(request)
    return chosen if total <= request.limit or request.guarantee else None


def _is_cheaper(chosen: Plan, request: Request) -> bool:
    """Whether the plan with M needs fewer samples, or has a smaller bound, than one with L = M**2/mu."""
    if request.L is None or not request.L_from_M:
        return False
    target: dict[str, Any] = {"eps": chosen.eps} if chosen.budget is None else {"budget": chosen.budget}
    known: dict[str, Any] = {name: chosen.inputs[name] for name in ("D", "sigma")}
    mu = float(composite_modulus(2 / request.L, request.mu))
    other = plan(L=request.L, mu=mu, sharp_only=True, **known, **target)
    return chosen.samples < other.samples if chosen.budget is None else chosen.bound < other.bound


def _standing_for(x: Array, moved: Array, prox: Prox, step: float) -> Array:
    """The z that stands for x (1, d) with the element of G(x) that leaves the smallest residual, judged by samples.

    `moved` is x - step F_B(x). Otherwise what G can take up would count as a residual of x.
    """
    F = (x - moved) / step
    size, norm = (float(arrays.to_host(arrays.row_squares(one))[0]) ** 0.5 for one in (F, x))
    if not 0 < size < np.inf:
        return x[0]
    short = 1e-6 * (1 + norm) / size
    ahead = x - short * F
    g = (ahead - resolved(prox, ahead, short)) / short
    return (x + step * g)[0]


def _fitted(x: Array, z: Array, samples: int) -> int:
    """The samples that chose z for x; 0 if G left no choice."""
    return 0 if np.array_equal(arrays.to_host(x)[0], arrays.to_host(z)) else samples


def _by_mirror_prox(request: Request, oracle: Oracle, prox: Prox, x0: Array) -> Result:
    """Mirror-prox, which needs no constant; for a bounded set with a certificate of the gap."""
    given, bounded = _mirror_prox_of(request), prox.diameter(x0.shape[0]) if isinstance(prox, Resolvent) else None
    if bounded == 0:
        raise request.error("the set must have more than one point", str(prox), "x is that point: there is no choice")
    least = 2 * MIN_PILOT_SAMPLES + (SHORTEST_STAGE if request.budget is None else 0)
    if request.limit < least:
        name = "max_samples" if request.budget is None else "a budget"
        why, other = ("without L", "Pass L") if request.L is None else (f"for {MirrorProx.id}", "Leave method out")
        raise request.error(f"{why} {name} of at least {least} is needed", request.limit, f"{other}, or spend more")
    project = _projection(prox, _SHORT)
    start = project(x0[None])[0]
    pilot = calibration_share(request.limit) if request.budget is not None else min(4 * FIRST_STAGE, request.limit // 8)
    alone = Evidence(request, oracle, start, None).calibrated(
        "calibration-of-F", oracle, start, max(MIN_PILOT_SAMPLES, pilot), project=project
    )
    guess = 2 * alone.D_guess if alone.D_guess else alone.radius
    D = request.D or min(guess, guess if bounded is None else bounded)  # a set may be far too large
    M = request.M or alone.local_M or (alone.residual or 1.0) / (alone.D_guess or D)
    step = 1 / (4 * M)  # of the prox in the residual: longer ones prune more and move x further

    def method(size: int) -> Method:
        changes = {} if given.batch_size != 1 else {"batch_size": size}
        return given.with_changes(prox=prox, reuse=True, distance=given.distance or D, composite_step=step, **changes)

    reserved = certificate_share(request.limit) // 2 if request.certificate and bounded else 0
    first, x = _first_batch(request), start[None]
    start = _standing_for(x, _moved(request, oracle, prox, start, step, first, 1), prox, step)
    inner = replace(request, method="auto", L=None, L_mean=None, M=None, mu=0.0, **_limit(request, reserved + first))
    info = CompositeInfo(0.0, 0.0, reserved + first, start, oracle, project, method, alone)
    info = info._replace(fitted=_fitted(x, start, first))
    found = _solved(inner, Composite(oracle, prox, step), start, info)
    found = _with_samples(found, first, Finding.of("start-point-samples", samples=first))
    if any(one.code in _WRONG_SIGN for one in found.findings):
        found = replace(found, success=np.zeros(found.shape, bool) if found.shape else False)
    ended = not any(one in (Status.INTERRUPTED, Status.REFUSED) for one in np.ravel(found.status))
    if reserved < 2 * MIN_SAMPLES or not ended:
        return found
    assert isinstance(prox, Resolvent)
    samples = reserved if request.budget is not None else min(reserved, max(256, int(np.max(found.nfev)) // 10))
    return _with_gap(request, oracle, prox, found, samples)


def _mirror_prox_of(request: Request) -> MirrorProx:
    """The method asked for, or the default one."""
    method = request.method
    if isinstance(method, MirrorProx):
        if method.prox is not None or method.composite_step is not None:
            rule, remedy = "the prox is that of the front door", "Pass MirrorProx without prox and composite_step"
            raise request.error(rule, f"{type(method).__name__} with one of its own", remedy)
        return method
    if method not in ("auto", MirrorProx.id):
        name = method if isinstance(method, str) else type(method).__name__
        remedy = f"Pass L, or leave method out: {MirrorProx.id} needs none"
        raise request.error(f"{name} with a prox needs L", "no L", remedy)
    return MirrorProx()


def _solved(inner: Request, composite: Composite, z0: Array, info: CompositeInfo) -> Result:
    """The result of the root-finding problem in z, from z0 of shape (d,) or (reps, d), as one in x."""

    def primal(z: Array) -> Array:
        return composite.primal(z.reshape(-1, z.shape[-1])).reshape(z.shape)

    try:
        found = Route(inner.showing(primal), composite, z0, info).result()
    except InterruptedBeforeRun as interrupt:
        interrupt.samples += 0 if info.method else info.start_samples
        raise
    except OracleError as error:
        if (result := error.result) is not None:
            error.result = None
            with suppress(OracleError):  # there is no x where the prox itself fails
                error.result = replace(result, x=primal(result.x))
        raise
    claim = None if found.claim is None else replace(found.claim, composite=True)
    certificate = None if found.certificate is None else replace(found.certificate, composite=True)
    state = {**found.state, "z": found.x.reshape(-1, found.x.shape[-1])}
    findings = (*found.findings, Finding.of("composite-residual"))
    return replace(found, x=primal(found.x), claim=claim, certificate=certificate, state=state, findings=findings)


def _with_gap(request: Request, oracle: Oracle, prox: Resolvent, found: Result, samples: int) -> Result:
    """The result with a bound on its gap from fresh samples."""
    x = found.x.reshape(-1, found.x.shape[-1])
    streams = Streams(request.seed, np.arange(len(x)), Purpose.GAP, x.shape[1], x.dtype)

    def make() -> Finding:
        options: dict[str, Any] = {"confidence": request.level, "single": not found.shape}
        made = gap_from_session(Session(oracle, streams), x, prox, samples, **options)
        return Finding.of("gap", **made.to_dict())

    gap = request.once("gap", make, Finding.to_dict, Finding.from_dict, [samples, digest_of(x)])
    found = replace(found, findings=(*found.findings, gap))
    return _with_samples(found, gap.values["samples"], Finding.of("gap-samples", samples=gap.values["samples"]))


def _with_samples(found: Result, samples: int, finding: Finding) -> Result:
    """The result with more samples counted, and where they went."""
    more = replace(found, nfev=found.nfev + samples, draws=found.draws + samples)
    return replace(more, findings=(*found.findings, finding))


def _limit(request: Request, spent: int) -> dict[str, Any]:
    return {"max_samples" if request.budget is None else "budget": request.limit - spent}


def _projection(prox: Prox, step: float) -> Callable[[Array], Array]:
    return lambda x: resolved(prox, x, step)


def _like(saved: Array, x: Array) -> Array:
    """A start that was saved, like x: of its shape, dtype and library."""
    check.array(saved, "z0", "f", tuple(x.shape))
    if not arrays.finite_rows(saved).all():
        raise ValueError("a z0 that is not finite")
    return arrays.like(saved, x)
