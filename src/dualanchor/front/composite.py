"""Inclusions 0 in F(x) + G(x): a root-finding problem in z, with x = prox(z), handed over to `Route`."""

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
from dualanchor.front.judge import unless_sign_is_wrong
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
_PROJECTION_STEP = 1e-8  # relative prox step: the projection for a constraint; a penalty hardly moves x with it


def solve_composite(request: Request, oracle: Oracle, prox: Prox, x0: Array) -> Result:
    """Solve 0 in F(x) + G(x), x0 of shape (d,), by a method that suits what is known of F."""
    chosen = None if request.M is None else _plan(request, prox, x0.shape[0])
    if chosen is not None and request.L is not None and not _is_cheaper(chosen, request):
        chosen = None
    if chosen is not None:
        step = chosen.step_size
    else:
        step = 1.0 if request.L is None else 2 / request.L
    foreign = arrays.is_foreign(x0)
    on_host = (lambda z, step: arrays.to_host(prox(arrays.like(z, x0), step))) if foreign else prox
    check_prox(on_host, arrays.to_host(x0), step)
    is_mirror_prox = request.method == MirrorProx.id or isinstance(request.method, MirrorProx)
    if chosen is None and (request.L is None or is_mirror_prox):
        return _by_mirror_prox(request, oracle, prox, x0)
    return _by_backward_forward_steps(request, oracle, prox, x0, step, chosen)


def _by_backward_forward_steps(
    request: Request, oracle: Oracle, prox: Prox, x0: Array, step: float, chosen: Plan | None
) -> Result:
    """Backward-forward steps: the problem in z is cocoercive if F is or, by a `chosen` plan, F + delta (x - x0)."""
    if request.limit < 2:
        raise request.error("two samples are needed, one of them for the start", request.limit, "Use a larger budget")
    first = _start_samples(request)
    z0 = _forward_step(request, oracle, prox, x0, step, first, request.reps)
    project = _projection(prox, _PROJECTION_STEP * step)
    x = project(x0[None])
    fallback = _best_z(x, z0[:1], prox, step)
    info = CompositeInfo(
        sharpness=float(composite_modulus(step, request.mu)),
        noise_shift=step / sqrt(first),
        start_samples=first,
        fallback=fallback,
        F=oracle,
        project=project,
        fitted=_fitted_samples(x, fallback, first),
    )
    inner = replace(
        request, L=2 / step, M=None, mu=float(composite_strength(step, request.mu)), **_limit(request, first)
    )
    if chosen is not None:
        inner = replace(inner, M=request.M, D=chosen.inputs["D"])
        regularised: Any = chosen.method()
        pulled = Composite(Regularised(oracle, regularised.delta, x[0]), prox, step)
        plain = DualOHM(regularised.step_size, regularised.horizon, regularised.batch_size)
        info = info._replace(plan=chosen, regularised=(pulled, plain))
    result = _solve_in_z(inner, Composite(oracle, prox, step), z0[0] if request.reps == 1 else z0, info)
    return _with_samples(result, first, Finding.of("start-point-samples", samples=first))


def _forward_step(
    request: Request, oracle: Oracle, prox: Prox, x0: Array, step: float, samples: int, rows: int
) -> Array:
    """x0 - step F_B(x0) for each row, (rows, d), each from samples of its own; made once even if a call is resumed."""
    streams = Streams(request.seed, np.arange(rows), Purpose.FIRST_BATCH, x0.shape[0], x0.dtype)
    start = arrays.tile(x0, rows)

    def make() -> Array:
        with watched(oracle, request) as shown:
            return Composite(shown, prox, step).start(start, streams, samples)

    def read(saved: Array) -> Array:
        check.array(saved, "z0", "f", tuple(start.shape))
        if not arrays.finite_rows(saved).all():
            raise ValueError("a z0 that is not finite")
        return arrays.like(saved, start)

    z0: Array = request.once("z0", make, arrays.to_host, read, [samples, step])
    return z0


def _start_samples(request: Request) -> int:
    """Samples of the first batch, from which the start z0 is made."""
    return int(np.clip(request.limit // 50, 1, 64 if request.budget is None else 4096))


def _plan(request: Request, prox: Prox, dimension: int) -> Plan | None:
    """The plan of Theorem M for an inclusion if one is wanted, its constants are known and it can be paid for."""
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
        limit = request.limit - _start_samples(request)
        return plan(budget=max(1, limit - certificate_share(limit) - calibration_share(limit)), **known)
    probability = 1.0 if request.confidence is None else round(1 - request.level, 12)  # by Markov's inequality
    chosen = plan(eps=request.eps * sqrt(probability), **known)
    certificate = max(256, chosen.samples // 10) if request.certificate else 0
    total = chosen.samples + certificate + pilot_share(chosen.samples) + _start_samples(request)
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


def _best_z(x: Array, forward: Array, prox: Prox, step: float) -> Array:
    """The z (d,) that stands for x (1, d) with the element of G(x) that leaves the smallest residual, by samples.

    `forward` is x - step F_B(x). For any other z, what G can balance would count as a residual of x.
    """
    F = (x - forward) / step
    size, norm = (float(arrays.to_host(arrays.row_squares(v))[0]) ** 0.5 for v in (F, x))
    if not 0 < size < np.inf:
        return x[0]
    short = 1e-6 * (1 + norm) / size
    ahead = x - short * F
    g = (ahead - resolved(prox, ahead, short)) / short
    return (x + step * g)[0]


def _fitted_samples(x: Array, z: Array, samples: int) -> int:
    """The samples by which z was chosen for x; 0 if G left no choice."""
    return 0 if np.array_equal(arrays.to_host(x)[0], arrays.to_host(z)) else samples


def _by_mirror_prox(request: Request, oracle: Oracle, prox: Prox, x0: Array) -> Result:
    """Mirror-prox, which needs no constant; for a bounded set with a certificate of the gap."""
    template = _mirror_prox_of(request)
    diameter = prox.diameter(x0.shape[0]) if isinstance(prox, Resolvent) else None
    if diameter == 0:
        raise request.error("the set must have more than one point", str(prox), "x is that point: there is no choice")
    _require_samples_for_mirror_prox(request)
    project = _projection(prox, _PROJECTION_STEP)
    x = project(x0[None])
    pilot = calibration_share(request.limit) if request.budget is not None else min(4 * FIRST_STAGE, request.limit // 8)
    calibration = Evidence(request, oracle, x[0], None).calibrated(
        "calibration-of-F", oracle, x[0], max(MIN_PILOT_SAMPLES, pilot), project=project
    )
    D_guess = 2 * calibration.D_guess if calibration.D_guess else calibration.radius
    D = request.D or (D_guess if diameter is None else min(D_guess, diameter))  # a set may be far too large
    M = request.M or calibration.local_M or (calibration.residual or 1.0) / (calibration.D_guess or D)
    step = 1 / (4 * M)  # of the prox in the residual; longer steps prune more and move x further

    def method(size: int) -> Method:
        changes = {} if template.batch_size != 1 else {"batch_size": size}
        distance = template.distance or D
        return template.with_changes(prox=prox, reuse=True, distance=distance, composite_step=step, **changes)

    gap_samples = certificate_share(request.limit) // 2 if request.certificate and diameter else 0
    first = _start_samples(request)
    z0 = _best_z(x, _forward_step(request, oracle, prox, x[0], step, first, 1), prox, step)
    info = CompositeInfo(
        sharpness=0.0,
        noise_shift=0.0,
        start_samples=gap_samples + first,
        fallback=z0,
        F=oracle,
        project=project,
        method=method,
        calibration_of_F=calibration,
        fitted=_fitted_samples(x, z0, first),
    )
    limit = _limit(request, gap_samples + first)
    inner = replace(request, method="auto", L=None, L_mean=None, M=None, mu=0.0, **limit)
    result = _solve_in_z(inner, Composite(oracle, prox, step), z0, info)
    result = _with_samples(result, first, Finding.of("start-point-samples", samples=first))
    result = unless_sign_is_wrong(result)
    unfinished = any(status in (Status.INTERRUPTED, Status.REFUSED) for status in np.ravel(result.status))
    if gap_samples < 2 * MIN_SAMPLES or unfinished:
        return result
    assert isinstance(prox, Resolvent)
    if request.budget is None:
        gap_samples = min(gap_samples, max(256, int(np.max(result.nfev)) // 10))
    return _with_gap(request, oracle, prox, result, gap_samples)


def _require_samples_for_mirror_prox(request: Request) -> None:
    least = 2 * MIN_PILOT_SAMPLES + (SHORTEST_STAGE if request.budget is None else 0)
    if request.limit < least:
        name = "max_samples" if request.budget is None else "a budget"
        why, other = ("without L", "Pass L") if request.L is None else (f"for {MirrorProx.id}", "Leave method out")
        raise request.error(f"{why} {name} of at least {least} is needed", request.limit, f"{other}, or spend more")


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


def _solve_in_z(inner: Request, composite: Composite, z0: Array, info: CompositeInfo) -> Result:
    """The result of the root-finding problem in z, from z0 of shape (d,) or (reps, d), as one in x."""

    def primal(z: Array) -> Array:
        return composite.primal(z.reshape(-1, z.shape[-1])).reshape(z.shape)

    try:
        result = Route(inner.showing(primal), composite, z0, info).result()
    except InterruptedBeforeRun as interrupt:
        interrupt.samples += 0 if info.method else info.start_samples
        raise
    except OracleError as error:
        if (last := error.result) is not None:
            error.result = None
            with suppress(OracleError):  # there is no x if the prox itself fails
                error.result = replace(last, x=primal(last.x))
        raise
    return replace(
        result,
        x=primal(result.x),
        claim=result.claim and replace(result.claim, composite=True),
        certificate=result.certificate and replace(result.certificate, composite=True),
        state={**result.state, "z": result.x.reshape(-1, result.x.shape[-1])},
        findings=(*result.findings, Finding.of("composite-residual")),
    )


def _with_gap(request: Request, oracle: Oracle, prox: Resolvent, result: Result, samples: int) -> Result:
    """The result with a bound on its gap from fresh samples."""
    x = result.x.reshape(-1, result.x.shape[-1])
    streams = Streams(request.seed, np.arange(len(x)), Purpose.GAP, x.shape[1], x.dtype)

    def make() -> Finding:
        options: dict[str, Any] = {"confidence": request.level, "single": not result.shape}
        made = gap_from_session(Session(oracle, streams), x, prox, samples, **options)
        return Finding.of("gap", **made.to_dict())

    gap = request.once("gap", make, Finding.to_dict, Finding.from_dict, [samples, digest_of(x)])
    spent = gap.values["samples"]
    result = replace(result, findings=(*result.findings, gap))
    return _with_samples(result, spent, Finding.of("gap-samples", samples=spent))


def _with_samples(result: Result, samples: int, finding: Finding) -> Result:
    """The result with more samples counted, and a finding that says where they went."""
    nfev, draws = result.nfev + samples, result.draws + samples
    return replace(result, nfev=nfev, draws=draws, findings=(*result.findings, finding))


def _limit(request: Request, spent: int) -> dict[str, Any]:
    """What is left of the budget or of max_samples, as a keyword of a request."""
    return {"max_samples" if request.budget is None else "budget": request.limit - spent}


def _projection(prox: Prox, step: float) -> Callable[[Array], Array]:
    return lambda x: resolved(prox, x, step)
