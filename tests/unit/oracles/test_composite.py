"""The backward-forward oracle of an inclusion 0 in F(x) + G(x)."""

import json
from copy import copy
from functools import cache

import numpy as np
import pytest
from scipy import optimize
from tests.composites import InclusionProblem

import dualanchor as da
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose
from dualanchor.oracles.composite import Composite
from dualanchor.theory.bounds import composite_modulus, composite_strength

D, COMPONENTS = 4, 6
rng = np.random.default_rng(5)
TURN = np.kron(np.eye(2), np.array([[0.0, 1.0], [-1.0, 0.0]]))
SYMMETRIC = rng.normal(size=(COMPONENTS, D, 2))
MATRICES = SYMMETRIC @ SYMMETRIC.swapaxes(1, 2) + 0.3 * np.eye(D) + rng.normal(size=(COMPONENTS, 1, 1)) * TURN
OFFSETS = 3 * rng.normal(size=(COMPONENTS, D))
MEAN = MATRICES.mean(axis=0)
_root = np.linalg.inv(np.linalg.cholesky((MEAN + MEAN.T) / 2))
L = float(np.linalg.eigvalsh(_root @ np.mean(MATRICES.swapaxes(1, 2) @ MATRICES, axis=0) @ _root.T).max())
"""The smallest L with E|A_i x|^2 <= L <A x, x>."""
MU = float(np.linalg.eigvalsh((MEAN + MEAN.T) / 2).min())
STEP = 2 / L
K = 2.0 * TURN


def skew(z, step):
    return np.linalg.solve(np.eye(D) + step * K, z.T).T


PROXES = {
    "none": da.prox.none(),
    "box": da.prox.box(-0.2, 0.3),
    "simplex": da.prox.simplex(),
    "ball": da.prox.ball(0.5),
    "l1": da.prox.l1(1.5),
    "subspace": da.prox.affine_subspace(np.ones((1, D)), 1.0),
    "skew": skew,
    "point": da.prox.ball(0.0),
}
every = pytest.mark.parametrize("name", PROXES)
COMPONENT = [da.Batch(1, np.full((60, 1), i)) for i in range(COMPONENTS)]


def sums():
    return da.FiniteSum.linear(MATRICES, OFFSETS)


def F(x):
    return x @ MEAN.T - OFFSETS.mean(axis=0)


@cache
def solution(name):
    """A zero of the composite operator, by so many averaged steps that nothing is left."""
    z, prox = np.zeros((1, D)), PROXES[name]
    for _ in range(3000):
        x = prox(z, STEP)
        z = (z + x - STEP * F(x)) / 2
    return z


@every
def test_is_the_formula_and_unbiased(name):
    oracle, prox, z = Composite(sums(), PROXES[name], STEP), PROXES[name], 2 * rng.normal(size=(60, D))
    x = prox(z, STEP)
    values = np.array([oracle.mean(z, batch) for batch in COMPONENT])
    for i, value in enumerate(values):
        np.testing.assert_allclose(value, (z - x) / STEP + x @ MATRICES[i].T - OFFSETS[i], atol=1e-12)
    np.testing.assert_allclose(values.mean(axis=0), oracle.operator(z), atol=1e-12)
    np.testing.assert_array_equal(oracle.primal(z), x)


@every
@pytest.mark.parametrize("part", [1.0, 0.4])
def test_cocoercive_in_expectation_with_twice_over_the_step(name, part):
    """Assumption 3.2 with L = 2/step for every step up to 2/L, exactly: all components are gone through."""
    step = part * STEP
    oracle = Composite(sums(), PROXES[name], step)
    scale = 10 ** rng.uniform(-3, 1, size=(60, 1))
    z, w = scale * rng.normal(size=(2, 60, D))
    squares = np.mean([np.sum((oracle.mean(z, one) - oracle.mean(w, one)) ** 2, axis=1) for one in COMPONENT], axis=0)
    inner = np.sum((oracle.operator(z) - oracle.operator(w)) * (z - w), axis=1)
    assert (squares <= 2 / step * inner + 1e-12).all()


def test_a_longer_step_is_not_cocoercive():
    """In the direction in which L is attained, a step of 2.2/L breaks the assumption."""
    moments = _root @ np.mean(MATRICES.swapaxes(1, 2) @ MATRICES, axis=0) @ _root.T
    worst = np.tile(_root.T @ np.linalg.eigh(moments)[1][:, -1], (60, 1))
    for factor, fails in ((1.0, False), (1.1, True)):
        oracle, zero = Composite(sums(), da.prox.none(), factor * STEP), np.zeros((60, D))
        squares = np.mean([np.sum((oracle.mean(worst, c) - oracle.mean(zero, c)) ** 2, axis=1) for c in COMPONENT])
        inner = np.sum((oracle.operator(worst) - oracle.operator(zero)) * worst, axis=1)[0]
        assert (squares > 2 / (factor * STEP) * inner * (1 + 1e-9)) == fails


@every
def test_zeros_are_solutions_shifted_by_a_step(name):
    oracle, prox = Composite(sums(), PROXES[name], STEP), PROXES[name]
    z = solution(name)
    np.testing.assert_allclose(oracle.operator(z), 0.0, atol=1e-10)
    x = oracle.primal(z)
    np.testing.assert_allclose(z, x - STEP * F(x), atol=1e-10)
    np.testing.assert_allclose(prox(x - 0.3 * STEP * F(x), 0.3 * STEP), x, atol=1e-9)  # solves it for every step


def test_a_solution_found_otherwise_is_a_zero():
    """Least squares on a box, by SciPy: the gradient of |Ax - b|^2/2 with bounds."""
    A, b = rng.normal(size=(8, D)), rng.normal(size=8)
    x = optimize.lsq_linear(A, b, (-0.1, 0.1), tol=1e-14).x
    step = 1 / np.linalg.norm(A, 2) ** 2
    gradient = da.AdditiveNoise(lambda y: A.T @ (A @ y - b))
    oracle = Composite(gradient, da.prox.box(-0.1, 0.1), step)
    np.testing.assert_allclose(oracle.operator((x - step * (A.T @ (A @ x - b)))[None]), 0.0, atol=1e-6)


@every
def test_what_the_residual_certifies(name):
    """The natural residual is smaller, and the gap is at most the residual times the diameter."""
    oracle, prox = Composite(sums(), PROXES[name], STEP), PROXES[name]
    z = 3 * rng.normal(size=(60, D))
    x, residual = oracle.primal(z), np.linalg.norm(oracle.operator(z), axis=1)
    natural = np.linalg.norm(x - prox(x - STEP * F(x), STEP), axis=1) / STEP
    assert (natural <= residual * (1 + 1e-9) + 1e-12).all()
    width = None if name == "skew" else prox.diameter(D)
    if width:
        others = prox(5 * rng.normal(size=(500, D)), STEP)
        gap = np.max(np.sum(F(x)[:, None] * (x[:, None] - others), axis=2), axis=1)
        assert (gap <= residual * width + 1e-9).all()


@every
def test_moduli_of_a_strongly_monotone_operator(name):
    """|z - z*| <= |F~(z)|/mu~, and F~ is strongly monotone with the constant that is declared."""
    oracle, star = Composite(sums(), PROXES[name], STEP), solution(name)
    scale = 10 ** rng.uniform(-3, 1, size=(60, 1))
    z, w = star + scale * rng.normal(size=(60, D)), star + scale * rng.normal(size=(60, D))
    residual = np.linalg.norm(oracle.operator(z), axis=1)
    assert (np.linalg.norm(z - star, axis=1) <= residual / composite_modulus(STEP, MU) * (1 + 1e-8)).all()
    mu = composite_strength(STEP, MU)
    assert 0.19 * MU <= mu <= composite_modulus(STEP, MU) <= MU
    inner = np.sum((oracle.operator(z) - oracle.operator(w)) * (z - w), axis=1)
    assert (inner >= mu * np.sum((z - w) ** 2, axis=1) * (1 - 1e-9)).all()


def rotated(beta, psi):
    """T = rotation by pi - beta, step 1 (so L = 2, mu = 1 + cos beta), and the resolvent of a skew G turned by psi."""
    turn = lambda angle: np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])  # noqa: E731
    T, J = turn(np.pi - beta), np.cos(psi) * turn(-psi)
    return da.AdditiveNoise(lambda x: x - T @ x), lambda z, step: z @ J.T


def test_mu_itself_would_be_wrong_in_both_places():
    """G = N_{0}: |z - z*| is exactly step |F~(z)|, more than |F~(z)|/mu where mu = L; and with rotations F~ is less
    than mu~-strongly monotone."""
    oracle = Composite(da.AdditiveNoise(lambda x: 2.0 * x + 1.0), da.prox.ball(0.0), 1.0)
    z, star = rng.normal(size=(9, 1)), np.array([[-1.0]])
    np.testing.assert_allclose(np.abs(z - star), np.abs(oracle.operator(z)))
    assert composite_modulus(1.0, 2.0) < 1.0 < 2.0
    beta, psi = 2.2, 0.45
    turned = Composite(*rotated(beta, psi), 1.0)
    matrix = turned.operator(np.eye(2)).T
    smallest = np.linalg.eigvalsh((matrix + matrix.T) / 2).min()
    mu = 1 + np.cos(beta)
    assert composite_strength(1.0, mu) <= smallest < composite_modulus(1.0, mu)


# -- in a run ----------------------------------------------------------------------------------------------------


def problem(name, oracle=None):
    return InclusionProblem(oracle or sums(), PROXES[name], STEP, np.full(D, 2.0), first_batch=7)


@every
def test_a_run_equals_its_literal_loop(name):
    N, B, seed = 20, 3, 11
    result = da.solve(problem(name), da.DualOHM(STEP, N, B), seed=seed, reps=2, record=0)
    prox = PROXES[name]
    for replication in range(2):
        one = np.array([replication])
        start = da.Streams(seed, one, Purpose.FIRST_BATCH, D)
        noise = da.Streams(seed, one, Purpose.NOISE, D)

        def sample(x, streams, size):
            i = streams.integers(COMPONENTS, size)[0] if size <= COMPONENTS else None
            if i is None:
                counts = streams.generators()[0].multinomial(size, np.full(COMPONENTS, 1 / COMPONENTS))
                i = np.repeat(np.arange(COMPONENTS), counts)
            return np.mean([MATRICES[j] @ x - OFFSETS[j] for j in i], axis=0)

        x0 = prox(np.full((1, D), 2.0), 1e-8 * STEP)[0]
        z = T_before = x0 - STEP * sample(x0, start, 7)
        for k in range(N - 1):
            x = prox(z[None], STEP)[0]
            T = x - STEP * sample(x, noise, B)
            z, T_before = z + (N - k - 1) / (N - k) * (T - T_before), T
        np.testing.assert_allclose(result.x[replication], z, rtol=1e-10, atol=1e-11)
        x = prox(z[None], STEP)[0]
        np.testing.assert_allclose(result.residual[replication], np.linalg.norm((z - x) / STEP + F(x)), rtol=1e-9)
    assert result.nfev.tolist() == [(N - 1) * B] * 2


def test_the_start():
    """Within the domain first; a batch of its own; as far from z* as from x* on average, and a little more."""
    oracle = Composite(sums(), da.prox.simplex(), STEP)
    x0 = np.tile([3.0, 0.0, 0.0, -1.0], (5000, 1))
    z0 = oracle.start(x0, da.Streams(2, np.arange(5000), Purpose.START, D), 6)
    x = np.array([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(z0.mean(axis=0), x - STEP * F(x), atol=0.1)
    star = solution("simplex")[0]
    values = x @ MATRICES.swapaxes(1, 2) - OFFSETS
    variance = np.mean(np.sum((values - values.mean(axis=0)) ** 2, axis=1))
    squares = np.sum((z0 - star) ** 2, axis=1)
    allowed = np.sum((x - oracle.primal(star[None])[0]) ** 2) + STEP**2 * variance / 6
    assert squares.mean() <= allowed
    untouched = Composite(da.AdditiveNoise(lambda x: 0 * x), da.prox.l1(1.0), STEP)
    streams = da.Streams(2, np.arange(1), Purpose.START, D)
    np.testing.assert_allclose(untouched.start(x0[:1], streams, 1), x0[:1], atol=1e-7)
    assert (x0[0] == [3.0, 0.0, 0.0, -1.0]).all()


def test_the_first_batch_is_independent_of_a_random_start_and_of_the_run():
    """A problem that reads the stream of starts, with an oracle that would read the same generators."""
    seen = []

    def sample(x, n, rng):
        seen.append(rng.normal())
        return x

    class Random(InclusionProblem):
        def instance(self, streams):
            seen.extend(rng.normal() for rng in streams.of(Purpose.START).generators())
            return super().instance(streams)

    sampler = da.Sampler(sample, replayable=True)
    da.solve(Random(sampler, da.prox.none(), 2.0, np.zeros(D)), da.DualOHM(1.0, 3), record=0)
    assert len(set(seen)) == len(seen) == 1 + 1 + 2


def test_steps_up_to_that_of_the_resolvent_are_admitted():
    known = problem("box").constants
    da.DualOHM(STEP, 5).check(known)
    with pytest.raises(da.errors.ArgumentError, match="step_size must satisfy"):
        da.DualOHM(1.01 * STEP, 5).check(known)
    assert composite_strength(0.5, 0.0) == composite_modulus(0.5, 0.0) == 0.0


def test_a_certificate_is_one_of_the_kkt_residual():
    oracle = Composite(da.AdditiveNoise(F, 1.0, vectorized=True), da.prox.simplex(), STEP)
    z = np.random.default_rng(5).normal(size=(3, D))  # not the shared rng: a bound may fail by chance
    true = np.linalg.norm(oracle.operator(z), axis=1)
    certificate = da.certify(oracle, z, samples=4096)
    assert (certificate.upper >= true).all()
    np.testing.assert_allclose(certificate.residual, true, atol=0.1)
    np.testing.assert_allclose(certificate.sigma, 1.0, atol=0.1)
    run = da.solve(problem("simplex"), da.DualOHM(STEP, 50, 40))
    assert da.certify(problem("simplex"), run, samples=4096).upper >= run.residual


def test_what_the_oracle_within_can_do_it_can_do():
    for name in PROXES:
        one = problem(name)
        assert da.solve(one, da.HalpernVRFinite(0.1 * STEP, COMPONENTS), budget=300).status.name == "BUDGET"
        assert da.solve(one, da.HalpernPAGE(0.1 * STEP, 4, 2), budget=300, reps=2).residual.shape == (2,)
    plain = Composite(sums(), da.prox.none(), STEP)
    inner = sums()
    for name in ("components", "knows_operator", "replayable", "operator_price", "mixed_sizes", "rowwise"):
        assert getattr(plain, name) == getattr(inner, name)
    assert plain.full_batch().size == COMPONENTS
    np.testing.assert_allclose(plain.mean(np.ones((2, D)), plain.full_batch()), F(np.ones((2, D))), atol=1e-12)
    assert not Composite(sums(), skew, STEP).rowwise
    noise = Composite(da.AdditiveNoise(F, 1.0, vectorized=True), da.prox.none(), STEP)
    assert noise.mixed_sizes
    with pytest.raises(da.errors.CapabilityError, match="full pass"):
        noise.full_batch()


def test_rows_with_instances_of_their_own():
    matrices = np.stack([MATRICES, 2 * MATRICES, 3 * MATRICES])
    oracle = Composite(da.FiniteSum.linear(matrices), da.prox.box(0, 1), STEP)
    z = rng.normal(size=(3, D))
    some = np.array([2, 0])
    part = oracle.take(some)
    np.testing.assert_array_equal(part.operator(z[some]), oracle.operator(z)[some])
    assert part.step_size == oracle.step_size
    assert part.describe()["step_size"] == STEP
    common = Composite(sums(), da.prox.box(0, 1), STEP)
    assert common.take(some) is common
    session = Session(oracle, da.Streams(1, np.arange(3), dimension=D))
    mixed = session(z, session.draw(np.array([1, 2, 1])))
    assert mixed.shape == z.shape


def test_a_sampler_within():
    calls = []

    def sample(x, n, rng):
        calls.append(x.copy())
        return F(x) + rng.normal(size=(n, D)).mean(axis=0)

    oracle = Composite(da.Sampler(sample), da.prox.simplex(), STEP)
    assert oracle.replayable is None
    assert not oracle.knows_operator
    assert oracle.operator(np.ones((1, D))) is None
    assert oracle.is_replayable(np.ones((1, D)), da.Streams(1, np.arange(1), dimension=D))
    assert oracle.replayable is True
    one = problem("simplex", da.Sampler(sample))
    result = da.solve(one, da.DualOHM(STEP, 20, 5))
    assert result.residual is None
    assert oracle.primal(result.x[None]).sum() == pytest.approx(1.0)
    for x in calls:  # F is asked only at points of the set
        assert da.prox.simplex().contains(x)


def test_rows_that_diverge_where_the_operator_is_not_known():
    def sample(x, n, rng):
        return -5 * x if x[0] > 2 else x

    oracle = Composite(da.Sampler(sample, replayable=True), da.prox.none(), 1.0)
    assert isinstance(oracle, Composite)
    assert oracle.describe()["type"] == "Composite"
    start = np.array([[3.0, 3.0], [0.5, 0.5], [0.1, 0.1]])
    result = da.solve(da.Problem(oracle, np.zeros(2)), da.SGDA(0.9), budget=2000, reps=3, x0=start)
    assert [status.name for status in result.status] == ["DIVERGED", "BUDGET", "BUDGET"]
    assert result.residual is None
    assert copy(oracle).operator(start) is None
    nested = Composite(Composite(sums(), da.prox.l1(1.0), STEP), da.prox.none(), STEP)
    np.testing.assert_array_equal(copy(nested).operator(np.ones((1, D))), nested.operator(np.ones((1, D))))


def test_single_precision_is_kept():
    noisy, box = da.AdditiveNoise(lambda x: x - 2.0, 0.1), da.prox.box(0, 1)
    result = da.solve(InclusionProblem(noisy, box, 2.0, np.zeros(D, np.float32)), da.DualOHM(1.0, 20, 50))
    assert result.x.dtype == np.float32
    x = Composite(noisy, box, 2.0).primal(result.x[None])
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, 1.0)


def test_a_run_is_taken_up_where_it_was_left(tmp_path):
    path, options = tmp_path / "run", {"method": da.DualOHM(STEP, 40, 3), "seed": 3, "reps": 2}
    whole = da.solve(problem("ball"), **options)

    def halfway(intermediate_result):
        if intermediate_result.nit[0] == 15:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        da.solve(problem("ball"), **options, checkpoint=da.Checkpoint(path, seconds=0), callback=halfway)
    with pytest.raises(da.errors.CheckpointError):
        da.solve(problem("box"), **options, checkpoint=path)
    again = da.solve(problem("ball"), **options, checkpoint=path)
    np.testing.assert_allclose(again.x, whole.x, rtol=1e-13)


def test_descriptions_tell_proxes_apart_and_hold_no_addresses():
    seen = set()
    for name, prox in PROXES.items():
        text = json.dumps(Composite(sums(), prox, STEP).describe(), sort_keys=True)
        assert "0x" not in text, name
        seen.add(text)
    assert len(seen) == len(PROXES)


class Foreign:
    """Something with a shape that is no NumPy array."""

    def __init__(self, shape):
        self.shape = shape


BAD = {
    "oracle": (lambda: Composite(F, da.prox.none(), 1.0), TypeError, "Composite: oracle must be an Oracle"),
    "prox": (lambda: Composite(sums(), 3, 1.0), TypeError, r"Composite: prox must be a function prox\(z, step\)"),
    "step": (lambda: Composite(sums(), skew, 0.0), ValueError, "Composite: step_size must be positive and finite"),
    "step text": (lambda: Composite(sums(), skew, "a"), TypeError, "Composite: step_size must be a number"),
    "first": (
        lambda: Composite(sums(), skew, 1.0).start(np.ones((1, D)), da.Streams(1, np.arange(1), dimension=D), 0),
        ValueError,
        "Composite: first_batch must be at least 1. Got 0",
    ),
    "library": (
        lambda: Composite(sums(), lambda z, step: Foreign(z.shape), 1.0).primal(np.ones((2, D))),
        da.errors.OracleError,
        "The prox must return an array of the library of z",
    ),
    "shape": (
        lambda: Composite(sums(), lambda z, step: z[0], 1.0).primal(np.ones((2, D))),
        da.errors.OracleError,
        r"The prox must return points with the shape of z.*\(4,\) for z of shape \(2, 4\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_messages(name):
    call, error, text = BAD[name]
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, da.errors.DualAnchorError)
