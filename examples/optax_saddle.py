"""Ridge regression as a saddle point, min over u and max over v, from noisy gradients with optax."""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from dualanchor.integrations.jax import dual_anchor

ROUNDS, NOISE = 2000, 0.05
A = jax.random.normal(jax.random.key(1), (30, 10)) / 6
b = jax.random.normal(jax.random.key(2), (30,))
u_star = jnp.linalg.solve(jnp.eye(10) + A.T @ A, A.T @ b)  # the saddle point is known
root = {"u": u_star, "v": A @ u_star - b}


def loss(p):
    return p["v"] @ (A @ p["u"] - b) - p["v"] @ p["v"] / 2 + p["u"] @ p["u"] / 2


def step(carry, key):
    params, state = carry
    gradient, unravel = ravel_pytree(jax.grad(loss)(params))
    noisy = unravel(gradient + NOISE * jax.random.normal(key, gradient.shape))
    updates, state = optimizer.update(noisy, state, params)
    return (optax.apply_updates(params, updates), state), None


L = 1 + float(jnp.linalg.norm(A, 2)) ** 2  # descent in u, ascent in v: the identity plus a skew part
ascend = optax.masked(optax.scale(-1.0), {"u": False, "v": True})
optimizer = optax.chain(ascend, dual_anchor(learning_rate=1 / L, horizon=ROUNDS))
params = start = {"u": jnp.zeros(10), "v": jnp.zeros(30)}
(params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(jax.random.key(0), ROUNDS - 1))

print(f"noise of one gradient: {NOISE * 40**0.5:.3f}")
for name, point in (("start", start), (f"after {ROUNDS - 1} steps", params)):
    distance = jnp.linalg.norm(ravel_pytree(point)[0] - ravel_pytree(root)[0])
    gradient = jnp.linalg.norm(ravel_pytree(jax.grad(loss)(point))[0])
    print(f"{name}: distance to the saddle point {distance:.3f}, gradient {gradient:.3f}")
