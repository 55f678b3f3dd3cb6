"""The statements that the tests check, as functions of the class they are checked on.

Each raises AssertionError where its statement fails, so that `test_mutants.py` can show that it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tests.lemmas.trajectory import Nonexpansive, Path, Wild, assert_zero, exact, follow, norm

import dualanchor as da
from dualanchor import Session, Streams
from dualanchor.paper.verify.operators import scalar, turn
from dualanchor.paper.verify.paper import anchor_identity_error, gain, lemma_4_2_error, lemma_a1_error
from dualanchor.theory import step_tables

Make = Callable[..., da.Method]


# -- weights, as the paper writes them -------------------------------------------------------------------------


def dual_weights(N: int, alpha: Any) -> list[Any]:
    """lambda_{N,j} of Lemma 4.2 for j = 1 .. N - 1."""
    return [N * alpha / (2 * (N - j) * (N - j + 1)) for j in range(1, N)]


def anchor_weights(N: int, alpha: Any) -> list[Any]:
    """nu_{j+1,j} of S-OHM's identity for j = 1 .. N - 1."""
    return [alpha * j * (j + 1) / (2 * N) for j in range(1, N)]


def convex_weights(N: int, k: int) -> list[float]:
    """w_{k,t} of Lemma A.1 for t = 0 .. k - 1."""
    return [1 / ((N - t - 1) * (N - t)) for t in range(k - 1)] + [(N - k) / (N - k + 1)]


# -- identities along one path: any operator, any noise --------------------------------------------------------


def lemma_4_2(make: Make, case: Wild, last: np.ndarray | None = None) -> None:
    """Lemma 4.2 with F_N = F(x_{N-1}). The proof only calls F_N "G_N": it holds for any vector `last` in its place."""
    _identity(lemma_4_2_error, make, case, last)


def anchor_identity(make: Make, case: Wild, last: np.ndarray | None = None) -> None:
    """S-OHM's companion of Lemma 4.2, with the true F(x_{N-1}) or any vector as F_N."""
    _identity(anchor_identity_error, make, case, last)


def _identity(error: Callable[..., np.ndarray], make: Make, case: Wild, last: np.ndarray | None) -> None:
    x, G, *_ = follow(make(step_size=case.alpha, horizon=case.N), case.answer, case.x0)
    F_N = case.operator(x[-1]) if last is None else last
    assert_zero(error(x, G, F_N, case.alpha), 1.0, error.__name__)


def convex_representation(make: Make, case: Wild) -> None:
    """Lemma A.1: x_k = x_0/N + sum_t w_{k,t} T_{B_t}(x_t) for k = 1 .. N - 1."""
    x, G, *_ = follow(make(step_size=case.alpha, horizon=case.N), case.answer, case.x0)
    assert_zero(lemma_a1_error(x, G, case.alpha), 1.0, "Lemma A.1", 1e-12)


def update_by_differences(make: Make, case: Wild) -> None:
    """The paper's form: x_{k+1} = x_k + (N-k-1)/(N-k) (T_k - T_{k-1}), T_{-1} = x_0."""
    N, alpha = case.N, case.alpha
    x, G, *_ = follow(make(step_size=alpha, horizon=N), case.answer, case.x0)
    T = np.concatenate([x[:1], x[:-1] - alpha * G])
    for k in range(N - 1):
        scale = (np.abs(x[: k + 1]) + alpha * np.abs(G[: k + 1])).max()
        expected = x[k] + (N - k - 1) / (N - k) * (T[k + 1] - T[k])
        assert_zero(x[k + 1] - expected, scale, f"the update by differences at k = {k}", 1e-12)


def update_by_anchor(make: Make, case: Wild) -> None:
    """S-OHM's form: x_{k+1} = x_0/(k+2) + (k+1)/(k+2) T_k."""
    alpha = case.alpha
    x, G, *_ = follow(make(step_size=alpha, horizon=case.N), case.answer, case.x0)
    for k in range(case.N - 1):
        expected = x[0] / (k + 2) + (k + 1) / (k + 2) * (x[k] - alpha * G[k])
        scale = (np.abs(x[0]) + np.abs(x[k]) + alpha * np.abs(G[k])).max()
        assert_zero(x[k + 1] - expected, scale, f"the anchored update at k = {k}", 1e-13)


def convex_weights_of(make: Make, N: int, alpha: float) -> np.ndarray:
    """Row k: the weights of x_0, T_0 .. T_{N-2} in x_k, read off by prescribing the values of T as unit vectors."""
    unit = np.eye(N)
    x = follow(make(step_size=alpha, horizon=N), lambda k, x: (x - unit[k + 1]) / alpha, unit[:1]).x
    return x[:, 0]


def anti_transpose(make_anchor: Make, make_dual: Make, N: int, alpha: float) -> None:
    """Transposed about its anti-diagonal, OHM's step table is Dual-OHM's."""
    anchor, dual = (step_tables.step_table(make(step_size=alpha, horizon=N)) for make in (make_anchor, make_dual))
    assert_zero(dual - step_tables.anti_transpose(anchor), 1.0, "H-duality", 1e-13)


# -- nonexpansive maps -----------------------------------------------------------------------------------------


def same_endpoint(make_anchor: Make, make_dual: Make, case: Nonexpansive) -> None:
    """On affine maps without noise OHM and Dual-OHM end at the same point."""
    ends = [
        follow(make(step_size=case.alpha, horizon=case.N), exact(case.operator), case.x0).x[-1]
        for make in (make_anchor, make_dual)
    ]
    assert_zero(ends[0] - ends[1], np.max(case.D + norm(case.root)), "the common end point", 1e-12)


def deterministic_rate(make: Make, case: Nonexpansive) -> None:
    """Proposition 3.3: |F(y_{N-1})| <= 2D/(alpha N)."""
    y = follow(make(step_size=case.alpha, horizon=case.N), exact(case.operator), case.x0).x[-1]
    bound = 2 * case.D / (case.alpha * case.N)
    rounding = 1e-13 * (case.D + norm(case.root)) / case.alpha
    assert (norm(case.operator(y)) <= bound + rounding).all(), "Proposition 3.3"


def rate_is_attained(make: Make, N: int, alpha: float) -> None:
    """On the worst-case operator of dimension N the residual is 2D/(alpha N), neither more nor less.

    F = (I - T)/alpha, T the turn that sends x_i to x_{i+1} and -x_N to x_1, about (1, .., 1)/sqrt(N), from 0; D = 1.
    """
    y = follow(make(step_size=alpha, horizon=N), exact(cyclic(N, alpha)), np.zeros((1, N))).x[-1]
    residual = norm(cyclic(N, alpha)(y))[0]
    assert_zero(residual - 2 / (alpha * N), 1 / alpha, f"2D/(alpha N) with N = {N}", 1e-12)


def cyclic(d: int, alpha: float, root: float | None = None) -> Callable[[np.ndarray], np.ndarray]:
    """(I - T)/alpha with T the cyclic shift of R^d whose d-th power is -I, about a constant vector."""
    center = 1 / np.sqrt(d) if root is None else root

    def operator(x: np.ndarray) -> np.ndarray:
        y = x - center
        return (y - np.concatenate([-y[:, -1:], y[:, :-1]], axis=1)) / alpha

    return operator


def leave_one_out(make: Make, case: Nonexpansive, s: int, by_component: bool) -> None:
    """Lemma A.2 along one path: another batch s moves x_k by at most c/2 (1 + r_k), c the change of T_{B_s}(x_s).

    r_k = (N-k)(N-k-1)/((N-s)(N-s-1)). Taking squares and means, with E c^2 <= 2 alpha^2 sigma^2/B, gives the lemma,
    since ((1 + r)/2)^2 <= (1 + r)/2. Batches are additive noise, or the choice of one of two nonexpansive components.
    """
    N, alpha = case.N, case.alpha
    other = replace(case, seed=case.seed + 1)

    def answer(changed: bool) -> Callable[[int, np.ndarray], np.ndarray]:
        def of(k: int, x: np.ndarray) -> np.ndarray:
            number = N if changed and k == s else k
            if not by_component:
                return case.operator(x) + case.noise[number]
            return case.operator(x) if case.noise[number, 0, 0] > 0 else other.operator(x)

        return of

    make_one = make(step_size=alpha, horizon=N)
    one, two = (follow(make_one, answer(changed), case.x0) for changed in (False, True))
    assert np.array_equal(one.x[: s + 1], two.x[: s + 1])
    c = alpha * norm(one.G[s] - two.G[s])
    rounding = 1e-12 * np.abs(np.concatenate([one.x, two.x])).max() + 1e-12 * c
    for k in range(s + 1, N):
        r = (N - k) * (N - k - 1) / ((N - s) * (N - s - 1))
        moved = norm(one.x[k] - two.x[k])
        assert (moved <= c / 2 * (1 + r) + rounding).all(), f"Lemma A.2 at k = {k}, s = {s}"


def leave_one_out_is_attained(make: Make, N: int, s: int) -> None:
    """With T = I the change that Lemma A.2 allows is attained: c/2 (1 + r_k)."""
    noise = np.random.default_rng(N * N + s).normal(size=(N + 1, 1, 3))
    paths = [
        follow(make(step_size=1.0, horizon=N), lambda k, x, at=at: noise[at if k == s else k], np.zeros((1, 3)))
        for at in (s, N)
    ]
    c = norm(noise[s] - noise[N])[0]
    for k in range(s + 1, N):
        r = (N - k) * (N - k - 1) / ((N - s) * (N - s - 1))
        moved = norm(paths[0].x[k] - paths[1].x[k])[0]
        assert_zero(moved - c / 2 * (1 + r), c, f"equality in Lemma A.2 at k = {k}, s = {s}")


def tail_of_contraction(make: Make, case: Nonexpansive) -> None:
    """Lemma 4.7: |y_k - y_{N-1}| <= (1+g)/(1-g) g^k D for a g-contractive T."""
    y = follow(make(step_size=case.alpha, horizon=case.N), exact(case.operator), case.x0).x
    g = case.contraction
    for k in range(case.N):
        bound = (1 + g) / (1 - g) * g**k * case.D
        rounding = 1e-13 * (case.D + norm(case.root))
        assert (norm(y[k] - y[-1]) <= bound + rounding).all(), f"Lemma 4.7 at k = {k}"


# -- noise gains: the law of the residual under noise of variance 1 --------------------------------------------


def gain_on_the_turn(make: Make, N: int) -> float:
    """E|F(x_{N-1})|^2 for unit noise in each round where the powers of T are orthogonal, started at the root."""
    return gain(make, turn(N + 1, 0.0), N)


def gain_on_the_flip(make: Make, N: int) -> float:
    """The same for T = -I, F(x) = L x, alpha = 2/L, with L = 3."""
    return gain(make, scalar(3.0, step_size=2 / 3, D=0.0, d=1), N)


# -- the other methods against a literal loop ------------------------------------------------------------------


def dual_ohm_loop(make: Make, case: Nonexpansive) -> None:
    """The paper's update by differences of T, started from T_{-1} = x_0, with evaluations of its own."""
    alpha, N = case.alpha, case.N
    x, before = case.x0, case.x0
    for k in range(N - 1):
        T = x - alpha * _noisy(case, k, x)
        x, before = x + (N - k - 1) / (N - k) * (T - before), T
    method = make(step_size=alpha, horizon=N)
    _compare("Dual-OHM", x, follow(method, lambda k, x: _noisy(case, k, x), case.x0))


def ohm_loop(make: Make, case: Nonexpansive) -> None:
    """x_0/(k+2) + (k+1)/(k+2) T_k."""
    alpha, N = case.alpha, case.N
    x = case.x0
    for k in range(N - 1):
        x = case.x0 / (k + 2) + (k + 1) / (k + 2) * (x - alpha * _noisy(case, k, x))
    _compare("OHM", x, follow(make(step_size=alpha, horizon=N), lambda k, x: _noisy(case, k, x), case.x0))


def sgda_loop(make: Make, case: Nonexpansive) -> None:
    """x - alpha F_B(x)."""
    alpha = case.alpha
    x = case.x0
    for k in range(case.N):
        x = x - alpha * _noisy(case, k, x)
    _compare("SGDA", x, follow(make(step_size=alpha), lambda k, x: _noisy(case, k, x), case.x0, case.N))


def seg_loop(make: Make, case: Nonexpansive) -> None:
    """A half step with one batch, a step with another."""
    alpha, steps = case.alpha / 2, case.N // 2
    x = case.x0
    for k in range(steps):
        half = x - alpha * _noisy(case, 2 * k, x)
        x = x - alpha * _noisy(case, 2 * k + 1, half)
    _compare("SEG", x, follow(make(step_size=alpha), lambda k, x: _noisy(case, k, x), case.x0, steps))


def rain_loop(make: Make, case: Nonexpansive, anchor_weight: float, growth: float) -> None:
    """Extragradient on F + r_k with r_k(x) = lambda gamma (S_k x - m_k), sums written out."""
    eta, lam, gamma, steps = case.alpha / 4, anchor_weight / case.alpha, growth, case.N // 2
    z, S, m = case.x0, 0.0, np.zeros_like(case.x0)
    for k in range(steps):
        half = z - eta * (_noisy(case, 2 * k, z) + lam * gamma * (S * z - m))
        new = z - eta * (_noisy(case, 2 * k + 1, half) + lam * gamma * (S * half - m))
        S, m = S + (1 + gamma) ** k, m + (1 + gamma) ** k * z
        z = new
    method = make(step_size=eta, anchor_weight=lam, growth=gamma)
    _compare("RAIN", z, follow(method, lambda k, x: _noisy(case, k, x), case.x0, steps))


def halpern_page_loop(make: Make, case: Nonexpansive, same_samples: bool = True) -> None:
    """OHM's step with v_k: a fresh mean, or v_{k-1} plus a difference, the same samples at both points or not."""
    alpha, N = case.alpha, case.N
    coins = [True, *(case.noise[1:N, 0, 0] > 0)]
    x, before, v, drawn = case.x0, case.x0, np.zeros_like(case.x0), 0
    for k in range(N):
        if coins[k]:
            v = _noisy(case, drawn, x)
        else:
            v = v + _noisy(case, drawn, x)
            drawn += not same_samples
            v = v - _noisy(case, drawn, before)
        drawn += 1
        x, before = case.x0 / (k + 2) + (k + 1) / (k + 2) * (x - alpha * v), x
    _compare("Halpern-PAGE", x, follow(make(step_size=alpha), lambda k, x: _noisy(case, k, x), case.x0, N, coins))


def halpern_vr_finite_loop(make: Make, seed: int, steps: int) -> None:
    """lambda_k u_0 + (1 - lambda_k) u_k - eta G_k, lambda_k = 2/(k+4); full passes, or differences on b indices."""
    n, d, b, eta = 10, 4, 4, 0.2  # b = ceil(sqrt(n))
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d, d))
    A = np.einsum("nij,nkj->nik", A, A) / 10
    offsets, x0 = rng.normal(size=(n, d)), rng.normal(size=(1, d))
    coins = [True, True, *(rng.random(steps) < 0.3)]
    indices = Streams(seed, np.arange(1), dimension=d)

    def mean(x: np.ndarray, i: Any) -> np.ndarray:
        return (A[i] @ x[0] - offsets[i]).mean(axis=0)[None]

    u, before, G = x0, x0, np.zeros_like(x0)
    for k in range(steps):
        if coins[k]:
            G = mean(u, np.arange(n))
        else:
            i = indices.integers(n, b)[0]
            G = G + mean(u, i) - mean(before, i)
        u, before = 2 / (k + 4) * x0 + (1 - 2 / (k + 4)) * u - eta * G, u

    method = make(step_size=eta, components=n)
    F = Session(da.FiniteSum.linear(A, offsets), Streams(seed, np.arange(1), dimension=d))
    s = method.init(x0)
    for k in range(steps):
        method.step(k, s, F, np.array([coins[k]]))
    assert_zero(s.x - u, 1 + norm(x0).max(), "Halpern-VR-Finite against its loop", 1e-12)
    heads = sum(coins[:steps])
    assert (F.draws, F.evals) == ((steps - heads) * b, heads * n + (steps - heads) * 2 * b)


def page_shares_samples(make: Callable[..., Any], seed: int) -> None:
    """Additive noise cancels in a PAGE difference: v_k - v_{k-1} = F(x_k) - F(x_{k-1}) when the coin shows tails."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(6, 2, 3))
    method = da.OHM(step_size=1.0, estimator=make(big_batch=5, small_batch=2))
    F = Session(da.AdditiveNoise(np.sin, 1.0, vectorized=True), Streams(seed, np.arange(2), dimension=3))
    s = method.init(points[0])
    estimator = method.estimator_in_use
    before = None
    for k, x in enumerate(points):
        s.x = x
        v = estimator.estimate(k, s, F, None, np.full(2, k == 0))
        if before is not None:
            assert_zero(v - before - np.sin(x) + np.sin(points[k - 1]), 1.0, "noise left in a PAGE difference", 1e-13)
        before = v


def _noisy(case: Nonexpansive, k: int, x: np.ndarray) -> np.ndarray:
    """Noise that depends on the point, so that one batch at two points is not merely the same vector."""
    return case.operator(x) + case.noise[k] * (1 + 0.5 * np.sin(x - case.root)) / case.alpha


def _compare(name: str, x: np.ndarray, path: Path) -> None:
    # 1e-9: the noise is 3/2 Lipschitz at the most, so rounding may grow from step to step.
    assert_zero(path.x[-1] - x, 1 + np.abs(path.x).max(), f"{name} against its loop", 1e-9)
