"""Statements beyond the paper: Theorems A, B and C and what follows from them."""

from itertools import product

import numpy as np

from dualanchor.advise.certify import certificate_from_session
from dualanchor.core.schedule import Tapered
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.methods.sgda import SGDA
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.paper.verify import operators as on
from dualanchor.paper.verify.check import (
    Lab,
    Measurements,
    at_most,
    identity,
    inequality,
    mean_at_most,
    mean_equal,
    rate,
)
from dualanchor.paper.verify.operators import SIGMA, Case, Operator, inner, noisy, square
from dualanchor.paper.verify.paper import cross_terms, leave_one_out
from dualanchor.run import solve
from dualanchor.theory import bounds
from dualanchor.theory.bounds import OURS
from dualanchor.theory.step_tables import follow
from dualanchor.theory.weights import root_sum


def tapered(C: float, N: int) -> Array:
    """The sizes of tapered batches."""
    return np.asarray(Tapered(C).size(np.arange(N - 1), N))


_SHARP = "E|x_k - x_k^(s)|^2 <= a^2 sigma^2/(2B) (1 + (N-k)(N-k-1)/((N-s)(N-s-1)))^2."
_HALVED = "E<e_{j-1}, T x_{N-1}> <= a sigma^2/(2B): half of Lemma 4.4, because batches can be exchanged."
inequality(bounds.leave_one_out_sharp, formula=_SHARP)(lambda lab: leave_one_out(lab, bounds.leave_one_out_sharp))
inequality(name="Cross term, halved", source=OURS, formula=_HALVED)(lambda lab: cross_terms(lab, 0.5))


@inequality(bounds.theorem_a)
def theorem_a(lab: Lab) -> Measurements:
    """E|F(x_{N-1})|^2 <= (A + sqrt(A^2 + W))^2, A = D/(aN), W = 2 sum_k sigma^2/(B_k (N-k)(N-k-1)), any sizes B_k."""
    last, mixed = np.array([10_000] * 10 + [1]), np.array([5, 1, 9, 2, 30, 1, 1, 4, 2, 8, 3])
    fold = Case("T = |x|", lambda x: x - np.abs(x), np.full(4, -0.05))  # from where it folds
    for case, name, sizes in (
        (on.flip(16), "noise last", last),
        (on.flip(16), "mixed sizes", mixed),
        (on.turn(12, D=3.0), "mixed sizes", mixed),
        (on.flip(16), "tapered", tapered(20.0, 40)),
        (on.reflections(), "tapered", tapered(20.0, 40)),
        (fold, "mixed sizes", mixed),
        (on.location(), "tapered", tapered(20.0, 25)),
    ):
        bound = bounds.theorem_a(case.step_size, case.D, case.sigma, sizes)
        yield mean_at_most(f"{case.name}, {name}", lab.dual_squares(case, sizes), bound)


@inequality(bounds.theorem_a, name="Theorem A, small steps")
def theorem_a_small_steps(lab: Lab) -> Measurements:
    """The same with W = 2 sum_k kappa_{N-k} sigma^2/(B_k (N-k)(N-k-1)), kappa_m = min(1, aL(2m-1)/6)."""
    for tau in (1.0, 0.4, 0.1):
        for name, sizes in (("noise last", np.array([10_000] * 10 + [1])), ("B = 2", np.full(11, 2))):
            case = Case(f"F(x) = Lx, a = {tau:g}/L, {name}", lambda x: 2 * x, np.zeros(16), step_size=tau / 2)
            bound = bounds.theorem_a(case.step_size, 0.0, SIGMA, sizes, tau=tau)
            yield mean_at_most(case.name, lab.dual_squares(case, sizes), bound)


@inequality(bounds.theorem_a_constant)
def theorem_a_constant(lab: Lab) -> Measurements:
    """With a constant batch W = 2(1 - 1/N) sigma^2/B."""
    for case, N in ((on.flip(16), 2), (on.flip(16), 40), (on.turn(24, D=5.0), 24), (on.reflections(), 24)):
        bound = bounds.theorem_a_constant(N, case.step_size, case.D, SIGMA, 3)
        yield mean_at_most(f"{case.name}, N = {N}", lab.dual_squares(case, np.full(N - 1, 3)), bound)


@inequality(bounds.theorem_a, name="Theorem A, affine")
def theorem_a_affine(lab: Lab) -> Measurements:
    """For affine F, E|F(x_{N-1})|^2 <= 4A^2 + W, without A2."""
    for case, N in ((on.flip(16), 2), (on.turn(24, D=12.0), 24)):
        sizes = np.full(N - 1, 3)
        bound = bounds.theorem_a(case.step_size, case.D, SIGMA, sizes, affine=True)
        yield mean_at_most(f"{case.name}, N = {N}", lab.dual_squares(case, sizes), bound)
    case, N = on.turn(12, D=0.5), 12
    e = case.noise(lab.rng, N - 1, lab.reps, SIGMA / np.sqrt(3))
    # noise of variance sigma^2 everywhere, and not cocoercive in expectation
    x = lab.dual_end(case, N, lambda k, x: case.F(x) + e[k] * np.sign(x))
    bound = bounds.theorem_a(case.step_size, case.D, SIGMA, np.full(N - 1, 3), affine=True)
    yield mean_at_most(f"{case.name}, jumping noise", square(case.F(x)), bound)


@rate(bounds.theorem_b_samples)
def theorem_b(lab: Lab) -> Measurements:
    """Tapered batches reach eps in N - 1 + 2 sigma^2 H_N^2/(eps^2 (1 - 2D/(a eps N))) samples."""
    for case in (on.flip(16, D=1.0), on.turn(40)):
        values, samples, allowed = [], [], []
        for eps in (0.5, 0.25, 0.125):
            N = 2 * int(np.ceil(2 * case.D / (case.step_size * eps)))
            C = 2 * SIGMA**2 * float(root_sum(N)) / (eps * (eps - 2 * case.D / (case.step_size * N)))
            method = lab.dual(step_size=case.step_size, horizon=N, batch_size=Tapered(C))
            result = solve(case.problem(), method, reps=lab.runs, seed=lab.seed, record=0)
            values.append(result.residual**2 / eps**2)
            samples.append(np.max(result.nfev))
            allowed.append(bounds.theorem_b_samples(eps, N, case.step_size, case.D, SIGMA))
        yield mean_at_most(f"{case.name}, |F|^2/eps^2", np.transpose(values), 1.0)
        yield at_most(f"{case.name}, samples", samples, allowed)


@inequality(bounds.theorem_c_distance, bounds.theorem_c)
def theorem_c(lab: Lab) -> Measurements:
    """E|x_k - x*|^2 <= D^2 (1 - (1-rho)R_k) + a^2 sigma^2/B R_k for every k, and L^2 times that for E|F(x_k)|^2."""
    for case in (on.scalar(), on.spiral()):
        for N, steps in ((np.inf, 30), (40, 39)):
            method = SGDA(case.step_size) if np.isinf(N) else lab.dual(step_size=case.step_size, horizon=N)
            x = lab.path(case, method, 2, steps)[0][1:]
            given = (np.arange(1, steps + 1), case.step_size, case.L, case.mu, case.D, SIGMA, 2)
            name = f"{case.name}, N = {N:g}"
            yield mean_at_most(f"{name}, distance", square(x).T, bounds.theorem_c_distance(*given, N=N))
            residuals = np.transpose([square(case.F(x_k)) for x_k in x])
            yield mean_at_most(f"{name}, residual", residuals, bounds.theorem_c(*given, N=N))


@inequality(bounds.restart)
def restart(lab: Lab) -> Measurements:
    """One epoch from a point with E|F|^2 = r^2: Theorem A with D = r/mu, |F(x)| >= mu dist(x, roots)."""
    sharp, spiral, sizes = on.turn(24), on.spiral(), tapered(30.0, 48)
    slowest = np.cos(np.pi * np.arange(24) / 24 + 0.3)  # where |F(x)| = mu |x|, mu = 2 sin(pi/48)
    mu = 2 * np.sin(np.pi / 48)
    for name, case, modulus, x0 in (
        (f"{sharp.name}, slowest start", sharp, mu, np.tile(slowest / np.linalg.norm(slowest), (lab.runs, 1))),
        (f"{sharp.name}, random start", sharp, mu, lab.rng.normal(size=(lab.runs, 24))),
        (spiral.name, spiral, spiral.mu, lab.rng.normal(size=(lab.runs, 2))),
    ):
        r = np.sqrt(square(case.F(x0)).mean())
        bound = bounds.restart(r, 48, case.step_size, modulus, bounds.noise_term(sizes, SIGMA))
        yield mean_at_most(name, lab.dual_squares(case, sizes, x0), bound)


@inequality(bounds.drift)
def drift(lab: Lab) -> Measurements:
    """E|x_k - x*|^2 <= D^2 + k(2N-k-1)/(2N) a^2 sigma^2/B for every k."""
    for case in (on.still(), on.flip(D=1.0), on.turn(40), on.reflections()):
        x = lab.dual_path(case, 40, 2)[0][1:]
        bound = bounds.drift(40, np.arange(1, 40), case.step_size, case.D, SIGMA, 2)
        yield mean_at_most(case.name, square(x - case.root).T, bound)


@inequality(bounds.drift_at_end)
def drift_at_end(lab: Lab) -> Measurements:
    """E|x_{N-1} - x*|^2 <= D^2 + a^2/2 sum_k sigma^2/B_k for any sizes B_k."""
    sizes = tapered(20.0, 40)
    for case in (on.still(16), on.flip(16), on.turn(40), on.reflections()):
        method = lab.dual(step_size=case.step_size, horizon=40, batch_size=Tapered(20.0))
        x = solve(case.problem(), method, reps=lab.runs, seed=lab.seed, record=0).x
        yield mean_at_most(case.name, square(x - case.root), bounds.drift_at_end(case.step_size, case.D, SIGMA, sizes))


@inequality(bounds.anytime_stage)
def anytime_stage(lab: Lab) -> Measurements:
    """Stages N_j = 2^j N_0 from where the last one ended: E|F|^2 <= (P_j + sqrt(P_j^2 + 2 sigma^2/b))^2/N_j^2."""
    case = on.turn(40)
    a, b = case.step_size, 0.25 / case.D**2
    for kind in ("constant", "tapered"):
        x, far, values, allowed = case.start(lab.runs), case.D**2, [], []
        for j, N in enumerate((8, 16, 32, 64)):
            constant = np.full(N - 1, int(np.ceil(b * N**2)))
            sizes = tapered(b * N**2 * float(root_sum(N)), N) if kind == "tapered" else constant
            method = lab.dual(step_size=a, horizon=N, batch_size=sizes.tolist())
            result = solve(case.problem(), method, reps=lab.runs, seed=lab.seed + j, x0=x, record=0)
            values.append(result.residual**2)
            allowed.append(bounds.anytime_stage(N, a, np.sqrt(far), SIGMA, b))
            x, far = result.x, bounds.drift_at_end(a, np.sqrt(far), SIGMA, sizes)
        yield mean_at_most(f"{case.name}, {kind} batches", np.transpose(values), allowed)


@inequality(bounds.composite)
def composite(lab: Lab) -> Measurements:
    """0 in F(x) + G(x), z_0 = x_0 - a F_{B_0}(x_0): Theorem A with D^2 + a^2 sigma^2/B_0 for |z_0 - z*|^2."""
    N, first, a, d = 16, 4, 2.0, 8
    x0 = np.full((lab.reps, d), -0.5)
    for name, c in (("x - c on a box, c outside", 2.0), ("x - c on a box, c inside", 0.3)):
        e = SIGMA / np.sqrt(d) * lab.rng.standard_normal((N, lab.reps, d))

        def lifted(z: Array, c: float = c) -> Array:
            x = np.clip(z, -1, 1)  # the resolvent of the box
            return (z - x) / a + x - c

        z0 = x0 - a * (x0 - c + e[N - 1] / np.sqrt(first))
        z = follow(lab.dual(step_size=a, horizon=N), noisy(lifted, e / np.sqrt(3)), z0).x[-1]
        D = float(np.sqrt(square(x0[0] - np.clip(c, -1, 1))))
        yield mean_at_most(name, square(lifted(z)), bounds.composite(a, D, SIGMA, np.full(N - 1, 3), first))


def _biased(lab: Lab, case: Case, N: int, bias: Operator) -> Array:
    """|F|^2 at the end of Dual-OHM with batches of 3 samples, whose mean is off by bias(x)/sqrt(d)."""
    e, unit = case.noise(lab.rng, N - 1, lab.reps, SIGMA / np.sqrt(3)), 1 / np.sqrt(case.x0.size)
    return square(case.F(lab.dual_end(case, N, lambda k, x: case.F(x) + unit * bias(x) + e[k])))


@inequality(bounds.model_bias)
def model_bias(lab: Lab) -> Measurements:
    """Samples of F~ with |F~ - F| <= beta: E|F(x_{N-1})|^2 <= (beta + A_b + sqrt(A_b^2 + W + 2 beta A' + beta^2))^2."""
    for case, beta in product((on.flip(D=1.0), on.turn(24), on.reflections()), (0.05, 1.0)):
        values = _biased(lab, case, 24, lambda x, b=beta: np.full_like(x, -b))  # type: ignore[misc]
        bound = bounds.model_bias(case.step_size, case.D, SIGMA, np.full(23, 3), beta)
        yield mean_at_most(f"{case.name}, beta = {beta:g}", values, bound)


@inequality(bounds.any_bias)
def any_bias(lab: Lab) -> Measurements:
    """A bias field of norm beta on top: E|F(x_{N-1})|^2 <= (Theorem A's root + aL/2 (N-1) beta)^2."""
    for case in (on.flip(D=1.0), on.turn(12), on.reflections()):
        bound = bounds.any_bias(case.step_size, case.L, case.D, SIGMA, np.full(11, 3), 0.2)
        yield mean_at_most(case.name, _biased(lab, case, 12, lambda x: 0.2 * np.sign(x)), bound)


@inequality(bounds.multiplicative_noise)
def multiplicative_noise(lab: Lab) -> Measurements:
    """Noise bounded at the root only: Theorem A with sigma^2 -> 2 sigma_*^2 + L^2 G/2, if (N-1)a^2L^2 < 4B."""
    d, L, D = 8, 2.0, 1.0
    case = Case("coordinates", lambda x: L / d * x, np.full(d, D / np.sqrt(d)))
    for N, B, at_root in ((4, 16, 0.0), (4, 16, 1.0), (8, 64, 1.0)):
        counts = lab.rng.multinomial(B, np.full(d, 1 / d), size=(N - 1, lab.reps)) / B
        e = at_root / np.sqrt(d * B) * lab.rng.standard_normal((N - 1, lab.reps, d))
        x = lab.dual_end(case, N, lambda k, x, counts=counts, e=e: L * counts[k] * x + e[k])  # type: ignore[misc]
        bound = bounds.multiplicative_noise(N, case.step_size, L, D, at_root, B)
        yield mean_at_most(f"{case.name}, N = {N}, B = {B}, sigma_* = {at_root:g}", square(case.F(x)), bound)


@inequality(bounds.batch_cocoercivity)
def batch_cocoercivity(lab: Lab) -> Measurements:
    """E|F_B x - F_B y|^2 <= L_B <Fx - Fy, x - y>, L_B = L/B + (1 - 1/B) L_F, by going through all batches."""
    vectors, apart = lab.rng.normal(size=(4, 3)), lab.rng.normal(size=(200, 3))
    for name, units in (("coordinates", np.eye(3)), ("projections", vectors)):
        A = np.array([np.outer(u, u) / (u @ u) for u in units])
        mean = A.mean(axis=0)
        L_mean = float(np.linalg.eigvalsh(mean)[-1])
        for B in (1, 2, 4):
            batches = (sum(A[i] for i in chosen) / B for chosen in product(range(len(A)), repeat=B))
            value = np.mean([square(apart @ batch) for batch in batches], axis=0)
            bound = bounds.batch_cocoercivity(B, 1.0, L_mean) * inner(apart @ mean, apart)
            yield at_most(f"{name}, B = {B}", value, bound)


@inequality(bounds.sgda_average)
def sgda_average(lab: Lab) -> Measurements:
    """SGDA: the mean of E|F(x_k)|^2 over k < K is at most (D^2/K + a^2 sigma^2/B)/(a(2/L - a))."""
    for case, K in ((on.scalar(step_size=0.1), 60), (on.scalar(step_size=1.0), 20), (on.spiral(), 40)):
        x, _ = lab.path(case, SGDA(case.step_size), 2, K - 1)
        values = np.mean([square(case.F(x_k)) for x_k in x], axis=0)
        bound = bounds.sgda_average(K, case.step_size, case.L, case.D, SIGMA, 2)
        yield mean_at_most(f"{case.name}, a = {case.step_size:g}, K = {K}", values, bound)


@inequality(bounds.averaged_affine)
def averaged_affine(lab: Lab) -> Measurements:
    """Affine F: E|F(mean)|^2 <= 16/(n+1)^2 (D^2/a^2 + n sigma^2/B) for weights 1 .. n, 4/n^2 (..) for equal ones."""
    for case, n in ((on.scalar(step_size=2.0), 30), (on.scalar(step_size=0.5), 40), (on.spiral(), 40)):
        y = lab.path(case, SGDA(case.step_size), 2, n)[0][1:]
        for weights, w in (("linear", np.arange(1, n + 1.0)), ("uniform", np.ones(n))):
            mean = np.tensordot(w / w.sum(), y, 1)
            bound = bounds.averaged_affine(n, case.step_size, case.D, SIGMA, 2, weights=weights)
            yield mean_at_most(f"{case.name}, a = {case.step_size:g}, {weights} weights", square(case.F(mean)), bound)


@identity(name="Debiased residual", source=OURS)
def debiased_residual(lab: Lab) -> Measurements:
    """E[|g|^2 - tr(S)/n] = |F(x)|^2, with variance 4 f'Sf/n + 2 tr(S^2)/(n(n-1))."""
    d, groups, size = 6, 32, 2
    for name, at in (("far from the root", 1.0), ("at the root", 0.0)):
        x = np.full((lab.runs * 2, d), at)
        streams = Streams(lab.seed, np.arange(len(x)), Purpose.CERTIFICATE, dimension=d)
        F = Session(AdditiveNoise(lambda x: 0.5 * x, 3.0, vectorized=True), streams)
        U = certificate_from_session(F, x, groups * size).squared
        truth = d * (0.5 * at) ** 2
        group = 9.0 / (d * size)  # the variance of a coordinate of a group's mean
        variance = 4 * truth * group / groups + 2 * d * group**2 / (groups * (groups - 1))
        yield mean_equal(f"{name}, mean", U, truth)
        yield mean_equal(f"{name}, variance", (U - truth) ** 2, variance)
