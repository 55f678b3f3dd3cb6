"""SciPy's `root` for functions with noise: the same call and the same kind of result, with a certificate.

Examples
--------
>>> import numpy as np, dualanchor as da
>>> rng = np.random.default_rng(0)
>>> result = da.scipy.root(lambda x: x - 1 + rng.normal(size=2), np.zeros(2))
>>> bool(result.success)
True
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.types import Array
from dualanchor.front import root as sampled_root
from dualanchor.oracles import each

__all__ = ["root"]

DEFAULT_MAXFEV = 10_000


def root(
    fun: Callable[..., Any], x0: Any, args: Sequence[Any] = (), *, tol: float | None = None,
    callback: Callable[..., Any] | None = None, options: Mapping[str, Any] | None = None, **keywords: Any,
) -> OptimizeResult:  # fmt: skip
    """Find a root of a function with noise: `dualanchor.root` behind the call of `scipy.optimize.root`.

    Parameters
    ----------
    fun : callable
        `fun(x, *args)` returns one noisy value, of the shape of x; independent noise in each call. If it has a
        parameter `rng`, it is called with `rng=` a Generator, and results then depend on `seed` alone.
    x0 : array, the start
    args : tuple, passed on to `fun`
    tol : float, optional; the norm of the mean of `fun` to reach, that is `eps`; without it, as small as maxfev allows
    callback : callable, as in `dualanchor.root`
    options : dict, optional; `maxfev`, how often `fun` may be called, 10,000 by default
    **keywords : those of `dualanchor.root`: L, M, sigma, D, bounds, seed, checkpoint, ...

    Returns
    -------
    OptimizeResult
        `x`, `success`, `status`, `message`, `nfev` and `nit` as in SciPy. `fun` is the estimated norm of the mean at x,
        not one noisy value; `upper` bounds it with a confidence of 95 %. `result` is the whole `dualanchor.Result`.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def fun(x, rng):
    ...     return np.array([x[0] + x[1] - 3, x[1] - x[0] - 1]) + 0.1 * rng.normal(size=2)
    >>> solution = da.scipy.root(fun, [0.0, 0.0], options={"maxfev": 4000})
    >>> bool(solution.success), bool(np.abs(solution.x - [1, 2]).max() < 0.05)
    (True, True)
    """
    check.function(fun, "scipy.root: fun", "fun(x, *args)")
    others = dict(options or {})
    maxfev = others.pop("maxfev", DEFAULT_MAXFEV)
    if others:
        remedy = "Pass constants, bounds and seeds as keywords, as in dualanchor.root"
        raise ArgumentError("scipy.root: options may have maxfev alone", ", ".join(map(str, others)), remedy)
    jac = keywords.pop("jac", None)
    if jac is not None and jac is not False:
        rule = "scipy.root: jac is not supported, since steps are taken along noisy values of fun alone"
        raise ArgumentTypeError(rule, "a jac", "Leave it out; if L or M of fun is known, pass it as a keyword")
    takes_rng = "rng" in check.signature_of(fun).parameters

    def sample(x: Array, rng: np.random.Generator) -> Any:
        return fun(x, *args, rng=rng) if takes_rng else fun(x, *args)

    limit = {"budget": maxfev} if tol is None else {"eps": tol, "max_samples": maxfev}
    result = sampled_root(each(sample), x0, callback=callback, **limit, **keywords)
    upper = None if result.certificate is None else result.certificate.upper
    solution = OptimizeResult()  # a dict whose keys are attributes
    solution.update({name: result[name] for name in ("x", "success", "status", "message", "nfev", "nit", "fun")})
    solution.update(upper=upper, result=result)
    return solution
