"""Dual-OHM and OHM as optax transformations."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Method, State
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.ohm import OHM


class DualAnchorState(NamedTuple):
    """The state of `dual_anchor`: the number of updates, and z, shaped like the parameters."""

    count: Any
    z: Any


class OHMState(NamedTuple):
    """The state of `ohm`: the number of updates, and the parameters at the start."""

    count: Any
    anchor: Any


def dual_anchor(learning_rate: Any, horizon: Any) -> Any:
    r"""`DualOHM` as an `optax.GradientTransformation`.

    The learning rate is part of it, as in `optax.sgd`: put it last in an `optax.chain`. The guarantee is for the
    iterate after horizon - 1 updates; from then on updates are zero. The state is a `DualAnchorState`. Updates have the
    dtype of the gradients; z has at least single precision, because half cannot hold a factor such as 0.999.

    Parameters
    ----------
    learning_rate : float or traced number, the step :math:`\alpha`, at most 2/L
    horizon : int or traced number, one more than the number of updates

    Examples
    --------
    >>> import jax, optax, jax.numpy as jnp
    >>> from dualanchor.integrations.jax import dual_anchor
    >>> x, optimizer = jnp.ones(3), dual_anchor(learning_rate=1.0, horizon=100)
    >>> state = optimizer.init(x)
    >>> for _ in range(99):
    ...     updates, state = optimizer.update(0.5 * x, state)
    ...     x = optax.apply_updates(x, updates)
    >>> bool(jnp.linalg.norm(0.5 * x) <= 2 * 3**0.5 / 100)  # the bound 2D/(αN) of noiseless runs
    True
    """
    if not isinstance(horizon, jax.core.Tracer):
        horizon = check.count(getattr(horizon, "item", lambda: horizon)(), "dual_anchor: horizon")
    method = _with(DualOHM(1.0, 1), step_size=_rate(learning_rate, "dual_anchor"), horizon=horizon)
    last = horizon - 1

    def init(params: Any) -> DualAnchorState:
        return DualAnchorState(jnp.zeros([], jnp.int32), jax.tree.map(lambda p: jnp.zeros_like(p, _precise(p)), params))

    def update(updates: Any, state: DualAnchorState, params: Any = None) -> tuple[Any, DualAnchorState]:
        active = state.count < last

        def update_leaf(G: Any, z: Any) -> tuple[Any, Any]:
            z = jnp.asarray(z)
            s = updated(method, state.count, jnp.asarray(G, z.dtype), x=jnp.zeros_like(z), z=z)
            # z is not used past the horizon; keeping its value there would cost XLA a copy of it in every step
            return jnp.where(active, s.x, 0).astype(jnp.result_type(G)), s.z

        leaves, tree = jax.tree.flatten(updates)
        pairs = [update_leaf(G, z) for G, z in zip(leaves, tree.flatten_up_to(state.z), strict=True)]
        steps, z = (tree.unflatten(pair[i] for pair in pairs) for i in (0, 1))
        return steps, DualAnchorState(state.count + active, z)

    return optax.GradientTransformation(init, update)


def ohm(learning_rate: Any) -> Any:
    r"""`OHM` as an `optax.GradientTransformation`: each step is pulled back towards the start.

    The start is what `init` is called with, and `update` needs the present parameters. Put it last in an `optax.chain`.
    Errors of the gradients accumulate: with noise use `dual_anchor`. The state is an `OHMState`; updates have the dtype
    of the gradients.

    Parameters
    ----------
    learning_rate : float or traced number, the step :math:`\alpha`, at most 2/L
    """
    method = _with(OHM(1.0), step_size=_rate(learning_rate, "ohm"))

    def init(params: Any) -> OHMState:
        return OHMState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.array, params))  # a copy: params may be donated

    def update(updates: Any, state: OHMState, params: Any = None) -> tuple[Any, OHMState]:
        if params is None:
            rule = "ohm: update needs the present parameters, since each step pulls them towards the start"
            raise ArgumentError(rule, "params=None", "Call update(gradients, state, params)")

        def update_leaf(G: Any, x: Any, anchor: Any) -> Any:
            wide = _precise(x)
            x = jnp.asarray(x, wide)  # NumPy parameters would be changed in place
            s = updated(method, state.count, jnp.asarray(G, wide), x=x, anchor=jnp.asarray(anchor, wide))
            return (s.x - x).astype(jnp.result_type(G))

        return jax.tree.map(update_leaf, updates, params, state.anchor), OHMState(state.count + 1, state.anchor)

    return optax.GradientTransformation(init, update)


def updated(method: Method, k: Any, G: Any, **memory: Any) -> State:
    """The state after the method's own update, in the dtypes it had before."""
    s = State(**memory)
    method.update(jnp.asarray(k, int), s, G)  # the widest integers of JAX give the most precise coefficients
    return State(**{name: jnp.asarray(value, memory[name].dtype) for name, value in vars(s).items()})


def _rate(value: Any, owner: str) -> Any:
    """A learning rate, checked to be positive unless it is traced: then its value is not known yet."""
    if isinstance(value, jax.core.Tracer):
        return value
    remedy = "Use a float; a schedule goes through optax.inject_hyperparams" if callable(value) else ""
    return check.number(value, f"{owner}: learning_rate", positive=True, remedy=remedy)


def _with(method: Method, **values: Any) -> Method:
    """The method with these values, without its own checks, which would refuse traced ones."""
    for name, value in values.items():
        object.__setattr__(method, name, value)
    return method


def _precise(leaf: Any) -> Any:
    """The dtype of a leaf, at least single precision."""
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)
