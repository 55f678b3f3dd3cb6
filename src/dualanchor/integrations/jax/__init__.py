"""JAX: Dual-OHM and OHM as optax transformations, compiled runs, derivatives of roots and fixed points.

The arithmetic is that of the methods: `DualOHM.update` and `OHM.update`, called with JAX arrays and a traced step.
"""

from dualanchor.core.errors import missing_extra

try:
    import jax as _jax  # noqa: F401
    import optax as _optax  # noqa: F401
except ImportError as error:
    raise missing_extra(error.name or "jax", "jax", "dualanchor.integrations.jax") from None

from dualanchor.integrations.jax.implicit import implicit_fixed_point, implicit_root
from dualanchor.integrations.jax.jit import solve_jit
from dualanchor.integrations.jax.transformations import DualAnchorState, OHMState, dual_anchor, ohm
from dualanchor.oracles.jax_sampler import JaxSampler

__all__ = [
    "DualAnchorState",
    "JaxSampler",
    "OHMState",
    "dual_anchor",
    "implicit_fixed_point",
    "implicit_root",
    "ohm",
    "solve_jit",
]
