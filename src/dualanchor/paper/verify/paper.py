"""Inequalities of the paper, sections 3 and 4 and appendix A."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from dualanchor.core.schedule import Growing
from dualanchor.core.types import Array
from dualanchor.paper.verify.check import INEQUALITY, RATE, Finding, Lab, at_most, checks, equal, mean_at_most
from dualanchor.paper.verify.identities import end
from dualanchor.paper.verify.operators import Case, flip, location, reflections, scalar, spiral, still, turn
from dualanchor.paper.verify.paths import exact, follow, inner, noisy, norm, square
from dualanchor.problems import worst_case_nonexpansive
from dualanchor.run import solve
from dualanchor.theory import bounds
from dualanchor.theory.bounds import PAPER
from dualanchor.theory.weights import dual_multipliers


@checks(RATE, bounds.proposition_3_3)
def proposition_3_3(lab: Lab) -> Iterator[Finding]:
    """Without noise |F(y_{N-1})|^2 <= 4D^2/(a^2 N^2), for OHM and for Dual-OHM."""
    for name, make in (("OHM", lab.anchor), ("Dual-OHM", lab.dual)):
        for case, N in ((turn(24), 24), (flip(D=1.0), 25), (reflections(), 24)):
            reached = square(case.F(end(make, case, N)))
            yield at_most(f"{name}, {case.name}, N = {N}", reached, bounds.proposition_3_3(N, case.step_size, case.D))


@checks(RATE, name="Proposition 3.3, attained", source=PAPER)
def proposition_3_3_attained(lab: Lab) -> Iterator[Finding]:
    """On the turn of R^N it is 4D^2/(a^2 N^2), neither more nor less."""
    for name, make in (("OHM", lab.anchor), ("Dual-OHM", lab.dual)):
        horizons = [2, 3, 8, 24, 60]
        reached = [float(square(turn(N).F(end(make, turn(N), N)))[0]) for N in horizons]
        yield equal(f"{name}, turn of R^N", reached, [4 / N**2 for N in horizons], 1e-9)


@checks(RATE, name="Proposition 3.4", source=PAPER)
def proposition_3_4(lab: Lab) -> Iterator[Finding]:
    """S-OHM with |B_k| = c(k+1), c = O(eps^-2), reaches eps in O(LD/eps) rounds and O(eps^-4) samples."""
    sigma, case, values = 1.0, flip(D=1.0), []
    for eps in (0.4, 0.2, 0.1):
        N, c = growing_plan(eps, case.step_size, case.L, case.D, sigma)
        method = lab.anchor(step_size=case.step_size, horizon=N, batch_size=Growing(c))
        result = solve(case.problem(sigma), method, reps=lab.runs, seed=lab.seed, record=0)
        values.append(result.residual**2 / eps**2)
    yield mean_at_most(f"{case.name}, |F|^2/eps^2", np.transpose(values), 1.0)
    plans = [growing_plan(eps, case.step_size, case.L, case.D, sigma) for eps in (0.01, 0.001)]
    few, many = (Growing(c).size(np.arange(N - 1), N).sum() for N, c in plans)
    yield equal("exponent of samples, eps from 0.01 to 0.001", np.log10(many / few), 4.0, 0.005)


def growing_plan(eps: float, step_size: float, L: float, D: float, sigma: float) -> tuple[int, float]:
    """Horizon and rate c of batches c(k+1) for which the bound of S-OHM is at most eps^2.

    The bound is 2D/(aN) + aL sigma sqrt((1-1/N)/(2c)): half of eps for each, which is cheapest.
    """
    N = max(2, ceil(4 * D / (step_size * eps)))
    left = eps - 2 * D / (step_size * N)
    return N, (step_size * L * sigma / left) ** 2 * (1 - 1 / N) / 2


@checks(INEQUALITY, bounds.s_ohm)
def s_ohm(lab: Lab) -> Iterator[Finding]:
    """S-OHM, any batches: E|F(x_{N-1})|^2 <= (2D/(aN) + aL/N sqrt(sum (k+1)^2 sigma^2/B_k))^2."""
    sigma, N = 1.0, 24
    for name, sizes in (("B = 1", np.ones(N - 1, int)), ("growing batches", Growing(0.5).size(np.arange(N - 1), N))):
        for case in (flip(16), turn(24), reflections()):
            method = lab.anchor(step_size=case.step_size, horizon=N, batch_size=sizes.tolist())
            values = solve(case.problem(sigma), method, reps=lab.runs, seed=lab.seed, record=0).residual ** 2
            bound = bounds.s_ohm(case.step_size, case.L, case.D, sigma, sizes)
            yield mean_at_most(f"{case.name}, {name}", values, bound)


@checks(INEQUALITY, bounds.theorem_4_1)
def theorem_4_1(lab: Lab) -> Iterator[Finding]:
    """E|F(x_{N-1})|^2 <= 4D^2/(a^2 N^2) + 6 sigma^2/B."""
    sigma, B = 1.0, 3
    for case, N in ((flip(16), 2), (flip(16), 40), (flip(16, D=5.0), 25), (turn(24, D=5.0), 24), (reflections(), 24)):
        method = lab.dual(step_size=case.step_size, horizon=N, batch_size=B)
        values = solve(case.problem(sigma), method, reps=lab.runs, seed=lab.seed, record=0).residual ** 2
        bound = bounds.theorem_4_1(N, case.step_size, case.D, sigma, B)
        yield mean_at_most(f"{case.name}, N = {N}", values, bound)
    named = worst_case_nonexpansive(dimension=101, sigma=1.0)
    for name, problem, step, N in (("experiment 1, d = 101", named, 1.0, 60), ("robust location", location(), 2.0, 25)):
        method = lab.dual(step_size=step, horizon=N, batch_size=B)
        values = solve(problem, method, reps=lab.runs, seed=lab.seed, record=0).residual ** 2
        bound = bounds.theorem_4_1(N, step, problem.constants.D, problem.constants.sigma, B)
        yield mean_at_most(f"{name}, N = {N}", values, bound)


@checks(INEQUALITY, bounds.lemma_4_3)
def lemma_4_3(lab: Lab) -> Iterator[Finding]:
    """E[(N-1)a^2/4 |F_N|^2 + a/2 <F_N, x_{N-1}-x_0>] <= sum_j lambda_j (a sigma^2/(2B) + E<e_{j-1}, T x_{N-1}>)."""
    sigma, B, N = 1.0, 2, 12
    for case in (flip(D=1.0), turn(12), reflections()):
        a = case.step_size
        e = case.noise(lab.rng, N - 1, lab.reps, sigma / np.sqrt(B))
        x = follow(lab.dual(step_size=a, horizon=N), noisy(case.F, e), case.start(lab.reps)).x
        F_N = case.F(x[-1])
        left = (N - 1) * a**2 / 4 * square(F_N) + a / 2 * inner(F_N, x[-1] - x[0])
        cross = np.tensordot(dual_multipliers(N, a), inner(e, case.T(x[-1])), 1)
        yield mean_at_most(case.name, left - cross, bounds.lemma_4_3(N, a, sigma, B, cross_term=0.0))


def cross_terms(lab: Lab, case: Case, N: int, sigma: float, B: int) -> Array:
    """<e_k, T x_{N-1}> for every round k, (replications, N - 1)."""
    e = case.noise(lab.rng, N - 1, lab.reps, sigma / np.sqrt(B))
    x = follow(lab.dual(step_size=case.step_size, horizon=N), noisy(case.F, e), case.start(lab.reps)).x
    return inner(e, case.T(x[-1])).T


@checks(INEQUALITY, bounds.lemma_4_4)
def lemma_4_4(lab: Lab) -> Iterator[Finding]:
    """E<e_{j-1}, T x_{N-1}> <= a sigma^2/B for every round."""
    sigma, B = 1.0, 2
    for case, N in ((flip(), 2), (flip(), 12), (turn(12), 12), (reflections(), 12)):
        values = cross_terms(lab, case, N, sigma, B)
        yield mean_at_most(f"{case.name}, N = {N}", values, bounds.lemma_4_4(case.step_size, sigma, B))


def apart(lab: Lab, case: Case, N: int, s: int, sigma: float, B: int) -> Array:
    """|x_k - x_k^(s)|^2 for k = s + 1 .. N - 1, (replications, N - 1 - s)."""
    method = lab.dual(step_size=case.step_size, horizon=N)
    e = case.noise(lab.rng, N, lab.reps, sigma / np.sqrt(B))
    one = follow(method, noisy(case.F, e), case.start(lab.reps)).x
    e[s] = e[N - 1]  # an independent copy of batch s
    two = follow(method, noisy(case.F, e), case.start(lab.reps)).x
    return square(one - two)[s + 1 :].T


@checks(INEQUALITY, bounds.lemma_a2)
def lemma_a2(lab: Lab) -> Iterator[Finding]:
    """E|x_k - x_k^(s)|^2 <= a^2 sigma^2/B (1 + (N-k)(N-k-1)/((N-s)(N-s-1)))."""
    sigma, B = 1.0, 2
    for case, N, s in ((still(), 40, 0), (still(), 12, 5), (flip(), 12, 3), (reflections(), 12, 3)):
        k = np.arange(s + 1, N)
        bound = bounds.lemma_a2(N, s, k, case.step_size, sigma, B)
        yield mean_at_most(f"{case.name}, N = {N}, s = {s}", apart(lab, case, N, s, sigma, B), bound)


@checks(INEQUALITY, bounds.lemma_4_6)
def lemma_4_6(lab: Lab) -> Iterator[Finding]:
    """E|x_k - y_k|^2 <= a^2 sigma^2/(B(1 - gamma^2)) for every k."""
    sigma, B = 1.0, 2
    for case, N, steps in ((scalar(), 400, 12), (spiral(), 60, 59)):
        method = lab.dual(step_size=case.step_size, horizon=N)
        e = case.noise(lab.rng, steps, lab.reps, sigma / np.sqrt(B))
        x = follow(method, noisy(case.F, e), case.start(lab.reps), steps).x
        y = follow(method, exact(case.F), case.start(1), steps).x
        bound = bounds.lemma_4_6(case.step_size, case.L, case.mu, sigma, B)
        yield mean_at_most(f"{case.name}, N = {N}", square(x - y).T, bound)


@checks(INEQUALITY, bounds.lemma_4_7)
def lemma_4_7(lab: Lab) -> Iterator[Finding]:
    """Without noise |y_k - y_{N-1}| <= (1+gamma)/(1-gamma) gamma^k D for every k."""
    for case in (scalar(step_size=0.95), scalar(step_size=1.9), spiral()):
        N = 40
        y = follow(lab.dual(step_size=case.step_size, horizon=N), exact(case.F), case.start(1)).x[:, 0]
        bound = bounds.lemma_4_7(np.arange(N), case.step_size, case.L, case.mu, case.D)
        rounding = 1e-14 * case.D  # where the bound is smaller than that
        yield at_most(f"{case.name}, a = {case.step_size:g}", norm(y - y[-1]), bound + rounding)


@checks(INEQUALITY, bounds.theorem_4_5_distance)
def theorem_4_5_distance(lab: Lab) -> Iterator[Finding]:
    """E|x_k - y_{N-1}|^2 <= 2((1+g)/(1-g))^2 g^{2k} D^2 + 2a^2 sigma^2/(B(1-g^2)) for every k."""
    sigma, B, N = 1.0, 2, 60
    for case in (scalar(), spiral()):
        method = lab.dual(step_size=case.step_size, horizon=N)
        e = case.noise(lab.rng, N - 1, lab.reps, sigma / np.sqrt(B))
        x = follow(method, noisy(case.F, e), case.start(lab.reps)).x
        y = follow(method, exact(case.F), case.start(1)).x[-1]
        bound = bounds.theorem_4_5_distance(np.arange(N), case.step_size, case.L, case.mu, case.D, sigma, B)
        yield mean_at_most(case.name, square(x - y).T, bound)


@checks(INEQUALITY, bounds.theorem_4_5)
def theorem_4_5(lab: Lab) -> Iterator[Finding]:
    """With a = 1/L, E|F(x_k)|^2 <= 8L^2D^2/N^2 + 64L^4/mu^2 e^{-k mu/L} D^2 + 4L sigma^2/(mu B) for every k."""
    sigma, B, N = 1.0, 2, 60
    for case in (scalar(step_size=1.0), spiral()):
        e = case.noise(lab.rng, N - 1, lab.reps, sigma / np.sqrt(B))
        x = follow(lab.dual(step_size=1 / case.L, horizon=N), noisy(case.F, e), case.start(lab.reps)).x
        values = np.stack([square(case.F(x_k)) for x_k in x], axis=1)
        bound = bounds.theorem_4_5(N, np.arange(N), case.L, case.mu, case.D, sigma, B)
        yield mean_at_most(case.name, values, bound)
