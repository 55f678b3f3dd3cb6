"""An inclusion as a root-finding problem in z, with x = prox(z)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import OracleError
from dualanchor.core.finding import Finding
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.before import InterruptedBeforeRun, watched
from dualanchor.front.evidence import CompositeInfo
from dualanchor.front.request import Request
from dualanchor.front.route import Route
from dualanchor.oracles.composite import Composite
from dualanchor.prox import check_prox
from dualanchor.theory.bounds import composite_modulus, composite_strength


def solve_composite(request: Request, oracle: Oracle, prox: Callable[[Array, Any], Any], x0: Array) -> Result:
    """Solve 0 in F(x) + G(x) by backward-forward steps: a root-finding problem in z, with x = prox(z)."""
    assert request.L is not None
    step = 2 / request.L
    foreign = arrays.is_foreign(x0)
    on_host = (lambda z, step: arrays.to_host(prox(arrays.like(z, x0), step))) if foreign else prox
    check_prox(on_host, arrays.to_host(x0), step)
    composite = Composite(oracle, prox, step)
    if request.limit < 2:
        raise request.error("two samples are needed, one of them for the start", request.limit, "Use a larger budget")
    first = int(np.clip(request.limit // 50, 1, 64 if request.budget is None else 4096))
    streams = Streams(request.seed, np.arange(request.reps), Purpose.FIRST_BATCH, x0.shape[0], x0.dtype)

    def start() -> Array:
        with watched(oracle, request) as shown:
            return Composite(shown, prox, step).start(arrays.tile(x0, request.reps), streams, first)

    z0 = request.once("z0", start, arrays.to_host, lambda z: _like(z, arrays.tile(x0, request.reps)))

    def primal(z: Array) -> Array:
        return composite.primal(z.reshape(-1, z.shape[-1])).reshape(z.shape)

    limit: dict[str, Any] = {"max_samples" if request.budget is None else "budget": request.limit - first}
    mu = float(composite_strength(step, request.mu))
    inner = replace(request.showing(primal), L=2 / step, M=None, mu=mu, **limit)

    def project(x: Array) -> Array:  # for a constraint; others hardly move x with so small a step
        return arrays.as_library_of(prox(x, 1e-8 * step), x)

    modulus = float(composite_modulus(step, request.mu))
    info = CompositeInfo(modulus, step / sqrt(first), first, x0, oracle, project)
    try:
        found = Route(inner, composite, z0[0] if request.reps == 1 else z0, info).result()
    except InterruptedBeforeRun as interrupt:
        interrupt.samples += first
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
    findings = (*found.findings, Finding.of("start-point-samples", samples=first), Finding.of("composite-residual"))
    found = replace(found, nfev=found.nfev + first, draws=found.draws + first)
    return replace(found, x=primal(found.x), claim=claim, certificate=certificate, state=state, findings=findings)


def _like(saved: Array, x: Array) -> Array:
    """A start that was saved, like x: of its shape, dtype and library."""
    check.array(saved, "z0", "f", tuple(x.shape))
    if not arrays.finite_rows(saved).all():
        raise ValueError("a z0 that is not finite")
    return arrays.like(saved, x)
