"""Derivatives of a root or a fixed point by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import gmres

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.result import Result

_gmres: Any = gmres
_MAX_RESIDUAL = 1e-4  # relative, of the linear system behind a gradient; larger ones are errors


def implicit_root(
    operator: Callable[[Any, Any], Any], solve: Callable[[Any], Any], *, tolerance: float = 1e-3
) -> Callable[[Any], Any]:
    r"""The root x of F(x, theta) = 0 as a function of theta that JAX differentiates.

    By the implicit function theorem :math:`dx/d\theta = -(\partial F/\partial x)^{-1}\,\partial F/\partial\theta`, at
    the root, however it was found. Each gradient takes one linear system with the transposed derivative, solved by
    GMRES. An error in x causes one in the gradient. Only in reverse mode: `jax.grad`, `vjp` and `jacrev`, not `jvp` and
    `jacfwd`.

    Parameters
    ----------
    operator : callable
        F(x, theta), differentiable: the true operator, or the mean of many samples with a fixed key.
    solve : callable
        The root for a theta, as a `Result` or as it is: `lambda theta: da.root(sample, x0, args=(theta,), budget=...)`.
        It gets numbers, unless the returned function is called under `jit`: then `solve` must be traceable, which the
        front doors are not.
    tolerance : float
        The largest norm of F(x, theta) at a root; above it an error is raised. Under `jit`, where none can be raised,
        gradients are NaN instead.

    Returns
    -------
    callable, theta -> x; theta and x are arrays or pytrees of them

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from dualanchor.integrations.jax import implicit_root
    >>> root = implicit_root(lambda x, theta: x**3 - theta, lambda theta: jnp.cbrt(theta))
    >>> float(jax.grad(root)(8.0))  # 1/(3 x²)
    0.0833333358168602
    """
    check.function(operator, "implicit_root: operator", "F(x, theta)", 2)
    return _differentiated(operator, solve, tolerance, "implicit_root", "F")


def implicit_fixed_point(
    mapping: Callable[[Any, Any], Any], solve: Callable[[Any], Any], *, tolerance: float = 1e-3
) -> Callable[[Any], Any]:
    """The fixed point x = T(x, theta) as a function of theta that JAX differentiates; see `implicit_root`."""
    check.function(mapping, "implicit_fixed_point: mapping", "T(x, theta)", 2)

    def operator(x: Any, theta: Any) -> Any:
        return jax.tree.map(jnp.subtract, x, mapping(x, theta))

    return _differentiated(operator, solve, tolerance, "implicit_fixed_point", "x - T(x)")


def _differentiated(operator: Any, solve: Any, tolerance: Any, owner: str, formula: str) -> Callable[[Any], Any]:
    """The root as a function of theta; `formula` is what messages call the operator."""
    check.function(solve, f"{owner}: solve", "solve(theta)", 1)
    tolerance = check.number(tolerance, f"{owner}: tolerance", positive=True)

    def plain(theta: Any) -> Any:
        return forward(theta)[0]

    def forward(theta: Any) -> tuple[Any, Any]:
        x = _solution(solve, theta, owner)
        return x, (x, theta, _is_root(operator, x, theta, tolerance, owner))

    def backward(saved: Any, cotangent: Any) -> tuple[Any]:
        x, theta, is_root = saved
        transposed: Any = jax.vjp(lambda x: operator(x, theta), x)[1]
        target, unflatten = ravel_pytree(cotangent)

        def product(w: Any) -> Any:
            return ravel_pytree(transposed(unflatten(w))[0])[0]

        w, _ = _gmres(product, target, tol=_MAX_RESIDUAL / 100, atol=0.0, restart=min(50, target.size))
        residual, scale = jnp.linalg.norm(product(w) - target), jnp.linalg.norm(target)
        is_solved = residual <= _MAX_RESIDUAL * scale
        if not _is_traced(is_solved) and not is_solved:
            rule = f"{owner}: the derivative of {formula} in x must be invertible at the root"
            received = f"a linear system solved to a relative residual of {residual / scale:.3g}"
            raise ArgumentError(
                rule, received, f"Add a small multiple of x to {formula}, or start from an isolated root"
            )
        _, pull_back = jax.vjp(lambda theta: operator(x, theta), theta)
        return pull_back(unflatten(jnp.where(is_root & is_solved, -w, jnp.nan)))

    root: Any = jax.custom_vjp(plain)
    root.defvjp(forward, backward)
    return root


def _solution(solve: Callable[[Any], Any], theta: Any, owner: str) -> Any:
    found = solve(theta)
    if found is None:
        raise ArgumentTypeError(f"{owner}: solve must return the root", "None", "Return a Result, or its x")
    return jax.tree.map(jnp.asarray, found.x if isinstance(found, Result) else found)


def _is_root(operator: Any, x: Any, theta: Any, tolerance: float, owner: str) -> Any:
    """Whether the residual at x is small enough; where it is known and is not, an error is raised."""
    value = operator(x, theta)
    if jax.tree.map(jnp.shape, value) != jax.tree.map(jnp.shape, x):
        rule = f"{owner}: the operator must return arrays like x"
        received = f"shape {jax.tree.map(jnp.shape, value)} for x of shape {jax.tree.map(jnp.shape, x)}"
        raise ArgumentError(rule, received, "Check the order of its arguments (x, theta), and what solve returns")
    residual = jnp.linalg.norm(ravel_pytree(value)[0])
    if not _is_traced(residual) and not residual <= tolerance:
        rule = f"{owner}: the residual at the root must be at most {tolerance:g}, or its derivative means nothing"
        raise ArgumentError(rule, f"a norm of {residual:.3g}", "Solve more accurately, or pass a larger tolerance")
    return residual <= tolerance


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)
