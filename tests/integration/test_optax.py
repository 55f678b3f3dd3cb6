"""The methods in JAX: the same iterates as in NumPy, through every transformation of JAX and optax."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
jnp = jax.numpy

from dualanchor.integrations import jax as ours  # noqa: E402
from dualanchor.run import compiled  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEP, N, D = 0.7, 40, 6
PRECISIONS = [(np.float32, 1e-6), (np.float64, 1e-12)]  # relative to the largest entry of the path, about 3


def given(dtype, rows=1, seed=0):
    """Starts (rows, D) and gradients (N - 1, rows, D) that do not depend on the point."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, D)).astype(dtype), rng.normal(size=(N - 1, rows, D)).astype(dtype)


def literal(method, x0, gradients):
    """Every iterate of the NumPy method, in the precision of x0."""
    s, path = method.init(x0), [x0]
    for k, G in enumerate(gradients):
        method.update(k, s, G)
        path.append(s.x.copy())
    return np.array(path)


def stepper(optimizer):
    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    return step


CASES = {
    "dual_anchor": (lambda: ours.dual_anchor(STEP, N), da.DualOHM(STEP, N)),
    "ohm": (lambda: ours.ohm(STEP), da.OHM(STEP)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("through", ["eager", "jit", "scan", "vmap"])
def test_iterates_are_those_of_the_method(name, dtype, tolerance, through):
    make, method = CASES[name]
    x0, gradients = given(dtype, rows=3)
    expected = literal(method, x0, gradients)
    with jax.enable_x64(dtype == np.float64):
        optimizer = make()
        step, params, path = stepper(optimizer), jnp.asarray(x0), [x0]
        if through in ("eager", "jit"):
            step = jax.jit(step) if through == "jit" else step
            carry = params, optimizer.init(params)
            for gradient in gradients:
                carry, x = step(carry, jnp.asarray(gradient))
                path.append(x)
        elif through == "scan":
            path += list(jax.lax.scan(step, (params, optimizer.init(params)), jnp.asarray(gradients))[1])
        else:  # every row has a state and a count of its own

            def run(x, rows):
                return jax.lax.scan(step, (x, optimizer.init(x)), rows)[1]

            path += list(jax.jit(jax.vmap(run, in_axes=(0, 1), out_axes=1))(params, jnp.asarray(gradients)))
        assert path[-1].dtype == dtype
        np.testing.assert_allclose(np.array(path), expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_single_precision_stays_where_doubles_are_enabled():
    x0, gradients = given(np.float32)
    expected = literal(da.DualOHM(STEP, N), x0, gradients)
    with jax.enable_x64(True):
        optimizer = ours.dual_anchor(STEP, N)
        carry = jnp.asarray(x0), optimizer.init(jnp.asarray(x0))
        (x, state), _ = jax.lax.scan(stepper(optimizer), carry, jnp.asarray(gradients))
        assert x.dtype == state.z.dtype == jnp.float32
        np.testing.assert_allclose(np.array(x), expected[-1], rtol=0, atol=1e-6 * np.abs(expected).max())


def test_half_precision_keeps_z_in_single():
    # In bfloat16 factors from 0.997 on round to 1, so a z of that dtype would not shrink for most of the run.
    rounds = 1000
    x = jnp.ones(4, jnp.bfloat16)
    gradients = jnp.full((rounds - 1, 4), 0.25, jnp.bfloat16)
    optimizer = ours.dual_anchor(0.5, rounds)
    state = optimizer.init(x)
    assert state.z.dtype == jnp.float32
    (x, state), _ = jax.lax.scan(stepper(optimizer), (x, state), gradients)
    assert x.dtype == jnp.bfloat16
    s = da.DualOHM(0.5, rounds).init(np.ones((1, 4)))
    for k in range(rounds - 1):
        da.DualOHM(0.5, rounds).update(k, s, np.full((1, 4), 0.25))
    np.testing.assert_allclose(np.asarray(state.z), s.z[0], rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_trees_are_updated_leaf_by_leaf(name):
    make, method = CASES[name]
    x0, gradients = given(np.float32)
    expected = literal(method, x0, gradients)[-1, 0]

    def tree(x):
        return {"a": [x[..., :1], (x[..., 1:3],)], "b": {"c": x[..., 3:]}, "nothing": None}

    optimizer = make()
    params = tree(jnp.asarray(x0[0]))
    (params, _), _ = jax.lax.scan(stepper(optimizer), (params, optimizer.init(params)), tree(gradients[:, 0]))
    assert jax.tree.structure(params) == jax.tree.structure(tree(x0[0]))
    x = np.concatenate(jax.tree.leaves(params))
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-6 * np.abs(expected).max() * 3)


@pytest.mark.parametrize("jit", [False, True])
def test_updates_are_zero_past_the_horizon(jit):
    x0, gradients = given(np.float32)
    optimizer = ours.dual_anchor(STEP, N)
    step = jax.jit(stepper(optimizer)) if jit else stepper(optimizer)
    carry = jnp.asarray(x0), optimizer.init(jnp.asarray(x0))
    for gradient in gradients:
        carry, last = step(carry, jnp.asarray(gradient))
    assert int(carry[1].count) == N - 1
    for _ in range(3):
        carry, x = step(carry, jnp.full_like(last, jnp.nan))  # whatever the gradient is
        np.testing.assert_array_equal(x, last)
        assert int(carry[1].count) == N - 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_parameters_are_not_changed_and_give_the_same_updates(name, dtype):
    make, method = CASES[name]
    x0, gradients = given(dtype)
    expected = literal(method, x0, gradients[:2])
    with jax.enable_x64(dtype == np.float64):
        optimizer = make()
        x, state = x0[0].copy(), optimizer.init(x0[0])
        for G, after in zip(gradients[:2, 0], expected[1:, 0], strict=True):
            point, gradient = x.copy(), G.copy()
            updates, state = optimizer.update(G, state, x)
            np.testing.assert_array_equal(x, point)
            np.testing.assert_array_equal(G, gradient)
            np.testing.assert_allclose(x + updates, after, rtol=0, atol=1e-6 * np.abs(expected).max())
            state = jax.tree.map(np.array, state)  # as restored from a file
            x = x + np.asarray(updates)


@pytest.mark.parametrize("name", CASES)
def test_doubles_of_numpy_are_taken_where_jax_has_none(name):
    x0, gradients = given(np.float64)
    with jax.enable_x64(False):
        optimizer = CASES[name][0]()
        updates, _ = optimizer.update(gradients[0, 0], optimizer.init(x0[0]), x0[0])
    assert updates.dtype == np.float32


@pytest.mark.parametrize("name", CASES)
def test_trees_without_leaves_are_left_alone(name):
    make, params = CASES[name][0], {"a": jnp.ones(2), "b": jnp.ones(1)}
    nobody = optax.multi_transform({"x": make(), "y": optax.sgd(0.5)}, {"a": "y", "b": "y"})
    for optimizer, tree, end in (
        (make(), {}, {}),
        (make(), {"a": None, "b": ()}, {"a": None, "b": ()}),
        (optax.masked(make(), {"a": False, "b": False}), params, {"a": [2.0, 2.0], "b": [2.0]}),
        (nobody, params, {"a": [0.5, 0.5], "b": [0.5]}),
    ):
        updates, _ = optimizer.update(tree, optimizer.init(tree), tree)
        found = optax.apply_updates(tree, updates)
        assert jax.tree.map(lambda leaf: leaf.tolist(), found) == end


def test_horizon_1_takes_no_step():
    optimizer = ours.dual_anchor(STEP, 1)
    updates, _ = optimizer.update(jnp.ones(2), optimizer.init(jnp.ones(2)))
    np.testing.assert_array_equal(updates, np.zeros(2))


def test_it_ends_a_chain_and_a_mask_turns_descent_into_ascent():
    x0, gradients = given(np.float32)
    halved = literal(da.DualOHM(STEP, N), x0, gradients * np.float32(0.5) * np.where(np.arange(D) < 2, 1, -1))[-1, 0]
    params = {"u": jnp.asarray(x0[0, :2]), "v": jnp.asarray(x0[0, 2:])}
    ascend = optax.masked(optax.scale(-1.0), {"u": False, "v": True})
    optimizer = optax.chain(optax.scale(0.5), ascend, ours.dual_anchor(STEP, N))
    labels = {"u": "descend", "v": "ascend"}
    players = {
        "descend": optax.chain(optax.scale(0.5), ours.dual_anchor(STEP, N)),
        "ascend": optax.chain(optax.scale(-0.5), ours.dual_anchor(STEP, N)),
    }
    for one in (optimizer, optax.multi_transform(players, labels)):
        rows = {"u": gradients[:, 0, :2], "v": gradients[:, 0, 2:]}
        (end, _), _ = jax.lax.scan(stepper(one), (params, one.init(params)), rows)
        x = np.concatenate([end["u"], end["v"]])
        np.testing.assert_allclose(x, halved, rtol=0, atol=3e-6 * np.abs(halved).max())


def test_ohm_asks_for_the_parameters():
    optimizer = ours.ohm(STEP)
    with pytest.raises(
        ValueError, match=r"ohm: update needs .* Got params=None. Call update\(gradients, state, params"
    ):
        optimizer.update(jnp.ones(2), optimizer.init(jnp.ones(2)))


def test_the_start_survives_donation_in_ohm():
    optimizer, params = ours.ohm(STEP), jnp.ones(5)
    state = optimizer.init(params)
    step = jax.jit(stepper(optimizer), donate_argnums=0)
    (params, state), _ = step((params, state), jnp.ones(5))
    np.testing.assert_array_equal(state.anchor, np.ones(5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ours.dual_anchor(-1.0, 9), "learning_rate must be positive"),
        (lambda: ours.dual_anchor(1.0, 0), "horizon must be at least 1"),
        (lambda: ours.dual_anchor(optax.constant_schedule(1.0), 9), "learning_rate must be a number"),
        (lambda: ours.ohm(np.inf), "learning_rate must be positive"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


TRACED = {"dual_anchor": lambda rate: ours.dual_anchor(rate, N), "ohm": ours.ohm}


@pytest.mark.parametrize("name", TRACED)
def test_learning_rates_may_be_traced(name):
    """Eight of them at once under vmap, and one that `inject_hyperparams` passes in, as one by one."""
    make = TRACED[name]
    x0, gradients = (jnp.asarray(one) for one in given(np.float32))
    rates = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.3]

    def run(optimizer):
        return jax.lax.scan(stepper(optimizer), (x0, optimizer.init(x0)), gradients)[0]

    single = np.array([run(make(rate))[0] for rate in rates])
    together = jax.jit(jax.vmap(lambda rate: run(make(rate))[0]))(jnp.asarray(rates))
    np.testing.assert_allclose(together, single, rtol=0, atol=1e-6 * np.abs(single).max())
    hyperparameters = {"learning_rate": 0.3} | ({"horizon": N} if name == "dual_anchor" else {})
    injected = optax.inject_hyperparams(getattr(ours, name))(**hyperparameters)
    x, state = jax.jit(lambda: run(injected))()
    np.testing.assert_allclose(x, single[4], rtol=0, atol=1e-6 * np.abs(single).max())
    assert state.hyperparams["learning_rate"] == pytest.approx(0.3)


# -- solve_jit --------------------------------------------------------------------------------------------------

A = np.array([[1.0, 2.0, 0.0], [-2.0, 1.0, 0.5], [0.0, -0.5, 1.0]])
B = np.array([5.0, 0.0, 1.0])
SIGMA = 0.3


class Listed(da.Oracle):
    """Noise written out, one array per step; not replayable, so that every draw is a new step."""

    replayable = False

    def __init__(self, noise):
        self._noise = iter(noise)

    def draw(self, streams, size):
        return da.Batch(size, next(self._noise) * np.asarray(SIGMA / np.sqrt(size), streams.dtype))

    def mean(self, x, batch):
        return (x @ A.T - B).astype(x.dtype) + batch.data

    def operator(self, x):
        return x @ A.T - B


def true_operator(x):
    return jnp.asarray(A, x.dtype) @ x - jnp.asarray(B, x.dtype)


def written_out(x, n, noise):
    assert isinstance(n, int) or n.dtype == x.dtype
    return true_operator(x) + SIGMA / jnp.sqrt(n) * noise


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("batch_size", [3, da.Tapered(50.0), list(range(1, 100))], ids=["constant", "tapered", "list"])
def test_the_same_noise_gives_the_same_result_as_solve(dtype, tolerance, batch_size):
    horizon, x0 = 100, np.array([3.0, -1.0, 2.0], dtype)
    noise = np.random.default_rng(1).normal(size=(horizon - 1, 3)).astype(dtype)
    method = da.DualOHM(0.3, horizon, batch_size)
    expected = da.solve(da.Problem(Listed(noise), x0), method)
    with jax.enable_x64(dtype == np.float64):
        result = ours.solve_jit(
            written_out,
            x0,
            step_size=0.3,
            horizon=horizon,
            batch_size=batch_size,
            noise=noise,
            operator=true_operator,
        )
    assert isinstance(result, da.Result)
    assert result.x.dtype == dtype
    np.testing.assert_allclose(result.x, expected.x, rtol=0, atol=tolerance * np.abs(expected.x).max())
    np.testing.assert_allclose(result.state["z"], expected.state["z"], rtol=0, atol=tolerance)
    for name in ("nit", "nfev", "draws", "status", "success", "message", "shape", "residual_kind"):
        assert getattr(result, name) == getattr(expected, name), name
    for name in ("row", "k", "draws", "evals"):
        np.testing.assert_array_equal(getattr(result.history, name), getattr(expected.history, name))
    np.testing.assert_allclose(result.history.residual, expected.history.residual, rtol=0, atol=10 * tolerance)
    np.testing.assert_allclose(result.residual, expected.residual, rtol=0, atol=10 * tolerance)


def gaussian(x, n, key):
    return true_operator(x) + SIGMA * jax.random.normal(key, (n, 3)).mean(axis=0)


@pytest.mark.slow
def test_replications_are_independent_and_do_not_depend_on_each_other():
    options = {"step_size": 0.3, "horizon": 50, "batch_size": 2, "operator": true_operator, "record": 7}
    many = ours.solve_jit(gaussian, np.zeros(3), reps=4, seed=5, **options)
    assert many.x.shape == (4, 3)
    assert many.nfev.tolist() == [98] * 4
    assert len(np.unique(many.x[:, 0])) == 4
    assert many.history.k.tolist() == [0, 7, 14, 21, 28, 35, 42, 49] * 4
    np.testing.assert_allclose(many.history.of(2).residual[-1], many.residual[2])
    single = ours.solve_jit(gaussian, np.zeros(3), seed=5, **options)
    np.testing.assert_allclose(single.x, many.x[0], rtol=1e-5)
    other = ours.solve_jit(gaussian, np.zeros(3), seed=6, **options)
    assert np.abs(other.x - single.x).max() > 1e-3


def expected_square(step_size, horizon, batch_size):
    """The exact mean of |F(x)|^2 at the end, from mean and covariance of (x - root, z), which move linearly."""
    eye, k = np.eye(3), np.arange(horizon - 1)
    mean = np.concatenate([-np.linalg.solve(A, B), np.zeros(3)])
    covariance = np.zeros((6, 6))
    for keep, gain in zip((horizon - k - 1) / (horizon - k), step_size / (horizon - k), strict=True):
        move = np.block([[eye - (step_size - gain) * A, -keep * eye], [-gain * A, keep * eye]])
        shake = np.concatenate([-(step_size - gain) * eye, -gain * eye])
        mean = move @ mean
        covariance = move @ covariance @ move.T + SIGMA**2 / batch_size * shake @ shake.T
    return np.sum((A @ mean[:3]) ** 2) + np.trace(A @ covariance[:3, :3] @ A.T)


@pytest.mark.slow
def test_the_residual_has_the_exact_mean_square():
    # Four standard errors: correct code fails for 6 in 100,000 seeds. The standard error is 2.4 % of the mean, so noise
    # whose variance is wrong by a quarter is found with a probability above 0.99.
    reps, options = 1000, {"step_size": 0.2, "horizon": 200, "batch_size": 4}
    result = ours.solve_jit(gaussian, np.zeros(3), reps=reps, operator=true_operator, record=0, **options)
    squares = result.residual**2
    error = squares.std() / reps**0.5
    assert error < 0.035 * expected_square(**options)
    assert abs(squares.mean() - expected_square(**options)) < 4 * error


def test_arrays_of_any_shape_and_integer_starts():
    def sample(x, n, key):
        return x - 1.0

    result = ours.solve_jit(sample, np.zeros((2, 1, 3), int), step_size=1.0, horizon=3, reps=2)
    assert result.x.shape == (2, 2, 1, 3)
    assert result.residual is None
    assert result.problem == {"name": "sample", "dimension": 6}
    assert "array of shape (2, 2, 1, 3)" in repr(result)
    start = ours.solve_jit(sample, np.zeros((2, 2)), step_size=1.0, horizon=1)
    assert (start.nit, start.nfev, start.x.tolist()) == (0, 0, [[0.0, 0.0], [0.0, 0.0]])


def test_a_single_number_and_a_run_without_steps():
    result = ours.solve_jit(lambda x, n, key: x - 1.0, jnp.zeros(()), step_size=1.0, horizon=3)
    assert result.x.shape == ()
    assert result.problem["dimension"] == 1
    assert ours.solve_jit(lambda x, n, key: x - 1.0, 0.0, step_size=1.0, horizon=3, reps=2).x.shape == (2,)
    for sample, options in ((gaussian, {"batch_size": [1, 2, 3]}), (written_out, {"noise": np.zeros((0, 3))})):
        start = ours.solve_jit(sample, np.ones(3), step_size=0.3, horizon=1, operator=true_operator, **options)
        assert (start.nit, start.nfev, start.x.tolist()) == (0, 0, [1.0, 1.0, 1.0])
        assert start.residual == pytest.approx(np.linalg.norm(A @ np.ones(3) - B), rel=1e-6)


def test_each_replication_goes_on_from_its_own_end():
    options = {"step_size": 0.3, "horizon": 20, "operator": true_operator}
    first = ours.solve_jit(gaussian, np.zeros(3), reps=3, **options)
    second = ours.solve_jit(gaussian, first, reps=3, **options)
    assert second.x.shape == (3, 3)
    assert second.problem["dimension"] == 3
    starts = [second.history.of(row).residual[0] for row in range(3)]
    np.testing.assert_allclose(starts, first.residual, rtol=1e-5)
    assert len(set(starts)) == 3
    for reps in (1, 2):
        with pytest.raises(da.errors.ArgumentError, match=rf"or reps = {reps} of them. Got one of shape \(3,\)"):
            ours.solve_jit(gaussian, first, reps=reps, **options)


@pytest.mark.parametrize(("operator", "horizon"), [(lambda x: x, 400), (jnp.tanh, 50)], ids=["linear", "bounded"])
def test_divergence_is_a_status(operator, horizon):  # to NaN, and to finite numbers that cannot be squared
    result = ours.solve_jit(
        lambda x, n, noise: noise * x,
        np.ones(2),
        step_size=1.0,
        horizon=horizon,
        reps=3,
        noise=np.array([0.5, 1.3, 5.0])[:, None, None] * np.ones((3, horizon - 1, 1)),
        operator=operator,
    )
    assert [one.name for one in result.status] == ["HORIZON", "HORIZON", "DIVERGED"]
    assert result.success.tolist() == [True, True, False]
    assert np.isfinite(result.residual[:2]).all()
    assert np.isinf(result.residual[2])
    assert np.isinf(result.history.of(2).residual[-1])
    assert not np.isnan(result.history.residual).any()


def test_nan_at_a_moderate_point_is_the_samplers_fault_and_not_divergence():
    def undefined_below_zero(x, n, noise):
        return jnp.sqrt(x) * noise

    factors = np.array([0.0, 1.0, -1e30])[:, None, None] * np.ones((3, 29, 1))  # stays, goes below 0, goes beyond all
    x0 = np.full((2, 1), 0.25, np.float32)
    options = {"step_size": 1.0, "horizon": 30, "reps": 3, "operator": lambda x: x, "record": 10}
    with pytest.raises(da.errors.OracleError, match=r"numbers at every finite point\. Got NaN") as failure:
        ours.solve_jit(undefined_below_zero, x0, noise=factors[..., None], **options)
    result = failure.value.result
    assert [one.name for one in result.status] == ["FAILED", "FAILED", "DIVERGED"]
    assert not result.success.any()
    assert result.x.shape == (3, 2, 1)
    assert (result.x[0] == 0.25).all()
    assert (result.x[2] == 0.25).all()  # the start

    x, z, k = np.float32([0.25, 0.25]), np.zeros(2, np.float32), 0  # the literal loop of the second replication
    while not np.isnan(G := np.sqrt(x, where=x >= 0, out=np.full_like(x, np.nan))).any():
        z = (29 - k) / (30 - k) * z - G / (30 - k)
        x, k = x - G - z, k + 1
    assert 0 < k < 29
    np.testing.assert_allclose(result.x[1, :, 0], x, rtol=1e-6)
    assert (result.nit[1], result.nfev[1]) == (k, k)
    assert result.residual[1] == pytest.approx(np.linalg.norm(x), rel=1e-6)
    for part in (f"a point of norm {np.linalg.norm(x):.3g}", f"iteration {k}", "row 1"):
        assert part in str(failure.value)


def test_nan_without_an_operator_and_from_the_first_step():
    with pytest.raises(da.errors.OracleError, match="Got NaN for a point of norm 2 at iteration 0") as failure:
        ours.solve_jit(lambda x, n, key: x * jnp.nan, jnp.ones((2, 2)), step_size=1.0, horizon=9, batch_size=[3] * 8)
    result = failure.value.result
    assert (result.status.name, result.nit, result.nfev, result.success) == ("FAILED", 0, 0, False)
    assert result.x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_result_can_be_saved_and_starts_another_run(tmp_path):
    first = ours.solve_jit(gaussian, np.zeros(3), step_size=0.3, horizon=50, operator=true_operator)
    again = da.Result.load(first.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(again.x, first.x)
    second = ours.solve_jit(gaussian, first, step_size=0.3, horizon=50, operator=true_operator)
    np.testing.assert_allclose(second.history.residual[0], first.residual, rtol=1e-5)
    second.x[0] = 1.0  # as in any NumPy array


def test_the_start_is_not_given_away():
    x0 = jnp.ones(3)
    ours.solve_jit(gaussian, x0, step_size=0.3, horizon=5)
    np.testing.assert_array_equal(x0, np.ones(3))


def test_other_numbers_compile_nothing_anew():
    def sample(x, n, key):
        return x - 1 + jax.random.normal(key, x.shape) / jnp.sqrt(n)

    before = set(compiled._PROGRAMS)
    for step_size, horizon, batch_size in ((0.3, 50, 4), (0.2, 70, 9)):
        ours.solve_jit(sample, jnp.zeros(3), step_size=step_size, horizon=horizon, batch_size=batch_size)
        (new,) = set(compiled._PROGRAMS) - before
        assert compiled._PROGRAMS[new].run._cache_size() == 1


def test_compiled_steps_keep_a_few_vectors_whatever_their_number():
    d = 1_000_000
    F = da.Session(ours.JaxSampler(lambda x, n, key: 0.5 * x, jnp.zeros(d)), da.Streams(0, np.arange(1), dimension=d))
    method = da.DualOHM(1.0, 100_000)
    s = method.init(jnp.zeros((1, d)))
    program, arguments = compiled._program(method, s, F, 0, 1024, None)
    memory = program.run.lower(vars(s), arguments).compile().memory_analysis()
    for size in (memory.argument_size_in_bytes, memory.output_size_in_bytes):  # x and z
        assert size <= 2.1 * 4 * d
    assert memory.temp_size_in_bytes <= 2.5 * 4 * d


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"sample": 3}, TypeError, "solve_jit: sample must be a function"),
        ({"operator": 3}, TypeError, "solve_jit: operator must be a function"),
        ({"sample": lambda x, n, key: jnp.zeros((3, 3))}, da.errors.OracleError, r"Got shape \(3, 3\) for x of shape"),
        ({"x0": [0.0, np.nan]}, ValueError, "solve_jit: x0 must be finite"),
        ({"sample": lambda x, key: x}, TypeError, r"sample must accept sample\(x, n, key\). Got one with \(x, key\)"),
        ({"operator": lambda: 0.0}, TypeError, r"operator must accept F\(x\). Got one with \(\)"),
        ({"sample": lambda x, n, key: None}, da.errors.OracleError, "sample must return .* Got None for "),
        ({"x0": {"a": np.zeros(3)}}, TypeError, "solve_jit: x0 must be an array .* Got 'dict'. .*ravel_pytree"),
        ({"x0": [[0.0], [0.0, 1.0]]}, TypeError, "solve_jit: x0 must be an array .* Got 'list'"),
        ({"x0": "here"}, TypeError, "solve_jit: x0 must be an array of real numbers"),
        ({"seed": -1}, ValueError, "solve_jit: seed must be at least 0"),
        ({"reps": 0}, ValueError, "solve_jit: reps must be at least 1"),
        ({"record": 0.5}, TypeError, "solve_jit: record must be an integer"),
        ({"noise": np.zeros((3, 3))}, ValueError, r"noise must have the leading axes \(4,\).*Got shape \(3, 3\)"),
        ({"batch_size": [1, 2]}, ValueError, "must have one for each of the 4 rounds"),
        ({"step_size": 0.0}, ValueError, "step_size must be positive"),
        ({"horizon": 0}, ValueError, "horizon must be at least 1"),
    ],
)
def test_bad_input_gets_a_clear_answer(changes, error, message):
    options = {"sample": gaussian, "x0": np.zeros(3), "step_size": 0.3, "horizon": 5, "batch_size": 2, **changes}
    with pytest.raises(error, match=message):
        ours.solve_jit(**options)


@pytest.mark.parametrize("method", ["auto", "averaged", da.SEG(0.2, 3)], ids=str)
def test_any_method_can_be_compiled(method):
    result = ours.solve_jit(
        gaussian, np.zeros(3), method, budget=3000, reps=2, constants=da.Constants(L=6.0), operator=true_operator
    )
    assert result.x.shape == (2, 3)
    assert (result.nfev <= 3000).all()
    assert (result.residual < 0.3 * np.linalg.norm(B)).all()
    assert len(result.history) > 2
    for given in ({"horizon": 3}, {"batch_size": 4}):
        with pytest.raises(ValueError, match="step_size, horizon and batch_size belong to Dual-OHM"):
            ours.solve_jit(gaussian, np.zeros(3), method, **given)


def test_noise_that_ends_before_the_run_is_refused():
    def sample(x, n, z):
        return x - 1 + z

    noise = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    options = {"budget": 40, "constants": da.Constants(L=1.0)}
    assert ours.solve_jit(sample, jnp.zeros(2), "sgda", noise=noise, **options).nfev == 40
    with pytest.raises(da.errors.OracleError, match=r"an entry for each batch\. Got noise for 39 batches"):
        ours.solve_jit(sample, jnp.zeros(2), "sgda", noise=noise[:39], **options)


# -- documents --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_example_finds_the_saddle_point(capsys):
    path = ROOT / "examples/optax_saddle.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40
    runpy.run_path(str(path))
    noise, start, end = capsys.readouterr().out.strip().splitlines()
    numbers = [float(re.search(r"gradient:? ([\d.]+)", line)[1]) for line in (noise, start, end)]
    assert numbers[2] < 0.6 * numbers[0] < numbers[1]  # below the noise of a single gradient
    assert float(re.search(r"saddle point ([\d.]+)", end)[1]) < 0.2


@pytest.mark.slow
def test_python_in_the_page_runs():
    text, space = (ROOT / "docs/jax.md").read_text(encoding="utf-8"), {}
    shown = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert shown
    for number, block in enumerate(shown):
        exec(compile(block, f"docs/jax.md, block {number}", "exec"), space)
    assert np.all(space["result"].success)
    assert space["found"].success
    np.testing.assert_allclose([space["u"], space["v"]], 0.5, atol=0.1)
    for name in ("w", "w_chunked"):  # standard errors are about 0.02
        np.testing.assert_allclose(np.asarray(space[name]), [1.0, -2.0, 0.5], atol=0.15)
    X, y, test, wanted = (np.asarray(space[name]) for name in ("X_train", "y_train", "X_test", "y_test"))

    def exact(theta):
        w = np.linalg.solve(X.T @ X / 40 + np.exp(theta) * np.eye(3), X.T @ y / 40)
        return np.mean((test @ w - wanted) ** 2)

    assert space["slope"] == pytest.approx((exact(-0.98) - exact(-1.02)) / 0.04, abs=5e-3)


@pytest.mark.parametrize("package", ["jax", "optax"])
def test_the_extra_is_named_when_it_is_missing(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import dualanchor\n"
        "try:\n    import dualanchor.integrations.jax\n"
        "except dualanchor.errors.MissingExtraError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"needs the package {package}" in run.stdout
    assert "pip install 'dualanchor[jax]'" in run.stdout


@pytest.mark.parametrize("script", ["optimizers_optax", "front_jax"])
def test_the_benchmark_gives_its_rows(script):
    measure = runpy.run_path(str(ROOT / f"benchmarks/{script}.py"))["rows"]
    measure.__globals__["BUDGET"] = 2_000  # a tenth of what is measured with: here only the form matters
    rows = measure(quick=True)
    assert len(rows) == (6 if script == "front_jax" else 2)
    for row in rows:
        assert set(row) == {"name", "measured", "against", "ratio", "target", "met"}
        assert row["ratio"] == row["measured"] / (row["against"] or 1) > 0
        assert row["met"] == (None if row["target"] is None else row["ratio"] <= row["target"])


def test_errors_are_in_the_words_of_the_caller():
    with pytest.raises(ValueError, match=r"^dual_anchor: learning_rate must be positive and finite. Got -1.0"):
        ours.dual_anchor(-1.0, 10)
    with pytest.raises(TypeError, match=r"^ohm: learning_rate must be a number"):
        ours.ohm("fast")
    with pytest.raises(da.errors.OracleError, match="sample gets a JAX key as third argument, not a Generator"):
        ours.solve_jit(lambda x, n, rng: x + rng.normal(size=3), jnp.zeros(3), step_size=1.0, horizon=10)


def test_seeds_of_any_length_are_seeds_of_their_own():
    def sample(x, n, key):
        return x + jax.random.normal(key, x.shape)

    seeds = (5, 2**32 + 5, 2**33 + 5, 2**64 + 5, 5 * 2**32)
    ends = [ours.solve_jit(sample, jnp.zeros(2), step_size=0.5, horizon=4, seed=seed).x.tolist() for seed in seeds]
    assert len({tuple(end) for end in ends}) == len(seeds)


def test_nan_far_out_is_divergence_also_in_doubles():
    """Coordinates above 1e6 are far out in every precision."""

    def sample(x, n, key):
        return jnp.where(jnp.abs(x) > 1e14, jnp.nan, -x)

    with jax.enable_x64(True):
        result = ours.solve_jit(sample, jnp.ones(2), step_size=1.0, horizon=400)
    assert result.status is da.Status.DIVERGED
