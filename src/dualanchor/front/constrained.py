"""An inclusion as a root-finding problem in z, with x = prox(z)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.answer import answer
from dualanchor.front.ask import Ask
from dualanchor.front.claims import Inside
from dualanchor.oracles.composite import Composite, composite_constants
from dualanchor.prox import check_prox
from dualanchor.theory.bounds import composite_modulus

_OWN = 1 << 40  # where the first batch stands in the stream of starts, far from what a problem draws its x0 from


def constrained(ask: Ask, oracle: Oracle, prox: Callable[[Array, Any], Any], x0: Array) -> Result:
    """Solve 0 in F(x) + G(x) by backward-forward steps: a root-finding problem in z, with x = prox(z)."""
    assert ask.L is not None
    step = 2 / ask.L
    check_prox(_on_host(prox, x0), arrays.to_host(x0), step)
    composite = Composite(oracle, prox, step)
    total = ask.most if ask.budget is None else ask.budget
    if total < 2:
        raise ask.bad("two samples are needed, one of them for the start", total, "Use a larger budget")
    first = int(np.clip(total // 50, 1, 64 if ask.budget is None else 4096))
    streams = Streams(ask.seed, np.arange(ask.reps), Purpose.START, x0.shape[0], x0.dtype)
    streams.position = _OWN
    z0 = composite.start(arrays.tile(x0, ask.reps), streams, first)

    def primal(z: Array) -> Array:
        return composite.primal(z.reshape(-1, z.shape[-1])).reshape(z.shape)

    inner = replace(
        ask.showing(primal),
        L=2 / step,
        M=None,
        mu=composite_constants(ask.constants(), step).mu,
        budget=None if ask.budget is None else ask.budget - first,
        max_samples=None if ask.budget is not None else ask.most - first,
    )
    inside = Inside(float(composite_modulus(step, ask.mu)), step / sqrt(first), first)
    try:
        found = answer(inner, composite, z0[0] if ask.reps == 1 else z0, inside)
    except OracleError as error:
        if error.result is not None:
            error.result = replace(error.result, x=primal(error.result.x))
        raise
    return replace(
        found,
        x=primal(found.x),
        sense=None if found.sense is None else found.sense.replace("|F(x)|", "|F(x) + g|"),
        nfev=found.nfev + first,
        draws=found.draws + first,
        state={**found.state, "z": found.x.reshape(-1, found.x.shape[-1])},
        notes=(
            *found.notes,
            "residual and certificate are those of F(x) + g with g in G(x), at x = prox(z)",
            f"{first:,} samples went into the start z0 = x0 - step F(x0)",
        ),
    )


def _on_host(prox: Callable[[Array, Any], Any], x: Array) -> Callable[[Array, Any], Any]:
    """The prox for NumPy arrays, of one for arrays of the library of x."""
    if not arrays.is_foreign(x):
        return prox
    return lambda z, step: arrays.to_host(prox(arrays.like(z, x), step))
