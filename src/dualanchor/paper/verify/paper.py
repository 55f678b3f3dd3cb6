"""The paper's statements: identities, to rounding and whatever the operator and the noise, and inequalities."""

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.schedule import Growing
from dualanchor.core.types import Array
from dualanchor.paper.verify import operators as on
from dualanchor.paper.verify.check import (
    Lab,
    Measurements,
    at_most,
    equal,
    identity,
    inequality,
    mean_at_most,
    rate,
    zero,
)
from dualanchor.paper.verify.operators import SIGMA, Case, Wild, exact, inner, noisy, norm, square
from dualanchor.problems import worst_case_nonexpansive
from dualanchor.theory import bounds
from dualanchor.theory.bounds import OURS, PAPER
from dualanchor.theory.step_tables import anti_transpose, follow, step_table
from dualanchor.theory.weights import anchor_multipliers, convex_weights, dual_multipliers

ALPHA = 0.7
HORIZONS = (2, 3, 9, 40)
WILD = "any operator and noise, N = 2 .. 40"
Make = Callable[..., Method]


def lemma_4_2_error(x: Array, G: Array, F_N: Array, alpha: float) -> Array:
    """Of Lemma 4.2, for any vectors F_N in place of F(x_{N-1}): (rows,)."""
    return _identity_error(x, F_N, alpha, dual_multipliers(len(x), alpha), (x[:-1], x[-1:], G, F_N[None]))


def anchor_identity_error(x: Array, G: Array, F_N: Array, alpha: float) -> Array:
    """Of S-OHM's identity: batch N - 1 is never drawn, F_N replaces it."""
    G = np.concatenate([G, F_N[None]])
    return _identity_error(x, F_N, alpha, anchor_multipliers(len(x), alpha), (x[:-1], x[1:], G[:-1], G[1:]))


def _identity_error(x: Array, F_N: Array, alpha: float, weights: Array, pairs: tuple[Array, ...]) -> Array:
    """|(N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1} - x_0> + sum_j w_j Q_j|, Q = <p - q, G - H> - a/2 |G - H|^2."""
    p, q, G, H = pairs
    moved, apart = x[-1] - x[0], G - H
    value = (len(x) - 1) * alpha**2 / 4 * square(F_N) + alpha / 2 * inner(F_N, moved)
    size = (len(x) - 1) * alpha**2 / 4 * square(F_N) + alpha / 2 * norm(F_N) * norm(moved)
    value = value + weights @ (inner(p - q, apart) - alpha / 2 * square(apart))
    size = size + weights @ ((norm(p) + norm(q)) * norm(apart) + alpha / 2 * square(apart))
    return np.abs(value) / np.maximum(size, np.finfo(float).tiny)


def lemma_a1_error(x: Array, G: Array, alpha: float) -> Array:
    """Of Lemma A.1 at k = 1 .. N - 1."""
    N = len(x)
    weights = np.array([np.pad(convex_weights(N, k), (0, N - 1 - k)) for k in range(1, N)])
    T, size = x[:-1] - alpha * G, np.abs(x[:-1]) + alpha * np.abs(G)
    made = np.tensordot(weights, np.concatenate([x[:1], T]), 1)
    scale = np.tensordot(weights, np.concatenate([np.abs(x[:1]), size]), 1).max(axis=(1, 2))
    return np.asarray(np.abs(made - x[1:]).max(axis=(1, 2)) / scale)


def gain(make: Make, case: Case, N: int) -> float:
    """E|F(x_{N-1})|^2 from the root: row k receives a unit vector as the noise of round k, and the rows add up."""

    def evaluate(k: int, x: Array) -> Array:
        value = case.F(x)
        value[k, 0] += 1.0
        return value

    last = follow(make(step_size=case.step_size, horizon=N), evaluate, case.start(N - 1)).x[-1]
    return float(square(case.F(last)).sum())


def _on_wild(lab: Lab, make: Make, error: Callable[..., Array]) -> Measurements:
    """Errors of an identity in x, G and F_N on arbitrary operators."""
    errors = []
    for N in HORIZONS:
        wild = Wild(lab.rng, N)
        x, G, *_ = follow(make(step_size=ALPHA, horizon=N), wild.evaluate, wild.x0)
        errors.append(error(x, G, wild.F(x[-1]), ALPHA).max())
    yield zero(WILD, errors)


_TERMS = "0 = (N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1} - x_0>"
identity(name="Lemma 4.2", source=PAPER, formula=f"{_TERMS} + sum_j lambda_{{N,j}} Q_{{N,j}}.")(
    lambda lab: _on_wild(lab, lab.dual, lemma_4_2_error)
)
identity(name="Identity of S-OHM (4.1.1)", source=PAPER, formula=f"{_TERMS} + sum_j nu_{{j+1,j}} Q_{{j+1,j}}.")(
    lambda lab: _on_wild(lab, lab.anchor, anchor_identity_error)
)


@identity(name="Sums of weights", source=PAPER)
def sums_of_weights(lab: Lab) -> Measurements:
    """Sums of weights: sum lambda_{N,j} = a(N-1)/2, sum nu_{j+1,j} = a(N^2-1)/6, sum_t w_{k,t} = 1 - 1/N."""
    N = np.array([2, 3, 10, 100, 1000])
    dual = [dual_multipliers(n, ALPHA).sum() for n in N]
    anchor = [anchor_multipliers(n, ALPHA).sum() for n in N]
    yield equal("lambda: grows like N", dual, ALPHA * (N - 1) / 2)
    yield equal("nu: grows like N^2", anchor, ALPHA * (N**2 - 1) / 6)
    yield equal("w: a convex combination", [convex_weights(40, k)[1:].sum() for k in range(1, 40)], 1 - 1 / 40)


identity(name="Lemma A.1", source=PAPER, formula="x_k = x_0/N + sum_t w_{k,t} T_{B_t}(x_t).")(
    lambda lab: _on_wild(lab, lab.dual, lambda x, G, F_N, alpha: lemma_a1_error(x, G, alpha))
)


@identity(name="H-duality", source=PAPER)
def h_duality(lab: Lab) -> Measurements:
    """OHM's table of step coefficients transposed about its anti-diagonal is Dual-OHM's."""
    pairs = [[step_table(make(step_size=ALPHA, horizon=N)) for make in (lab.anchor, lab.dual)] for N in HORIZONS]
    yield zero("step tables, N = 2 .. 40", [np.abs(dual - anti_transpose(anchor)).max() for anchor, dual in pairs])


@identity(name="Common end on affine maps", source=OURS)
def common_end(lab: Lab) -> Measurements:
    """Without noise OHM and Dual-OHM end at the same point of an affine map."""
    for case in (on.flip(D=1.0), on.turn(24)):
        yield zero(case.name, (_end(lab.anchor, case, 24) - _end(lab.dual, case, 24)) / case.D)


@identity(name="Noise gains", source=OURS)
def noise_gains(lab: Lab) -> Measurements:
    """Unit noise in every round leaves E|F(x_{N-1})|^2 = 1 - 1/N (dual), (N-1)(2N-1)/(3N) (anchor) on the turn."""
    N, m = 40, np.arange(2, 41)
    on_flip = (1.0 / np.where(m % 2 == 0, m - 1, m) ** 2).sum()  # tends to pi^2/4 - 1
    yield equal("Dual-OHM, turn", gain(lab.dual, on.turn(N + 1, 0.0), N), 1 - 1 / N)
    yield equal("Dual-OHM, T = -I", gain(lab.dual, on.flip(1), N), on_flip)
    yield equal("OHM, turn", gain(lab.anchor, on.turn(N + 1, 0.0), N), (N - 1) * (2 * N - 1) / (3 * N))
    yield equal("OHM, T = -I", gain(lab.anchor, on.flip(1), N), 2 * (N - 1) * (2 * N - 1) / (3 * N))


def _end(make: Make, case: Case, N: int) -> Array:
    return follow(make(step_size=case.step_size, horizon=N), exact(case.F), case.start(1)).x[-1]


@rate(bounds.proposition_3_3)
def proposition_3_3(lab: Lab) -> Measurements:
    """Without noise |F(y_{N-1})|^2 <= 4D^2/(a^2 N^2), for OHM and for Dual-OHM."""
    for name, make in (("OHM", lab.anchor), ("Dual-OHM", lab.dual)):
        for case, N in ((on.turn(24), 24), (on.flip(D=1.0), 25), (on.reflections(), 24)):
            reached = square(case.F(_end(make, case, N)))
            yield at_most(f"{name}, {case.name}, N = {N}", reached, bounds.proposition_3_3(N, case.step_size, case.D))


@rate(name="Proposition 3.3, attained", source=PAPER)
def proposition_3_3_attained(lab: Lab) -> Measurements:
    """On the turn of R^N it is 4D^2/(a^2 N^2), neither more nor less."""
    horizons = [2, 3, 8, 24, 60]
    for name, make in (("OHM", lab.anchor), ("Dual-OHM", lab.dual)):
        reached = [float(square(on.turn(N).F(_end(make, on.turn(N), N)))[0]) for N in horizons]
        yield equal(f"{name}, turn of R^N", reached, [4 / N**2 for N in horizons], 1e-9)


@rate(name="Proposition 3.4", source=PAPER)
def proposition_3_4(lab: Lab) -> Measurements:
    """S-OHM with |B_k| = c(k+1), c = O(eps^-2), reaches eps in O(LD/eps) rounds and O(eps^-4) samples."""
    case, values = on.flip(D=1.0), []
    for eps in (0.4, 0.2, 0.1):
        N, c = growing_plan(eps, case)
        method = lab.anchor(step_size=case.step_size, horizon=N, batch_size=Growing(c))
        values.append(lab.squares(case.problem(), method) / eps**2)
    yield mean_at_most(f"{case.name}, |F|^2/eps^2", np.transpose(values), 1.0)
    few, many = (Growing(c).size(np.arange(N - 1), N).sum() for N, c in (growing_plan(e, case) for e in (0.01, 0.001)))
    yield equal("exponent of samples, eps from 0.01 to 0.001", np.log10(many / few), 4.0, 0.005)


def growing_plan(eps: float, case: Case) -> tuple[int, float]:
    """Horizon and rate c of batches c(k+1): half of eps for each term of 2D/(aN) + aL sigma sqrt((1-1/N)/(2c))."""
    N = max(2, ceil(4 * case.D / (case.step_size * eps)))
    rest = eps - 2 * case.D / (case.step_size * N)
    return N, (case.step_size * case.L * case.sigma / rest) ** 2 * (1 - 1 / N) / 2


@inequality(bounds.s_ohm)
def s_ohm(lab: Lab) -> Measurements:
    """S-OHM, any batches: E|F(x_{N-1})|^2 <= (2D/(aN) + aL/N sqrt(sum (k+1)^2 sigma^2/B_k))^2."""
    N = 24
    for name, sizes in (("B = 1", np.ones(N - 1, int)), ("growing batches", Growing(0.5).size(np.arange(N - 1), N))):
        for case in (on.flip(16), on.turn(24), on.reflections()):
            method = lab.anchor(step_size=case.step_size, horizon=N, batch_size=sizes.tolist())
            bound = bounds.s_ohm(case.step_size, case.L, case.D, SIGMA, sizes)
            yield mean_at_most(f"{case.name}, {name}", lab.squares(case.problem(), method), bound)


@inequality(bounds.theorem_4_1)
def theorem_4_1(lab: Lab) -> Measurements:
    """E|F(x_{N-1})|^2 <= 4D^2/(a^2 N^2) + 6 sigma^2/B."""
    flip = on.flip(16)
    cases = [(flip, 2), (flip, 40), (on.flip(16, D=5.0), 25), (on.turn(24, D=5.0), 24), (on.reflections(), 24)]
    problems = [(case.name, case.problem(), case.step_size, N) for case, N in (*cases, (on.location(), 25))]
    problems.insert(5, ("experiment 1, d = 101", worst_case_nonexpansive(dimension=101, sigma=1.0), 1.0, 60))
    for name, problem, step_size, N in problems:
        method = lab.dual(step_size=step_size, horizon=N, batch_size=3)
        bound = bounds.theorem_4_1(N, step_size, problem.constants.D, problem.constants.sigma, 3)
        yield mean_at_most(f"{name}, N = {N}", lab.squares(problem, method), bound)


@inequality(bounds.lemma_4_3)
def lemma_4_3(lab: Lab) -> Measurements:
    """E[(N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1}-x_0>] <= sum_j lambda_j (a sigma^2/(2B) + E<e_{j-1}, T x_{N-1}>)."""
    B, N = 2, 12
    for case in (on.flip(D=1.0), on.turn(12), on.reflections()):
        a, (x, e) = case.step_size, lab.dual_path(case, N, B)
        F_N = case.F(x[-1])
        value = (N - 1) * a**2 / 4 * square(F_N) + a / 2 * inner(F_N, x[-1] - x[0])
        cross = np.tensordot(dual_multipliers(N, a), inner(e, case.T(x[-1])), 1)
        yield mean_at_most(case.name, value - cross, bounds.lemma_4_3(N, a, SIGMA, B, cross_term=0.0))


def cross_terms(lab: Lab, share: float) -> Measurements:
    """E<e_{j-1}, T x_{N-1}> for every round against a share of the bound of Lemma 4.4."""
    for case, N in ((on.flip(), 2), (on.flip(), 12), (on.turn(12), 12), (on.reflections(), 12)):
        x, e = lab.dual_path(case, N, 2)
        bound = share * bounds.lemma_4_4(case.step_size, SIGMA, 2)
        yield mean_at_most(f"{case.name}, N = {N}", inner(e, case.T(x[-1])).T, bound)


inequality(bounds.lemma_4_4, formula="E<e_{j-1}, T x_{N-1}> <= a sigma^2/B for every round.")(
    lambda lab: cross_terms(lab, 1.0)
)


def leave_one_out(lab: Lab, bound: Callable[..., Any]) -> Measurements:
    """E|x_k - x_k^(s)|^2 for k = s + 1 .. N - 1, where batch s of the second path is another one, against a bound."""
    for case, N, s in ((on.still(), 40, 0), (on.still(), 12, 5), (on.flip(), 12, 3), (on.reflections(), 12, 3)):
        method = lab.dual(step_size=case.step_size, horizon=N)
        e = case.noise(lab.rng, N, lab.reps, SIGMA / np.sqrt(2))
        one = follow(method, noisy(case.F, e), case.start(lab.reps)).x
        e[s] = e[N - 1]  # an independent copy of batch s
        two = follow(method, noisy(case.F, e), case.start(lab.reps)).x
        bounds_of_k = bound(N, s, np.arange(s + 1, N), case.step_size, SIGMA, 2)
        yield mean_at_most(f"{case.name}, N = {N}, s = {s}", square(one - two)[s + 1 :].T, bounds_of_k)


inequality(bounds.lemma_a2, formula="E|x_k - x_k^(s)|^2 <= a^2 sigma^2/B (1 + (N-k)(N-k-1)/((N-s)(N-s-1))).")(
    lambda lab: leave_one_out(lab, bounds.lemma_a2)
)


@inequality(bounds.lemma_4_6)
def lemma_4_6(lab: Lab) -> Measurements:
    """E|x_k - y_k|^2 <= a^2 sigma^2/(B(1 - gamma^2)) for every k."""
    for case, N, steps in ((on.scalar(), 400, 12), (on.spiral(), 60, 59)):
        x, _ = lab.dual_path(case, N, 2, steps)
        y = follow(lab.dual(step_size=case.step_size, horizon=N), exact(case.F), case.start(1), steps).x
        bound = bounds.lemma_4_6(case.step_size, case.L, case.mu, SIGMA, 2)
        yield mean_at_most(f"{case.name}, N = {N}", square(x - y).T, bound)


@inequality(bounds.lemma_4_7)
def lemma_4_7(lab: Lab) -> Measurements:
    """Without noise |y_k - y_{N-1}| <= (1+gamma)/(1-gamma) gamma^k D for every k."""
    for case in (on.scalar(step_size=0.95), on.scalar(step_size=1.9), on.spiral()):
        y = follow(lab.dual(step_size=case.step_size, horizon=40), exact(case.F), case.start(1)).x[:, 0]
        bound = bounds.lemma_4_7(np.arange(40), case.step_size, case.L, case.mu, case.D)
        rounding = 1e-14 * case.D  # where the bound is smaller than that
        yield at_most(f"{case.name}, a = {case.step_size:g}", norm(y - y[-1]), bound + rounding)


@inequality(bounds.theorem_4_5_distance)
def theorem_4_5_distance(lab: Lab) -> Measurements:
    """E|x_k - y_{N-1}|^2 <= 2((1+g)/(1-g))^2 g^{2k} D^2 + 2a^2 sigma^2/(B(1-g^2)) for every k."""
    for case in (on.scalar(), on.spiral()):
        x, _ = lab.dual_path(case, 60, 2)
        bound = bounds.theorem_4_5_distance(np.arange(60), case.step_size, case.L, case.mu, case.D, SIGMA, 2)
        yield mean_at_most(case.name, square(x - _end(lab.dual, case, 60)).T, bound)


@inequality(bounds.theorem_4_5)
def theorem_4_5(lab: Lab) -> Measurements:
    """With a = 1/L, E|F(x_k)|^2 <= 8L^2D^2/N^2 + 64L^4/mu^2 e^{-k mu/L} D^2 + 4L sigma^2/(mu B) for every k."""
    for case in (on.scalar(step_size=1.0), on.spiral()):  # whose step is 1/L
        x, _ = lab.dual_path(case, 60, 2)
        bound = bounds.theorem_4_5(60, np.arange(60), case.L, case.mu, case.D, SIGMA, 2)
        yield mean_at_most(case.name, np.transpose([square(case.F(x_k)) for x_k in x]), bound)
