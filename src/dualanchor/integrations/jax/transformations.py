"""Dual-OHM and OHM as optax transformations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Method, State
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.ohm import OHM


class DualAnchorState(NamedTuple):
    """What `dual_anchor` remembers: steps taken, and z, shaped like the parameters."""

    count: Any
    z: Any


class OHMState(NamedTuple):
    """What `ohm` remembers: steps taken, and the parameters at the start."""

    count: Any
    anchor: Any


def dual_anchor(learning_rate: float, horizon: int) -> Any:
    r"""`DualOHM` as an `optax.GradientTransformation`.

    .. math:: z_{k+1} = \frac{(N-k-1)\, z_k - \alpha G_k}{N-k}, \qquad x_{k+1} = x_k - \alpha G_k - z_{k+1}

    The learning rate is part of it, as in `optax.sgd`: put it last in an `optax.chain`. The guarantee is for the
    iterate after horizon - 1 updates. From then on updates are zero, so a loop that is too long ends there, too.

    Parameters
    ----------
    learning_rate : float
        The step :math:`\alpha`, at most 2/L; constant, since the theorem is about constant steps.
    horizon : int
        N: one more than the number of updates.

    Returns
    -------
    optax.GradientTransformation
        Its state is a `DualAnchorState`. Updates have the dtype of the gradients; z has at least single precision,
        because half precision cannot hold a factor such as 0.999.

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
    method = _checked(DualOHM, "dual_anchor", learning_rate, horizon)
    last = method.horizon - 1

    def init(params: Any) -> DualAnchorState:
        return DualAnchorState(no_steps(), jax.tree.map(lambda p: jnp.zeros_like(p, _precise(p)), params))

    def update(updates: Any, state: DualAnchorState, params: Any = None) -> tuple[Any, DualAnchorState]:
        going = state.count < last

        def one(G: Any, z: Any) -> tuple[Any, Any]:
            z = jnp.asarray(z)
            s = _updated(method, state.count, jnp.asarray(G, z.dtype), x=jnp.zeros_like(z), z=z)
            # z is of no use past the horizon; to keep it there would cost XLA a copy of it in every step
            return jnp.where(going, s.x, 0).astype(jnp.result_type(G)), s.z.astype(z.dtype)

        leaves, tree = jax.tree.flatten(updates)
        both = [one(G, z) for G, z in zip(leaves, tree.flatten_up_to(state.z), strict=True)]
        steps, z = (tree.unflatten(pair[i] for pair in both) for i in (0, 1))
        return steps, DualAnchorState(state.count + going, z)

    return optax.GradientTransformation(init, update)


def ohm(learning_rate: float) -> Any:
    r"""`OHM` as an `optax.GradientTransformation`: each step is pulled back towards the start.

    .. math:: x_{k+1} = \frac{1}{k+2} x_0 + \frac{k+1}{k+2} \bigl(x_k - \alpha G_k\bigr)

    The start is what `init` is called with, and `update` needs the present parameters. Put it last in an `optax.chain`.
    Errors of the gradients accumulate: with noise, `dual_anchor` is what you want.

    Parameters
    ----------
    learning_rate : float
        The step :math:`\alpha`, at most 2/L.

    Returns
    -------
    optax.GradientTransformation
        Its state is an `OHMState`. Updates have the dtype of the gradients.
    """
    method = _checked(OHM, "ohm", learning_rate)

    def init(params: Any) -> OHMState:
        return OHMState(no_steps(), jax.tree.map(jnp.array, params))  # a copy: the caller may donate the parameters

    def update(updates: Any, state: OHMState, params: Any = None) -> tuple[Any, OHMState]:
        if params is None:
            raise ArgumentError(
                "ohm: update needs the present parameters, since each step pulls them towards the start",
                "params=None",
                "Call update(gradients, state, params)",
            )

        def one(G: Any, x: Any, anchor: Any) -> Any:
            wide = _precise(x)
            x = jnp.asarray(x, wide)  # NumPy parameters would be changed in place
            s = _updated(method, state.count, jnp.asarray(G, wide), x=x, anchor=jnp.asarray(anchor, wide))
            return (s.x - x).astype(jnp.result_type(G))

        return jax.tree.map(one, updates, params, state.anchor), OHMState(state.count + 1, state.anchor)

    return optax.GradientTransformation(init, update)


def _checked(kind: Any, owner: str, *parameters: Any) -> Any:
    """The method with these parameters; what is wrong with them is said in the words of the transformation."""
    try:
        return kind(*parameters)
    except (ArgumentError, ArgumentTypeError) as error:
        said = (
            part.replace(f"{kind.__name__}:", f"{owner}:").replace("step_size", "learning_rate") for part in error.parts
        )
        raise type(error)(*said) from None


def _updated(method: Method, count: Any, G: Any, **memory: Any) -> State:
    """The method's own update. The step is an integer as wide as JAX has it, so coefficients are as precise."""
    s = State(**memory)
    method.update(count.astype(int), s, G)
    return s


def no_steps() -> Any:
    """The number of steps at the start."""
    return jnp.zeros([], jnp.int32)


def _precise(leaf: Any) -> Any:
    """The leaf's dtype, or single precision if that is wider."""
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)
