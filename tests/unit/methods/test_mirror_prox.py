"""Mirror-prox with steps found on the way, blocks of several geometries, and the residual of a composite problem."""

import numpy as np
import pytest
from tests.contract.literal import Samples, mirror_prox

import dualanchor as da
from dualanchor import prox
from dualanchor.oracles.composite import Composite

D = 9
rng = np.random.default_rng(0)
K = rng.normal(size=(D, D))
K = K - K.T + 0.1 * np.eye(D)
MIXED = prox.product([(4, prox.simplex(2.0)), (3, prox.box(-1, 1)), (2, prox.ball(0.5))])
SETS = {
    "simplex": prox.simplex(),
    "two simplices": prox.product([(4, prox.simplex()), (5, prox.simplex(3.0))]),
    "box": prox.box(-0.5, 1),
    "mixed": MIXED,
    "nonnegative": prox.nonnegative(),
    "penalty": prox.l1(0.3),
    "nothing": None,
}


def noisy(sigma=0.3, scale=1.0, units=1.0):
    return da.AdditiveNoise(lambda x: scale * (K @ (x / units) + 0.5), scale * sigma)


def problem(sigma=0.3, scale=1.0, units=1.0, x0=None):
    """F in units of its own, at points in units of their own."""
    return da.Problem(noisy(sigma, scale, units), units * (np.linspace(-1, 1, D) if x0 is None else x0))


@pytest.mark.parametrize("geometry", ["auto", "euclidean"])
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_adaptive_steps_equal_the_literal_loop(name, reuse, geometry):
    method = da.MirrorProx(prox=SETS[name], reuse=reuse, geometry=geometry, distance=0.7, batch_size=2)
    result = da.solve(problem(), method, stop=da.Steps(60), seed=3, reps=2, record=0)
    for replication in range(2):
        S = Samples(problem(), 3, replication)
        expected = mirror_prox(method, S.x0, S, 60)
        np.testing.assert_allclose(result.x[replication], expected, rtol=1e-9, atol=1e-11)
        assert (result.draws[replication], result.nfev[replication]) == (S.draws, S.evals)


@pytest.mark.parametrize("name", ["two simplices", "box", "mixed"])
def test_units_of_F_do_not_matter(name):
    method = da.MirrorProx(prox=SETS[name], reuse=True)
    plain, scaled = (da.solve(problem(scale=scale), method, budget=300, record=0).x for scale in (1.0, 1024.0))
    np.testing.assert_allclose(plain, scaled, rtol=1e-9)


def test_units_of_x_do_not_matter():
    one, other = (da.MirrorProx(prox=prox.box(-units, units), reuse=True) for units in (1.0, 64.0))
    plain = da.solve(problem(), one, budget=300, record=0).x
    np.testing.assert_allclose(64 * plain, da.solve(problem(units=64.0), other, budget=300, record=0).x, rtol=1e-9)


def test_rows_do_not_depend_on_their_grouping():
    for reuse in (False, True):
        method = da.MirrorProx(prox=MIXED, reuse=reuse)
        together = da.solve(problem(), method, budget=200, reps=4, record=0)
        alone = da.solve(problem(), method, budget=200, reps=[2], record=0)
        np.testing.assert_array_equal(together.x[2], alone.x[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_states_keep_the_precision_of_the_start(dtype):
    x0 = np.linspace(-1, 1, D).astype(dtype)
    result = da.solve(problem(x0=x0), da.MirrorProx(prox=MIXED, reuse=True), budget=50, reps=2)
    assert {value.dtype for value in result.state.values()} == {np.dtype(dtype)}


@pytest.mark.slow
def test_check_method_passes_with_steps_found_on_the_way():
    expected = {"rows do not depend on their grouping": "there is no step size to change"}
    da.check_method(da.MirrorProx(prox=prox.box(-1, 2)), expected_failures=expected)
    da.check_method(da.MirrorProx(0.1, prox.product([(3, prox.simplex()), (3, prox.l1(0.1))]), reuse=True))


def test_the_average_stays_in_the_set_and_solves_the_game():
    A = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])  # rock, paper, scissors
    game = da.AdditiveNoise(lambda x: np.concatenate([A @ x[3:], -A.T @ x[:3]]), 0.2)
    method = da.MirrorProx(prox=prox.product([(3, prox.simplex()), (3, prox.simplex())]), reuse=True)
    x = da.solve(da.Problem(game, np.array([1.0, 0, 0, 0, 1, 0])), method, budget=4000).x
    assert method.prox.contains(x)
    assert da.exploitability(A, x[:3], x[3:]) < 0.05


@pytest.mark.parametrize("name", SETS)
def test_through_a_composite_oracle_the_same_steps_are_taken(name):
    """The mean of the half-steps is the same, and x is that mean minus a step along the mean of the samples."""
    a, J = 0.05, SETS[name] or prox.none()
    method = da.MirrorProx(prox=J, reuse=True, distance=1.0)
    x0 = J(np.linspace(-1, 1, D), a)
    plain = da.solve(problem(x0=x0), method, stop=da.Steps(50), record=0)
    composite = da.Problem(Composite(noisy(), J, a), J(x0, 1e-12) if J.is_projection else x0)
    lifted = da.solve(composite, method.with_changes(composite_step=a), stop=da.Steps(50), record=0)
    if J.is_projection:
        np.testing.assert_allclose(lifted.state["mean"], plain.x[None], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(lifted.x, (lifted.state["mean"] - a * lifted.state["mean_sample"])[0], rtol=1e-12)


BAD = {
    "distance": (
        lambda: da.solve(problem(), da.MirrorProx(), budget=9),
        "a block that is not bounded needs a distance",
    ),
    "geometry": (lambda: da.MirrorProx(geometry="flat"), "geometry must be one of 'auto', 'euclidean'"),
    "prox": (lambda: da.MirrorProx(prox=3), r"prox must be a function prox\(z, step\)"),
    "reuse": (lambda: da.MirrorProx(reuse=1), "reuse must be True or False"),
    "composite": (lambda: da.MirrorProx(composite_step=1.0), "composite_step goes with reuse=True"),
    "step": (lambda: da.MirrorProx(step_size=0.0), "step_size must be positive"),
}


@pytest.mark.parametrize("name", BAD)
def test_messages(name):
    call, text = BAD[name]
    with pytest.raises(da.errors.DualAnchorError, match=text):
        call()


def test_a_prox_that_fails_on_the_way_is_an_error_of_the_run_with_its_result():
    calls = []

    def fails(z, step):
        calls.append(1)
        if len(calls) > 20:
            raise ArithmeticError("no root in the line search")
        return np.clip(z, 0, 1)

    with pytest.raises(
        da.errors.OracleError, match=r"The prox must not raise\. Got ArithmeticError.* at iteration 9"
    ) as e:
        da.solve(problem(), da.MirrorProx(0.1, prox=fails), budget=400)
    assert e.value.result.nit == 9


@pytest.mark.parametrize("name", ["simplex", "two simplices", "mixed", "penalty"])
def test_tensors_take_the_euclidean_steps_of_numpy(name):
    torch = pytest.importorskip("torch")
    method, x0 = da.MirrorProx(prox=SETS[name], distance=1.0), np.linspace(0.1, 1, D)
    game = torch.as_tensor(K)
    oracle = da.AdditiveNoise(lambda x: (game @ x if isinstance(x, torch.Tensor) else K @ x) + 0.5, 0.3)
    here = da.solve(da.Problem(oracle, torch.as_tensor(x0)), method, stop=da.Steps(30), record=0)
    there = da.solve(da.Problem(oracle, x0), method.with_changes(geometry="euclidean"), stop=da.Steps(30), record=0)
    np.testing.assert_allclose(here.x, there.x, rtol=1e-10)
