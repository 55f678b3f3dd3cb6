"""Derivatives through roots and fixed points, against finite differences and formulas."""

import numpy as np
import pytest

import dualanchor as da

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
jnp = jax.numpy

from dualanchor.integrations.jax import implicit_fixed_point, implicit_root  # noqa: E402

pytestmark = pytest.mark.slow

W = np.array([[0.3, -0.2, 0.1], [0.2, 0.4, 0.0], [0.0, 0.1, -0.3]])
THETA = np.array([0.5, -1.0, 2.0])


def contraction(x, theta):
    return jnp.tanh(jnp.asarray(W, x.dtype) @ x + theta)


def iterated(theta):
    return jax.lax.fori_loop(0, 200, lambda k, x: contraction(x, theta), jnp.zeros(3))


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_are_finite_differences(jit):
    """Through the fixed point of a contraction; the map back gives theta, so the root is known."""
    with jax.enable_x64(True):
        fixed = implicit_fixed_point(contraction, iterated)
        loss = lambda theta: jnp.sum(fixed(theta) ** 2)  # noqa: E731
        theta = jnp.asarray(THETA)
        np.testing.assert_allclose(jnp.arctanh(fixed(theta)) - W @ fixed(theta), theta, atol=1e-12)
        gradient = (jax.jit(jax.grad(loss)) if jit else jax.grad(loss))(theta)
        steps = 1e-5 * np.eye(3)
        differences = [(loss(theta + step) - loss(theta - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient, differences, rtol=1e-6)


def test_through_a_run_on_samples():
    """The gradient of |x(theta)|^2, x the root that a front door finds from samples, within 1e-3 of the true one."""

    def sample(x, n, key, theta):
        return x - contraction(x, theta) + 1e-3 * jax.random.normal(key, x.shape) / jnp.sqrt(n)

    calls = []

    def solve(theta):
        calls.append(da.root(sample, jnp.zeros(3), args=(theta,), budget=20_000, L=2.0))
        return calls[-1]

    root = implicit_root(lambda x, theta: x - contraction(x, theta), solve)
    theta = jnp.asarray(THETA, jnp.float32)
    gradient = jax.grad(lambda theta: jnp.sum(root(theta) ** 2))(theta)
    exact = jax.grad(lambda theta: jnp.sum(iterated(theta) ** 2))(theta)
    np.testing.assert_allclose(gradient, exact, atol=1e-3)
    assert len(calls) == 1


def test_trees():
    def operator(x, theta):
        return {"a": x["a"] - theta[0], "b": (2 * x["b"][0] - theta[1] * x["a"].sum(),)}

    def solve(theta):
        return {"a": theta[0], "b": (theta[1] * theta[0].sum() / 2 * jnp.ones(2),)}

    root = implicit_root(operator, solve)
    theta = (jnp.array([1.0, 2.0]), jnp.array(3.0))
    gradient = jax.grad(lambda theta: root(theta)["b"][0].sum())(theta)
    np.testing.assert_allclose(gradient[0], [3.0, 3.0], rtol=1e-5)
    np.testing.assert_allclose(gradient[1], 3.0, rtol=1e-5)


def test_what_is_no_root_has_no_gradient():
    root = implicit_root(lambda x, theta: x - theta, lambda theta: theta + 0.1)
    with pytest.raises(ValueError, match=r"residual at the root must be at most 0.001.* Got a norm of 0.1. Solve more"):
        jax.grad(root)(1.0)
    assert np.isnan(jax.jit(jax.grad(root))(1.0))
    flat = implicit_root(lambda x, theta: 0 * x, lambda theta: theta)
    with pytest.raises(ValueError, match="the derivative of F in x must be invertible at the root"):
        jax.grad(flat)(1.0)
    with pytest.raises(TypeError, match=r"implicit_root: operator must accept F\(x, theta\)"):
        implicit_root(lambda x: x, lambda theta: theta)


def test_a_root_that_does_not_fit_the_operator_is_refused():
    with pytest.raises(TypeError, match=r"^implicit_root: solve must return the root. Got None. Return a Result, or"):
        implicit_root(lambda x, theta: x - theta, lambda theta: None)(1.0)
    with pytest.raises(
        ValueError, match=r"^implicit_root: the operator must return arrays like x. Got shape \(2,\) for x"
    ):
        implicit_root(lambda x, theta: x - theta, lambda theta: 0.0)(jnp.zeros(2))
    with pytest.raises(ValueError, match=r"Got shape \{'a': \(\)\} for x of shape \{'a': \(\), 'b': \(\)\}. Check the"):
        implicit_root(lambda x, theta: {"a": x["a"] - theta}, lambda theta: {"a": theta, "b": theta})(1.0)


def test_messages_about_a_fixed_point_have_its_name():
    inexact = implicit_fixed_point(lambda x, theta: x / 2 + theta, lambda theta: 2 * theta + 0.1)
    with pytest.raises(ValueError, match=r"^implicit_fixed_point: the residual at the root must be at most"):
        jax.grad(inexact)(1.0)
    flat = implicit_fixed_point(lambda x, theta: x, lambda theta: theta)
    with pytest.raises(
        ValueError, match=r"^implicit_fixed_point: the derivative of x - T\(x\) in x must be invertible"
    ):
        jax.grad(flat)(1.0)
    with pytest.raises(TypeError, match=r"^implicit_fixed_point: solve must accept"):
        implicit_fixed_point(contraction, lambda: 0.0)
