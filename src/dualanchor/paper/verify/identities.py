"""Identities: they hold along every path, whatever the operator and the noise, and are checked to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.types import Array
from dualanchor.paper.verify.check import IDENTITY, Finding, Lab, checks, equal, zero
from dualanchor.paper.verify.operators import Case, Wild, flip, turn
from dualanchor.paper.verify.paths import Path, exact, follow, inner, norm, square
from dualanchor.theory.bounds import OURS, PAPER
from dualanchor.theory.weights import anchor_multipliers, convex_weights, dual_multipliers

ALPHA = 0.7
HORIZONS = (2, 3, 9, 40)
WILD = "any operator and noise, N = 2 .. 40"


@checks(IDENTITY, name="Lemma 4.2", source=PAPER)
def lemma_4_2(lab: Lab) -> Iterator[Finding]:
    """0 = (N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1} - x_0> + sum_j lambda_{N,j} Q_{N,j}."""
    errors = []
    for N in HORIZONS:
        wild = Wild(lab.rng, N)
        x, G = follow(lab.dual(step_size=ALPHA, horizon=N), wild.answer, wild.x0)
        F_N = wild.F(x[-1])
        pairs = [_Q(x[j], x[-1], G[j], F_N) for j in range(N - 1)]
        errors.append(_relative(Path(x, G), F_N, dual_multipliers(N, ALPHA), pairs))
    yield zero(WILD, errors)


@checks(IDENTITY, name="Identity of S-OHM (4.1.1)", source=PAPER)
def anchor_identity(lab: Lab) -> Iterator[Finding]:
    """0 = (N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1} - x_0> + sum_j nu_{j+1,j} Q_{j+1,j}."""
    errors = []
    for N in HORIZONS:
        wild = Wild(lab.rng, N)
        x, G = follow(lab.anchor(step_size=ALPHA, horizon=N), wild.answer, wild.x0)
        F_N = wild.F(x[-1])
        after = np.concatenate([G, F_N[None]])  # batch N - 1 is never drawn: F_N stands in its place
        pairs = [_Q(x[j], x[j + 1], after[j], after[j + 1]) for j in range(N - 1)]
        errors.append(_relative(Path(x, G), F_N, anchor_multipliers(N, ALPHA), pairs))
    yield zero(WILD, errors)


@checks(IDENTITY, name="Sums of weights", source=PAPER)
def sums_of_weights(lab: Lab) -> Iterator[Finding]:
    """Sums of weights: sum lambda_{N,j} = a(N-1)/2, sum nu_{j+1,j} = a(N^2-1)/6, sum_t w_{k,t} = 1 - 1/N."""
    N = np.array([2, 3, 10, 100, 1000])
    dual = [dual_multipliers(n, ALPHA).sum() for n in N]
    anchor = [anchor_multipliers(n, ALPHA).sum() for n in N]
    yield equal("lambda: grows like N", dual, ALPHA * (N - 1) / 2)
    yield equal("nu: grows like N^2", anchor, ALPHA * (N**2 - 1) / 6)
    yield equal("w: a convex combination", [convex_weights(40, k)[1:].sum() for k in range(1, 40)], 1 - 1 / 40)


@checks(IDENTITY, name="Lemma A.1", source=PAPER)
def lemma_a1(lab: Lab) -> Iterator[Finding]:
    """x_k = x_0/N + sum_t w_{k,t} T_{B_t}(x_t)."""
    errors = []
    for N in HORIZONS:
        wild = Wild(lab.rng, N)
        x, G = follow(lab.dual(step_size=ALPHA, horizon=N), wild.answer, wild.x0)
        T = np.concatenate([x[:1], x[:-1] - ALPHA * G])
        made = np.array([np.tensordot(convex_weights(N, k), T[: k + 1], 1) for k in range(N)])
        errors.append(np.abs(made - x).max() / np.abs(T).max())
    yield zero(WILD, errors)


@checks(IDENTITY, name="H-duality", source=PAPER)
def h_duality(lab: Lab) -> Iterator[Finding]:
    """OHM's table of step coefficients transposed about its anti-diagonal is Dual-OHM's."""
    tables = [(step_table(lab.anchor, N), step_table(lab.dual, N)) for N in HORIZONS]
    yield zero("step tables, N = 2 .. 40", [np.abs(dual - anchor[::-1, ::-1].T).max() for anchor, dual in tables])


@checks(IDENTITY, name="Common end on affine maps", source=OURS)
def common_end(lab: Lab) -> Iterator[Finding]:
    """Without noise OHM and Dual-OHM end at the same point of an affine map."""
    for case in (flip(D=1.0), turn(24)):
        ends = [end(make, case, 24) for make in (lab.anchor, lab.dual)]
        yield zero(case.name, (ends[0] - ends[1]) / case.D)


@checks(IDENTITY, name="Noise gains", source=OURS)
def noise_gains(lab: Lab) -> Iterator[Finding]:
    """Unit noise in every round leaves E|F(x_{N-1})|^2 = 1 - 1/N (dual), (N-1)(2N-1)/(3N) (anchor) on the turn."""
    N = 40
    m = np.arange(2, N + 1)
    on_flip = (1.0 / np.where(m % 2 == 0, m - 1, m) ** 2).sum()  # tends to pi^2/4 - 1
    yield equal("Dual-OHM, turn", gain(lab.dual, turn(N + 1, 0.0), N), 1 - 1 / N)
    yield equal("Dual-OHM, T = -I", gain(lab.dual, flip(1), N), on_flip)
    yield equal("OHM, turn", gain(lab.anchor, turn(N + 1, 0.0), N), (N - 1) * (2 * N - 1) / (3 * N))
    yield equal("OHM, T = -I", gain(lab.anchor, flip(1), N), 2 * (N - 1) * (2 * N - 1) / (3 * N))


def step_table(make: Callable[..., Method], N: int) -> Array:
    """H of x_{k+1} = x_k - alpha sum_i H[k, i] G_i, read off by unit impulses: (N - 1) x (N - 1)."""
    unit = np.eye(N - 1)
    x = follow(make(step_size=ALPHA, horizon=N), lambda k, x: unit[k : k + 1], np.zeros((1, N - 1))).x
    return -np.diff(x[:, 0], axis=0) / ALPHA


def gain(make: Callable[..., Method], case: Case, N: int) -> float:
    """E|F(x_{N-1})|^2 from the root: row k receives a unit vector as the noise of round k, and the rows add up."""

    def answer(k: int, x: Array) -> Array:
        value = case.F(x)
        value[k, 0] += 1.0
        return value

    last = follow(make(step_size=case.step_size, horizon=N), answer, case.start(N - 1)).x[-1]
    return float(square(case.F(last)).sum())


def end(make: Callable[..., Method], case: Case, N: int) -> Array:
    """Where a run without noise ends, (1, d)."""
    return follow(make(step_size=case.step_size, horizon=N), exact(case.F), case.start(1)).x[-1]


def _Q(x: Array, y: Array, G: Array, H: Array) -> tuple[Array, Array]:
    """<x - y, G - H> - alpha/2 |G - H|^2, and the size of its terms."""
    apart = square(G - H)
    size = (norm(x) + norm(y)) * norm(G - H) + ALPHA / 2 * apart
    return inner(x - y, G - H) - ALPHA / 2 * apart, size


def _relative(path: Path, F_N: Array, weights: Array, pairs: list[tuple[Array, Array]]) -> float:
    """How far the identity's right-hand side is from 0, relative to the size of its terms."""
    x, N = path.x, len(path.x)
    value = (N - 1) * ALPHA**2 / 4 * square(F_N) + ALPHA / 2 * inner(F_N, x[-1] - x[0])
    size = (N - 1) * ALPHA**2 / 4 * square(F_N) + ALPHA / 2 * norm(F_N) * norm(x[-1] - x[0])
    for weight, (Q, terms) in zip(weights, pairs, strict=True):
        value, size = value + weight * Q, size + weight * terms
    return float(np.max(np.abs(value) / size))
