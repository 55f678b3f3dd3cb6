"""Statements beyond the paper: Theorems A, B and C and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from dualanchor.core.oracle import Session
from dualanchor.core.problem import Problem
from dualanchor.core.schedule import Tapered
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.estimators.residual import GROUPS, debiased_squared_residual
from dualanchor.methods.sgda import SGDA
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.paper.verify.check import (
    IDENTITY,
    INEQUALITY,
    RATE,
    Finding,
    Lab,
    at_most,
    checks,
    mean_at_most,
    mean_equal,
)
from dualanchor.paper.verify.operators import (
    Case,
    flip,
    fold,
    location,
    reflections,
    scalar,
    spiral,
    still,
    turn,
)
from dualanchor.paper.verify.paper import apart, cross_terms
from dualanchor.paper.verify.paths import Answer, follow, inner, noisy, square
from dualanchor.run import solve
from dualanchor.theory import bounds
from dualanchor.theory.bounds import OURS
from dualanchor.theory.weights import root_sum

SIGMA = 1.0


def squares(lab: Lab, problem: Problem, step_size: float, batch_sizes: Array) -> Array:
    """|F(x_{N-1})|^2 of Dual-OHM with these batch sizes, one for each replication."""
    sizes = [int(size) for size in batch_sizes]
    method = lab.dual(step_size=step_size, horizon=len(sizes) + 1, batch_size=sizes)
    return np.asarray(solve(problem, method, reps=lab.runs, seed=lab.seed, record=0).residual ** 2)


def tapered(C: float, N: int) -> Array:
    """The sizes of tapered batches."""
    return np.asarray(Tapered(C).size(np.arange(N - 1), N))


# -- Theorem A ---------------------------------------------------------------------------------------------------


@checks(INEQUALITY, bounds.leave_one_out_sharp)
def leave_one_out_sharp(lab: Lab) -> Iterator[Finding]:
    """E|x_k - x_k^(s)|^2 <= a^2 sigma^2/(2B) (1 + (N-k)(N-k-1)/((N-s)(N-s-1)))^2."""
    for case, N, s in ((still(), 40, 0), (still(), 12, 5), (flip(), 12, 3), (reflections(), 12, 3)):
        k = np.arange(s + 1, N)
        bound = bounds.leave_one_out_sharp(N, s, k, case.step_size, SIGMA, 2)
        yield mean_at_most(f"{case.name}, N = {N}, s = {s}", apart(lab, case, N, s, SIGMA, 2), bound)


@checks(INEQUALITY, name="Cross term, halved", source=OURS)
def cross_term_halved(lab: Lab) -> Iterator[Finding]:
    """E<e_{j-1}, T x_{N-1}> <= a sigma^2/(2B): half of Lemma 4.4, because batches can be exchanged."""
    for case, N in ((flip(), 2), (flip(), 12), (turn(12), 12), (reflections(), 12)):
        bound = bounds.lemma_4_4(case.step_size, SIGMA, 2) / 2
        yield mean_at_most(f"{case.name}, N = {N}", cross_terms(lab, case, N, SIGMA, 2), bound)


@checks(INEQUALITY, bounds.theorem_a)
def theorem_a(lab: Lab) -> Iterator[Finding]:
    """E|F(x_{N-1})|^2 <= (A + sqrt(A^2 + W))^2, A = D/(aN), W = 2 sum_k sigma^2/(B_k (N-k)(N-k-1)), any sizes B_k."""
    last, mixed = np.array([10_000] * 10 + [1]), np.array([5, 1, 9, 2, 30, 1, 1, 4, 2, 8, 3])
    for case, name, sizes in (
        (flip(16), "noise last", last),
        (flip(16), "mixed sizes", mixed),
        (turn(12, D=3.0), "mixed sizes", mixed),
        (flip(16), "tapered", tapered(20.0, 40)),
        (reflections(), "tapered", tapered(20.0, 40)),
        (fold(), "mixed sizes", mixed),
    ):
        values = squares(lab, case.problem(SIGMA), case.step_size, sizes)
        yield mean_at_most(f"{case.name}, {name}", values, bounds.theorem_a(case.step_size, case.D, SIGMA, sizes))
    problem, sizes = location(), tapered(20.0, 25)
    bound = bounds.theorem_a(2.0, problem.constants.D, problem.constants.sigma, sizes)
    yield mean_at_most("robust location, tapered", squares(lab, problem, 2.0, sizes), bound)


@checks(INEQUALITY, bounds.theorem_a, name="Theorem A, small steps")
def theorem_a_small_steps(lab: Lab) -> Iterator[Finding]:
    """The same with W = 2 sum_k kappa_{N-k} sigma^2/(B_k (N-k)(N-k-1)), kappa_m = min(1, aL(2m-1)/6)."""
    for tau in (1.0, 0.4, 0.1):
        for sizes in (np.array([10_000] * 10 + [1]), np.full(11, 2)):
            step = tau / 2
            bound = bounds.theorem_a(step, 0.0, SIGMA, sizes, tau=tau)
            name = f"F(x) = Lx, a = {tau:g}/L, {'B = 2' if sizes[0] == 2 else 'noise last'}"
            yield mean_at_most(name, squares(lab, flip(16).problem(SIGMA), step, sizes), bound)


@checks(INEQUALITY, bounds.theorem_a_constant)
def theorem_a_constant(lab: Lab) -> Iterator[Finding]:
    """With a constant batch W = 2(1 - 1/N) sigma^2/B."""
    for case, N in ((flip(16), 2), (flip(16), 40), (turn(24, D=5.0), 24), (reflections(), 24)):
        values = squares(lab, case.problem(SIGMA), case.step_size, np.full(N - 1, 3))
        bound = bounds.theorem_a_constant(N, case.step_size, case.D, SIGMA, 3)
        yield mean_at_most(f"{case.name}, N = {N}", values, bound)


@checks(INEQUALITY, bounds.theorem_a, name="Theorem A, affine")
def theorem_a_affine(lab: Lab) -> Iterator[Finding]:
    """For affine F, E|F(x_{N-1})|^2 <= 4A^2 + W, without A2."""
    for case, N in ((flip(16), 2), (turn(24, D=12.0), 24)):
        sizes = np.full(N - 1, 3)
        values = squares(lab, case.problem(SIGMA), case.step_size, sizes)
        bound = bounds.theorem_a(case.step_size, case.D, SIGMA, sizes, affine=True)
        yield mean_at_most(f"{case.name}, N = {N}", values, bound)
    case, N = turn(12, D=0.5), 12
    e = case.noise(lab.rng, N - 1, lab.reps, SIGMA / np.sqrt(3))

    def jumping(k: int, x: Array) -> Array:
        return case.F(x) + e[k] * np.sign(x)  # of variance sigma^2 everywhere, and not cocoercive in expectation

    x = follow(lab.dual(step_size=case.step_size, horizon=N), jumping, case.start(lab.reps)).x[-1]
    bound = bounds.theorem_a(case.step_size, case.D, SIGMA, np.full(N - 1, 3), affine=True)
    yield mean_at_most(f"{case.name}, jumping noise", square(case.F(x)), bound)


# -- Theorem B ---------------------------------------------------------------------------------------------------


@checks(RATE, bounds.theorem_b_samples)
def theorem_b(lab: Lab) -> Iterator[Finding]:
    """Tapered batches reach eps in N - 1 + 2 sigma^2 H_N^2/(eps^2 (1 - 2D/(a eps N))) samples."""
    for case in (flip(16, D=1.0), turn(40)):
        values, samples, allowed = [], [], []
        for eps in (0.5, 0.25, 0.125):
            N = 2 * int(np.ceil(2 * case.D / (case.step_size * eps)))
            A = case.D / (case.step_size * N)
            C = 2 * SIGMA**2 * float(root_sum(N)) / (eps * (eps - 2 * A))
            method = lab.dual(step_size=case.step_size, horizon=N, batch_size=Tapered(C))
            result = solve(case.problem(SIGMA), method, reps=lab.runs, seed=lab.seed, record=0)
            values.append(result.residual**2 / eps**2)
            samples.append(np.max(result.nfev))
            allowed.append(bounds.theorem_b_samples(eps, N, case.step_size, case.D, SIGMA))
        yield mean_at_most(f"{case.name}, |F|^2/eps^2", np.transpose(values), 1.0)
        yield at_most(f"{case.name}, samples", samples, allowed)


# -- strong monotonicity -----------------------------------------------------------------------------------------


@checks(INEQUALITY, bounds.theorem_c_distance, bounds.theorem_c)
def theorem_c(lab: Lab) -> Iterator[Finding]:
    """E|x_k - x*|^2 <= D^2 (1 - (1-rho)R_k) + a^2 sigma^2/B R_k for every k, and L^2 times that for E|F(x_k)|^2."""
    for case in (scalar(), spiral()):
        for N in (np.inf, 40):
            steps = 30 if np.isinf(N) else int(N) - 1
            make = SGDA(case.step_size) if np.isinf(N) else lab.dual(step_size=case.step_size, horizon=int(N))
            e = case.noise(lab.rng, steps, lab.reps, SIGMA / np.sqrt(2))
            x = follow(make, noisy(case.F, e), case.start(lab.reps), steps).x[1:]
            k = np.arange(1, steps + 1)
            given = (k, case.step_size, case.L, case.mu, case.D, SIGMA, 2)
            name = f"{case.name}, N = {N:g}"
            yield mean_at_most(f"{name}, distance", square(x).T, bounds.theorem_c_distance(*given, N=N))
            residuals = np.stack([square(case.F(x_k)) for x_k in x], axis=1)
            yield mean_at_most(f"{name}, residual", residuals, bounds.theorem_c(*given, N=N))


@checks(INEQUALITY, bounds.restart)
def restart(lab: Lab) -> Iterator[Finding]:
    """One epoch from a point with E|F|^2 = r^2: Theorem A with D = r/mu, |F(x)| >= mu dist(x, roots)."""
    sharp = turn(24)
    slowest = np.cos(np.pi * np.arange(24) / 24 + 0.3)  # where |F(x)| = mu |x|, mu = 2 sin(pi/48)
    mu = 2 * np.sin(np.pi / 48)
    starts = {
        f"{sharp.name}, slowest start": (sharp, mu, np.tile(slowest / np.linalg.norm(slowest), (lab.runs, 1))),
        f"{sharp.name}, random start": (sharp, mu, lab.rng.normal(size=(lab.runs, 24))),
        spiral().name: (spiral(), spiral().mu, lab.rng.normal(size=(lab.runs, 2))),
    }
    for name, (case, modulus, x0) in starts.items():
        N, sizes = 48, tapered(30.0, 48)
        method = lab.dual(step_size=case.step_size, horizon=N, batch_size=Tapered(30.0))
        values = solve(case.problem(SIGMA), method, reps=lab.runs, seed=lab.seed, x0=x0, record=0).residual ** 2
        r = np.sqrt(square(case.F(x0)).mean())
        bound = bounds.restart(r, N, case.step_size, modulus, bounds.noise_term(sizes, SIGMA))
        yield mean_at_most(name, values, bound)


# -- away from the start, and without a horizon -------------------------------------------------------------------


@checks(INEQUALITY, bounds.drift)
def drift(lab: Lab) -> Iterator[Finding]:
    """E|x_k - x*|^2 <= D^2 + k(2N-k-1)/(2N) a^2 sigma^2/B for every k."""
    N = 40
    for case in (still(), flip(D=1.0), turn(40), reflections()):
        e = case.noise(lab.rng, N - 1, lab.reps, SIGMA / np.sqrt(2))
        x = follow(lab.dual(step_size=case.step_size, horizon=N), noisy(case.F, e), case.start(lab.reps)).x[1:]
        bound = bounds.drift(N, np.arange(1, N), case.step_size, case.D, SIGMA, 2)
        yield mean_at_most(case.name, square(x - case.root).T, bound)


@checks(INEQUALITY, bounds.drift_at_end)
def drift_at_end(lab: Lab) -> Iterator[Finding]:
    """E|x_{N-1} - x*|^2 <= D^2 + a^2/2 sum_k sigma^2/B_k for any sizes B_k."""
    sizes = tapered(20.0, 40)
    for case in (still(16), flip(16), turn(40), reflections()):
        method = lab.dual(step_size=case.step_size, horizon=40, batch_size=Tapered(20.0))
        x = solve(case.problem(SIGMA), method, reps=lab.runs, seed=lab.seed, record=0).x
        yield mean_at_most(case.name, square(x - case.root), bounds.drift_at_end(case.step_size, case.D, SIGMA, sizes))


@checks(INEQUALITY, bounds.anytime_stage)
def anytime_stage(lab: Lab) -> Iterator[Finding]:
    """Stages N_j = 2^j N_0 from where the last one ended: E|F|^2 <= (P_j + sqrt(P_j^2 + 2 sigma^2/b))^2/N_j^2."""
    for kind in ("constant", "tapered"):
        case, b = turn(40), 0.25 / turn(40).D ** 2
        x, far, values, allowed = case.start(lab.runs), case.D**2, [], []
        for j, N in enumerate((8, 16, 32, 64)):
            C = b * N**2 * float(root_sum(N))
            sizes = tapered(C, N) if kind == "tapered" else np.full(N - 1, int(np.ceil(b * N**2)))
            method = lab.dual(step_size=case.step_size, horizon=N, batch_size=sizes.tolist())
            result = solve(case.problem(SIGMA), method, reps=lab.runs, seed=lab.seed + j, x0=x, record=0)
            values.append(result.residual**2)
            allowed.append(bounds.anytime_stage(N, case.step_size, np.sqrt(far), SIGMA, b))
            x, far = result.x, bounds.drift_at_end(case.step_size, np.sqrt(far), SIGMA, sizes)
        yield mean_at_most(f"{case.name}, {kind} batches", np.transpose(values), allowed)


# -- constraints, bias, multiplicative noise, batches ------------------------------------------------------------


@checks(INEQUALITY, bounds.composite)
def composite(lab: Lab) -> Iterator[Finding]:
    """0 in F(x) + G(x), z_0 = x_0 - a F_{B_0}(x_0): Theorem A with D^2 + a^2 sigma^2/B_0 for |z_0 - z*|^2."""
    N, first = 16, 4
    for name, target in (("x - c on a box, c outside", 2.0), ("x - c on a box, c inside", 0.3)):
        c, a, d = np.full(8, target), 2.0, 8
        e = SIGMA / np.sqrt(d) * lab.rng.standard_normal((N, lab.reps, d))
        x0, root = np.full((lab.reps, d), -0.5), np.clip(c, -1, 1)

        def lifted(z: Array, c: Array = c, a: float = a) -> Array:
            x = np.clip(z, -1, 1)  # the resolvent of the box
            return (z - x) / a + x - c

        z0 = x0 - a * (x0 - c + e[N - 1] / np.sqrt(first))
        z = follow(lab.dual(step_size=a, horizon=N), noisy(lifted, e / np.sqrt(3)), z0).x[-1]
        D = float(np.sqrt(square(x0[0] - root)))
        yield mean_at_most(name, square(lifted(z)), bounds.composite(a, D, SIGMA, np.full(N - 1, 3), first))


@checks(INEQUALITY, bounds.model_bias)
def model_bias(lab: Lab) -> Iterator[Finding]:
    """Samples of F~ with |F~ - F| <= beta: E|F(x_{N-1})|^2 <= (beta + A_b + sqrt(A_b^2 + W + 2 beta A' + beta^2))^2."""
    N, sizes = 24, np.full(23, 3)
    for case in (flip(D=1.0), turn(24), reflections()):
        for beta in (0.05, 1.0):
            e = case.noise(lab.rng, N - 1, lab.reps, SIGMA / np.sqrt(3))
            shift = beta / np.sqrt(case.x0.size)
            x = _end(lab, case, N, lambda k, x, F=case.F, e=e, b=shift: F(x) - b + e[k])  # type: ignore[misc]
            bound = bounds.model_bias(case.step_size, case.D, SIGMA, sizes, beta)
            yield mean_at_most(f"{case.name}, beta = {beta:g}", square(case.F(x)), bound)


@checks(INEQUALITY, bounds.any_bias)
def any_bias(lab: Lab) -> Iterator[Finding]:
    """A bias field of norm beta on top: E|F(x_{N-1})|^2 <= (Theorem A's root + aL/2 (N-1) beta)^2."""
    N, sizes, beta = 12, np.full(11, 3), 0.2
    for case in (flip(D=1.0), turn(12), reflections()):
        e = case.noise(lab.rng, N - 1, lab.reps, SIGMA / np.sqrt(3))
        size = beta / np.sqrt(case.x0.size)
        x = _end(lab, case, N, lambda k, x, F=case.F, e=e, b=size: F(x) + b * np.sign(x) + e[k])  # type: ignore[misc]
        bound = bounds.any_bias(case.step_size, case.L, case.D, SIGMA, sizes, beta)
        yield mean_at_most(case.name, square(case.F(x)), bound)


@checks(INEQUALITY, bounds.multiplicative_noise)
def multiplicative_noise(lab: Lab) -> Iterator[Finding]:
    """Noise bounded at the root only: Theorem A with sigma^2 -> 2 sigma_*^2 + L^2 G/2, if (N-1)a^2L^2 < 4B."""
    d, L, D = 8, 2.0, 1.0
    for N, B, at_root in ((4, 16, 0.0), (4, 16, 1.0), (8, 64, 1.0)):
        counts = lab.rng.multinomial(B, np.full(d, 1 / d), size=(N - 1, lab.reps)) / B
        e = at_root / np.sqrt(d * B) * lab.rng.standard_normal((N - 1, lab.reps, d))
        case = Case("coordinates", lambda x: L / d * x, np.full(d, D / np.sqrt(d)), np.zeros(d))

        def answer(k: int, x: Array, counts: Array = counts, e: Array = e) -> Array:
            return L * counts[k] * x + e[k]

        x = _end(lab, case, N, answer)
        bound = bounds.multiplicative_noise(N, case.step_size, L, D, at_root, B)
        yield mean_at_most(f"{case.name}, N = {N}, B = {B}, sigma_* = {at_root:g}", square(case.F(x)), bound)


@checks(INEQUALITY, bounds.batch_cocoercivity)
def batch_cocoercivity(lab: Lab) -> Iterator[Finding]:
    """E|F_B x - F_B y|^2 <= L_B <Fx - Fy, x - y>, L_B = L/B + (1 - 1/B) L_F, by going through all batches."""
    d = 3
    vectors = lab.rng.normal(size=(4, d))
    components = {
        "coordinates": np.array([np.outer(u, u) for u in np.eye(d)]),
        "projections": np.array([np.outer(u, u) / (u @ u) for u in vectors]),
    }
    apart_by = lab.rng.normal(size=(200, d))
    for name, A in components.items():
        mean = A.mean(axis=0)
        L_mean = float(np.linalg.eigvalsh(mean)[-1])
        for B in (1, 2, 4):
            batches = (sum(A[i] for i in chosen) / B for chosen in product(range(len(A)), repeat=B))
            value = np.mean([square(apart_by @ batch) for batch in batches], axis=0)
            bound = bounds.batch_cocoercivity(B, 1.0, L_mean) * inner(apart_by @ mean, apart_by)
            yield at_most(f"{name}, B = {B}", value, bound)


@checks(INEQUALITY, bounds.sgda_average)
def sgda_average(lab: Lab) -> Iterator[Finding]:
    """SGDA: the mean of E|F(x_k)|^2 over k < K is at most (D^2/K + a^2 sigma^2/B)/(a(2/L - a))."""
    for case, K in ((scalar(step_size=0.1), 60), (scalar(step_size=1.0), 20), (spiral(), 40)):
        e = case.noise(lab.rng, K - 1, lab.reps, SIGMA / np.sqrt(2))
        x = follow(SGDA(case.step_size), noisy(case.F, e), case.start(lab.reps), K - 1).x
        values = np.mean([square(case.F(x_k)) for x_k in x], axis=0)
        bound = bounds.sgda_average(K, case.step_size, case.L, case.D, SIGMA, 2)
        yield mean_at_most(f"{case.name}, a = {case.step_size:g}, K = {K}", values, bound)


@checks(INEQUALITY, bounds.averaged_affine)
def averaged_affine(lab: Lab) -> Iterator[Finding]:
    """Affine F: E|F(mean)|^2 <= 16/(n+1)^2 (D^2/a^2 + n sigma^2/B) for weights 1 .. n, 4/n^2 (..) for equal ones."""
    for case, n in ((scalar(step_size=2.0), 30), (scalar(step_size=0.5), 40), (spiral(), 40)):
        e = case.noise(lab.rng, n, lab.reps, SIGMA / np.sqrt(2))
        y = follow(SGDA(case.step_size), noisy(case.F, e), case.start(lab.reps), n).x[1:]
        for weights, w in (("linear", np.arange(1, n + 1.0)), ("uniform", np.ones(n))):
            mean = np.einsum("k,kij->ij", w / w.sum(), np.asarray(y))
            bound = bounds.averaged_affine(n, case.step_size, case.D, SIGMA, 2, weights=weights)
            yield mean_at_most(f"{case.name}, a = {case.step_size:g}, {weights} weights", square(case.F(mean)), bound)


# -- the certificate ---------------------------------------------------------------------------------------------


@checks(IDENTITY, name="Debiased residual", source=OURS)
def debiased_residual(lab: Lab) -> Iterator[Finding]:
    """E[|g|^2 - tr(S)/n] = |F(x)|^2, with variance 4 f'Sf/n + 2 tr(S^2)/(n(n-1))."""
    d, samples = 6, 64
    for name, at in (("far from the root", 1.0), ("at the root", 0.0)):
        x = np.full((lab.runs * 2, d), at)
        streams = Streams(lab.seed, np.arange(len(x)), Purpose.CERTIFICATE, dimension=d)
        F = Session(AdditiveNoise(lambda x: 0.5 * x, 3.0, vectorized=True), streams)
        U = debiased_squared_residual(F, x, samples)
        truth = d * (0.5 * at) ** 2
        group = 9.0 / d * GROUPS / samples  # the variance of a coordinate of a group's mean
        variance = 4 * truth * group / GROUPS + 2 * d * group**2 / (GROUPS * (GROUPS - 1))
        yield mean_equal(f"{name}, mean", U, truth)
        yield mean_equal(f"{name}, variance", (U - truth) ** 2, variance)


def _end(lab: Lab, case: Case, N: int, answer: Answer) -> Array:
    """Where Dual-OHM ends."""
    return follow(lab.dual(step_size=case.step_size, horizon=N), answer, case.start(lab.reps)).x[-1]
